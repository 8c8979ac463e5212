"""JSON lines: one object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from arbormax.data.tables._common import Event, Flaw, Plan, column_fix, describe_missing
from arbormax.data.tables._lines import Lines
from arbormax.errors import TableError


def read_json(lines: Lines, plan: Plan) -> Iterator[Event]:
    """The rows; a column that no row has is an error at the end."""
    columns = [str(column) for column in plan.columns]
    required = [str(column) for column in plan.columns if column in plan.required]
    unseen = dict.fromkeys(columns)
    fields: list[str] = []  # of the last row
    while True:
        number = lines.start_row()
        line = next(lines, None)
        if line is None:
            break
        if not line.strip():
            continue
        record = lines.flaw or _parse(line)
        if isinstance(record, Flaw):
            yield number, record, None
            continue
        fields = list(record)
        unseen = {column: None for column in unseen if column not in record}
        missing = next((column for column in required if column not in record), None)
        if missing is not None:
            yield number, Flaw(f"no column {describe_missing(missing, fields)}", column_fix(missing)), None
            continue
        yield number, [record.get(column) for column in columns], record if plan.records else None
    if fields and unseen:
        column = next(iter(unseen))
        message = f"{plan.name}: no row has a column {describe_missing(column, fields)}"
        raise TableError(message, argument=plan.arguments.get(column), fix=column_fix(column))


def _parse(line: str) -> dict[str, Any] | Flaw:
    try:
        record = json.loads(line.rstrip("\r\n"))
        if "\\ud" in line.lower():
            json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # such a character cannot be written again
        return Flaw("contains half of a surrogate pair, an escape from \\ud800 to \\udfff")
    except json.JSONDecodeError as error:
        return Flaw(f"not JSON: {error.msg[0].lower()}{error.msg[1:]} (column {error.colno})")
    except (ValueError, RecursionError) as error:
        return Flaw(f"not readable as JSON: {str(error).split(';')[0]}")
    if isinstance(record, dict):
        return record
    return Flaw(f'expected an object such as {{"text": "…", "label": "…"}}, found {line.strip()[:60]}')
