"""The lines of a text file, whatever it is packed in and however it is encoded."""

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

from arbormax.data.tables._common import Plan
from arbormax.errors import OptionError, TableError

_MAGIC = {
    codecs.BOM_UTF32_LE: "it is UTF-32 text: pass encoding='utf-32'",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF16_LE: "it is UTF-16 text: pass encoding='utf-16'",
    codecs.BOM_UTF16_BE: "it is UTF-16 text: pass encoding='utf-16'",
    b"\x1f\x8b": "it is compressed by gzip: give it a name that ends in .gz",
    b"PK\x03\x04": "it is a zip archive or a spreadsheet: unpack it, or save the sheet as CSV",
    b"PAR1": "it is Parquet: pass format='parquet'",
}


@contextmanager
def open_lines(plan: Plan) -> Iterator[Lines]:
    """The lines of the plan's source; what is wrong with its bytes becomes an error that says after which line."""
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
    lines: Lines | None = None
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
        lines = Lines(cast(IO[str], stream), plan.longest)
        yield lines
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


def _refuse_magic(file: IO[bytes], plan: Plan) -> None:
    if not file.seekable():
        return
    start = file.read(4)
    file.seek(0)
    for magic, advice in _MAGIC.items():
        if start.startswith(magic):
            raise TableError(f"{plan.name}: this is no {plan.format.upper()} text; {advice}")


class TooLongError(Exception):
    """A row beyond all measure."""


class Lines:
    """The lines of a text, those of the row being read kept, so that a broken row gives back what it swallowed."""

    def __init__(self, file: IO[str], longest: int) -> None:
        self._readline, self._longest = file.readline, longest
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

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        line = self._again.pop() if self._again else self._readline(self._longest + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if self.number == 1:
            line = line.removeprefix("\ufeff")
        self.row.append(line)
        self._size += len(line)
        if self._size > self._longest:
            if len(line) > self._longest:
                while line and not line.endswith(("\n", "\r")):
                    line = self._readline(self._longest + 1)
                self.row[-1] += "\n"  # if it is given back, its rest is not looked for again
            raise TooLongError
        if "\0" in line:
            self.flaw = "holds a NUL character; if the file is UTF-16, pass encoding='utf-16'"
        if not line.isascii():
            try:
                line.encode()
            except UnicodeEncodeError as error:
                byte = ord(line[error.start]) - 0xDC00
                self.flaw = f"holds the byte 0x{byte & 0xFF:02x}, which is no text in this encoding; pass encoding="
        return line
