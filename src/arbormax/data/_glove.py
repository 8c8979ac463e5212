"""Word vectors as text, as GloVe, word2vec and fastText write them.

E size of a word's vector.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import IO

import numpy as np

from arbormax.errors import InputError, MissingDependencyError

_BLOCK = 1 << 25  # bytes of text that are read at a time


class VectorText:
    """Lines of a word and E numbers between single blanks, read by blocks into one matrix."""

    def __init__(self, stream: IO[bytes], source: str, size: int) -> None:
        self.stream, self.source, self.size = stream, source, size
        self.line = 1  # of the block's first line
        self.consumed = 0
        self.promised: int | None = None
        self.dim = 0
        self.trailing = False  # whether lines end with a blank, as fastText writes them

    def read(self) -> tuple[list[str], np.ndarray]:
        words: list[str] = []
        matrix = np.empty((0, 0), dtype=np.float32)
        for block in self._blocks():
            if not self.dim:
                block = self._look(block)
                matrix = np.empty((0, self.dim), dtype=np.float32)
            if not self.dim or not block:
                self.line += block.count(b"\n")
                continue
            more, rows = self._fast(block) or self._careful(block)
            self._refuse_infinite(block, rows)
            end = len(words) + len(more)
            if end > len(matrix):  # grown in place: the file's size tells how much is still to come
                matrix.resize((max(end, int(1.02 * end * self.size / max(self.consumed, 1))), self.dim), refcheck=False)
            matrix[len(words) : end] = rows
            words += more
            self.line += block.count(b"\n")
        if not words:
            raise InputError(f"{self.source} is empty: expected lines of a word and its numbers")
        if self.promised is not None and self.promised != len(words):
            raise InputError(
                f"{self.source}, line 1 announces {self.promised:,} words, found {len(words):,}: the file is cut short"
            )
        matrix.resize((len(words), self.dim), refcheck=False)
        return words, matrix

    def _blocks(self) -> Iterator[bytes]:
        """Blocks of whole lines."""
        rest = b""
        while read := self.stream.read(_BLOCK):
            self.consumed += len(read)
            end = read.rfind(b"\n") + 1
            if end:
                yield rest + read[:end]
                rest = read[end:]
            elif len(rest) < _BLOCK:
                rest += read
            else:
                raise InputError(f"{self.source} is no text of word vectors: a line is longer than {_BLOCK:,} bytes")
        if rest:
            yield rest

    def _look(self, block: bytes) -> bytes:
        """Find E from the first lines, and leave out the count and size that may stand above them."""
        block = block.removeprefix(b"\xef\xbb\xbf")
        lines = [line.removesuffix(b"\r") for line in block.split(b"\n", 1000)[:1000]]
        header = re.fullmatch(rb"(\d{1,10}) (\d{1,6}) ?", lines[0])
        if header and next(filter(None, lines[1:]), b"").count(b" ") >= int(header[2]):
            self.promised, self.dim = int(header[1]), int(header[2])
            self.line += 1
            block = block[block.index(b"\n") + 1 :]
            lines = lines[1:]
        full = [line for line in lines if line]
        self.trailing = bool(full) and full[0].endswith(b" ")
        if not self.dim and full:
            self.dim = Counter(line.count(b" ") - self.trailing for line in full).most_common(1)[0][0]
        if full and self.dim < 1:
            raise InputError(
                f"{self.source}, line {self.line}: expected a word and numbers between blanks, found {_show(full[0])}"
            )
        return block

    def _fast(self, block: bytes) -> tuple[list[str], np.ndarray] | None:
        """The words and numbers of regular lines; None where any line is not, which the careful way then tells."""
        try:
            import pyarrow as pa
            from pyarrow import csv
        except ImportError as error:
            raise MissingDependencyError("reading word vectors", "pyarrow", "text") from error
        if block.startswith(b"\xef\xbb\xbf"):  # pyarrow would drop it as a mark at a file's start
            return None
        columns = [str(i) for i in range(self.dim)]
        try:
            table = csv.read_csv(
                pa.BufferReader(block),
                csv.ReadOptions(column_names=["word", *columns, *["end"] * self.trailing], block_size=_BLOCK // 8),
                csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=False),
                csv.ConvertOptions(
                    column_types={"word": pa.string()} | dict.fromkeys(columns, pa.float32()),
                    include_columns=["word", *columns],
                    null_values=[],
                ),
            )
        except pa.ArrowInvalid:
            return None
        if len(table) != block.count(b"\n") + (not block.endswith(b"\n")):
            return None
        rows = np.empty((self.dim, len(table)), dtype=np.float32)
        for i in range(self.dim):
            rows[i] = table.column(i + 1).to_numpy()
        return table.column(0).to_pylist(), rows.T

    def _careful(self, block: bytes) -> tuple[list[str], np.ndarray]:
        """The same line by line: words may contain blanks, and what is wrong gets its line number."""
        words: list[str] = []
        rows: list[np.ndarray] = []
        for number, line in enumerate(block.split(b"\n"), self.line):
            line = line.removesuffix(b"\r")
            if self.trailing:
                line = line.removesuffix(b" ")
            if not line:
                continue
            where = f"{self.source}, line {number}"
            word, *numbers = line.rsplit(b" ", self.dim)
            surplus = _is_number(word.rpartition(b" ")[2]) if b" " in word else False
            if len(numbers) < self.dim or surplus:
                found = len(line.split(b" ")) - 1
                raise InputError(f"{where}: expected a word and {self.dim} numbers, found {found}: {_show(line)}")
            if wrong := [x for x in numbers if not _is_number(x)]:
                raise InputError(f"{where}: expected a number, found {_show(wrong[0])} in {_show(line)}")
            rows.append(np.array([float(x) for x in numbers]))
            try:
                words.append(word.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise InputError(f"{where}: the word {_show(word)} is not UTF-8 ({error.reason})") from error
        with np.errstate(over="ignore"):  # told below as a number that is not finite
            return words, np.array(rows).reshape(len(words), self.dim).astype(np.float32)

    def _refuse_infinite(self, block: bytes, rows: np.ndarray) -> None:
        if np.isfinite(rows).all():
            return
        words, rows = self._careful(block)
        row = int(np.argwhere(~np.isfinite(rows))[0, 0])
        full = [number for number, line in enumerate(block.split(b"\n"), self.line) if line.strip(b"\r ")]
        raise InputError(
            f"{self.source}, line {full[row]}: the vector of {words[row]!r} holds a number that is not finite"
        )


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def _show(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", "backslashreplace") + ("…" if len(text) > 60 else ""))
