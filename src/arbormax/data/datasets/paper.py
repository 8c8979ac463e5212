"""The four datasets of Schuurmans & Frasincar (2020), from the published files or from `label<TAB>text` tables."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from arbormax.data.datasets.base import Dataset, MissingDataError, Status
from arbormax.data.datasets.trees import tree
from arbormax.data.examples import Examples
from arbormax.errors import InputError, did_you_mean

SPLITS = ("train", "test")
BLANKS = " \t\r\f\v"  # str.rstrip() would take more, such as the no-break space of ISO-8859-1
SHOWN = 20


@dataclass(frozen=True)
class Source:
    """What is known of a published dataset; a published file is taken before a table of the same split."""

    name: str
    files: tuple[str, str]  # the published names of the training and the test file
    description: str
    licence: str
    source: str
    encoding: str = "utf-8"
    separator: str = "\t"

    def candidates(self, folder: Path, split: str) -> tuple[Path, Path]:
        """The files that may hold a split: the published one, then the table."""
        return folder / self.name / self.files[SPLITS.index(split)], folder / self.name / f"{split}.tsv"

    def find(self, folder: Path, split: str) -> Path | None:
        """The file of a split, or None."""
        return next((path for path in self.candidates(folder, split) if path.is_file()), None)

    def missing(self, folder: Path, splits: tuple[str, ...] = SPLITS) -> tuple[str, ...]:
        """The files of the splits that are not there, each with the place where it goes."""
        absent = [self.candidates(folder, split) for split in splits if self.find(folder, split) is None]
        return tuple(f"{published} (or {table.name} beside it)" for published, table in absent)


_CACHOPO = "A. Cardoso-Cachopo, Datasets for single-label text categorization (all-terms files)"
_REUTERS = (
    "Reuters-21578, Distribution 1.0: copyright Reuters Ltd. and Carnegie Group, for research purposes only; "
    "name the collection in published work"
)

SOURCES = {
    source.name: source
    for source in (
        Source(
            "trec",
            ("train_5500.label", "TREC_10.label"),
            "questions and the kind of answer they ask for: 50 kinds in 6 categories",
            "published for research, no licence text given",
            "Li and Roth (2002), TREC question classification, University of Illinois",
            encoding="iso-8859-1",
            separator=" ",
        ),
        Source(
            "20ng",
            ("20ng-train-all-terms.txt", "20ng-test-all-terms.txt"),
            "Usenet posts and their newsgroup: 20 groups in 6 categories",
            "public Usenet posts, no licence text given; the authors of the posts keep their rights",
            _CACHOPO,
        ),
        Source(
            "r8",
            ("r8-train-all-terms.txt", "r8-test-all-terms.txt"),
            "Reuters news of 1987 and their topic: 8 topics in 4 categories",
            _REUTERS,
            _CACHOPO,
        ),
        Source(
            "r52",
            ("r52-train-all-terms.txt", "r52-test-all-terms.txt"),
            "Reuters news of 1987 and their topic: 52 topics in 4 categories",
            _REUTERS,
            _CACHOPO,
        ),
    )
}


def load(source: Source, folder: Path) -> Dataset:
    """The dataset in the files below a folder."""
    train, test = _read(source, folder, SPLITS)
    return Dataset(source.name, tree(source.name), train, test, source.description, source.licence, source.source)


def load_split(source: Source, folder: Path, split: str) -> Examples:
    """One of the two splits; the other one's file is not so much as looked for."""
    return _read(source, folder, (split,))[0]


def _read(source: Source, folder: Path, splits: tuple[str, ...]) -> list[Examples]:
    if missing := source.missing(folder, splits):
        listed = "".join(f"\n  - {path}" for path in missing)
        raise MissingDataError(
            f"the dataset {source.name} is not whole; missing:{listed}\n`arbormax data fetch {source.name}` downloads "
            "it, or put the files there by hand; ARBORMAX_DATA or root= names another folder"
        )
    taxonomy = tree(source.name)
    node_of = {taxonomy.names[node]: node for node in taxonomy.leaves.tolist()}
    problems: list[str] = []
    paths = [path for split in splits if (path := source.find(folder, split))]
    parts = [_examples(source, path, node_of, problems) for path in paths]
    if problems:
        raise _complaint(f"the files of {source.name} do not hold one label and one text in every line:", problems)
    return parts


def status(source: Source, folder: Path) -> Status:
    """What is there of a dataset; rows are counted, not read."""
    paths = [path for split in SPLITS if (path := source.find(folder, split))]
    found, missing = tuple(map(str, paths)), source.missing(folder)
    if missing:
        hint = f"arbormax data fetch {source.name}"
        return Status(source.name, False, source.description, found=found, missing=missing, hint=hint)
    train, test = (sum(1 for line in path.read_bytes().split(b"\n") if line.strip()) for path in paths)
    return Status(source.name, True, source.description, train, test, found)


def read_rows(source: Source, path: Path) -> list[tuple[str, str]]:
    """Label and text of every line, in order; blank lines at the end are left out, whatever the line ends."""
    table = path.suffix == ".tsv"
    encoding, separator = ("utf-8-sig", "\t") if table else (source.encoding, source.separator)
    raw = path.read_bytes()
    try:
        lines = raw.decode(encoding).split("\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: expected {encoding} text, found the byte 0x{raw[error.start]:02x}; "
            "save the file in that encoding"
        ) from None
    while lines and not lines[-1].strip(BLANKS):
        lines.pop()
    rows = [line.rstrip(BLANKS).partition(separator) for line in lines]
    return [(label, text) for label, _, text in rows]


def rows_digest(source: Source, path: Path) -> str:
    """The SHA-256 of the rows as a table: UTF-8, label, tab, text, line feed. Equal rows, equal digest."""
    table = "".join(f"{label}\t{text}\n" for label, text in read_rows(source, path))
    return hashlib.sha256(table.encode("utf-8")).hexdigest()


def _examples(source: Source, path: Path, node_of: dict[str, int], problems: list[str]) -> Examples:
    """The rows of one file, with what is wrong in it added to `problems`."""
    rows = read_rows(source, path)
    if not rows:
        problems.append(f"{path}: no rows")
    unknown: dict[str, list[int]] = defaultdict(list)
    for line, (label, text) in enumerate(rows, start=1):
        if not label.strip() or not text.strip():
            problems.append(f"{path}, line {line}: no {'text' if label.strip() else 'label'}")
        elif label not in node_of:
            unknown[label].append(line)
    for label, where in unknown.items():
        problems.append(f"{path}, {_lines(where)}: unknown label {label!r}{did_you_mean(label, node_of)}")
    nodes = np.fromiter((node_of.get(label, -1) for label, _ in rows), np.int64, len(rows))
    return Examples([text for _, text in rows], nodes)


def _lines(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"{'lines' if len(numbers) > 1 else 'line'} {shown}{more}"


def _complaint(start: str, problems: Iterable[str]) -> InputError:
    listed = list(problems)
    shown = [f"  - {problem}" for problem in listed[:SHOWN]]
    if len(listed) > SHOWN:
        shown.append(f"  - … and {len(listed) - SHOWN} more")
    return InputError("\n".join([start, *shown, "correct these lines, or fetch the published files again"]))
