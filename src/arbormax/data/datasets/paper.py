"""The four datasets of Schuurmans & Frasincar (2020)."""

from __future__ import annotations

from functools import partial

from arbormax.data.datasets.base import SPLITS, Split
from arbormax.data.datasets.text_files import RemoteTable, TextFiles
from arbormax.data.datasets.trees import tree

_TREC_HOSTS = ("https://cogcomp.seas.upenn.edu/Data/QA/QC/", "https://cogcomp.org/Data/QA/QC/")
_CACHOPO_HOSTS = (
    "https://www.cs.umb.edu/~smimarog/textmining/datasets/",
    "https://web.ist.utl.pt/~acardoso/datasets/",
)
_CACHOPO_PAGE = "https://ana.cachopo.org/datasets-for-single-label-text-categorization"
_TEXT_GCN = "https://raw.githubusercontent.com/yao8839836/text_gcn/5fa0c35dbe09453a8f724c3f3eb8b6f172deb18c/data/R8/"
_CACHOPO = "A. Cardoso-Cachopo, Datasets for single-label text categorization (all-terms files)"
_REUTERS = (
    "Reuters-21578, Distribution 1.0: copyright Reuters Ltd. and Carnegie Group, for research purposes only; "
    "name the collection in published work"
)


def _trec(split: Split, name: str, rows_sha256: str) -> RemoteTable:
    urls = tuple(host + name for host in _TREC_HOSTS)
    return RemoteTable(name, urls, _TREC_HOSTS[0], 1 << 20, None, rows_sha256, split, "iso-8859-1", " ")


def _cachopo(dataset: str, train_sha256: str, test_sha256: str, mirror: str | None = None) -> tuple[RemoteTable, ...]:
    files = []
    for split, digest in zip(SPLITS, (train_sha256, test_sha256), strict=True):
        name = f"{dataset}-{split}-all-terms.txt"
        urls = [host + name for host in _CACHOPO_HOSTS] + ([f"{mirror}{split}.txt"] if mirror else [])
        files.append(RemoteTable(name, tuple(urls), _CACHOPO_PAGE, 32 << 20, None, digest, split))
    return tuple(files)


TREC = TextFiles(
    "trec",
    "questions and the kind of answer they ask for: 50 kinds in 6 categories",
    "published for research, no licence text given",
    "Li and Roth (2002), TREC question classification, University of Illinois",
    partial(tree, "trec"),
    (
        _trec("train", "train_5500.label", "4428b0118135b9122ac9671f66fe7fd45c61b08beacb591ddbdc2a1a09ea5834"),
        _trec("test", "TREC_10.label", "362f949499f30ea9c006498007971397ad6c9a46c75d598ce7b5729673785de3"),
    ),
)
NEWSGROUPS = TextFiles(
    "20ng",
    "Usenet posts and their newsgroup: 20 groups in 6 categories",
    "public Usenet posts, no licence text given; the authors of the posts keep their rights",
    _CACHOPO,
    partial(tree, "20ng"),
    _cachopo(
        "20ng",
        "88a1869518fc705d45ab6bfaf087bb160fee92173e66d8b8d16724b195d6dd0d",
        "b2d8a326ca4a97945c5b77bfda3caaa560ce67a47e10aac57244decc8efa86f3",
    ),
)
R8 = TextFiles(
    "r8",
    "Reuters news of 1987 and their topic: 8 topics in 4 categories",
    _REUTERS,
    _CACHOPO,
    partial(tree, "r8"),
    _cachopo(
        "r8",
        "015bddccc661d2e604bbdb2bf0405c184f35af21a48a55d8e5a8e9947698b2ed",
        "9ed028ab5dbcc8dfb575b2efde93ecc166529e70849dc041113fed6598b0302c",
        _TEXT_GCN,
    ),
)
R52 = TextFiles(
    "r52",
    "Reuters news of 1987 and their topic: 52 topics in 4 categories",
    _REUTERS,
    _CACHOPO,
    partial(tree, "r52"),
    _cachopo(
        "r52",
        "9fc4611ada92056fb96f6f37ccbc2ef2598c007415d2485f57450b3e1ab66908",
        "073a3e6de10378f7a87c3545baf50e789bb198469b96c9c1c670c16176829773",
    ),
)

SOURCES = {source.name: source for source in (TREC, NEWSGROUPS, R8, R52)}
