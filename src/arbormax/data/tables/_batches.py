"""Rows of any format gathered into batches, their values as text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from arbormax.data.tables._common import Event, Plan, RowBatch, unit_of
from arbormax.data.tables._csv import read_csv
from arbormax.data.tables._json import read_json
from arbormax.data.tables._lines import open_lines
from arbormax.data.tables._parquet import open_parquet


def batches_of(plan: Plan, size: int) -> Iterator[RowBatch]:
    opened = open_parquet if plan.format == "parquet" else _opened_text
    with opened(plan) as (names, events):
        batch = _new_batch(plan, names)
        given, unit = False, unit_of(plan.format)
        for line, values, row in events:
            wrong = values if isinstance(values, str) else _add(plan, batch, values)
            if wrong:
                batch.problems.append(f"{unit} {line}: {wrong}")
            else:
                batch.lines.append(line)
                if row is not None:
                    batch.rows.append(row)
            if len(batch.lines) + len(batch.problems) == size:
                yield batch
                batch, given = _new_batch(plan, names), True
        if batch.lines or batch.problems or not given:
            yield batch


@contextmanager
def _opened_text(plan: Plan) -> Iterator[tuple[tuple[str, ...], Iterator[Event]]]:
    with open_lines(plan) as lines:
        yield (read_json if plan.format == "jsonl" else read_csv)(lines, plan)


def _new_batch(plan: Plan, names: tuple[str, ...]) -> RowBatch:
    return RowBatch([], {column: [] for column in plan.columns}, names)


def _add(plan: Plan, batch: RowBatch, values: list[Any]) -> str:
    """Put a row's values into the batch as text, or say what is wrong with them."""
    texts: list[str | tuple[str, ...]] = []
    wrong = []
    for column, value in zip(plan.columns, values, strict=True):
        try:
            text = value if type(value) is str else _as_text(value, column in plan.paths)
        except _NoTextError as error:
            wrong.append(f"{column!r} is {error}")
            continue
        if column in plan.required and (not text or (isinstance(text, str) and text.isspace())):
            wrong.append(f"{column!r} is empty")
        texts.append(text)
    if not wrong:
        for column, text in zip(plan.columns, texts, strict=True):
            batch.columns[column].append(text)
    return " and ".join(wrong)


class _NoTextError(Exception):
    """A value that is neither a text nor a path."""


def _as_text(value: Any, may_be_path: bool) -> str | tuple[str, ...]:
    if value is None or value != value:  # NaN is how pandas writes a missing value
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise _NoTextError("not UTF-8 text") from None
    if isinstance(value, dict):
        raise _NoTextError("an object, not a text")
    if isinstance(value, (list, tuple)):
        if not may_be_path:
            raise _NoTextError("a list, not a text")
        names = [_as_text(name, False) for name in value]
        if any(not name or str(name).isspace() for name in names):
            raise _NoTextError(f"a path with an empty name, {value!r}")
        return tuple(map(str, names))
    return str(value)
