"""What all formats share: the types of requests and results, and columns by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from arbormax.data.columns import InputColumns
from arbormax.data.tables._source import Column, TableSource
from arbormax.errors import OptionError, TableError, did_you_mean

OnBadRows = Literal["error", "skip"]


@dataclass(frozen=True, eq=False)
class RowBatch:
    """Some rows of a table, column by column; `batch["text"]` is one column."""

    lines: list[int]  # the line in which each row starts, from 1; in Parquet and Excel the row, from 1
    columns: dict[Column | InputColumns, list[Any]]  # the requested columns: strings, or tuples of names for a path
    names: tuple[str, ...]  # all columns in the order of the file; "0", "1", … without a header, () for JSON lines
    rows: list[dict[str, Any]] = field(default_factory=list)  # whole rows with the types of the file, if requested
    problems: list[str] = field(default_factory=list)  # the bad rows, with on_bad_rows="skip"
    fix: dict[str, object] = field(default_factory=dict)  # options that may make the bad rows readable

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, column: Column | InputColumns) -> list[Any]:
        return self.columns[column]


@dataclass(frozen=True, eq=False)
class Table:
    """The texts of a file and their labels as written in the file."""

    texts: list[str]
    labels: list[str | tuple[str, ...]] | None  # None if no label column was requested
    lines: list[int]  # the line in which each row starts, from 1
    path: str  # the name of the file in messages
    skipped: list[str] = field(default_factory=list)  # the bad rows that on_bad_rows="skip" left out
    unit: str = "line"  # what `lines` counts: "line", or "row" in Parquet and Excel

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Plan:
    """A validated request to read a source."""

    source: TableSource
    columns: tuple[Column, ...]
    required: frozenset[Column]
    paths: frozenset[Column]
    records: bool
    texts: InputColumns | None = None  # several columns that make one text
    span: tuple[int, int] | None = None  # rows from 0, the second not included; Parquet only
    arguments: Mapping[Column, str] = field(default_factory=dict)  # the arguments that select the columns

    @property
    def name(self) -> str:
        return self.source.name


class Flaw(NamedTuple):
    """What is wrong with a row, and the options that may make it readable."""

    message: str
    fix: Mapping[str, object] = {}


# The line of a row, its values in the order of the plan's columns or its flaw, and the whole row if requested.
Event = tuple[int, list[Any] | Flaw, dict[str, Any] | None]


def find_columns(names: tuple[str, ...], plan: Plan) -> list[int]:
    """The position of each column of the plan; one error lists all that are missing."""
    places: list[int] = []
    problems: dict[Column | None, str] = {}
    fix: dict[str, object] = {}
    has_similar, is_parquet = False, plan.source.format == "parquet"
    for given in plan.columns:
        column, header = given, plan.source.dialect.header
        if isinstance(column, str) and column.isascii() and column.isdigit() and not (header and column in names):
            column = int(column)
        if column == "text" and len(names) == len(plan.columns) == 1:
            column = 0  # a table with one column has its texts there
        if isinstance(column, str) and not header:
            raise OptionError(
                f"columns of a table without a header are positions from 0, found {column!r}",
                argument=plan.arguments.get(given),
            )
        if isinstance(column, str):
            found = [place for place, name in enumerate(names) if name == column]
        else:
            found = [column] if 0 <= column < len(names) else []
        times = names.count(names[found[0]]) if found else 0
        if not found and isinstance(column, str):
            problems[given] = f"no column {describe_missing(column, names)}"
            fix |= _header_fix(column, names, plan)
            has_similar |= bool(did_you_mean(column, names))
        elif not found:
            problems[given] = f"no column {column}: positions range from 0 to {len(names) - 1}"
        elif len(found) > 1 or (times > 1 and is_parquet):  # its rows are read by name
            advice = "" if is_parquet else "; select it by position"
            problems[given] = f"the column {names[found[0]]!r} exists {times} times{advice}"
        places += found[:1]
    if plan.records and (repeated := next((name for name in names if names.count(name) > 1), None)) is not None:
        problems[None] = f"the column {repeated!r} exists {names.count(repeated)} times; names must be unique"
    if problems:
        (wrong, listed), *more = problems.items()
        listed = f"{len(problems)} columns cannot be read" if more else listed
        argument = plan.arguments.get(wrong) if wrong is not None and not more else None
        if has_similar:  # then the first row is a header
            fix.pop("header", None)
        together = [name for name in fix if name in column_fix(name)] if more else ()
        raise TableError(f"{plan.name}: {listed}", problems.values(), argument=argument, fix=fix, together=together)
    return places


def describe_missing(column: Column, found: Sequence[str]) -> str:
    """A missing column with the nearest name and those that exist."""
    names = [name if len(name) <= 60 else f"{name[:59]}…" for name in found[:8]]
    listed = ", ".join(map(repr, names)) + (", …" if len(found) > 8 else "")
    return f"{column!r}{did_you_mean(str(column), found)} (found {listed or 'none'})"


def column_fix(column: Column) -> dict[str, object]:
    """The option that selects another column."""
    return {str(column): "COLUMN"} if column in ("text", "label") else {}


def _header_fix(column: str, names: tuple[str, ...], plan: Plan) -> dict[str, object]:
    """The options that may make a column exist."""
    if plan.source.format == "parquet":
        return column_fix(column)
    mark = next((mark for mark in ",;\t|" if mark != plan.source.dialect.delimiter and mark in names[0]), None)
    if len(names) == 1 and mark:
        return {"delimiter": mark}
    return {**column_fix(column), "header": False}
