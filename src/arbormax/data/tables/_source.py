"""A file with rows: its name, its format and how it is written."""

from __future__ import annotations

import errno
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypedDict

from arbormax._dialect import Dialect, detect_dialect, detect_encoding, peek_bytes, sample_lines
from arbormax._excel import detect_sheet
from arbormax.errors import OptionError, TableError, did_you_mean

Column = str | int  # a name, or a position from 0
Source = str | os.PathLike[str] | IO[Any]

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
}
FORMATS = tuple(dict.fromkeys(SUFFIXES.values()))
DELIMITERS = {"csv": ",", "tsv": "\t"}  # by format, unless another one is given or detected
_CONTENTS = {  # the first bytes of files that are not text
    b"PK\x03\x04": ("an Excel workbook or another ZIP file", "xlsx"),
    b"PAR1": ("a Parquet file", "parquet"),
    b"\xd0\xcf\x11\xe0": ("a file of an old version of Excel; save it as .xlsx", None),
    b"\x1f\x8b": ("compressed; its name must end in .gz", None),
}


class TableOptions(TypedDict, total=False):
    """How a file is written; see `iter_rows`."""

    format: str | None
    delimiter: str | None
    header: bool | None
    quoting: bool | None
    encoding: str | None
    sheet: str | None


@dataclass(frozen=True)
class TableSource:
    """A file with rows, and how it is written."""

    source: Source
    name: str  # in messages
    format: str
    dialect: Dialect = Dialect()  # noqa: RUF009 - frozen
    sheet: str | None = None  # of a workbook
    other_sheets: tuple[str, ...] = ()
    is_list: bool = False  # whether it has one text per line, and no dialect
    suspects_quotes: bool = False  # whether the table has tabs and nobody says how quotes are meant

    @property
    def unit(self) -> str:
        """What messages count."""
        return row_unit(self.format)

    def describe(self) -> str | None:
        """The name and the dialect in one line; None if it is the plain one of the format: UTF-8 with a header.

        >>> import io
        >>> open_source(io.StringIO("text;label\\n"), format="csv").describe()
        '<StringIO>: semicolon, UTF-8, header'
        """
        if self.format == "xlsx":
            others = f" (other sheets: {', '.join(self.other_sheets)})" if self.other_sheets else ""
            header = "header" if self.dialect.header else "no header"
            return f"{self.name}: sheet {self.sheet!r}{others}, {header}"
        if self.is_list or self.format not in DELIMITERS or self.dialect == Dialect(delimiter=DELIMITERS[self.format]):
            return None
        return f"{self.name}: {self.dialect.describe()}"


def open_source(
    path: Source,
    columns: Sequence[Column] = (),
    *,
    format: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    quoting: bool | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> TableSource:
    """A file whose `columns` will be read; what is not given is detected. The options are those of `iter_rows`."""
    name, chosen = resolve_source(path, format)
    if encoding is not None:
        _check_encoding(encoding)
    if delimiter is not None and len(delimiter) != 1:
        raise OptionError(f"expected one character, found {delimiter!r}", argument="delimiter")
    kinds = {"delimiter": ("csv", "tsv"), "quoting": ("csv", "tsv"), "header": ("csv", "tsv", "xlsx")}
    given = {"delimiter": delimiter, "quoting": quoting, "header": header}
    for argument, value in given.items():
        if value is not None and chosen not in kinds[argument]:
            expected = "CSV, TSV and Excel" if argument == "header" else "CSV and TSV"
            raise OptionError(f"an option for {expected}, and {name} is read as {chosen}", argument=argument)
    if sheet is not None and chosen != "xlsx":
        raise OptionError(f"only workbooks have sheets, and {name} is read as {chosen}", argument="sheet")
    source = TableSource(path, name, chosen)
    if chosen == "parquet":
        return source
    if chosen == "xlsx":
        found, others, rows = detect_sheet(_workbook(path, name), sheet, name)
        rows_as_lines = detect_dialect([], columns=columns, header=header, rows=rows)
        return replace(source, dialect=rows_as_lines, sheet=found, other_sheets=others)
    with open_bytes(path, name) as stream:
        is_text = isinstance(stream.read(0), str)
        if not is_text:
            _check_content(peek_bytes(stream), name)
        codec = encoding or ("utf-8" if is_text else detect_encoding(stream))
        if chosen == "jsonl":
            return replace(source, dialect=Dialect(codec))
        lines, is_whole = sample_lines(stream, codec)
    usual = DELIMITERS[chosen]
    how: dict[str, Any] = {"columns": columns, **given, "usual": usual, "is_whole": is_whole}
    dialect = replace(detect_dialect(lines, **how), encoding=codec)
    return replace(source, dialect=dialect, suspects_quotes=dialect.delimiter == "\t" and quoting is None)


def _check_encoding(encoding: str) -> None:
    try:
        io.TextIOWrapper(io.BytesIO("a".encode(encoding) + b"\xff"), encoding, errors="replace").read()
    except (LookupError, ValueError, TypeError) as error:  # also of encodings that are not for files, such as idna
        raise OptionError(f"{error}; use 'utf-8' or 'latin-1'", argument="encoding") from None


@contextmanager
def open_bytes(path: Source, name: str) -> Iterator[IO[Any]]:
    """The bytes of a source, unpacked, or its text; a file of the caller stays open."""
    stream: IO[Any] | None = None
    try:
        if path == "-":
            yield sys.stdin.buffer
        elif isinstance(path, (str, os.PathLike)):
            open_file: Any = gzip.open if os.fspath(path).lower().endswith(".gz") else open
            stream = open_file(path, "rb")
            yield stream
        else:
            yield path
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TableError(f"{name}: the file cannot be read ({error})") from None
    finally:
        if stream is not None:
            stream.close()


def _workbook(path: Source, name: str) -> Any:
    if path == "-":
        raise TableError(f"{name}: a workbook is read from its end and needs a file, not a stream")
    return path


def _check_content(first: bytes, name: str) -> None:
    for start, (what, kind) in _CONTENTS.items():
        if first.startswith(start):
            raise TableError(f"{name}: the file is {what}", fix={"format": kind} if kind else {})


def row_unit(format: str) -> str:
    """What messages count in a file of this format."""
    return "row" if format in ("parquet", "xlsx") else "line"


def check_format(format: str | None, argument: str = "format") -> None:
    """Raise an error for an unknown format."""
    if format is not None and format not in FORMATS:
        raise OptionError(
            f"unknown format {format!r}{did_you_mean(str(format), FORMATS)} (available: {', '.join(FORMATS)})",
            argument=argument,
        )


def resolve_source(source: Source, format: str | None) -> tuple[str, str]:
    """The name of the source in messages, and its format."""
    check_format(format)
    if source == "-" or not isinstance(source, (str, os.PathLike)):
        name = "<stdin>" if source == "-" else str(getattr(source, "name", None) or f"<{type(source).__name__}>")
        if format is None:
            message = f"the format of {name} is unknown: expected one of {', '.join(FORMATS)}"
            raise OptionError(message, argument="format")
        return name, format
    file = check_file(source)
    suffix = Path(file.name.lower().removesuffix(".gz")).suffix
    if format is None and suffix not in SUFFIXES:
        old = "; save it as .xlsx or .csv" if suffix in (".xls", ".xlsb", ".ods", ".numbers") else ""
        raise TableError(
            f"{file.name}: unknown suffix{old or did_you_mean(suffix, SUFFIXES)} (available: {', '.join(SUFFIXES)})",
            fix={} if old else {"format": "csv"},
        )
    return file.name, format or SUFFIXES[suffix]


def check_file(path: str | os.PathLike[str]) -> Path:
    """The path of an existing file; the error about a missing one suggests a similar name."""
    file = Path(path)
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, "expected a file, found a folder", str(file))
    if not file.exists():
        siblings = [other.name for other in file.parent.glob("*") if other != file]
        raise FileNotFoundError(errno.ENOENT, f"no such file{did_you_mean(file.name, siblings)}", str(file))
    return file
