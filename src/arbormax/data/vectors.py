"""Word vectors from published files: GloVe's text and zip files, word2vec's and fastText's text, numpy archives,
model2vec's static embeddings of subwords, and the vectors of a spaCy pipeline.

E size of a word vector.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from arbormax._archives import ARCHIVE_ERRORS, check_archive
from arbormax.data._spacy import SPACY_FILES, read_spacy
from arbormax.data.packages import package_folder
from arbormax.data.ragged import Ragged
from arbormax.errors import InputError, import_extra

_SUFFIXES = (".npz", ".zip", ".txt", ".vec")
_MAX_DIM = 1 << 14  # numbers of one vector; more come from files that do not contain word vectors
_MAX_LINE = _MAX_DIM * 64  # bytes
MODEL2VEC_FILES = ("model.safetensors", "tokenizer.json")


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors, one row each, in the order of the file: most frequent first.

    >>> vectors = WordVectors(("owl", "mouse"), np.eye(2, dtype=np.float32), "Tiny 2d")
    >>> vectors.number["mouse"]
    1
    >>> vectors.coverage({"owl": 3, "bat": 1})
    'Tiny 2d: 50.0 % of 2 distinct words, 75.0 % of 4 running words'
    """

    words: tuple[str, ...]
    matrix: np.ndarray  # (n, E) float32
    name: str = "word vectors"

    @classmethod
    def load(cls, path: str | os.PathLike[str], dim: int | None = None, words: Sequence[str] = ()) -> WordVectors:
        """The vectors of a `.npz` file, a `.zip` file of text files, a text file, or a folder of such files.

        `dim` selects a file of a zip or of a folder. The folder, or the name of an installed package that contains it,
        may also be that of a model of model2vec; each of these `words` then has the mean vector of its subwords. It may
        also be that of a spaCy pipeline with vectors, whose numbers are scaled to a standard deviation of 0.4.

        If a word occurs twice, its first vector is used.
        """
        file = Path(path).expanduser()
        for files, read in ((MODEL2VEC_FILES, partial(read_model2vec, words=words)), (SPACY_FILES, read_spacy)):
            model = file if file.exists() else package_folder(str(path), files)
            for folder in (model, model / "vocab") if model else ():
                if all((folder / name).is_file() for name in files):
                    return cls(*read(folder), folder.name if folder.name != "vocab" else folder.parent.name)
        if not (file.exists() or file.suffix):
            raise InputError(
                f"no word vectors at {path}: it is neither a file, a folder nor an installed package with "
                "static embeddings or a pipeline of spaCy"
            )
        if file.is_dir():
            file /= _select(
                [each.name for each in sorted(file.iterdir()) if each.suffix.lower() in _SUFFIXES], dim, file
            )
        name = file.stem
        try:
            if file.suffix.lower() == ".npz":
                names, matrix = _read_npz(file)
            elif file.suffix.lower() == ".zip":
                with zipfile.ZipFile(file) as archive:
                    texts = [each for each in archive.namelist() if each.endswith((".txt", ".vec"))]
                    chosen = _select([each for each in texts if "__MACOSX" not in each], dim, file)
                    check_archive(archive, file, [chosen])
                    with archive.open(chosen) as stream:
                        names, matrix = _read_text(stream, f"{file}, {chosen}")
                name = Path(chosen).stem
            else:
                with file.open("rb") as stream:
                    names, matrix = _read_text(stream, str(file))
        except (FileNotFoundError, PermissionError):
            raise
        except ARCHIVE_ERRORS as error:
            raise InputError(f"{file} is cut short or is not a {file.suffix} file; fetch it again ({error})") from error
        if not np.isfinite(matrix).all():
            row = int(np.argwhere(~np.isfinite(matrix))[0, 0])
            raise InputError(f"{file}: the vector of {names[row]!r} contains a number that is not finite")
        first = dict(zip(reversed(names), range(len(names) - 1, -1, -1), strict=True))
        if len(first) < len(names):
            rows = sorted(first.values())
            names, matrix = [names[row] for row in rows], matrix[rows]
        if name.lower().startswith("glove"):
            name = f"GloVe {matrix.shape[1]}d"
        return cls(tuple(names), matrix, name)

    @cached_property
    def number(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    def coverage(self, counts: Mapping[str, int]) -> str:
        """A sentence on how many of these words, given with their number of occurrences, have a vector."""
        found = [count for word, count in counts.items() if word in self.number]
        running = sum(counts.values())
        return (
            f"{self.name}: {100 * len(found) / max(len(counts), 1):.1f} % of {len(counts):,} distinct words, "
            f"{100 * sum(found) / max(running, 1):.1f} % of {running:,} running words"
        )


def _read_text(stream: IO[bytes], source: str) -> tuple[list[str], np.ndarray]:
    """Lines of a word and E numbers, separated by single blanks; words may contain blanks too.

    The first line may be a header, "words size" as word2vec writes it.
    """
    lines = _read_lines(stream, source)
    first = next(lines, b"").removeprefix(b"\xef\xbb\xbf")
    header = re.fullmatch(rb"([0-9]{1,18}) ([0-9]{1,18})\s*", first)
    dim = int(header[2]) if header else _count_numbers(first)
    if not dim:
        raise InputError(f"{source}: expected lines of a word and its numbers")
    if dim > _MAX_DIM:
        raise InputError(f"{source}, line 1: found {dim:,} numbers; expected vectors of at most {_MAX_DIM:,} numbers")
    words: list[str] = []
    values = array("f")
    for number, line in enumerate(chain([b"" if header else first], lines), start=1):
        line = line.rstrip(b"\r\n").removesuffix(b" ")
        if not line:
            continue
        word, *numbers = line.rsplit(b" ", dim)
        try:
            if len(numbers) < dim or (b" " in word and _count_numbers(line) > dim):
                raise ValueError("another number of fields")
            values.extend(map(float, numbers))
            words.append(word.decode("utf-8"))
        except ValueError as error:
            shown = line[:60].decode("utf-8", "backslashreplace")
            raise InputError(
                f"{source}, line {number}: expected a word in UTF-8 and {dim} numbers, found {shown!r} ({error})"
            ) from None
    if header and int(header[1]) != len(words):
        raise InputError(f"{source} is cut short: its header announces {int(header[1]):,} words, found {len(words):,}")
    return words, np.frombuffer(values, dtype=np.float32).reshape(len(words), dim)


def _read_lines(stream: IO[bytes], source: str) -> Iterator[bytes]:
    for number, line in enumerate(iter(partial(stream.readline, _MAX_LINE), b""), start=1):
        if len(line) == _MAX_LINE and not line.endswith(b"\n"):
            raise InputError(f"{source}, line {number} has more than {_MAX_LINE:,} bytes; expected a word and numbers")
        yield line


def _count_numbers(line: bytes) -> int:
    """How many numbers follow the word of a line."""
    count = 0
    for field in reversed(line.rstrip().split(b" ")[1:]):
        try:
            float(field)
        except ValueError:
            break
        count += 1
    return count


def _select(names: list[str], dim: int | None, source: Path) -> str:
    """The only file, or the one with this dimension in its name, as in glove.6B.100d.txt, or the only zip."""
    chosen = [name for name in names if len(names) == 1 or f".{dim}d." in name]
    chosen = chosen or [name for name in names if name.endswith(".zip")]
    if len(chosen) != 1:
        found = ", ".join(names) or "no word vectors"
        raise InputError(f"{source} contains {found}: select a file by its dimension", argument="dim")
    return chosen[0]


def _read_npz(path: Path) -> tuple[list[str], np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        check_archive(archive, path, archive.namelist())
    try:
        # numpy leaves a broken archive open, so the file is opened here
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            words = arrays["words"].item().decode("utf-8").split("\n")
            matrix = np.ascontiguousarray(arrays["vectors"], dtype=np.float32)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        wanted = "`words`, as bytes separated by line feeds, and `vectors`, (words, E)"
        raise InputError(f"{path}: expected a numpy archive with {wanted} ({error})") from error
    if matrix.ndim != 2 or len(words) != len(matrix):
        raise InputError(f"{path}: expected a vector for each word, found {len(words)} words, vectors {matrix.shape}")
    return words, matrix


def read_model2vec(folder: Path, words: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """These words and all words that are a single token, with the mean vectors of their subwords."""
    matrix, tokenizer, unknown = _read_files(folder)
    tokens = sorted(tokenizer.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
    if tokens and tokens[-1][1] >= len(matrix):
        raise InputError(f"{folder}: expected a vector for each of {tokens[-1][1] + 1:,} tokens, found {len(matrix):,}")
    single = [token for token, number in tokens if number != unknown]
    names = list(dict.fromkeys([*words, *single]))
    # the tokenizer rejects lone surrogates, which a text may contain
    texts = [name.encode("utf-8", "replace").decode("utf-8") for name in names]
    rows = [
        [number for number in found.ids if number != unknown]
        for found in tokenizer.encode_batch(texts, add_special_tokens=False)
    ]
    given = len(dict.fromkeys(words))
    number_of = dict(tokens)
    used = [
        place
        for place, (name, row) in enumerate(zip(names, rows, strict=True))
        if (row if place < given else row == [number_of[name]])
    ]
    pieces = Ragged.from_lists([rows[place] for place in used])
    sums = np.add.reduceat(matrix[pieces.values], pieces.offsets[:-1], axis=0) if used else matrix[:0]
    return tuple(names[place] for place in used), sums / np.maximum(pieces.lengths, 1)[:, None].astype(np.float32)


def _read_files(folder: Path) -> tuple[np.ndarray, Any, int | None]:
    """(tokens, E) float32, the tokenizer, and the number of its token for unknown characters."""
    load_file = import_extra("safetensors.numpy", "static embeddings", "safetensors", "transformers").load_file
    kind = import_extra("tokenizers", "static embeddings", "tokenizers", "transformers").Tokenizer
    weights, tokens = (folder / name for name in MODEL2VEC_FILES)
    try:
        arrays = load_file(weights)
        model = json.loads(tokens.read_bytes())["model"]
        tokenizer = kind.from_file(str(tokens))
    except Exception as error:  # tokenizers raises nothing more specific
        raise InputError(f"{folder} contains no static embeddings that can be read: {error}") from error
    if (matrix := arrays.get("embeddings")) is None or matrix.ndim != 2:
        raise InputError(f"{weights}: expected a matrix `embeddings`, found {', '.join(arrays) or 'no arrays'}")
    matrix = matrix.astype(np.float32)
    if "mapping" in arrays:  # several tokens share a vector
        matrix = matrix[arrays["mapping"]]
    if "weights" in arrays:
        matrix = matrix * arrays["weights"].astype(np.float32)[:, None]
    if not np.isfinite(matrix).all():
        raise InputError(f"{weights} contains a number that is not finite")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    unknown = tokenizer.token_to_id(model["unk_token"]) if model.get("unk_token") else model.get("unk_id")
    return matrix, tokenizer, unknown
