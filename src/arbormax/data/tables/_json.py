"""JSON lines: an object in each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from arbormax.data.tables._common import Event, Plan, column_among
from arbormax.data.tables._lines import Lines, TooLongError
from arbormax.errors import TableError


def read_json(lines: Lines, plan: Plan) -> tuple[tuple[str, ...], Iterator[Event]]:
    return (), _json_events(lines, plan)


def _json_events(lines: Lines, plan: Plan) -> Iterator[Event]:
    required = [str(column) for column in plan.columns if column in plan.required]
    unseen: dict[str, list[str]] = {str(column): [] for column in plan.columns}  # with the fields found instead
    hints: dict[tuple[str, ...], str] = {}
    while True:
        number = lines.start_row()
        try:
            line = next(lines)
        except StopIteration:
            break
        except TooLongError:
            yield number, f"longer than {plan.longest:,} characters", None
            continue
        if not line.strip():
            continue
        record, wrong = _json_record(line) if not lines.flaw else ({}, lines.flaw)
        if wrong:
            yield number, wrong, None
            continue
        for column in list(unseen):
            if column in record:
                del unseen[column]
            else:
                unseen[column] = list(dict.fromkeys((*unseen[column], *record)))[:50]
        absent = next((column for column in required if column not in record), None)
        if absent is not None:
            if (absent, *record) not in hints and len(hints) < 100:
                hints[absent, *record] = f"no column {column_among(absent, list(record))}"
            yield number, hints.get((absent, *record), f"no column {absent!r}"), None
            continue
        values = [record.get(str(column)) for column in plan.columns]
        # an escape such as \ud800 makes half a character, which nothing can write again
        if ("\\ud" in line or "\\uD" in line) and _unwritable(record if plan.records else values):
            yield number, "holds half of a surrogate pair, an escape from \\ud800 to \\udfff", None
            continue
        yield number, values, record if plan.records else None
    for column, found in unseen.items():
        if found:
            raise TableError(f"{plan.name}: no row has a column {column_among(column, found)}")


def _json_record(line: str) -> tuple[dict[str, Any], str]:
    try:
        record = json.loads(line.rstrip("\r\n"))
    except json.JSONDecodeError as error:
        cure = "; write one object per line, not one list" if line.startswith("[") else ""
        return {}, f"not JSON: {error.msg[0].lower()}{error.msg[1:]} (column {error.colno}){cure}"
    except (ValueError, RecursionError) as error:
        return {}, f"not JSON that can be read: {str(error).split(';')[0]}"
    if isinstance(record, dict):
        return record, ""
    kinds = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return {}, f'{kinds.get(type(record), "a number")}, but a row is an object such as {{"text": "…", "label": "…"}}'


def _unwritable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
