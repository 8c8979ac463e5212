"""The lines of a text file: plain or compressed, in any encoding."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from arbormax.data.tables._common import Flaw, Plan
from arbormax.errors import OptionError, TableError

_MAGIC: dict[bytes, Flaw] = {
    codecs.BOM_UTF32_LE: Flaw("the file is UTF-32 text", {"encoding": "utf-32"}),  # starts with the mark of UTF-16
    codecs.BOM_UTF16_LE: Flaw("the file is UTF-16 text", {"encoding": "utf-16"}),
    codecs.BOM_UTF16_BE: Flaw("the file is UTF-16 text", {"encoding": "utf-16"}),
    b"\x1f\x8b": Flaw("the file is compressed with gzip; its name must end in .gz"),
    b"PK\x03\x04": Flaw("the file is a zip archive or a spreadsheet; unpack it, or save the sheet as CSV"),
    b"PAR1": Flaw("the file is Parquet", {"format": "parquet"}),
}


@contextmanager
def open_lines(plan: Plan) -> Iterator[Lines]:
    """The lines of the plan's source; bytes that cannot be read are an error that names the line before them."""
    source = plan.source
    owned: IO[bytes] | None = None
    wrapper: io.TextIOWrapper | None = None
    stream: IO[Any]
    if not isinstance(source, (str, os.PathLike)):
        stream = source
    elif source == "-":
        stream = getattr(sys.stdin, "buffer", sys.stdin)
    else:
        is_compressed = os.fspath(source).lower().endswith(".gz")
        stream = owned = cast(IO[bytes], gzip.open(source) if is_compressed else open(source, "rb"))  # noqa: SIM115
    lines: Lines | None = None
    try:
        if isinstance(stream.read(0), bytes):
            # bad bytes become lone surrogates, so that each is reported with its row
            try:
                wrapper = io.TextIOWrapper(stream, plan.encoding, errors="surrogateescape", newline="")
            except LookupError:
                raise OptionError(f"{plan.encoding!r} is not a text encoding", argument="encoding") from None
            if owned is not None and plan.encoding.lower().replace("_", "-").startswith("utf-8"):
                _check_magic(owned, plan)
            stream = wrapper
        lines = Lines(cast(IO[str], stream), plan.max_row)
        yield lines
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        place = f" after line {lines.number}" if lines else ""
        raise TableError(f"{plan.name}: the gzip file is damaged{place} ({error})") from None
    except UnicodeError as error:
        place = f" after line {lines.number}" if lines else ""
        raise TableError(f"{plan.name}: not {plan.encoding}{place} ({error})", fix={"encoding": "latin-1"}) from None
    finally:
        if owned is not None:
            owned.close()
        elif wrapper is not None:
            wrapper.detach()


def _check_magic(file: IO[bytes], plan: Plan) -> None:
    if not file.seekable():
        return
    start = file.read(4)
    file.seek(0)
    for magic, flaw in _MAGIC.items():
        if start.startswith(magic):
            raise TableError(f"{plan.name}: expected {plan.format.upper()}; {flaw.message}", fix=flaw.fix)


class RowTooLongError(Exception):
    """A row is longer than the limit."""


class Lines:
    """The lines of a text. It stores the lines of the current row, so that those of a broken row can be read again."""

    def __init__(self, file: IO[str], max_row: int) -> None:
        self._readline, self._max_row = file.readline, max_row
        self._again: list[str] = []  # lines to read again, the next one last
        self.number = 0  # of the line read last
        self.row: list[str] = []
        self.flaw: Flaw | None = None  # what makes the row unreadable
        self._size = 0

    def start_row(self) -> int:
        """The number of the line in which the next row starts."""
        self.row, self.flaw, self._size = [], None, 0
        return self.number + 1

    def reread_row(self) -> None:
        """Read all lines of this row except the first again, as separate rows."""
        self._again += self.row[:0:-1]
        self.number -= len(self.row) - 1

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        line = self._again.pop() if self._again else self._readline(self._max_row + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if self.number == 1:
            line = line.removeprefix("\ufeff")
        self.row.append(line)
        self._size += len(line)
        if self._size > self._max_row:
            if len(line) > self._max_row:
                while line and not line.endswith(("\n", "\r")):
                    line = self._readline(self._max_row + 1)
                self.row[-1] += "\n"  # so that its rest is not looked for when it is read again
            raise RowTooLongError
        if "\0" in line:
            self.flaw = Flaw("contains a NUL character, as UTF-16 files do", {"encoding": "utf-16"})
        if not line.isascii():
            try:
                line.encode()
            except UnicodeEncodeError as error:
                byte = ord(line[error.start]) - 0xDC00
                message = f"contains the byte 0x{byte & 0xFF:02x}, which is not valid in this encoding"
                self.flaw = Flaw(message, {"encoding": "latin-1"})
        return line
