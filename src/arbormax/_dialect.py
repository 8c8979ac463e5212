"""How a text table is written: its encoding, delimiter, quotes and header, given or detected from its first lines."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any

ONE_COLUMN = "\x1f"  # the delimiter of a file in which every line is one cell
MAX_CELL = 16 * 1024 * 1024  # characters; a longer cell is a quote that is never closed
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe", ONE_COLUMN: "one column"}
_SAMPLE = 1 << 16  # characters from which the delimiter, the quotes and the header are detected
_ROWS = 200  # rows of the sample that are compared
_CONSISTENT = 0.7  # share of rows that must be as wide as the first one
_BLOCK = 1 << 20  # bytes that are checked together
_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_ENCODING_NAMES = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8 with BOM", "cp1252": "Windows-1252"}
_UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")  # bytes that Windows-1252 does not have
_ESCAPED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as surrogateescape decodes them
_SEP = re.compile(r'"?sep=([^\r\n"])"?\s*', re.IGNORECASE)  # a first line that Excel reads
_NUMBER = re.compile(r"[+-]?[\d.,\s]*\d\s*[%€$£]?")
_NAMES = re.compile(
    r"(?:texts?|labels?|class(?:es)?|categor(?:y|ies)|topic|title|name|id|code|description|body|content|message|"
    r"review|comment|brand|price|path|level ?\d+)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Dialect:
    """How a text table is written.

    >>> detect_dialect(["text;label\\n", "1,5 m of rope;tools\\n"])
    Dialect(encoding='utf-8', delimiter=';', quoting=True, header=True, newline='\\n', skipped=0)
    """

    encoding: str = "utf-8"
    delimiter: str = ","  # or ONE_COLUMN
    quoting: bool = True  # whether " encloses cells
    header: bool = True
    newline: str = field(default="\n", compare=False)
    skipped: int = 0  # lines before the table, such as "sep=;"

    def describe(self) -> str:
        """The dialect in words.

        >>> Dialect("cp1252", ";", header=False).describe()
        'semicolon, Windows-1252, no header'
        """
        parts = [
            _DELIMITERS.get(self.delimiter, f"delimiter {self.delimiter!r}"),
            _ENCODING_NAMES.get(self.encoding, self.encoding.upper()),
            "header" if self.header else "no header",
        ]
        return ", ".join(parts if self.quoting else [*parts, "quotes are plain characters"])

    def for_output(self, delimiter: str | None = None) -> Dialect:
        """How to write a table like this one: in Unicode, because predictions may contain any character."""
        is_unicode = self.encoding.startswith("utf")
        own = self.delimiter if self.delimiter != ONE_COLUMN else ","
        return replace(
            self, encoding=self.encoding if is_unicode else "utf-8-sig", delimiter=delimiter or own, skipped=0
        )


def detect_encoding(stream: IO[bytes]) -> str:
    """The encoding of the bytes that a stream would give: UTF-8, UTF-16, UTF-32 or Windows-1252; it is not moved.

    A file that can be read again is checked to its end, so that a byte in its last line counts, too.
    """
    first = peek_bytes(stream)
    for mark, name in _BOMS.items():
        if first.startswith(mark):
            return name
    zeros = [first[start:_SAMPLE:2].count(0) for start in (0, 1)]
    if sum(zeros) * 4 > len(first[:_SAMPLE]) and min(zeros) * 8 < max(zeros):
        return "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    wrong = right = 0  # bytes that are not UTF-8, and bytes after the first of a character
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    for block in _blocks(stream, first):
        if block.isascii() and not decoder.getstate()[0]:
            continue
        text = decoder.decode(block)
        wrong += len(_ESCAPED.findall(text))
        right += max(0, len(block) - len(text))
        if wrong and _UNDEFINED.search(block):
            return "utf-8"
    return "cp1252" if wrong > right else "utf-8"


def peek_bytes(stream: IO[bytes]) -> bytes:
    """The first bytes that a stream would give, without moving it; none if it cannot be moved back."""
    if hasattr(stream, "peek") and not stream.seekable():
        return bytes(stream.peek(_SAMPLE))
    if not stream.seekable():
        return b""
    place = stream.tell()
    first = stream.read(_SAMPLE)
    stream.seek(place)
    return first


def _blocks(stream: IO[bytes], first: bytes) -> Iterator[bytes]:
    if not stream.seekable():
        yield first
        return
    place = stream.tell()
    try:
        while block := stream.read(_BLOCK):
            yield block
    finally:
        stream.seek(place)


def sample_lines(stream: IO[Any], encoding: str) -> tuple[list[str], bool]:
    """The first lines of a stream of bytes or text, and whether these are all; the stream is not moved."""
    if isinstance(stream.read(0), str):
        if not stream.seekable():
            return [], False
        place = stream.tell()
        text = stream.read(_SAMPLE)
        stream.seek(place)
        is_whole = len(text) < _SAMPLE
    else:
        data = peek_bytes(stream)
        text = io.TextIOWrapper(io.BytesIO(data), encoding, errors="replace", newline="").read()
        is_whole = len(data) < _SAMPLE
    lines = io.StringIO(text.removeprefix("\ufeff"), newline="").readlines()
    return lines if is_whole or len(lines) < 2 else lines[:-1], is_whole


def detect_dialect(
    lines: Sequence[str],
    *,
    columns: Sequence[str | int] = (),
    delimiter: str | None = None,
    quoting: bool | None = None,
    header: bool | None = None,
    usual: str = ",",
    is_whole: bool = True,
    rows: Sequence[list[str]] | None = None,
) -> Dialect:
    """The dialect of a table that begins with these lines.

    `columns` are those that will be read, by name or position; `delimiter`, `quoting` and `header` are known if they
    are not None. Among equally good delimiters, `usual` is preferred. `rows` are those of a file without delimiters.
    """
    newline = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    skipped = 0
    if lines and (found := _SEP.fullmatch(lines[0])):
        delimiter, skipped, lines = delimiter or found[1], 1, lines[1:]
    names = [column for column in columns if isinstance(column, str) and not _is_position(column)]
    places = [int(column) for column in columns if isinstance(column, int) or _is_position(column)]
    width = max([len(set(columns)), 1, *(place + 1 for place in places)])
    marks = [delimiter] if delimiter else list(dict.fromkeys((usual, *_DELIMITERS)))
    readings = [_Reading.best(lines, mark, quoting, is_whole) for mark in marks]
    if rows is not None:
        readings = [_Reading(usual, True, list(rows), "")]
    tables = [reading for reading in readings if reading.is_table]

    def rank(reading: _Reading) -> tuple[float, ...]:
        first = reading.rows[0] if reading.rows else []
        named = sum(name in first for name in names)
        fits = reading.width >= width
        is_table = reading.is_table or (named > 0 and reading.width > 1)
        is_simple = reading.is_column and reading.delimiter in (usual, ONE_COLUMN)
        quality = reading.consistency * reading.cleanness([other.delimiter for other in tables])
        return named, fits, is_table, is_simple, round(quality, 6)

    best = max(readings, key=rank)  # the first of several equal ones
    if rank(best)[:2] == (0, False):
        best = readings[0]  # the error about the columns or the quotes is about the usual delimiter
    if header is None:
        is_list_of_texts = names == ["text"] and best.width == 1
        header = (bool(names) and not is_list_of_texts) or looks_like_header(
            best.rows, default=not places and best.width > 1
        )
    return Dialect("utf-8", best.delimiter, best.quoting, header, newline, skipped)


def _is_position(column: str | int) -> bool:
    return isinstance(column, str) and column.isascii() and column.isdigit()


@dataclass(frozen=True)
class _Reading:
    """The first rows of a table as one delimiter separates them."""

    delimiter: str
    quoting: bool
    rows: list[list[str]]  # without blank ones
    problem: str  # what is wrong with the quotes, "" for nothing

    @classmethod
    def best(cls, lines: Sequence[str], delimiter: str, quoting: bool | None, is_whole: bool) -> _Reading:
        """With quotes, unless only a reading without them makes sense."""
        if quoting is not None:
            return cls.of(lines, delimiter, quoting, is_whole)
        quoted = cls.of(lines, delimiter, True, is_whole)
        if not quoted.problem:
            return quoted
        plain = cls.of(lines, delimiter, False, is_whole)
        is_enclosed = any(re.fullmatch('".*"', cell, re.DOTALL) for row in plain.rows for cell in row)
        is_unclosed = "unexpected end" in quoted.problem and delimiter not in ("\t", ONE_COLUMN)
        is_plain = plain.consistency == 1 and len(plain.rows) > 1 and not is_enclosed and not is_unclosed
        return plain if is_plain else quoted

    @classmethod
    def of(cls, lines: Sequence[str], delimiter: str, quoting: bool, is_whole: bool) -> _Reading:
        csv.field_size_limit(MAX_CELL)
        reader = csv.reader(
            iter(lines),
            delimiter=delimiter,
            quoting=csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE,
            strict=quoting,
        )
        rows: list[list[str]] = []
        problem = ""
        try:
            for cells in reader:
                if not is_blank(cells):
                    rows.append(cells)
                if len(rows) == _ROWS:
                    break
        except csv.Error as error:
            problem = str(error) if is_whole or "unexpected end" not in str(error) else ""
        return cls(delimiter, quoting, rows, problem)

    @property
    def width(self) -> int:
        return len(self.rows[0]) if self.rows else 1

    @property
    def consistency(self) -> float:
        """The share of rows that are as wide as the first one."""
        return sum(len(row) == self.width for row in self.rows) / max(1, len(self.rows))

    @property
    def is_table(self) -> bool:
        return self.width > 1 and self.consistency >= _CONSISTENT

    @property
    def is_column(self) -> bool:
        return self.width == 1 and self.consistency == 1 and not self.problem

    def cleanness(self, delimiters: Sequence[str]) -> float:
        """The share of cells that are numbers or contain no other delimiter."""
        others = [mark for mark in delimiters if mark != self.delimiter]
        cells = [cell for row in self.rows for cell in row]
        unclean = sum(any(mark in cell for mark in others) and not _NUMBER.fullmatch(cell) for cell in cells)
        return 1 - unclean / max(1, len(cells))


def is_blank(cells: Sequence[str]) -> bool:
    """Whether a row has no cells, or only empty ones between delimiters."""
    return not cells or (len(cells) > 1 and not any(cell.strip() for cell in cells))


def looks_like_header(rows: Sequence[Sequence[str]], default: bool = False) -> bool:
    """Whether the first row has the names of columns: short and distinct, unlike the cells below.

    Without any sign the answer is `default`.

    >>> looks_like_header([["title", "kind"], ["A red scarf", "shop"]]), looks_like_header([["A scarf", "shop"]])
    (True, False)
    """
    if not rows:
        return True
    names = [cell.strip() for cell in rows[0]]
    if any(not name or len(name) > 60 or _NUMBER.fullmatch(name) for name in names) or len(set(names)) < len(names):
        return False
    if any(_NAMES.fullmatch(name) for name in names):
        return True
    if any(len(name.split()) > 4 or name[-1] in ".!?" for name in names):
        return False
    below = [row for row in rows[1:] if len(row) == len(names)]
    for place, name in enumerate(names):
        cells = [row[place].strip() for row in below]
        if name in cells:
            return False  # a label, which other rows have, too
    for place, name in enumerate(names):
        cells = [row[place].strip() for row in below]
        lengths = Counter(map(len, cells))
        is_number = all(not cell or _NUMBER.fullmatch(cell) for cell in cells) and any(cells)
        is_longer = sum(length * count for length, count in lengths.items()) > 2.5 * len(name) * len(cells)
        if is_number or is_longer:
            return True
    return default
