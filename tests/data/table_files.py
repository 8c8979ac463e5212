"""Helpers that write tables of two columns."""

from __future__ import annotations

import csv
import io
import json

import pytest

from arbormax.data.tables import read_table
from arbormax.errors import TableError


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def as_csv(rows, delimiter=",", header=("text", "label"), end="\r\n"):
    out = io.StringIO(newline="")
    # the csv module does not quote a lone carriage return if lines end in a newline
    quoting = csv.QUOTE_ALL if end == "\n" else csv.QUOTE_MINIMAL
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([header, *rows] if header else rows)
    return out.getvalue()


def as_jsonl(rows):
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)


def read_problems(path, **options):
    with pytest.raises(TableError) as caught:
        read_table(path, **options)
    return caught.value.problems
