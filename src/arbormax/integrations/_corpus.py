"""A corpus of Parquet files: which files, how many rows, and the pieces that workers take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from glob import glob, has_magic
from itertools import islice
from pathlib import Path
from typing import Any

from arbormax.data.tables import iter_rows
from arbormax.data.tables.writing import ROW_GROUP, import_arrow, infer_schema
from arbormax.errors import InputError, OptionError, TableError
from arbormax.model.predict import Decoding
from arbormax.model.rows import ROWS, column_prefix

MOST = 32 * ROWS  # rows of a piece: what is done again when a worker dies
EACH = 8  # pieces for a worker at least, so that none waits long for the last one


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one file; they begin where a batch of the local engine begins."""

    at: int
    file: str
    first: int
    stop: int

    @property
    def parts(self) -> int:
        return -(-(self.stop - self.first) // ROWS)

    def __str__(self) -> str:
        return f"rows {self.first + 1:,} to {self.stop:,} of {self.file}"


@dataclass(frozen=True)
class Corpus:
    """Parquet files in their order."""

    files: tuple[str, ...]
    counts: tuple[int, ...]  # rows of each
    several: bool  # whether more than one was asked for, so that a row's number alone does not tell which it is

    @property
    def total(self) -> int:
        return sum(self.counts)

    def pieces(self, workers: int) -> list[Piece]:
        """The whole corpus in pieces for so many workers."""
        size = min(MOST, ROWS * -(-self.total // (workers * EACH * ROWS)))
        spans = (
            (file, first, min(first + size, count))
            for file, count in zip(self.files, self.counts, strict=True)
            for first in range(0, count, size)
        )
        return [Piece(at, *span) for at, span in enumerate(spans)]

    def schema(self, text: str, keep: bool, decoding: Decoding) -> Any:
        """The Arrow schema that the local engine decides by the first rows."""
        own: list[dict[str, Any]] = list(islice(self._rows(text), ROW_GROUP)) if keep else [{"line": 1}]
        if not keep and self.several:
            own = [{"file": self.files[0], "line": 1}]
        row: dict[str, Any] = {"label": "a", "path": ["a"], "probabilities": [1.0]}
        if decoding.top_k:
            row["top"] = [{"label": "a", "probability": 1.0}]
        prefix = column_prefix(own) if keep else ""
        named = infer_schema([{prefix + name: value for name, value in row.items()}])
        pa, _ = import_arrow()
        return pa.schema([*infer_schema(own), *named])

    def _rows(self, text: str) -> Iterator[dict[str, Any]]:
        for file in self.files:
            for batch in iter_rows(
                file, [text], ROWS, required=[text], records=True, on_bad_rows="skip", format="parquet"
            ):
                yield from batch.rows


def open_corpus(sources: Sequence[Path | str], text: str, keep: bool, format: str | None = None) -> Corpus:
    """The files of these names, folders and patterns, each once, checked to be Parquet with a column of texts."""
    if format not in (None, "parquet"):
        raise OptionError(f"Ray scores Parquet, not {format}: write the texts as Parquet, or use the local engine")
    found = {path.resolve(): path for source in sources for path in _files_of(Path(source), format)}
    files = tuple(map(str, found.values()))
    with ThreadPoolExecutor(16) as pool:  # a corpus may have many files on a disk far away
        shapes = list(pool.map(partial(_shape, text=text, keep=keep), files))
    for file, (_, names) in zip(files, shapes, strict=True):
        if keep and set(names) != set(shapes[0][1]):
            raise TableError(
                f"{file} has the columns {', '.join(names)}, and {files[0]} has {', '.join(shapes[0][1])}: "
                "one table cannot hold both; leave out --keep, or predict them one by one"
            )
    several = len(sources) > 1 or not Path(sources[0]).is_file()
    corpus = Corpus(files, tuple(count for count, _ in shapes), several)
    if not corpus.total:
        raise InputError(f"{', '.join(map(str, sources))}: there are no texts in it")
    return corpus


def _files_of(source: Path, format: str | None) -> list[Path]:
    if source.is_dir():
        # tools put notes of their own beside the data, in names that begin with . or _
        inside = (path for path in source.rglob("*.parquet") if path.is_file())
        files = sorted(path for path in inside if not any(p[0] in "._" for p in path.relative_to(source).parts))
        if not files:
            raise InputError(f"{source}: there is no file in it whose name ends with .parquet")
        return files
    if has_magic(str(source)) and not source.exists():
        files = sorted(map(Path, glob(str(source), recursive=True)))
        if not files:
            raise InputError(f"{source}: no file has such a name")
        return [file for path in files for file in _files_of(path, format)]
    if not source.exists():
        raise InputError(f"{source}: there is no such file or folder")
    if format is None and source.suffix.lower() != ".parquet":
        raise InputError(
            f"Ray scores Parquet, and the name of {source} does not end with .parquet: write the texts as Parquet, "
            "or use the local engine"
        )
    return [source]


def _shape(file: str, text: str, keep: bool) -> tuple[int, tuple[str, ...]]:
    """How many rows a file has, and its columns."""
    batch = next(iter_rows(file, [text], records=keep, format="parquet", span=(0, 0)))
    _, pq = import_arrow()
    return pq.read_metadata(file).num_rows, batch.names
