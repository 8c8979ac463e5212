"""Tables with texts and labels: CSV, TSV, JSON lines, Parquet and Excel, read in batches of constant memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Unpack

from arbormax.data.columns import InputColumns
from arbormax.data.tables._common import Event, Flaw, OnBadRows, Plan, RowBatch, Table, describe_missing
from arbormax.data.tables._csv import read_csv
from arbormax.data.tables._json import read_json
from arbormax.data.tables._lines import open_lines
from arbormax.data.tables._parquet import open_parquet
from arbormax.data.tables._sheet import open_excel
from arbormax.data.tables._source import (
    Column,
    Source,
    TableOptions,
    TableSource,
    check_file,
    open_source,
    resolve_source,
    row_unit,
)
from arbormax.data.tokens import FIELD
from arbormax.errors import OptionError, TableError, check_choice

__all__ = [
    "Column",
    "OnBadRows",
    "RowBatch",
    "Source",
    "Table",
    "TableOptions",
    "TableSource",
    "bad_rows_error",
    "check_file",
    "describe_missing",
    "iter_rows",
    "join_batches",
    "open_source",
    "read_table",
    "resolve_source",
    "row_unit",
]


def read_table(
    path: Source,
    text: Column | InputColumns = "text",
    label: Column | None = "label",
    *,
    on_bad_rows: OnBadRows = "error",
    **options: Unpack[TableOptions],
) -> Table:
    """The texts and labels of a whole file; the options are those of `iter_rows`.

    `text` is one column, or several that make one text.

    A row with an empty text or label is a bad row. All bad rows are reported in one `TableError`, with line numbers;
    `on_bad_rows="skip"` leaves them out and lists them in `Table.skipped`. A file without any good row is an error.
    """
    check_choice("on_bad_rows", on_bad_rows, ("error", "skip"))
    labels_of = () if label is None else (label,)
    texts = text.names if isinstance(text, InputColumns) else (text,)
    source = open_source(path, (*texts, *labels_of), **options)
    how: dict[str, Any] = {"required": labels_of, "paths": labels_of, "arguments": dict.fromkeys(labels_of, "label")}
    rows = join_batches(iter_rows(source, (), texts=text, on_bad_rows="skip", **how), source.name, on_bad_rows)
    labels = None if label is None else rows[label]
    return Table(rows[text], labels, rows.lines, source.name, rows.problems, source.unit)


def iter_rows(
    path: Source | TableSource,
    columns: Sequence[Column] | None = None,
    batch_size: int = 4096,
    *,
    required: Sequence[Column] = (),
    paths: Sequence[Column] = (),
    texts: Column | InputColumns | None = None,
    records: bool = False,
    on_bad_rows: OnBadRows = "error",
    span: tuple[int, int] | None = None,
    arguments: Mapping[Column, str] | None = None,
    **options: Unpack[TableOptions],
) -> Iterator[RowBatch]:
    """Batches of rows. A file without rows has one empty batch, which has the names of the columns.

    The values of `columns` are strings, "" for a missing value. Columns in `required` must not be empty; columns in
    `paths` may also contain lists of names. `texts` is the column of the texts, or several that make one text, and
    `batch[texts]` are the texts, which must not be empty. `records=True` adds whole rows as `RowBatch.rows`;
    `columns=None` reads only these and the columns in `required` and `paths`.

    With `on_bad_rows="error"`, the first batch with bad rows raises a `TableError` that lists them; with "skip" they
    are left out and listed in `RowBatch.problems`. Rows without any value are skipped.

    The options say how the file is written; what is not given is detected. `format` is needed for file objects and for
    `-`, the standard input; otherwise the suffix determines it (`.csv .tsv .jsonl .ndjson .parquet .xlsx`, the text
    formats also with `.gz`).

    CSV and TSV: `delimiter` separates the cells; `header=False` is for files without column names, whose columns are
    selected by position; `quoting=False` treats `"` as a plain character; `encoding` is a name that Python knows. In a
    file with tabs, a quoted text that looks like several rows is a bad row unless `quoting=True`.

    Excel: `sheet` is the title of a sheet, by default the first one with cells.

    Parquet: `span=(10, 20)` reads only the rows from the eleventh to the twentieth.

    `arguments` names the caller's arguments that select the columns; an error about a missing column carries the name.

    >>> import io
    >>> file = io.StringIO('text;label\\n"one\\ntwo";a\\nthree;b\\n')
    >>> [(batch.lines, batch["text"]) for batch in iter_rows(file, ["text"], format="csv")]
    [([2, 4], ['one\\ntwo', 'three'])]
    """
    check_choice("on_bad_rows", on_bad_rows, ("error", "skip"))
    if batch_size < 1:
        raise OptionError(f"expected at least 1, found {batch_size}", argument="batch_size")
    if isinstance(columns, str):
        raise OptionError("expected a list of columns, found one string", argument="columns")
    named = {} if arguments is None else dict(arguments)
    parts: tuple[Column, ...] = ()
    if isinstance(texts, InputColumns):
        parts = texts.names
        named |= {
            **dict.fromkeys(texts.text, "template" if texts.template else "text"),
            **dict.fromkeys(texts.also, "also"),
        }
    elif texts is not None:
        parts, required, named[texts] = (texts,), (texts, *required), "text"
    wanted = tuple(dict.fromkeys((*parts, *(columns or ()), *required, *paths)))
    source = path if isinstance(path, TableSource) else open_source(path, wanted, **options)
    plan = Plan(
        source=source,
        columns=wanted,
        required=frozenset(required),
        paths=frozenset(paths),
        records=records or (columns is None and texts is None),
        texts=texts if isinstance(texts, InputColumns) else None,
        span=span,
        arguments=named,
    )
    return _read_batches(plan, batch_size, on_bad_rows)


def join_batches(batches: Iterable[RowBatch], name: str, on_bad_rows: OnBadRows) -> RowBatch:
    """All rows of a file; one error reports all bad rows, unless they are skipped and others are left."""
    whole = RowBatch([], {}, ())  # without whole rows
    for batch in batches:
        whole.lines.extend(batch.lines)
        whole.problems.extend(batch.problems)
        whole.fix.update(batch.fix)
        for column, values in batch.columns.items():
            whole.columns.setdefault(column, []).extend(values)
    if whole.problems and (on_bad_rows == "error" or not len(whole)):
        raise bad_rows_error(name, whole.problems, whole.fix, can_skip=bool(len(whole)))
    if not len(whole):
        raise TableError(f"{name}: the file has no rows")
    return whole


def bad_rows_error(
    name: str, problems: Sequence[str], fix: Mapping[str, object] | None = None, *, can_skip: bool = True
) -> TableError:
    """The error that lists all bad rows of a file."""
    how = {**(fix or {}), **({"on_bad_rows": "skip"} if can_skip else {})}
    message = problems[0] if len(problems) == 1 else f"{len(problems)} rows cannot be used"
    return TableError(f"{name}: {message}", problems, fix=how)


def _read_batches(plan: Plan, size: int, on_bad_rows: OnBadRows) -> Iterator[RowBatch]:
    """Batches of this size; one even for a file without rows."""
    unit, open_rows = plan.source.unit, _READERS.get(plan.source.format, _open_text)
    with open_rows(plan) as (names, events):
        is_first = True
        while True:
            own = () if plan.texts is None else (plan.texts,)
            batch = RowBatch([], {column: [] for column in (*own, *plan.columns)}, names)
            for line, values, row in islice(events, size):
                flaw = values if isinstance(values, Flaw) else _add_row(plan, batch, values)
                if flaw:
                    batch.problems.append(f"{unit} {line}: {flaw.message}")
                    batch.fix.update(flaw.fix)
                else:
                    batch.lines.append(line)
                    if row is not None:
                        batch.rows.append(row)
            if is_first and (description := plan.source.describe()) is not None:
                logging.getLogger("arbormax").info("%s", description)
            if batch.problems and on_bad_rows == "error":
                raise bad_rows_error(plan.name, batch.problems, batch.fix)
            if batch.lines or batch.problems or is_first:
                yield batch
            if len(batch.lines) + len(batch.problems) < size:
                return
            is_first = False


@contextmanager
def _open_text(plan: Plan) -> Iterator[tuple[tuple[str, ...], Iterator[Event]]]:
    with open_lines(plan) as lines:
        yield ((), read_json(lines, plan)) if plan.source.format == "jsonl" else read_csv(lines, plan)


_READERS = {"parquet": open_parquet, "xlsx": open_excel}


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
    composed = ""
    if plan.texts is not None and not problems:
        composed = plan.texts.compose(dict(zip(plan.columns, texts, strict=True)))
        if not composed or composed.isspace() or composed.lstrip().startswith(FIELD):
            is_one = len(plan.texts.text) == 1
            problems.append(f"{' and '.join(map(repr, plan.texts.text))} {'is' if is_one else 'are'} empty")
    if problems:
        return Flaw(" and ".join(problems))
    if plan.texts is not None:
        batch.columns[plan.texts].append(composed)
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
