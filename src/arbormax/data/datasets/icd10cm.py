"""ICD-10-CM: diagnosis texts and their three-character category, from the package simple-icd-10-cm."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import warnings
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from arbormax.data.datasets.base import Dataset, DatasetSource, Status
from arbormax.data.examples import Examples
from arbormax.errors import import_extra
from arbormax.taxonomy import Taxonomy

NAME = "icd10cm"
PACKAGE = "simple-icd-10-cm"
DESCRIPTION = "diagnosis texts and their ICD-10-CM category: code titles to train on, inclusion terms to test on"
LICENCE = (
    "ICD-10-CM is a work of the US government (National Center for Health Statistics), in the public domain in the US; "
    "the WHO holds the copyright of ICD-10, on which it is based. The package is under the MIT licence"
)
SIZES = {"1.5.0": (97_449, 12_552)}  # rows by package version, so that `status` does not build the dataset

Names = tuple[str, ...]


class ICD10CMSource(DatasetSource):
    """The dataset in the installed package."""

    name = NAME
    description = DESCRIPTION
    hint = "pip install 'arbormax[text]'"

    def load(self, folder: Path | None = None) -> Dataset:  # noqa: ARG002 - the package contains the files
        """The dataset, built in about two seconds."""
        icd = _package()
        train: dict[tuple[str, Names], None] = {}
        test: dict[tuple[str, Names], None] = {}
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

    def status(self, folder: Path | None = None) -> Status:  # noqa: ARG002 - the package contains the files
        if importlib.util.find_spec("simple_icd_10_cm") is None:
            missing = (f"the package {PACKAGE}",)
            return Status(NAME, False, DESCRIPTION, missing=missing, hint=self.hint)
        version = _version()
        if version in SIZES:
            train, test = SIZES[version]
        else:
            dataset = self.load()
            train, test = len(dataset.train), len(dataset.test)
        return Status(NAME, True, DESCRIPTION, train, test, found=(f"{PACKAGE} {version}",))


ICD10CM = ICD10CMSource()


def _package() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package reads its files through deprecated functions
        return import_extra("simple_icd_10_cm", "the dataset icd10cm", PACKAGE, "text")


def _version() -> str:
    return importlib.metadata.version(PACKAGE)


def _edition() -> str:
    """For example "ICD-10-CM, release of April 2026", from the name of the code list in the package."""
    for file in resources.files("simple_icd_10_cm").joinpath("data").iterdir():
        if found := re.fullmatch(r"code-list-(\w+)-(\d{4})\.txt", file.name):
            return f"ICD-10-CM, release of {found[1]} {found[2]}"
    return "ICD-10-CM"


def _categories(icd: Any) -> list[tuple[str, Names]]:
    """The code and the path of every category, in the published order.

    A block may have the same code as the one category in it, so blocks are looked up with `prioritize_blocks`. The
    package lists headings such as "C00-C96 Malignant neoplasms" as siblings of the blocks that they span; here they
    are the parents of those blocks.
    """
    found: list[tuple[str, Names]] = []
    for chapter in (code for code in icd.get_all_codes(True) if icd.is_chapter(code)):
        top = f"{chapter} {_clean(icd.get_description(chapter))}"
        blocks = icd.get_children(chapter)
        headings = [block for block in blocks if not icd.get_children(block, prioritize_blocks=True)]
        headings.sort(key=_last_code, reverse=True)
        headings.sort(key=_first_code)  # so that a wide heading is before the narrow ones inside it
        for block in blocks:
            first, last = _first_code(block), _last_code(block)
            above = [code for code in headings if _first_code(code) <= first and last <= _last_code(code)]
            names = [_block_name(icd, code) for code in (*above, block)]
            for category in icd.get_children(block, prioritize_blocks=True):
                title = _clean(icd.get_description(category))
                found.append((category, (top, *names, f"{category} {title}")))
    return found


def _first_code(block: str) -> str:
    return block.partition("-")[0]


def _last_code(block: str) -> str:
    return block.rpartition("-")[2]


def _block_name(icd: Any, code: str) -> str:
    title = _clean(icd.get_description(code, prioritize_blocks=True))
    own = title.removesuffix(f"({code})").rstrip()  # the package repeats the code after the title
    return f"{code} {own}"


def _clean(text: str) -> str:
    return " ".join(text.split())


def _examples(rows: Iterable[tuple[str, Names]], node_of: dict[Names, int]) -> Examples:
    texts, nodes = zip(*((text, node_of[path]) for text, path in rows), strict=True)
    return Examples(list(texts), np.array(nodes))
