"""Sheets of Excel workbooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

from arbormax._excel import cell_text, open_sheet
from arbormax.data.tables._common import Event, Flaw, Plan, find_columns
from arbormax.errors import TableError


@contextmanager
def open_excel(plan: Plan) -> Iterator[tuple[tuple[str, ...], Iterator[Event]]]:
    """The names of the columns, and the rows."""
    with open_sheet(plan.source.source, plan.source.sheet, plan.name) as (_, _, cells):
        rows = ((number, row) for number, row in enumerate(cells, 1) if row)
        first = next(rows, None)
        if first is None:
            raise TableError(f"{plan.name}: the sheet {plan.source.sheet!r} is empty")
        _, row = first
        if plan.source.dialect.header:
            names = tuple(cell_text(cell).strip() or f"column {place}" for place, cell in enumerate(row, 1))
            yield names, _read_rows(rows, names, plan)
            return
        names = tuple(map(str, range(len(row))))
        yield names, _read_rows(chain([first], rows), names, plan)


def _read_rows(rows: Iterator[tuple[int, list[Any]]], names: tuple[str, ...], plan: Plan) -> Iterator[Event]:
    places = find_columns(names, plan)
    for number, row in rows:
        if len(row) > len(names):
            yield number, Flaw(f"{len(row)} cells, but the first row has {len(names)}"), None
            continue
        whole = [*row, *[None] * (len(names) - len(row))]
        values = [cell_text(whole[place]) for place in places]
        yield number, values, dict(zip(names, whole, strict=True)) if plan.records else None
