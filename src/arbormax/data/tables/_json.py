"""JSON lines: one object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from arbormax.data.tables._common import Event, Flaw, Plan, describe_missing
from arbormax.data.tables._lines import Lines, RowTooLongError
from arbormax.errors import TableError


def read_json(lines: Lines, plan: Plan) -> Iterator[Event]:
    """The rows; a column that no row has is an error at the end."""
    required = [str(column) for column in plan.columns if column in plan.required]
    unseen: dict[str, list[str]] = {str(column): [] for column in plan.columns}  # with the fields found instead
    descriptions: dict[tuple[str, ...], str] = {}  # a suggestion compares with every field, so it is computed once
    while True:
        number = lines.start_row()
        try:
            line = next(lines)
        except StopIteration:
            break
        except RowTooLongError:
            yield number, Flaw(f"longer than {plan.max_row:,} characters"), None
            continue
        if not line.strip():
            continue
        record = lines.flaw or _parse(line)
        if isinstance(record, Flaw):
            yield number, record, None
            continue
        for column in list(unseen):
            if column in record:
                del unseen[column]
            else:
                unseen[column] = list(dict.fromkeys((*unseen[column], *record)))[:50]
        missing = next((column for column in required if column not in record), None)
        if missing is not None:
            if (missing, *record) not in descriptions and len(descriptions) < 100:
                descriptions[missing, *record] = f"no column {describe_missing(missing, list(record))}"
            description = descriptions.get((missing, *record), f"no column {missing!r}")
            yield number, Flaw(description, _column_fix(missing)), None
            continue
        values = [record.get(str(column)) for column in plan.columns]
        # an escape such as \ud800 is half a character, which cannot be written again
        if ("\\ud" in line or "\\uD" in line) and _has_surrogate(record if plan.records else values):
            yield number, Flaw("contains half of a surrogate pair, an escape from \\ud800 to \\udfff"), None
            continue
        yield number, values, record if plan.records else None
    for column, found in unseen.items():
        if found:
            message = f"{plan.name}: no row has a column {describe_missing(column, found)}"
            raise TableError(message, fix=_column_fix(column))


def _column_fix(column: str) -> dict[str, object]:
    return {column: "COLUMN"} if column in ("text", "label") else {}


def _parse(line: str) -> dict[str, Any] | Flaw:
    try:
        record = json.loads(line.rstrip("\r\n"))
    except json.JSONDecodeError as error:
        advice = "; write one object per line, not one list" if line.startswith("[") else ""
        return Flaw(f"not JSON: {error.msg[0].lower()}{error.msg[1:]} (column {error.colno}){advice}")
    except (ValueError, RecursionError) as error:
        return Flaw(f"not readable as JSON: {str(error).split(';')[0]}")
    if isinstance(record, dict):
        return record
    kinds = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return Flaw(f'{kinds.get(type(record), "a number")}, but a row is an object such as {{"text": "…", "label": "…"}}')


def _has_surrogate(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
