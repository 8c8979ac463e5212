"""Datasets in text files of one example per line: `label<TAB>text` tables, or the files as they were published."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from arbormax.data.datasets.base import SPLITS, Dataset, DatasetSource, MissingDataError, RemoteFile, Split, Status
from arbormax.data.examples import Examples
from arbormax.data.labels import label_nodes
from arbormax.errors import InputError, LabelError, TableError
from arbormax.taxonomy import Taxonomy

_BLANKS = " \t\r\f\v"  # str.rstrip() would also remove the no-break space of ISO-8859-1


@dataclass(frozen=True)
class RemoteTable(RemoteFile):
    """A published file with a label and a text per line.

    A file is accepted if its rows, written as a table of label, tab and text, have the SHA-256 `rows_sha256`. Published
    copies differ in blanks at line ends, which this ignores.
    """

    rows_sha256: str = ""
    split: Split = "train"
    encoding: str = "utf-8"
    separator: str = "\t"

    @property
    def local_names(self) -> tuple[str, ...]:
        return self.name, f"{self.split}.tsv"

    def find_mismatch(self, path: Path) -> str | None:
        try:
            found = rows_digest(self.read_rows(path))
        except InputError as error:
            found = str(error)
        return None if found == self.rows_sha256 else f"expected rows with SHA-256 {self.rows_sha256}, found {found}"

    def read_rows(self, path: Path) -> list[tuple[str, str]]:
        """Label and text of every line; a `.tsv` file is a table, any other file is as published."""
        return read_rows(path) if path.suffix == ".tsv" else read_rows(path, self.encoding, self.separator)


class TextFiles(DatasetSource):
    """A dataset in one file for each split: the published file, or the table `train.tsv` or `test.tsv`.

    `tree` is the taxonomy, or the name of a taxonomy file in the folder of the dataset. Labels are names of leaves.
    `node_texts` is the name of a file with the texts of nodes, which may be missing.
    """

    def __init__(
        self,
        name: str,
        description: str,
        licence: str,
        source: str,
        tree: Callable[[], Taxonomy] | str,
        remote_files: tuple[RemoteTable, ...] = (),
        node_texts: str | None = None,
    ) -> None:
        self.name, self.description, self.licence, self.source = name, description, licence, source
        self.tree, self.node_texts = tree, node_texts
        self.hint = f"arbormax data fetch {name}" if remote_files else "copy its files into the data folder"
        self.remote_files: tuple[RemoteTable, ...] = remote_files

    def load(self, folder: Path) -> Dataset:
        train, test = self._read(folder, SPLITS)
        return Dataset(self.name, self.taxonomy(folder), train, test, self.description, self.licence, self.source)

    def load_split(self, folder: Path, split: Split) -> Examples:
        return self._read(folder, (split,))[0]

    def taxonomy(self, folder: Path) -> Taxonomy:
        if callable(self.tree):
            return self.tree()
        texts = folder / self.name / self.node_texts if self.node_texts else None
        return Taxonomy.load(folder / self.name / self.tree, texts=texts if texts and texts.is_file() else None)

    def status(self, folder: Path) -> Status:
        paths = [path for split in SPLITS if (path := self.find(folder, split))]
        found = tuple(map(str, paths))
        if missing := self._missing(folder):
            return Status(self.name, False, self.description, found=found, missing=missing, hint=self.hint)
        train, test = (sum(1 for line in path.read_bytes().split(b"\n") if line.strip()) for path in paths)
        return Status(self.name, True, self.description, train, test, found)

    def find(self, folder: Path, split: Split) -> Path | None:
        """The file of a split: the published one if it exists, else the table, else None."""
        return next((path for path in self._candidates(folder, split) if path.is_file()), None)

    def _candidates(self, folder: Path, split: Split) -> list[Path]:
        names = [name for remote in self.remote_files if remote.split == split for name in remote.local_names]
        return [folder / self.name / name for name in names or [f"{split}.tsv"]]

    def _missing(self, folder: Path, splits: tuple[Split, ...] = SPLITS) -> tuple[str, ...]:
        missing = []
        for split in splits:
            if self.find(folder, split) is None:
                first, *others = self._candidates(folder, split)
                missing.append(f"{first} (or {others[0].name} beside it)" if others else str(first))
        if isinstance(self.tree, str) and not (folder / self.name / self.tree).is_file():
            missing.append(str(folder / self.name / self.tree))
        return tuple(missing)

    def _read(self, folder: Path, splits: tuple[Split, ...]) -> list[Examples]:
        if missing := self._missing(folder, splits):
            listed = "".join(f"\n  - {path}" for path in missing)
            raise MissingDataError(
                f"files of the dataset {self.name} are missing:{listed}\nTo get them: {self.hint}; "
                "ARBORMAX_DATA or root= names another folder"
            )
        taxonomy = self.taxonomy(folder)
        problems: list[str] = []
        parts = [self._read_split(folder, split, taxonomy, problems) for split in splits]
        if problems:
            expected = f"every line of the files of {self.name} must have one label and one text"
            message = f"{problems[0]}; {expected}" if len(problems) == 1 else f"{expected}:"
            raise TableError(message, problems)
        return parts

    def _read_split(self, folder: Path, split: Split, taxonomy: Taxonomy, problems: list[str]) -> Examples:
        """The rows of one file; its defects are added to `problems`."""
        path = self.find(folder, split)
        assert path is not None
        remote = next((remote for remote in self.remote_files if remote.split == split), None)
        rows = remote.read_rows(path) if remote else read_rows(path)
        if not rows:
            problems.append(f"{path}: no rows")
        for line, (label, text) in enumerate(rows, start=1):
            if not label.strip() or not text.strip():
                problems.append(f"{path}, line {line}: no {'text' if label.strip() else 'label'}")
        nodes = np.zeros(len(rows), np.int64)
        try:
            nodes = label_nodes([label for label, _ in rows], taxonomy, range(1, len(rows) + 1))
        except LabelError as error:
            problems += [f"{path}: {problem}" for problem in error.problems]
        return Examples([text for _, text in rows], nodes)


def read_rows(path: Path, encoding: str = "utf-8-sig", separator: str = "\t") -> list[tuple[str, str]]:
    """Label and text of every line, in order, without blanks at line ends and blank lines at the end of the file."""
    raw = path.read_bytes()
    try:
        lines = raw.decode(encoding).split("\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: expected {encoding} text, found the byte 0x{raw[error.start]:02x}; "
            "save the file in that encoding"
        ) from None
    while lines and not lines[-1].strip(_BLANKS):
        lines.pop()
    rows = [line.rstrip(_BLANKS).partition(separator) for line in lines]
    return [(label, text) for label, _, text in rows]


def rows_digest(rows: list[tuple[str, str]]) -> str:
    """The SHA-256 of the rows as a table: UTF-8, label, tab, text, line feed. Equal rows have equal digests."""
    table = "".join(f"{label}\t{text}\n" for label, text in rows)
    return hashlib.sha256(table.encode("utf-8")).hexdigest()
