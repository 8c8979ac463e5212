"""Parquet, read with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from arbormax.data.tables._common import Event, Plan, find_columns
from arbormax.errors import TableError, import_extra


def import_arrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet."""
    arrow, parquet = (import_extra(name, "Parquet", "pyarrow", "text") for name in ("pyarrow", "pyarrow.parquet"))
    return arrow, parquet


@contextmanager
def open_parquet(plan: Plan) -> Iterator[tuple[tuple[str, ...], Iterator[Event]]]:
    """The names of the columns, and the rows."""
    pa, pq = import_arrow()
    if plan.source.source == "-":
        raise TableError(f"{plan.name}: Parquet is read from its end and needs a file, not a stream")
    try:
        with pq.ParquetFile(plan.source.source) as file:
            names = tuple(file.schema_arrow.names)
            yield names, _read_rows(file, names, find_columns(names, plan), plan)
    except PermissionError:
        raise
    except UnicodeDecodeError as error:
        raise TableError(f"{plan.name}: a name of a column is not UTF-8 ({error}); rename it") from None
    except (pa.ArrowException, OSError, TypeError) as error:
        reason = " ".join(str(error).split("\n")[:1])
        raise TableError(f"{plan.name}: not a complete Parquet file ({reason})") from None


def _read_rows(file: Any, names: tuple[str, ...], places: list[int], plan: Plan) -> Iterator[Event]:
    first, stop = plan.span or (0, file.metadata.num_rows)
    row, groups = _row_groups(file.metadata, first, stop)
    wanted = None if plan.records or not places else [names[place] for place in places]
    for batch in file.iter_batches(batch_size=4096, row_groups=groups, columns=wanted):
        if row >= stop:
            return
        inside = batch.slice(max(first - row, 0))
        row += batch.num_rows - inside.num_rows
        inside = inside.slice(0, stop - row)
        columns = {name: _values(inside.column(at)) for at, name in enumerate(inside.schema.names)}
        for at in range(inside.num_rows):
            row += 1
            values = [columns[names[place]][at] for place in places]
            yield row, values, {name: column[at] for name, column in columns.items()} if plan.records else None


def _row_groups(metadata: Any, first: int, stop: int) -> tuple[int, list[int]]:
    """The row groups that contain these rows, and the number of rows before them."""
    before, start, groups = 0, 0, []
    for group in range(metadata.num_row_groups):
        end = start + metadata.row_group(group).num_rows
        if end <= first:
            before = end
        elif start < stop:
            groups.append(group)
        start = end
    return before, groups


def _values(column: Any) -> list[Any]:
    pa, _ = import_arrow()
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return list(column.cast(pa.binary()).to_pylist())  # so that the bad value is reported with its row
    except ValueError:  # Python's datetime has no nanoseconds
        return list(column.cast(pa.string()).to_pylist())
