"""Word vectors from published files: GloVe's text and zip files, word2vec's and fastText's text, and numpy archives.

E size of a word vector.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import IO

import numpy as np

from arbormax.data._archives import check_archive
from arbormax.errors import ArbormaxError, InputError, OptionError, did_you_mean

_TEXT = (".txt", ".vec")
_SUFFIXES = (*_TEXT, ".zip", ".npz")


class MissingVectorsError(ArbormaxError, FileNotFoundError):
    """The file of word vectors does not exist."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors, one row each, in the order of the file: most frequent first.

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
        """The vectors of a `.txt`, `.vec`, `.zip` or `.npz` file; `dim` selects a file in a zip or a folder.

        If a word occurs twice, its first vector is used.
        """
        file = _find_file(Path(path), dim)
        name = file.stem
        if file.suffix.lower() == ".npz":
            words, matrix = _read_npz(file)
        elif file.suffix.lower() == ".zip":
            words, matrix, name = _read_zip(file, dim)
        else:
            with file.open("rb") as stream:
                words, matrix = _read_text(stream, str(file))
        first = dict(zip(reversed(words), range(len(words) - 1, -1, -1), strict=True))
        if len(first) < len(words):
            rows = sorted(first.values())
            words, matrix = [words[row] for row in rows], matrix[rows]
        if name.lower().startswith("glove"):
            name = f"GloVe {matrix.shape[1]}d"
        return cls(tuple(words), matrix, name)

    @cached_property
    def number(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    def coverage(self, counts: Mapping[str, int]) -> Coverage:
        """How many of these words, given with their number of occurrences, have a vector."""
        found = [count for word, count in counts.items() if word in self.number]
        return Coverage(self.name, len(found), len(counts), sum(found), sum(counts.values()))


@dataclass(frozen=True)
class Coverage:
    """How many words of a text have a vector."""

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


def _find_file(path: Path, dim: int | None) -> Path:
    """The file of a path; in a folder, the only one with this dimension."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in _SUFFIXES and file.is_file())
        names = _with_dim([file.name for file in files], dim)
        zips = [file.name for file in files if file.suffix.lower() == ".zip"]
        return path / _only(names or zips, [file.name for file in files], f"the folder {path}", dim)
    if not path.exists():
        if not path.parent.is_dir():
            raise MissingVectorsError(f"no word vectors at {path}: the folder {path.parent} does not exist")
        near = did_you_mean(path.name, [file.name for file in path.parent.iterdir()])
        raise MissingVectorsError(f"no word vectors at {path}{near}")
    if path.suffix.lower() not in _SUFFIXES:
        raise OptionError(
            f"expected a {', '.join(_SUFFIXES)} file or a folder, found {path.name!r}", argument="vectors"
        )
    return path


def _with_dim(names: Iterable[str], dim: int | None) -> list[str]:
    """The names that contain this dimension, as in glove.6B.100d.txt; all names if `dim` is None."""
    return [name for name in names if dim is None or re.search(rf"(?<!\d){dim}d(?![a-z0-9])", name.lower())]


def _only(chosen: list[str], names: list[str], where: str, dim: int | None) -> str:
    if len(chosen) == 1:
        return chosen[0]
    size = "" if dim is None else f" of {dim} dimensions"
    problem = f"{len(chosen)} files of word vectors{size}" if chosen else f"no word vectors{size}"
    advice = "select one with dim=, or pass the file itself" if names else "expected a file such as glove.6B.100d.txt"
    raise InputError(f"{where} has {problem}; it contains {', '.join(names) or 'nothing'}: {advice}")


def _read_text(stream: IO[bytes], source: str) -> tuple[list[str], np.ndarray]:
    """Lines of a word and E numbers, separated by single blanks; words may contain blanks too."""
    start = list(islice(stream, 1000))
    first_line, words_expected, dim = _read_header(start, source)
    words: list[str] = []
    values = array("f")
    lines = array("q")  # the line of each word
    for number, line in enumerate(chain(start, stream), first_line):
        line = line.rstrip(b"\r\n").removesuffix(b" ")
        if not line:
            continue
        where = f"{source}, line {number}"
        word, *numbers = line.rsplit(b" ", dim)
        has_surplus = b" " in word and _is_number(word.rpartition(b" ")[2])
        if len(numbers) < dim or has_surplus:
            found = line.count(b" ")
            raise InputError(
                f"{source}, line {number}: expected a word and {dim} numbers, found {found}: {_show(line)}"
            )
        try:
            if line.rfind(b"_") > len(word):  # float() accepts 1_0
                raise ValueError
            values.extend(map(float, numbers))
            words.append(word.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(
                f"{source}, line {number}: the word {_show(word)} is not UTF-8 ({error.reason})"
            ) from error
        except ValueError:
            wrong = next(field for field in numbers if not _is_number(field))
            raise InputError(f"{where}: expected a number, found {_show(wrong)} in {_show(line)}") from None
        lines.append(number)
    if not words:
        raise InputError(f"{source} is empty: expected lines of a word and its numbers")
    matrix = np.frombuffer(values, dtype=np.float32).reshape(len(words), dim)
    if not np.isfinite(matrix).all():
        row = int(np.argwhere(~np.isfinite(matrix))[0, 0])
        raise InputError(
            f"{source}, line {lines[row]}: the vector of {words[row]!r} contains a number that is not finite"
        )
    if words_expected not in (None, len(words)):
        raise InputError(f"{source}, line 1 announces {words_expected:,} words, found {len(words):,}: it is cut short")
    return words, matrix


def _read_header(start: list[bytes], source: str) -> tuple[int, int | None, int]:
    """The number of the first line with a word, the announced number of words if there is a header, and E.

    Removes the header, "words size" as word2vec writes it, and a byte order mark from the first lines.
    """
    if start:
        start[0] = start[0].removeprefix(b"\xef\xbb\xbf")
    lines = [line.rstrip(b"\r\n").removesuffix(b" ") for line in start]
    header = re.fullmatch(rb"(\d{1,10}) (\d{1,6})", lines[0]) if lines else None
    if header and next(filter(None, lines[1:]), b"").count(b" ") >= int(header[2]):
        del start[0]
        return 2, int(header[1]), int(header[2])
    counts = Counter(line.count(b" ") for line in lines if line)
    dim = counts.most_common(1)[0][0] if counts else 1
    if dim < 1:
        first = next(filter(None, lines))
        raise InputError(f"{source}: expected a word and numbers, separated by blanks, found {_show(first)}")
    return 1, None, dim


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def _show(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", "backslashreplace") + ("…" if len(text) > 60 else ""))


def _read_zip(path: Path, dim: int | None) -> tuple[list[str], np.ndarray, str]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            texts = [name for name in names if name.lower().endswith(_TEXT) and not name.startswith("__MACOSX/")]
            # a single text file need not have its dimension in its name
            chosen = texts if len(texts) == 1 and not re.search(r"\d+d\b", texts[0]) else _with_dim(texts, dim)
            member = _only(chosen, names, str(path), dim)
            check_archive(archive, path, [member])
            with archive.open(member) as stream:
                return *_read_text(stream, f"{path}, {member}"), Path(member).stem
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise InputError(f"{path} is cut short or is not a zip file: {error}") from error


def _read_npz(path: Path) -> tuple[list[str], np.ndarray]:
    wanted = "`words`, as bytes separated by line feeds, and `vectors`, (words, E)"
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path, archive.namelist())
        with np.load(path, allow_pickle=False) as arrays:
            if absent := [key for key in ("words", "vectors") if key not in arrays]:
                found = ", ".join(arrays.files) or "nothing"
                raise InputError(f"{path} has no {' and no '.join(absent)}; expected {wanted}, found {found}")
            packed, matrix = arrays["words"], arrays["vectors"]
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError) as error:
        raise InputError(f"{path} is cut short or is not a numpy archive: {error}") from error
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
        raise InputError(f"{path}: the vector of {words[row]!r}, row {row}, contains a value that is not finite")
    return words, matrix
