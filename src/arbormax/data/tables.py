"""A user's own rows: CSV, TSV, JSON lines and Parquet, by column name, in batches of constant memory."""

from __future__ import annotations

import codecs
import csv
import errno
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, TypedDict, Unpack, cast

from arbormax.errors import MissingDependencyError, OptionError, TableError, did_you_mean

__all__ = ["RowBatch", "Table", "TableOptions", "iter_rows", "read_table"]

Column = str | int  # a name, or a position from 0
Source = str | os.PathLike[str] | IO[Any]
OnBadRows = Literal["error", "skip"]

LONGEST = 16 * 1024 * 1024  # characters of one row; more is a quote that was never closed, or no table at all
_FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_MAGIC = {
    codecs.BOM_UTF32_LE: "it is UTF-32 text: pass encoding='utf-32'",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF16_LE: "it is UTF-16 text: pass encoding='utf-16'",
    codecs.BOM_UTF16_BE: "it is UTF-16 text: pass encoding='utf-16'",
    b"\x1f\x8b": "it is compressed by gzip: give it a name that ends in .gz",
    b"PK\x03\x04": "it is a zip archive or a spreadsheet: unpack it, or save the sheet as CSV",
    b"PAR1": "it is Parquet: pass format='parquet'",
}


@dataclass(frozen=True, eq=False)
class RowBatch:
    """Some rows of a table, column by column; `batch["text"]` is one column."""

    lines: list[int]  # where each row starts: its line from 1, in Parquet its row from 1
    columns: dict[Column, list[Any]]  # the columns asked for: strings, or tuples of names where a path was allowed
    names: tuple[str, ...]  # every column of the file in its order; "0", "1", … without a header, empty for JSON lines
    rows: list[dict[str, Any]] = field(default_factory=list)  # whole rows with the file's own types, if asked for
    problems: list[str] = field(default_factory=list)  # the rows left out, with on_bad_rows="skip"

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, column: Column) -> list[Any]:
        return self.columns[column]


@dataclass(frozen=True, eq=False)
class Table:
    """The texts of a file and their labels as they are written there."""

    texts: list[str]
    labels: list[str | tuple[str, ...]] | None  # None when no label column was asked for
    lines: list[int]  # where each row starts, from 1
    path: str  # as errors call the file
    skipped: list[str] = field(default_factory=list)  # the rows left out by on_bad_rows="skip", one string each
    unit: str = "line"  # what `lines` counts: "line", or "row" in Parquet

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class _Plan:
    source: Source
    name: str
    format: str
    columns: tuple[Column, ...]
    required: frozenset[Column]
    paths: frozenset[Column]
    records: bool
    delimiter: str
    header: bool
    quoting: bool | None
    encoding: str


# The line of a row, then its values in the order of the plan's columns or what is wrong with it, then the whole row.
_Event = tuple[int, list[Any] | str, dict[str, Any] | None]


class TableOptions(TypedDict, total=False):
    """How a file is written, where its suffix does not say it; `iter_rows` explains each."""

    format: str | None
    delimiter: str | None
    header: bool
    quoting: bool | None
    encoding: str


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
    name, chosen = _format_of(path, options.get("format"))
    columns = (text,) if label is None else (text, label)
    table = Table([], None if label is None else [], [], name, unit=_unit(chosen))
    for batch in iter_rows(path, columns, required=columns, paths=columns[1:], on_bad_rows="skip", **options):
        table.texts.extend(batch[text])
        table.lines.extend(batch.lines)
        table.skipped.extend(batch.problems)
        if table.labels is not None and label is not None:
            table.labels.extend(batch[label])
    if on_bad_rows == "error" or not table.texts:
        _fail_on(table.skipped, name)
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
    name, chosen = _format_of(path, format)
    if chosen not in ("csv", "tsv") and (delimiter is not None or not header or quoting is not None):
        option = "delimiter" if delimiter is not None else "quoting" if quoting is not None else "header"
        raise OptionError(f"{option}= belongs to CSV and TSV, and {name} is read as {chosen}")
    if chosen == "jsonl" and (numbers := [column for column in wanted if isinstance(column, int)]):
        raise OptionError(f"JSON lines have names, not positions; found the column {numbers[0]}")
    plan = _Plan(
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
    )
    batches = _batches(plan, batch_size)
    return _raising(batches, name) if on_bad_rows == "error" else batches


def _unit(format: str) -> str:
    return "row" if format == "parquet" else "line"


def _check_choice(on_bad_rows: str) -> None:
    if on_bad_rows not in ("error", "skip"):
        raise OptionError(f"on_bad_rows is 'error' or 'skip', not {on_bad_rows!r}")


def _format_of(source: Source, format: str | None) -> tuple[str, str]:
    """What errors call the source, and its format; a file that cannot be one is refused here."""
    formats = tuple(dict.fromkeys(_FORMATS.values()))
    if format is not None and format not in formats:
        raise OptionError(
            f"there is no format {format!r}{did_you_mean(str(format), formats)} (formats: {', '.join(formats)})"
        )
    if not isinstance(source, (str, os.PathLike)):
        if not hasattr(source, "read"):
            raise OptionError(f"expected a path or an open file, found {type(source).__name__}")
        name = str(getattr(source, "name", None) or f"<{type(source).__name__}>")
    elif source == "-":
        name = "<stdin>"
    else:
        file = Path(source)
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, "a table is one file, and this is a folder", str(file))
        if not file.exists():
            beside = {other.name for other in file.parent.iterdir()} if file.parent.is_dir() else set()
            raise FileNotFoundError(
                errno.ENOENT, f"no such file{did_you_mean(file.name, sorted(beside - {file.name}))}", str(file)
            )
        name = file.name
        suffixes = [suffix.lower() for suffix in file.suffixes]
        kind = suffixes[-2:-1] if suffixes[-1:] == [".gz"] else suffixes[-1:]
        guessed = _FORMATS.get("".join(kind))
        if guessed == "parquet" and suffixes[-1] == ".gz":
            raise TableError(f"{name}: Parquet is compressed inside; unpack it with gunzip")
        if format is None and guessed is None:
            raise TableError(
                f"{name}: the suffix does not tell the format{did_you_mean(''.join(kind), _FORMATS)} (known are "
                f"{', '.join(_FORMATS)}); rename the file or pass format=, one of {', '.join(formats)}"
            )
        return name, format or str(guessed)
    if format is None:
        raise OptionError(f"{name} has no suffix that tells its format: pass format=, one of {', '.join(formats)}")
    return name, format


def _fail_on(problems: Sequence[str], name: str) -> None:
    if len(problems) == 1:
        raise TableError(f"{name}: {problems[0]}", problems)
    if problems:
        raise TableError(f"{name}: {len(problems)} rows cannot be used:", problems)


def _raising(batches: Iterator[RowBatch], name: str) -> Iterator[RowBatch]:
    for batch in batches:
        _fail_on(batch.problems, name)
        yield batch


# ------------------------------------------------------------------------------------------------------------- batches


def _batches(plan: _Plan, size: int) -> Iterator[RowBatch]:
    opened = _open_parquet if plan.format == "parquet" else _open_text
    with opened(plan) as (names, events):
        batch = _new_batch(plan, names)
        given, unit = False, _unit(plan.format)
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


def _new_batch(plan: _Plan, names: tuple[str, ...]) -> RowBatch:
    return RowBatch([], {column: [] for column in plan.columns}, names)


def _add(plan: _Plan, batch: RowBatch, values: list[Any]) -> str:
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


# ---------------------------------------------------------------------------------------------------------------- text


@contextmanager
def _open_text(plan: _Plan) -> Iterator[tuple[tuple[str, ...], Iterator[_Event]]]:
    source = plan.source
    owned: IO[bytes] | None = None
    wrapper: io.TextIOWrapper | None = None
    stream: IO[Any]
    if not isinstance(source, (str, os.PathLike)):
        stream = source
    elif source == "-":
        stream = getattr(sys.stdin, "buffer", sys.stdin)
    else:
        gzipped = os.fspath(source).lower().endswith(".gz")
        stream = owned = cast(IO[bytes], gzip.open(source) if gzipped else open(source, "rb"))  # noqa: SIM115
    lines: _Lines | None = None
    try:
        if isinstance(stream.read(0), bytes):
            # bad bytes become lone surrogates, so that each is told with its row
            try:
                wrapper = io.TextIOWrapper(stream, plan.encoding, errors="surrogateescape", newline="")
            except LookupError:
                raise OptionError(f"encoding={plan.encoding!r} is no encoding of text; try 'utf-8'") from None
            if owned is not None and plan.encoding.lower().replace("_", "-").startswith("utf-8"):
                _refuse_magic(owned, plan)
            stream = wrapper
        lines = _Lines(cast(IO[str], stream))
        yield (_read_json if plan.format == "jsonl" else _read_csv)(lines, plan)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        near = f" after line {lines.number}" if lines else ""
        raise TableError(f"{plan.name}: the gzip file is damaged{near} ({error})") from None
    except UnicodeError as error:
        near = f" after line {lines.number}" if lines else ""
        raise TableError(f"{plan.name}: not {plan.encoding}{near} ({error}); pass encoding=") from None
    finally:
        if owned is not None:
            owned.close()
        elif wrapper is not None:
            wrapper.detach()


def _refuse_magic(file: IO[bytes], plan: _Plan) -> None:
    if not file.seekable():
        return
    start = file.read(4)
    file.seek(0)
    for magic, advice in _MAGIC.items():
        if start.startswith(magic):
            raise TableError(f"{plan.name}: this is no {plan.format.upper()} text; {advice}")


class _TooLongError(Exception):
    """A row beyond all measure."""


class _Lines:
    """The lines of a text, those of the row being read kept, so that a broken row gives back what it swallowed."""

    def __init__(self, file: IO[str]) -> None:
        self._readline = file.readline
        self._again: list[str] = []  # lines given back, the next one last
        self.number = 0  # of the line read last
        self.row: list[str] = []
        self.flaw = ""  # what makes the row unreadable, if anything does
        self._size = 0

    def start_row(self) -> int:
        """The number of the line in which the next row starts."""
        self.row, self.flaw, self._size = [], "", 0
        return self.number + 1

    def give_back(self) -> None:
        """Read all lines of this row but the first again, as rows of their own."""
        self._again += self.row[:0:-1]
        self.number -= len(self.row) - 1

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._again.pop() if self._again else self._readline(LONGEST + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if self.number == 1:
            line = line.removeprefix("\ufeff")
        self.row.append(line)
        self._size += len(line)
        if self._size > LONGEST:
            if len(line) > LONGEST:
                while line and not line.endswith(("\n", "\r")):
                    line = self._readline(LONGEST + 1)
                self.row[-1] += "\n"  # if it is given back, its rest is not looked for again
            raise _TooLongError
        if "\0" in line:
            self.flaw = "holds a NUL character; if the file is UTF-16, pass encoding='utf-16'"
        if not line.isascii():
            try:
                line.encode()
            except UnicodeEncodeError as error:
                byte = ord(line[error.start]) - 0xDC00
                self.flaw = f"holds the byte 0x{byte & 0xFF:02x}, which is no text in this encoding; pass encoding="
        return line


def _read_json(lines: _Lines, plan: _Plan) -> tuple[tuple[str, ...], Iterator[_Event]]:
    return (), _json_events(lines, plan)


def _json_events(lines: _Lines, plan: _Plan) -> Iterator[_Event]:
    required = [str(column) for column in plan.columns if column in plan.required]
    unseen: dict[str, list[str]] = {str(column): [] for column in plan.columns}  # with the fields found instead
    hints: dict[tuple[str, ...], str] = {}
    while True:
        number = lines.start_row()
        try:
            line = next(lines)
        except StopIteration:
            break
        except _TooLongError:
            yield number, f"longer than {LONGEST:,} characters", None
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
                hints[absent, *record] = f"no column {_column(absent, list(record))}"
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
            raise TableError(f"{plan.name}: no row has a column {_column(column, found)}")


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


def _read_csv(lines: _Lines, plan: _Plan) -> tuple[tuple[str, ...], Iterator[_Event]]:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    rows = _csv_rows(lines, plan)
    first = next(rows, None)
    if first is None:
        if plan.header:
            raise TableError(f"{plan.name}: the file is empty; its first line names the columns")
        return (), iter(())
    line, cells = first
    if isinstance(cells, str):
        if plan.header:
            raise TableError(f"{plan.name}: line {line}: {cells}")
        names: tuple[str, ...] = ()
    else:
        names = tuple(cells) if plan.header else tuple(map(str, range(len(cells))))
    return names, _csv_events(rows if plan.header else chain([first], rows), names, plan)


def _csv_events(rows: Iterator[tuple[int, list[str] | str]], names: tuple[str, ...], plan: _Plan) -> Iterator[_Event]:
    places = _places(names, plan) if names else []
    for line, cells in rows:
        if isinstance(cells, str):
            yield line, cells, None
            continue
        if not names:  # there is no header, and the first row could not be read
            names = tuple(map(str, range(len(cells))))
            places = _places(names, plan)
        if len(cells) != len(names):
            cure = f"; a text that holds {plan.delimiter!r} needs quotes" if len(cells) > len(names) else ""
            than = "the header" if plan.header else "the first row"
            cells_found = f"{len(cells)} cell{'s' * (len(cells) != 1)}"
            yield line, f"{cells_found}, but {than} has {len(names)}{cure}", None
            continue
        yield line, [cells[at] for at in places], dict(zip(names, cells, strict=True)) if plan.records else None


def _csv_rows(lines: _Lines, plan: _Plan) -> Iterator[tuple[int, list[str] | str]]:
    """Every row that is not blank with its first line, as cells or as what is wrong with it."""
    quoted = plan.quoting is not False
    reader = csv.reader(
        lines, delimiter=plan.delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, strict=True
    )
    watch = plan.delimiter == "\t" and plan.quoting is None
    plain = "; if quotes are plain characters in this file, pass quoting=False"
    tabs = 0  # between the cells of one row
    while True:
        number = lines.start_row()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except _TooLongError:
            long = f"longer than {LONGEST:,} characters"
            yield number, f"{long}; is a quote that opens here never closed?" if len(lines.row) > 1 else long
            lines.give_back()
            continue
        except csv.Error as error:
            wrong = str(error)
            if "unexpected end of data" in wrong:
                wrong = f"a quote opens here and is never closed{plain}"
            elif "expected after" in wrong:
                until = f", closed in line {lines.number}" if len(lines.row) > 1 else ""
                wrong = f"text goes on after a quoted cell{until}{plain}, else write a quote inside a cell twice"
            # a flaw further down is told when its own line is read again
            yield number, wrong if len(lines.row) > 1 else lines.flaw or wrong
            lines.give_back()
            continue
        if not cells:
            continue
        if lines.flaw:
            yield number, lines.flaw
        elif watch and tabs and len(lines.row) > 1 and all(line.count("\t") == tabs for line in lines.row):
            swallowed = f"a quote opens here and closes in line {lines.number}, around what look like whole rows"
            yield number, f"{swallowed}{plain}, else quoting=True"
            lines.give_back()
        else:
            tabs = tabs or len(cells) - 1
            yield number, cells


def _places(names: tuple[str, ...], plan: _Plan) -> list[int]:
    """The position of each column of the plan, or one error with all those that are not there."""
    places, wrong = [], []
    for column in plan.columns:
        if isinstance(column, str) and not plan.header:
            if not (column.isascii() and column.isdigit()):
                raise OptionError(f"without a header columns have positions from 0, not names; found {column!r}")
            column = int(column)
        if isinstance(column, int):
            if not 0 <= column < len(names):
                wrong.append(f"there is no column {column}: positions run from 0 to {len(names) - 1}")
            elif plan.format == "parquet" and names.count(names[column]) > 1:
                wrong.append(f"the column {names[column]!r} stands {names.count(names[column])} times")
            places.append(column)
        elif names.count(column) != 1:
            twice = f"the column {column!r} stands {names.count(column)} times; name them apart, or give its position"
            wrong.append(
                twice if column in names else f"there is no column {_column(column, names)}{_other(names, plan)}"
            )
        else:
            places.append(names.index(column))
    if plan.records and len(set(names)) < len(names):
        again = next(name for name in names if names.count(name) > 1)
        wrong.append(f"the column {again!r} stands {names.count(again)} times; a row needs names of its own")
    if len(wrong) == 1:
        raise TableError(f"{plan.name}: {wrong[0]}", wrong)
    if wrong:
        raise TableError(f"{plan.name}: {len(wrong)} columns cannot be had:", wrong)
    return places


def _column(column: Column, found: Sequence[str]) -> str:
    listed = ", ".join(repr(_short(name)) for name in found[:8]) + (", …" if len(found) > 8 else "")
    return f"{column!r}{did_you_mean(str(column), found)} (found {listed or 'none'})"


def _other(names: tuple[str, ...], plan: _Plan) -> str:
    """What else may be the matter when a header lacks a column."""
    if plan.format == "parquet":
        return ""
    mark = next((mark for mark in ",;\t|" if mark != plan.delimiter and mark in names[0]), None)
    if len(names) == 1 and mark:
        return f"; if the columns are separated by {mark!r}, pass delimiter={mark!r}"
    return "; if the first line is no header, pass header=False and positions"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


# ------------------------------------------------------------------------------------------------------------- Parquet


@contextmanager
def _open_parquet(plan: _Plan) -> Iterator[tuple[tuple[str, ...], Iterator[_Event]]]:
    try:
        pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise MissingDependencyError("reading Parquet", "pyarrow", "text") from None
    if hasattr(plan.source, "read") and isinstance(plan.source.read(0), str):
        raise OptionError(f"{plan.name}: Parquet is no text; open the file in binary mode")
    if plan.source == "-" or (hasattr(plan.source, "seekable") and not plan.source.seekable()):
        raise TableError(f"{plan.name}: Parquet is read from its end, so it needs a file, not a stream")
    try:
        with pq.ParquetFile(plan.source) as file:
            schema = file.schema_arrow
            names = tuple(schema.names)
            places = _places(names, plan)
            for place, column in zip(places, plan.columns, strict=True):
                kind = schema.field(place).type
                if pa.types.is_nested(kind) and not (column in plan.paths and _is_list(kind)):
                    raise TableError(f"{plan.name}: the column {column!r} holds {kind}, not text")
            yield names, _parquet_events(file, names, places, plan)
    except PermissionError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{plan.name}: not a whole Parquet file ({str(error).splitlines()[0]})") from None


def _is_list(kind: Any) -> bool:
    pa = import_module("pyarrow")

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _parquet_events(file: Any, names: tuple[str, ...], places: list[int], plan: _Plan) -> Iterator[_Event]:
    row = 0
    wanted = None if plan.records or not places else [names[place] for place in places]
    for batch in file.iter_batches(batch_size=4096, columns=wanted):
        columns = {name: _values(batch.column(at)) for at, name in enumerate(batch.schema.names)}
        for at in range(batch.num_rows):
            row += 1
            values = [columns[names[place]][at] for place in places]
            yield row, values, {name: column[at] for name, column in columns.items()} if plan.records else None


def _values(column: Any) -> list[Any]:
    pa = import_module("pyarrow")

    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return list(column.cast(pa.binary()).to_pylist())  # so that the bad one is told with its row
    except ValueError:  # nanoseconds, which Python's own times cannot hold
        return list(column.cast(pa.string()).to_pylist())
