"""Word vectors from published files: GloVe's text and zip, word2vec's text, and numpy archives of a part of them.

E size of a word's vector.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from arbormax.data._glove import VectorText
from arbormax.errors import ArbormaxError, InputError, OptionError, did_you_mean

_TEXT = (".txt", ".vec")
_SUFFIXES = (*_TEXT, ".zip", ".npz")
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
                words, matrix = VectorText(stream, str(file), file.stat().st_size).read()
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


def guard_archive(archive: zipfile.ZipFile, path: Path, members: Iterable[str]) -> None:
    """Refuse what would unpack to an unreasonable size."""
    for member in members:
        info = archive.getinfo(member)
        bomb = info.file_size > _SMALL and info.file_size > _TIGHTEST * info.compress_size
        if bomb or info.file_size > _LARGEST:
            raise InputError(
                f"{path}: {member} would unpack from {info.compress_size:,} to {info.file_size:,} bytes, "
                "which no file of this kind does"
            )


def _read_zip(path: Path, dim: int | None) -> tuple[list[str], np.ndarray, str]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            texts = [name for name in names if name.lower().endswith(_TEXT) and not name.startswith("__MACOSX/")]
            # A zip of a single text needs no name of a pattern.
            chosen = texts if len(texts) == 1 and not re.search(r"\d+d\b", texts[0]) else _of_dim(texts, dim)
            member = _only(chosen, names, str(path), dim)
            guard_archive(archive, path, [member])
            with archive.open(member) as stream:
                text = VectorText(stream, f"{path}, {member}", archive.getinfo(member).file_size)
                return *text.read(), Path(member).stem
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise InputError(f"{path} is cut short or is no zip file: {error}") from error


def _read_npz(path: Path) -> tuple[list[str], np.ndarray]:
    wanted = "`words`, all of them as bytes with line feeds between, and `vectors`, (words, E)"
    try:
        with zipfile.ZipFile(path) as archive:
            guard_archive(archive, path, archive.namelist())
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
