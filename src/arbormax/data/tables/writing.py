"""Rows out: Arrow tables of one schema, and files that are whole under their final name or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from arbormax.errors import InputError, MissingDependencyError, OptionError

__all__ = ["GROUP", "arrow", "aside", "schema_of", "table_of"]

GROUP = 4096  # rows by which the schema of a Parquet file is decided


def arrow() -> tuple[Any, Any]:
    """The packages pyarrow and pyarrow.parquet."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise MissingDependencyError("writing Parquet", "pyarrow", "text") from None


def schema_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The Arrow schema of a file that begins with these rows."""
    pa, _ = arrow()
    return pa.schema([_writable(pa, field) for field in table_of(rows).schema])


def table_of(rows: Sequence[Mapping[str, Any]], schema: Any = None) -> Any:
    """The rows as an Arrow table, or one error if they do not fit the schema."""
    pa, _ = arrow()
    try:
        return pa.Table.from_pylist(rows, schema=schema)
    except (pa.ArrowException, OverflowError) as error:
        told = str(error).splitlines()[0]
        raise InputError(f"the rows do not fit one Parquet table ({told}); write .jsonl, or leave out --keep") from None


def _writable(pa: Any, field: Any) -> Any:
    """A column, or a list in it, without any value in the first rows is taken to be text, and probabilities numbers."""
    empty = pa.float64() if field.name.endswith("probabilities") else pa.string()
    if pa.types.is_null(field.type):
        return field.with_type(pa.string())
    is_empty_list = pa.types.is_list(field.type) and pa.types.is_null(field.type.value_type)
    return field.with_type(pa.list_(empty)) if is_empty_list else field


@contextmanager
def aside(path: Path, binary: bool) -> Iterator[IO[Any]]:
    """A file beside this one that takes its name when all went well, and is removed when not."""
    if path.is_dir():
        raise OptionError(f"{path} is a folder: give the name of a file")
    if not path.parent.is_dir():
        raise OptionError(f"{path}: there is no folder {path.parent} to write it in")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") if binary else part.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
