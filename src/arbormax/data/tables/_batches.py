"""Rows of any format collected into batches, with values as text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from arbormax.data.tables._common import Event, Flaw, Plan, RowBatch, row_unit
from arbormax.data.tables._csv import read_csv
from arbormax.data.tables._json import read_json
from arbormax.data.tables._lines import open_lines
from arbormax.data.tables._parquet import open_parquet


def read_batches(plan: Plan, size: int) -> Iterator[RowBatch]:
    """Batches of this size; one even for a file without rows."""
    open_source = open_parquet if plan.format == "parquet" else _open_text
    with open_source(plan) as (names, events):
        batch = _new_batch(plan, names)
        is_first, unit = True, row_unit(plan.format)
        for line, values, row in events:
            flaw = values if isinstance(values, Flaw) else _add_row(plan, batch, values)
            if flaw:
                batch.problems.append(f"{unit} {line}: {flaw.message}")
                batch.fix.update(flaw.fix)
            else:
                batch.lines.append(line)
                if row is not None:
                    batch.rows.append(row)
            if len(batch.lines) + len(batch.problems) == size:
                yield batch
                batch, is_first = _new_batch(plan, names), False
        if batch.lines or batch.problems or is_first:
            yield batch


@contextmanager
def _open_text(plan: Plan) -> Iterator[tuple[tuple[str, ...], Iterator[Event]]]:
    with open_lines(plan) as lines:
        yield ((), read_json(lines, plan)) if plan.format == "jsonl" else read_csv(lines, plan)


def _new_batch(plan: Plan, names: tuple[str, ...]) -> RowBatch:
    return RowBatch([], {column: [] for column in plan.columns}, names)


def _add_row(plan: Plan, batch: RowBatch, values: list[Any]) -> Flaw | None:
    """Add the values of a row to the batch as text, or return what is wrong with them."""
    texts: list[str | tuple[str, ...]] = []
    problems = []
    for column, value in zip(plan.columns, values, strict=True):
        text = value if type(value) is str else _to_text(value, column in plan.paths)
        if isinstance(text, Flaw):
            problems.append(f"{column!r} is {text.message}")
            continue
        if column in plan.required and (not text or (isinstance(text, str) and text.isspace())):
            problems.append(f"{column!r} is empty")
        texts.append(text)
    if problems:
        return Flaw(" and ".join(problems))
    for column, text in zip(plan.columns, texts, strict=True):
        batch.columns[column].append(text)
    return None


def _to_text(value: Any, may_be_path: bool) -> str | tuple[str, ...] | Flaw:
    if value is None or value != value:  # pandas writes a missing value as NaN
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return Flaw("not UTF-8 text")
    if isinstance(value, (list, tuple)) and may_be_path:
        names = [_to_text(name, False) for name in value]
        if any(isinstance(name, Flaw) or not str(name).strip() for name in names):
            return Flaw(f"not a path of names, {value!r}")
        return tuple(map(str, names))
    if isinstance(value, (list, tuple, dict)):
        return Flaw(f"a {type(value).__name__}, not a text")
    return str(value)
