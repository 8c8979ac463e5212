"""Datasets by name: a taxonomy with training and test texts, read from files or an installed package, never the net."""

from __future__ import annotations

from pathlib import Path

from arbormax.data.datasets import icd10cm, paper
from arbormax.data.datasets.base import Dataset, MissingDataError, Status, data_root, folder_of
from arbormax.errors import OptionError, did_you_mean

__all__ = ["NAMES", "Dataset", "MissingDataError", "Status", "available", "data_root", "load"]

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


def available(root: Path | str | None = None) -> list[Status]:
    """What is there of every dataset: its rows and where it was found, or what is missing and how to get it."""
    folder = folder_of(root)
    return [icd10cm.status(), *(paper.status(source, folder) for source in paper.SOURCES.values())]
