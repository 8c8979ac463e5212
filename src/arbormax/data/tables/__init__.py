"""A user's own rows: CSV, TSV, JSON lines and Parquet, by column name, in batches of constant memory."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import Unpack

from arbormax.data.tables._batches import batches_of
from arbormax.data.tables._common import (
    Column,
    OnBadRows,
    Plan,
    RowBatch,
    Source,
    Table,
    TableOptions,
    format_of,
    unit_of,
)
from arbormax.errors import OptionError, TableError

__all__ = ["Column", "OnBadRows", "RowBatch", "Source", "Table", "TableOptions", "iter_rows", "read_table"]

LONGEST = 16 * 1024 * 1024  # characters of one row; more is a quote that was never closed, or no table at all


def read_table(
    path: Source,
    text: Column = "text",
    label: Column | None = "label",
    *,
    on_bad_rows: OnBadRows = "error",
    **options: Unpack[TableOptions],
) -> Table:
    """The texts and labels of a whole file; the options are those of `iter_rows`.

    An empty text or label is a bad row. Bad rows are told together in one `TableError`; with `on_bad_rows="skip"` they
    are left out and listed in `Table.skipped`. A file of which no row is left is an error in any case.
    """
    _check_choice(on_bad_rows)
    name, chosen = format_of(path, options.get("format"))
    columns = (text,) if label is None else (text, label)
    table = Table([], None if label is None else [], [], name, unit=unit_of(chosen))
    for batch in iter_rows(path, columns, required=columns, paths=columns[1:], on_bad_rows="skip", **options):
        table.texts.extend(batch[text])
        table.lines.extend(batch.lines)
        table.skipped.extend(batch.problems)
        if table.labels is not None and label is not None:
            table.labels.extend(batch[label])
    if on_bad_rows == "error" or not table.texts:
        _fail_on(table.skipped, name, hint=bool(table.texts))
    if not table.texts:
        raise TableError(f"{name}: there are no rows in it")
    return table


def iter_rows(
    path: Source,
    columns: Sequence[Column] | None = None,
    batch_size: int = 4096,
    *,
    required: Sequence[Column] = (),
    paths: Sequence[Column] = (),
    records: bool = False,
    on_bad_rows: OnBadRows = "error",
    format: str | None = None,
    delimiter: str | None = None,
    header: bool = True,
    quoting: bool | None = None,
    encoding: str = "utf-8-sig",
    span: tuple[int, int] | None = None,
) -> Iterator[RowBatch]:
    """Batches of rows, at least one even of a file without rows, so that its columns are known.

    The suffix tells the format (`.csv .tsv .jsonl .ndjson .parquet`, the text ones also with `.gz`); `format=` says it
    outright, and has to for a file object and for `-`, the standard input.

    `columns` come as strings, a missing value as ""; those in `required` may not be empty and those in `paths` may also
    be lists of names. `records=True` gives whole rows too, as `RowBatch.rows`; `columns=None` gives nothing but these
    and the columns in `required` and `paths`.

    With `on_bad_rows="error"` the first batch that holds bad rows raises a `TableError` that lists them all; "skip"
    leaves them out and lists them in `RowBatch.problems`.

    CSV and TSV: `delimiter`; `header=False` for files whose columns have positions and no names; `quoting=False` where
    `"` is a plain character. In a TSV file a quoted text that seems to have swallowed whole rows is refused unless
    `quoting=True`.

    Parquet: `span=(10, 20)` reads the rows from the eleventh to the twentieth alone, wherever they lie in the file.

    >>> import io
    >>> file = io.StringIO('text,label\\n"one\\ntwo",a\\nthree,b\\n')
    >>> [(batch.lines, batch["text"]) for batch in iter_rows(file, ["text"], format="csv")]
    [([2, 4], ['one\\ntwo', 'three'])]
    """
    _check_choice(on_bad_rows)
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise OptionError(f"batch_size is a whole number from 1, found {batch_size!r}")
    if isinstance(columns, str) or isinstance(required, str) or isinstance(paths, str):
        raise OptionError("columns, required and paths are lists of columns, not one string")
    wanted = tuple(dict.fromkeys((*(columns or ()), *required, *paths)))
    for column in wanted:
        if isinstance(column, bool) or not isinstance(column, (str, int)):
            raise OptionError(f"a column is a name or a position from 0, found {column!r}")
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n'):
        raise OptionError(f"delimiter is one character, found {delimiter!r}")
    try:
        codecs.lookup(encoding)
    except (LookupError, TypeError, ValueError):
        raise OptionError(f"encoding={encoding!r} is not known to Python; try 'utf-8' or 'latin-1'") from None
    if header not in (True, False) or quoting not in (None, True, False):
        raise OptionError(f"header is True or False and quoting may also be None, found {header!r} and {quoting!r}")
    name, chosen = format_of(path, format)
    if chosen not in ("csv", "tsv") and (delimiter is not None or not header or quoting is not None):
        option = "delimiter" if delimiter is not None else "quoting" if quoting is not None else "header"
        raise OptionError(f"{option}= belongs to CSV and TSV, and {name} is read as {chosen}")
    if span is not None and (chosen != "parquet" or not 0 <= span[0] <= span[1]):
        raise OptionError(f"span= is a first row and the row after the last, of Parquet; found {span!r} for {name}")
    if chosen == "jsonl" and (numbers := [column for column in wanted if isinstance(column, int)]):
        raise OptionError(f"JSON lines have names, not positions; found the column {numbers[0]}")
    plan = Plan(
        source=path,
        name=name,
        format=chosen,
        columns=wanted,
        required=frozenset(required),
        paths=frozenset(paths),
        records=records or columns is None,
        delimiter=delimiter or ("\t" if chosen == "tsv" else ","),
        header=header,
        quoting=quoting,
        encoding=encoding,
        longest=LONGEST,
        span=span,
    )
    batches = batches_of(plan, batch_size)
    return _raising(batches, name) if on_bad_rows == "error" else batches


def _check_choice(on_bad_rows: str) -> None:
    if on_bad_rows not in ("error", "skip"):
        raise OptionError(f"on_bad_rows is 'error' or 'skip', not {on_bad_rows!r}")


def _fail_on(problems: Sequence[str], name: str, hint: bool = True) -> None:
    if len(problems) == 1:
        raise TableError(f"{name}: {problems[0]}" + ' (on_bad_rows="skip" leaves it out)' * hint, problems)
    if problems:
        way_out = ' (on_bad_rows="skip" leaves them out)' * hint
        raise TableError(f"{name}: {len(problems)} rows cannot be used{way_out}:", problems)


def _raising(batches: Iterator[RowBatch], name: str) -> Iterator[RowBatch]:
    for batch in batches:
        _fail_on(batch.problems, name)
        yield batch
