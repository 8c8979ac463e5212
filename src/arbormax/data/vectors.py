"""Word vectors from published files: GloVe's text and zip, word2vec's text, and numpy archives of a part of them.

E size of a word's vector.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np

from arbormax.errors import ArbormaxError, InputError, MissingDependencyError, OptionError, did_you_mean

_TEXT = (".txt", ".vec")
_SUFFIXES = (*_TEXT, ".zip", ".npz")
_BLOCK = 1 << 25  # bytes of text that are read at a time
_LARGEST = 1 << 35  # bytes of one unpacked file: six times the largest published one
_TIGHTEST = 100  # how many times a file may shrink: numbers as text shrink three times
_SMALL = 1 << 28  # bytes that may unpack whatever their rate


class MissingVectorsError(ArbormaxError, FileNotFoundError):
    """There is no such file of word vectors."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors, one row each, in the order of their file: most frequent first.

    >>> vectors = WordVectors(("owl", "mouse"), np.eye(2, dtype=np.float32), "Tiny 2d")
    >>> vectors.number["mouse"]
    1
    >>> print(vectors.coverage({"owl": 3, "bat": 1}))
    Tiny 2d: 50.0 % of 2 distinct words, 75.0 % of 4 running words
    """

    words: tuple[str, ...]
    matrix: np.ndarray  # (n, E) float32
    name: str = "word vectors"

    @classmethod
    def load(cls, path: str | os.PathLike[str], dim: int | None = None) -> WordVectors:
        """The vectors of a `.txt`, `.vec`, `.zip` or `.npz` file; `dim` chooses among those of a zip or a folder.

        Of a word that stands there twice the first vector counts.
        """
        file = _choose(Path(path), dim)
        suffix = file.suffix.lower()
        if suffix == ".npz":
            words, matrix = _read_npz(file)
            name = file.stem
        elif suffix == ".zip":
            words, matrix, name = _read_zip(file, dim)
        else:
            with file.open("rb") as stream:
                words, matrix = _Text(stream, str(file), file.stat().st_size).read()
            name = file.stem
        first = dict(zip(reversed(words), range(len(words) - 1, -1, -1), strict=True))
        if len(first) < len(words):
            kept = sorted(first.values())
            words, matrix = [words[i] for i in kept], matrix[kept]
        known = "GloVe" if name.lower().startswith("glove") else None
        return cls(tuple(words), matrix, f"{known} {matrix.shape[1]}d" if known else name)

    @cached_property
    def number(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    def coverage(self, counts: Mapping[str, int]) -> Coverage:
        """How many of these words, each with its number of occurrences, have a vector."""
        found = [count for word, count in counts.items() if word in self.number]
        return Coverage(self.name, len(found), len(counts), sum(found), sum(counts.values()))


@dataclass(frozen=True)
class Coverage:
    """How many of a text's words have a vector."""

    name: str
    found_distinct: int
    distinct: int
    found_running: int
    running: int

    @property
    def distinct_share(self) -> float:
        return self.found_distinct / max(self.distinct, 1)

    @property
    def running_share(self) -> float:
        return self.found_running / max(self.running, 1)

    def __str__(self) -> str:
        return (
            f"{self.name}: {100 * self.distinct_share:.1f} % of {self.distinct:,} distinct words, "
            f"{100 * self.running_share:.1f} % of {self.running:,} running words"
        )


def _choose(path: Path, dim: int | None) -> Path:
    """The file meant by a path, which may be that of a folder."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in _SUFFIXES and file.is_file())
        named = _of_dim([file.name for file in files], dim)
        zips = [file.name for file in files if file.suffix.lower() == ".zip"]
        return path / _only(named or zips, [file.name for file in files], f"the folder {path}", dim)
    if not path.exists():
        siblings = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        missing = "" if siblings or path.parent.is_dir() else f": there is no folder {path.parent}"
        raise MissingVectorsError(f"no word vectors at {path}{missing}{did_you_mean(path.name, siblings)}")
    if path.suffix.lower() not in _SUFFIXES:
        raise OptionError(f"word vectors are {', '.join(_SUFFIXES)} files, or a folder of those; found {path.name!r}")
    return path


def _of_dim(names: Iterable[str], dim: int | None) -> list[str]:
    """Those named after this size, as in glove.6B.100d.txt; all of them when none is asked for."""
    return [name for name in names if dim is None or re.search(rf"(?<!\d){dim}d(?![a-z0-9])", name.lower())]


def _only(chosen: list[str], names: list[str], where: str, dim: int | None) -> str:
    if len(chosen) == 1:
        return chosen[0]
    size = "" if dim is None else f" of {dim} dimensions"
    problem = f"{len(chosen)} files of word vectors{size}" if chosen else f"no word vectors{size}"
    mend = "say which with dim=, or give the file itself" if names else "expected a file such as glove.6B.100d.txt"
    raise InputError(f"{where} has {problem}; it holds {', '.join(names) or 'none at all'}: {mend}")


def _guard(archive: zipfile.ZipFile, path: Path, members: Iterable[str]) -> None:
    """Refuse what would unpack to an unreasonable size."""
    for member in members:
        info = archive.getinfo(member)
        bomb = info.file_size > _SMALL and info.file_size > _TIGHTEST * info.compress_size
        if bomb or info.file_size > _LARGEST:
            raise InputError(
                f"{path}: {member} would unpack from {info.compress_size:,} to {info.file_size:,} bytes, "
                "which no file of word vectors does"
            )


def _read_zip(path: Path, dim: int | None) -> tuple[list[str], np.ndarray, str]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            texts = [name for name in names if name.lower().endswith(_TEXT) and not name.startswith("__MACOSX/")]
            # A zip of a single text needs no name of a pattern.
            chosen = texts if len(texts) == 1 and not re.search(r"\d+d\b", texts[0]) else _of_dim(texts, dim)
            member = _only(chosen, names, str(path), dim)
            _guard(archive, path, [member])
            with archive.open(member) as stream:
                text = _Text(stream, f"{path}, {member}", archive.getinfo(member).file_size)
                return *text.read(), Path(member).stem
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise InputError(f"{path} is cut short or is no zip file: {error}") from error


def _read_npz(path: Path) -> tuple[list[str], np.ndarray]:
    wanted = "`words`, all of them as bytes with line feeds between, and `vectors`, (words, E)"
    try:
        with zipfile.ZipFile(path) as archive:
            _guard(archive, path, archive.namelist())
        with np.load(path, allow_pickle=False) as arrays:
            if absent := [key for key in ("words", "vectors") if key not in arrays]:
                found = ", ".join(arrays.files) or "nothing"
                raise InputError(f"{path} has no {' and no '.join(absent)}; expected {wanted}, found {found}")
            packed, matrix = arrays["words"], arrays["vectors"]
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError) as error:
        raise InputError(f"{path} is cut short or is no numpy archive: {error}") from error
    if packed.shape != () or packed.dtype.kind != "S" or matrix.ndim != 2 or matrix.dtype.kind != "f":
        found = f"words {packed.dtype} {packed.shape}, vectors {matrix.dtype} {matrix.shape}"
        raise InputError(f"{path}: expected {wanted}, found {found}")
    try:
        words = packed.item().decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: the words are not UTF-8 ({error})") from error
    if len(words) != len(matrix):
        raise InputError(f"{path}: expected a vector for each word, found {len(words)} words, {len(matrix)} vectors")
    matrix = np.ascontiguousarray(matrix, dtype=np.float32)
    if not np.isfinite(matrix).all():
        row = int(np.argwhere(~np.isfinite(matrix))[0, 0])
        raise InputError(f"{path}: the vector of {words[row]!r}, row {row}, holds a value that is not finite")
    return words, matrix


class _Text:
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
