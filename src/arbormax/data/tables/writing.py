"""Writing rows to CSV, TSV, JSON lines, Parquet and Excel."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from arbormax._dialect import Dialect
from arbormax._excel import open_workbook
from arbormax._files import atomic_write
from arbormax.data.tables._parquet import import_arrow
from arbormax.data.tables._source import DELIMITERS, SUFFIXES, check_format
from arbormax.errors import InputError, OptionError, did_you_mean
from arbormax.taxonomy.labels import join_path

__all__ = ["import_arrow", "open_writer", "resolve_format"]

_NAMES = {"parquet": "Parquet", "xlsx": "Excel"}  # formats that need a file
ROW_GROUP = 4096  # rows; the first group determines the schema of a Parquet file
Row = Mapping[str, Any]
Write = Callable[[Row], None]


def resolve_format(out: Path | None, output_format: str | None = None) -> str:
    """The output format, from its name or the suffix of the file; JSON lines for the standard output.

    >>> resolve_format(Path("predictions.tsv"))
    'tsv'
    """
    check_format(output_format, "output_format")
    if output_format in _NAMES and out is None:
        message = f"{_NAMES[output_format]} needs a file, not the standard output"
        raise OptionError(message, argument="output_format", fix={"out": f"FILE.{output_format}"})
    if output_format is not None or out is None:
        return output_format or "jsonl"
    if out.suffix.lower() not in SUFFIXES:
        hint = did_you_mean(out.suffix, SUFFIXES)
        raise OptionError(
            f"{out}: unknown suffix{hint} (available: {', '.join(SUFFIXES)})",
            fix={"output_format": "jsonl"},
        )
    return SUFFIXES[out.suffix.lower()]


@contextmanager
def open_writer(
    out: Path | None,
    output_format: str | None = None,
    dialect: Dialect | None = None,
    separator: str = " > ",
    widths: Mapping[str, int] | None = None,
) -> Iterator[Write]:
    """A function that writes one row. Except in JSON lines, all rows need the fields of the first.

    The file appears under its name when the block ends without an error. Without `out`, rows go to the standard output.
    CSV and TSV are written in this `dialect`, and paths in a cell with the `separator` between their names. `widths` is
    the number of parts of fields such as `top`, of which a row may have fewer.
    """
    chosen = resolve_format(out, output_format)
    with ExitStack() as stack:
        stream: IO[Any] = sys.stdout
        if out is not None:
            stream = stack.enter_context(atomic_write(out, text=chosen == "jsonl"))
        if chosen == "jsonl":
            yield lambda row: print(json.dumps(row, ensure_ascii=False, default=str), file=stream)
        elif chosen == "parquet":
            yield stack.enter_context(_parquet_writer(stream))
        elif chosen == "xlsx":
            yield _cell_writer(stack.enter_context(open_workbook(stream, "predictions")), separator, widths or {})
        else:
            # the name of a .tsv file says which delimiter it has
            own = Dialect(delimiter=DELIMITERS[chosen]) if dialect is None else dialect
            how = own.for_output("\t" if chosen == "tsv" else None)
            if out is not None:
                stream = io.TextIOWrapper(stream, how.encoding, newline="")
                stack.callback(stream.detach)
                stack.callback(stream.flush)
            writer = csv.writer(stream, delimiter=how.delimiter, lineterminator=how.newline)
            yield _cell_writer(writer.writerow, separator, widths or {})


def _cell_writer(write_cells: Callable[[Sequence[Any]], Any], separator: str, widths: Mapping[str, int]) -> Write:
    """A function that writes a row as cells, after a header."""
    header: list[str] = []

    def write(row: Row) -> None:
        cells = _to_cells(row, separator, widths)
        if not header:
            header.extend(cells)
            write_cells(header)
        elif header != list(cells):
            raise InputError(
                f"a row has the columns {', '.join(cells)}, but the first row has {', '.join(header)}; "
                "write JSON lines instead"
            )
        write_cells(list(cells.values()))

    return write


def _to_cells(row: Row, separator: str, widths: Mapping[str, int]) -> dict[str, Any]:
    """The row as cells: paths, sets and numbers joined, and a column for each part of a nested value."""
    cells: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            missing = widths.get(name.removeprefix("predicted_"), 0) - len(value)
            parts = [*value, *[dict.fromkeys(value[0])] * missing]
            for place, alternative in enumerate(parts, start=1):
                cells |= {f"{name}{place}_{part}": cell for part, cell in alternative.items()}
        elif isinstance(value, list):
            is_numbers = bool(value) and all(isinstance(part, float) for part in value)
            parts = list(map(str, value))
            if is_numbers or name.endswith("set"):
                cells[name] = (";" if is_numbers else "; ").join(parts)
            else:
                cells[name] = join_names(parts, separator)
        elif isinstance(value, dict) and value and all(isinstance(part, list) for part in value.values()):
            cells |= _to_cells({f"{name}_{part}": numbers for part, numbers in value.items()}, separator, widths)
        elif isinstance(value, dict):
            cells[name] = json.dumps(value, ensure_ascii=False)
        else:
            cells[name] = value
    return cells


def join_names(path: Sequence[str], separator: str) -> str:
    """A path as one cell; with "/", a "/" inside a name is escaped.

    >>> join_names(["computers", "TCP/IP"], "/"), join_names(["a", "b"], " > ")
    ('computers/TCP\\\\/IP', 'a > b')
    """
    return join_path(path) if separator == "/" else separator.join(path)


@contextmanager
def _parquet_writer(stream: IO[bytes]) -> Iterator[Write]:
    pa, pq = import_arrow()
    rows: list[Row] = []
    opened: list[Any] = []

    def to_table(schema: Any = None) -> Any:
        try:
            return pa.Table.from_pylist(rows, schema=schema)
        except (pa.ArrowException, OverflowError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"the rows do not fit one Parquet table ({reason}); write JSON lines instead") from None

    def flush() -> None:
        if not opened:
            schema = pa.schema([_default_type(pa, field) for field in to_table().schema])
            opened.append(pq.ParquetWriter(stream, schema))
        opened[0].write_table(to_table(opened[0].schema))
        rows.clear()

    def write(row: Row) -> None:
        rows.append(row)
        if len(rows) == ROW_GROUP:
            flush()

    try:
        yield write
        if rows or not opened:
            flush()
    finally:
        for writer in opened:
            writer.close()


def _default_type(pa: Any, field: Any, inside: str = "") -> Any:
    """A column or list without any value in the first rows is text, or numbers if it is of a prediction."""
    if pa.types.is_struct(field.type):
        return field.with_type(pa.struct([_default_type(pa, part, field.name) for part in field.type]))
    if pa.types.is_null(field.type):
        return field.with_type(pa.string())
    if pa.types.is_list(field.type) and pa.types.is_null(field.type.value_type):
        is_numbers = field.name.endswith("probabilities") or inside.endswith("uncertainty")
        return field.with_type(pa.list_(pa.float64() if is_numbers else pa.string()))
    return field
