"""CSV and TSV. Broken rows are reported with the line in which they start."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain

from arbormax._dialect import MAX_CELL, is_blank
from arbormax.data.tables._common import Event, Flaw, Plan, find_columns
from arbormax.data.tables._lines import Lines
from arbormax.errors import TableError

_Row = tuple[int, list[str] | Flaw]  # the first line of a row, and its cells or its flaw
_NO_QUOTING: dict[str, object] = {"quoting": False}


def read_csv(lines: Lines, plan: Plan) -> tuple[tuple[str, ...], Iterator[Event]]:
    """The names of the columns, and the rows."""
    csv.field_size_limit(MAX_CELL)
    rows, header = _read_rows(lines, plan), plan.source.dialect.header
    first = next(rows, None)
    if first is None:
        if header:
            raise TableError(f"{plan.name}: the file is empty; expected column names in the first line")
        return (), iter(())
    line, cells = first
    names: tuple[str, ...] = ()
    if not isinstance(cells, Flaw):
        names = tuple(cells) if header else _positions(cells)
    elif plan.source.dialect.header:
        raise TableError(f"{plan.name}: line {line}: {cells.message}", fix=cells.fix)
    return names, _select_columns(rows if header else chain([first], rows), names, plan)


def _positions(cells: list[str]) -> tuple[str, ...]:
    return tuple(map(str, range(len(cells))))


def _select_columns(rows: Iterator[_Row], names: tuple[str, ...], plan: Plan) -> Iterator[Event]:
    places = find_columns(names, plan) if names else []
    for line, cells in rows:
        if isinstance(cells, Flaw):
            yield line, cells, None
            continue
        if not names:  # the first row of a file without a header was not readable
            names = _positions(cells)
            places = find_columns(names, plan)
        if len(cells) != len(names):
            advice = (
                f"; a text that contains {plan.source.dialect.delimiter!r} needs quotes"
                if len(cells) > len(names)
                else ""
            )
            expected = f"{'the header' if plan.source.dialect.header else 'the first row'} has {len(names)}"
            yield line, Flaw(f"{len(cells)} cell{'s' * (len(cells) != 1)}, but {expected}{advice}"), None
            continue
        yield line, [cells[at] for at in places], dict(zip(names, cells, strict=True)) if plan.records else None


def _read_rows(lines: Lines, plan: Plan) -> Iterator[_Row]:
    """Every row that is not blank, with its first line: its cells or its flaw."""
    reader = csv.reader(
        lines,
        delimiter=plan.source.dialect.delimiter,
        quoting=csv.QUOTE_MINIMAL if plan.source.dialect.quoting else csv.QUOTE_NONE,
        strict=True,
    )
    suspects_quotes = plan.source.suspects_quotes
    tabs = 0  # between the cells of one row
    while True:
        number = lines.start_row()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            flaw = _quote_flaw(str(error), lines)
            # a flaw in a later line is reported when that line is read again
            yield number, flaw if len(lines.row) > 1 else lines.flaw or flaw
            lines.reread_row()
            continue
        if is_blank(cells):
            continue
        if lines.flaw:
            yield number, lines.flaw
        elif suspects_quotes and tabs and len(lines.row) > 1 and all(line.count("\t") == tabs for line in lines.row):
            message = f"a quote opens here and closes in line {lines.number}, around what look like whole rows"
            yield number, Flaw(message, _NO_QUOTING)
            lines.reread_row()
        else:
            tabs = tabs or len(cells) - 1
            yield number, cells


def _quote_flaw(message: str, lines: Lines) -> Flaw:
    """The cause of an error of the csv module."""
    if "unexpected end of data" in message:
        return Flaw("a quote opens here and is never closed", _NO_QUOTING)
    if "expected after" in message:
        until = f", closed in line {lines.number}" if len(lines.row) > 1 else ""
        return Flaw(f"text after a quoted cell{until}; write a quote inside a cell twice", _NO_QUOTING)
    if "field limit" in message:
        return Flaw(f"a cell is longer than {MAX_CELL:,} characters; is a quote never closed?", _NO_QUOTING)
    return Flaw(message)
