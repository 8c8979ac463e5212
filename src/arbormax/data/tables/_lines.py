"""The lines of a text file: plain or compressed, in any encoding."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import IO, Any

from arbormax.data.tables._common import Flaw, Plan
from arbormax.data.tables._source import open_bytes
from arbormax.errors import TableError

_MAX_REREAD = 1 << 24  # characters, besides four times those of the file: each quote may lead to the end of the file


class BrokenQuotesError(Exception):
    """Most quotes of a file are never closed."""


@contextmanager
def open_lines(plan: Plan) -> Iterator[Lines]:
    """The lines of the plan's source; bytes that cannot be read are an error that names the line before them."""
    lines: Lines | None = None
    with ExitStack() as stack:
        stream: Any = stack.enter_context(open_bytes(plan.source.source, plan.name))
        try:
            if isinstance(stream.read(0), bytes):
                # bad bytes become lone surrogates, so that each is reported with its row
                encoding = plan.source.dialect.encoding
                stream = io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="")
                stack.callback(stream.detach)  # the wrapper must not close the file of the caller
            lines = Lines(stream, plan.source.dialect.skipped)
            yield lines
        except BrokenQuotesError:
            message = f"too many quotes are never closed, up to line {lines.number if lines else 0}"
            raise TableError(f"{plan.name}: {message}", fix={"quoting": False}) from None
        except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeError) as error:
            place = f" after line {lines.number}" if lines else ""
            raise TableError(f"{plan.name}: the file cannot be read{place} ({error})") from None


class Lines:
    """The lines of a text. It stores the lines of the current row, so that those of a broken row can be read again."""

    def __init__(self, file: IO[str], skipped: int = 0) -> None:
        self._file = file
        self._again: list[str] = []  # lines to read again, the next one last
        self.number = 0  # of the line read last
        self.row: list[str] = []
        self._read = self._reread = 0  # characters
        for _ in islice(self, skipped):
            pass

    def start_row(self) -> int:
        """The number of the line in which the next row starts."""
        self.row = []
        return self.number + 1

    def reread_row(self) -> None:
        """Read all lines of this row except the first again, as separate rows."""
        self._reread += sum(map(len, self.row)) - len(self.row[0])
        if self._reread > _MAX_REREAD + 4 * self._read:
            raise BrokenQuotesError
        self._again += self.row[:0:-1]
        self.number -= len(self.row) - 1

    @property
    def flaw(self) -> Flaw | None:
        """What makes the text of the current row unreadable."""
        text = "".join(self.row)
        if "\0" in text:
            return Flaw("contains a NUL character, as UTF-16 files do", {"encoding": "utf-16"})
        try:
            text.encode()
        except UnicodeEncodeError as error:
            byte = ord(text[error.start]) & 0xFF
            message = f"contains the byte 0x{byte:02x}, which is not valid in this encoding"
            return Flaw(message, {"encoding": "latin-1"})
        return None

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        if self._again:
            line = self._again.pop()
        else:
            line = next(self._file)
            self._read += len(line)
        self.number += 1
        if self.number == 1:
            line = line.removeprefix("\ufeff")
        self.row.append(line)
        return line
