"""Datasets by name: a taxonomy with training and test texts, read from files or an installed package.

Nothing here uses the network; `arbormax.data.fetch` downloads. A new dataset is a `DatasetSource` in one file and one
line here.
"""

from __future__ import annotations

from pathlib import Path

from arbormax._registry import Registry
from arbormax.data.datasets.base import (
    SPLITS,
    Dataset,
    DatasetSource,
    MissingDataError,
    RemoteFile,
    Split,
    Status,
    data_root,
    resolve_root,
)
from arbormax.data.examples import Examples
from arbormax.errors import check_choice
from arbormax.taxonomy import Taxonomy

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetSource",
    "MissingDataError",
    "RemoteFile",
    "Status",
    "available",
    "data_root",
    "load",
    "load_split",
    "load_taxonomy",
]

DATASETS: Registry[DatasetSource] = Registry("dataset")
DATASETS.add("icd10cm", "arbormax.data.datasets.icd10cm:ICD10CM", "diagnosis texts and their ICD-10-CM category")
DATASETS.add("inat", "arbormax.data.datasets.inat:INAT", "scientific names and their species, a million classes")
DATASETS.add("trec", "arbormax.data.datasets.paper:TREC", "questions and the kind of answer they ask for")
DATASETS.add("20ng", "arbormax.data.datasets.paper:NEWSGROUPS", "Usenet posts and their newsgroup")
DATASETS.add("r8", "arbormax.data.datasets.paper:R8", "Reuters news of 1987 and their topic, 8 topics")
DATASETS.add("r52", "arbormax.data.datasets.paper:R52", "Reuters news of 1987 and their topic, 52 topics")
DATASETS.add("soc2020", "arbormax.data.datasets.soc2020:SOC2020", "job titles and their group in the UK's SOC 2020")
DATASETS.add("wordnet", "arbormax.data.datasets.wordnet:WORDNET", "definitions of nouns and the group they belong to")


def load(name: str, root: Path | str | None = None) -> Dataset:
    """The dataset of this name, one of `DATASETS`; its files are in `root`, by default `data_root()`.

    `icd10cm` and `inat` are parts of installed packages and need no files; `wordnet` is also in /usr/share/wordnet.
    """
    return DATASETS[name].load(resolve_root(root))


def load_split(name: str, split: Split, root: Path | str | None = None) -> Examples:
    """The training or the test examples of a dataset. Where they are files, the other file is not opened."""
    check_choice("split", split, SPLITS)
    return DATASETS[name].load_split(resolve_root(root), split)


def load_taxonomy(name: str, root: Path | str | None = None) -> Taxonomy:
    """The tree of a dataset; the trees of `trec`, `20ng`, `r8` and `r52` need no files."""
    return DATASETS[name].taxonomy(resolve_root(root))


def available(root: Path | str | None = None) -> list[Status]:
    """The status of every dataset: its rows and where it was found, or what is missing and how to get it."""
    folder = resolve_root(root)
    return [DATASETS[name].status(folder) for name in DATASETS]
