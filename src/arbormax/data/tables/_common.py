"""What all formats share: the shapes of what is asked for and given back, formats by suffix, columns by name."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, TypedDict

from arbormax.errors import OptionError, TableError, did_you_mean

Column = str | int  # a name, or a position from 0
Source = str | os.PathLike[str] | IO[Any]
OnBadRows = Literal["error", "skip"]

_FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


@dataclass(frozen=True, eq=False)
class RowBatch:
    """Some rows of a table, column by column; `batch["text"]` is one column."""

    lines: list[int]  # where each row starts: its line from 1, in Parquet its row from 1
    columns: dict[Column, list[Any]]  # the columns asked for: strings, or tuples of names where a path was allowed
    names: tuple[str, ...]  # every column of the file in its order; "0", "1", … without a header, empty for JSON lines
    rows: list[dict[str, Any]] = field(default_factory=list)  # whole rows with the file's own types, if asked for
    problems: list[str] = field(default_factory=list)  # the rows left out, with on_bad_rows="skip"

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, column: Column) -> list[Any]:
        return self.columns[column]


@dataclass(frozen=True, eq=False)
class Table:
    """The texts of a file and their labels as they are written there."""

    texts: list[str]
    labels: list[str | tuple[str, ...]] | None  # None when no label column was asked for
    lines: list[int]  # where each row starts, from 1
    path: str  # as errors call the file
    skipped: list[str] = field(default_factory=list)  # the rows left out by on_bad_rows="skip", one string each
    unit: str = "line"  # what `lines` counts: "line", or "row" in Parquet

    def __len__(self) -> int:
        return len(self.texts)


class TableOptions(TypedDict, total=False):
    """How a file is written, where its suffix does not say it; `iter_rows` explains each."""

    format: str | None
    delimiter: str | None
    header: bool
    quoting: bool | None
    encoding: str


@dataclass(frozen=True)
class Plan:
    """What is asked of a source, checked."""

    source: Source
    name: str
    format: str
    columns: tuple[Column, ...]
    required: frozenset[Column]
    paths: frozenset[Column]
    records: bool
    delimiter: str
    header: bool
    quoting: bool | None
    encoding: str
    longest: int  # characters of one row
    span: tuple[int, int] | None = None  # rows from 0, the second not included; Parquet only


# The line of a row, then its values in the order of the plan's columns or what is wrong with it, then the whole row.
Event = tuple[int, list[Any] | str, dict[str, Any] | None]


def unit_of(format: str) -> str:
    """What errors count in a file of this format."""
    return "row" if format == "parquet" else "line"


def format_of(source: Source, format: str | None) -> tuple[str, str]:
    """What errors call the source, and its format; a file that cannot be one is refused here."""
    formats = tuple(dict.fromkeys(_FORMATS.values()))
    if format is not None and format not in formats:
        raise OptionError(
            f"there is no format {format!r}{did_you_mean(str(format), formats)} (formats: {', '.join(formats)})"
        )
    if not isinstance(source, (str, os.PathLike)):
        if not hasattr(source, "read"):
            raise OptionError(f"expected a path or an open file, found {type(source).__name__}")
        name = str(getattr(source, "name", None) or f"<{type(source).__name__}>")
    elif source == "-":
        name = "<stdin>"
    else:
        file = Path(source)
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, "a table is one file, and this is a folder", str(file))
        if not file.exists():
            beside = {other.name for other in file.parent.iterdir()} if file.parent.is_dir() else set()
            raise FileNotFoundError(
                errno.ENOENT, f"no such file{did_you_mean(file.name, sorted(beside - {file.name}))}", str(file)
            )
        name = file.name
        suffixes = [suffix.lower() for suffix in file.suffixes]
        kind = suffixes[-2:-1] if suffixes[-1:] == [".gz"] else suffixes[-1:]
        guessed = _FORMATS.get("".join(kind))
        if guessed == "parquet" and suffixes[-1] == ".gz":
            raise TableError(f"{name}: Parquet is compressed inside; unpack it with gunzip")
        if format is None and guessed is None:
            raise TableError(
                f"{name}: the suffix does not tell the format{did_you_mean(''.join(kind), _FORMATS)} (known are "
                f"{', '.join(_FORMATS)}); rename the file or pass format=, one of {', '.join(formats)}"
            )
        return name, format or str(guessed)
    if format is None:
        raise OptionError(f"{name} has no suffix that tells its format: pass format=, one of {', '.join(formats)}")
    return name, format


def places_of(names: tuple[str, ...], plan: Plan) -> list[int]:
    """The position of each column of the plan, or one error with all those that are not there."""
    places, wrong = [], []
    for column in plan.columns:
        if isinstance(column, str) and not plan.header:
            if not (column.isascii() and column.isdigit()):
                raise OptionError(f"without a header columns have positions from 0, not names; found {column!r}")
            column = int(column)
        if isinstance(column, int):
            if not 0 <= column < len(names):
                wrong.append(f"there is no column {column}: positions run from 0 to {len(names) - 1}")
            elif plan.format == "parquet" and names.count(names[column]) > 1:
                wrong.append(f"the column {names[column]!r} stands {names.count(names[column])} times")
            places.append(column)
        elif names.count(column) != 1:
            twice = f"the column {column!r} stands {names.count(column)} times; name them apart, or give its position"
            wrong.append(
                twice if column in names else f"there is no column {column_among(column, names)}{_other(names, plan)}"
            )
        else:
            places.append(names.index(column))
    if plan.records and len(set(names)) < len(names):
        again = next(name for name in names if names.count(name) > 1)
        wrong.append(f"the column {again!r} stands {names.count(again)} times; a row needs names of its own")
    if len(wrong) == 1:
        raise TableError(f"{plan.name}: {wrong[0]}", wrong)
    if wrong:
        raise TableError(f"{plan.name}: {len(wrong)} columns cannot be had:", wrong)
    return places


def column_among(column: Column, found: Sequence[str]) -> str:
    """A column that is not there, as errors name it: with those that are, and the one that may have been meant."""
    listed = ", ".join(repr(_short(name)) for name in found[:8]) + (", …" if len(found) > 8 else "")
    return f"{column!r}{did_you_mean(str(column), found)} (found {listed or 'none'})"


def _other(names: tuple[str, ...], plan: Plan) -> str:
    """What else may be the matter when a header lacks a column."""
    if plan.format == "parquet":
        return ""
    mark = next((mark for mark in ",;\t|" if mark != plan.delimiter and mark in names[0]), None)
    if len(names) == 1 and mark:
        return f"; if the columns are separated by {mark!r}, pass delimiter={mark!r}"
    return "; if the first line is no header, pass header=False and positions"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
