"""CSV and TSV: rows that may be broken, each told with the line in which it starts."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain

from arbormax.data.tables._common import Event, Plan, places_of
from arbormax.data.tables._lines import Lines, TooLongError
from arbormax.errors import TableError


def read_csv(lines: Lines, plan: Plan) -> tuple[tuple[str, ...], Iterator[Event]]:
    csv.field_size_limit(max(csv.field_size_limit(), plan.longest))
    rows = _csv_rows(lines, plan)
    first = next(rows, None)
    if first is None:
        if plan.header:
            raise TableError(f"{plan.name}: the file is empty; its first line names the columns")
        return (), iter(())
    line, cells = first
    if isinstance(cells, str):
        if plan.header:
            raise TableError(f"{plan.name}: line {line}: {cells}")
        names: tuple[str, ...] = ()
    else:
        names = tuple(cells) if plan.header else tuple(map(str, range(len(cells))))
    return names, _csv_events(rows if plan.header else chain([first], rows), names, plan)


def _csv_events(rows: Iterator[tuple[int, list[str] | str]], names: tuple[str, ...], plan: Plan) -> Iterator[Event]:
    places = places_of(names, plan) if names else []
    for line, cells in rows:
        if isinstance(cells, str):
            yield line, cells, None
            continue
        if not names:  # there is no header, and the first row could not be read
            names = tuple(map(str, range(len(cells))))
            places = places_of(names, plan)
        if len(cells) != len(names):
            cure = f"; a text that holds {plan.delimiter!r} needs quotes" if len(cells) > len(names) else ""
            than = "the header" if plan.header else "the first row"
            cells_found = f"{len(cells)} cell{'s' * (len(cells) != 1)}"
            yield line, f"{cells_found}, but {than} has {len(names)}{cure}", None
            continue
        yield line, [cells[at] for at in places], dict(zip(names, cells, strict=True)) if plan.records else None


def _csv_rows(lines: Lines, plan: Plan) -> Iterator[tuple[int, list[str] | str]]:
    """Every row that is not blank with its first line, as cells or as what is wrong with it."""
    quoted = plan.quoting is not False
    reader = csv.reader(
        lines, delimiter=plan.delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, strict=True
    )
    watch = plan.delimiter == "\t" and plan.quoting is None
    plain = "; if quotes are plain characters in this file, pass quoting=False"
    tabs = 0  # between the cells of one row
    while True:
        number = lines.start_row()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except TooLongError:
            long = f"longer than {plan.longest:,} characters"
            yield number, f"{long}; is a quote that opens here never closed?" if len(lines.row) > 1 else long
            lines.give_back()
            continue
        except csv.Error as error:
            wrong = str(error)
            if "unexpected end of data" in wrong:
                wrong = f"a quote opens here and is never closed{plain}"
            elif "expected after" in wrong:
                until = f", closed in line {lines.number}" if len(lines.row) > 1 else ""
                wrong = f"text goes on after a quoted cell{until}{plain}, else write a quote inside a cell twice"
            # a flaw further down is told when its own line is read again
            yield number, wrong if len(lines.row) > 1 else lines.flaw or wrong
            lines.give_back()
            continue
        if not cells:
            continue
        if lines.flaw:
            yield number, lines.flaw
        elif watch and tabs and len(lines.row) > 1 and all(line.count("\t") == tabs for line in lines.row):
            swallowed = f"a quote opens here and closes in line {lines.number}, around what look like whole rows"
            yield number, f"{swallowed}{plain}, else quoting=True"
            lines.give_back()
        else:
            tabs = tabs or len(cells) - 1
            yield number, cells
