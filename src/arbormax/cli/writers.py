"""Rows out: CSV, TSV, JSON lines and Parquet, one row at a time, whole under the final name or not at all."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from arbormax.errors import InputError, OptionError, did_you_mean

FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
Row = Mapping[str, Any]
Write = Callable[[Row], None]


def format_of(path: Path | None, format: str | None) -> str:
    """The format of the output, by its name or its suffix; the standard output is JSON lines."""
    known = tuple(dict.fromkeys(FORMATS.values()))
    if format is not None:
        if format not in known:
            raise OptionError(f"--format is one of {', '.join(known)}; found {format!r}{did_you_mean(format, known)}")
        if format == "parquet" and path is None:
            raise OptionError("Parquet is written to a file: give --out FILE.parquet")
        return format
    if path is None:
        return "jsonl"
    if path.suffix.lower() not in FORMATS:
        raise OptionError(
            f"{path}: the suffix does not tell the format{did_you_mean(path.suffix, FORMATS)} (known are "
            f"{', '.join(FORMATS)}); rename it or give --format"
        )
    return FORMATS[path.suffix.lower()]


@contextmanager
def writer(path: Path | None, format: str | None) -> Iterator[Write]:
    """The function that writes one row; all rows have the fields of the first, but for JSON lines.

    A file is written aside and renamed at the end, so that a run that was killed leaves nothing under the final name.
    """
    chosen = format_of(path, format)
    with ExitStack() as stack:
        if path is None:
            stream: IO[Any] = sys.stdout
        else:
            from arbormax.data.tables.writing import aside

            stream = stack.enter_context(aside(path, binary=chosen == "parquet"))
        if chosen == "jsonl":
            yield lambda row: print(json.dumps(row, ensure_ascii=False, default=str), file=stream)
        elif chosen == "parquet":
            yield stack.enter_context(_parquet(stream))
        else:
            yield _csv(stream, "," if chosen == "csv" else "\t")


def _csv(stream: IO[str], delimiter: str) -> Write:
    written = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    header: list[str] = []

    def write(row: Row) -> None:
        flat = flattened(row)
        if not header:
            header.extend(flat)
            written.writerow(header)
        elif header != list(flat):
            raise InputError(
                f"a row has the columns {', '.join(flat)}, the first one has {', '.join(header)}: a table cannot hold "
                "both; write .jsonl, or leave out --keep"
            )
        written.writerow(flat.values())

    return write


def flattened(row: Row) -> dict[str, Any]:
    """The row as cells: paths with ' > ', numbers with ';', the best labels in columns of their own."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for place, best in enumerate(value, start=1):
                flat |= {f"{name}{place}_{part}": cell for part, cell in best.items()}
        elif isinstance(value, list):
            numbers = all(isinstance(part, float) for part in value)
            flat[name] = ";".join(map(str, value)) if numbers else " > ".join(map(str, value))
        elif isinstance(value, dict):
            flat[name] = json.dumps(value, ensure_ascii=False)
        else:
            flat[name] = value
    return flat


@contextmanager
def _parquet(stream: IO[bytes]) -> Iterator[Write]:
    from arbormax.data.tables import writing

    _, pq = writing.arrow()
    rows: list[Row] = []
    opened: list[Any] = []

    def flush() -> None:
        if not opened:
            opened.append(pq.ParquetWriter(stream, writing.schema_of(rows)))
        opened[0].write_table(writing.table_of(rows, opened[0].schema))
        rows.clear()

    def write(row: Row) -> None:
        rows.append(row)
        if len(rows) == writing.GROUP:
            flush()

    try:
        yield write
        if rows or not opened:
            flush()
    finally:
        for file in opened:
            file.close()
