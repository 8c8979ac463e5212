"""Datasets by name: a taxonomy with training and test texts, read from files or an installed package, never the net."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from arbormax.data.datasets import icd10cm, paper
from arbormax.data.datasets.base import Dataset, MissingDataError, Status, data_root, folder_of
from arbormax.data.examples import Examples
from arbormax.errors import OptionError, did_you_mean

__all__ = ["NAMES", "Dataset", "MissingDataError", "Status", "available", "data_root", "load", "load_split"]

NAMES = (icd10cm.NAME, *paper.SOURCES)


def load(name: str, root: Path | str | None = None) -> Dataset:
    """The dataset of this name, one of `NAMES`; its files lie in `root`, which is `data_root()` unless given.

    `icd10cm` comes out of an installed package and needs no files.
    """
    if name == icd10cm.NAME:
        return icd10cm.load()
    if name in paper.SOURCES:
        return paper.load(paper.SOURCES[name], folder_of(root))
    raise OptionError(f"no dataset is named {name!r}, expected one of {', '.join(NAMES)}{did_you_mean(name, NAMES)}")


def load_split(name: str, split: Literal["train", "test"], root: Path | str | None = None) -> Examples:
    """The training or the test texts of one of the paper's datasets, with the nodes of its tree; no look at the other.

    `arbormax.data.datasets.trees.tree(name)` is the tree.
    """
    if name not in paper.SOURCES:
        near = did_you_mean(name, paper.SOURCES)
        raise OptionError(f"splits are read by themselves of {', '.join(paper.SOURCES)}; found {name!r}{near}")
    if split not in paper.SPLITS:
        raise OptionError(f"split is one of {', '.join(paper.SPLITS)}, found {split!r}")
    return paper.load_split(paper.SOURCES[name], folder_of(root), split)


def available(root: Path | str | None = None) -> list[Status]:
    """What is there of every dataset: its rows and where it was found, or what is missing and how to get it."""
    folder = folder_of(root)
    return [icd10cm.status(), *(paper.status(source, folder) for source in paper.SOURCES.values())]
