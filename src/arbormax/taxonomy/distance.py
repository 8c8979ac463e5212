"""Distances between two trees over the same classes.

C classes, N and M nodes of the two trees, P and Q inner nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arbormax.errors import LabelError
from arbormax.taxonomy.labels import join_path

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy


@dataclass(frozen=True, eq=False)
class Overlaps:
    """The pairs of nodes, one of each tree, with common classes: their numbers, and how many classes they share."""

    left: np.ndarray  # (n,) nodes of the first tree
    right: np.ndarray  # (n,) nodes of the second tree
    count: np.ndarray  # (n,)
    width: int  # nodes of the second tree

    @property
    def code(self) -> np.ndarray:
        """(n,) sorted numbers of the pairs."""
        code: np.ndarray = self.left * self.width + self.right
        return code

    def find(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The counts of other pairs, each of which shares classes."""
        found: np.ndarray = self.count[np.searchsorted(self.code, left * self.width + right)]
        return found


def overlaps(a: Taxonomy, b: Taxonomy) -> Overlaps:
    """The pairs of nodes with common classes. The trees have the same class labels, in any order."""
    b_leaves = b.leaves[match_classes(a, b)]
    codes = []
    left = a.leaves
    at = np.arange(a.num_leaves)
    while len(left):
        right, rows = b_leaves[at], np.arange(len(at))
        while len(right):
            codes.append(left[rows] * b.num_nodes + right)
            above = b.parent[right]
            right, rows = above[above >= 0], rows[above >= 0]
        above = a.parent[left]
        left, at = above[above >= 0], at[above >= 0]
    code, count = np.unique(np.concatenate(codes), return_counts=True)
    return Overlaps(code // b.num_nodes, code % b.num_nodes, count, b.num_nodes)


def match_classes(a: Taxonomy, b: Taxonomy) -> np.ndarray:
    """(C,) the class of `b` for each class of `a`: that of the same label, or whose name is the path of the other.

    A tree that was induced from labels such as "news > sport" has these labels as names.
    """
    number: dict[str, int] = {}
    for at, leaf in reversed([*enumerate(b.leaves.tolist())]):
        number |= dict.fromkeys(_spellings(b, leaf), at)
    number |= {label: at for at, label in enumerate(b.classes)}
    spellings = ((label, *_spellings(a, leaf)) for label, leaf in zip(a.classes, a.leaves.tolist(), strict=True))
    found = np.array([next((number[text] for text in own if text in number), -1) for own in spellings], np.int64)
    extra = np.setdiff1d(np.arange(b.num_leaves), found)
    problems = [f"{a.classes[at]!r} is a class of the first tree only" for at in np.flatnonzero(found < 0).tolist()]
    problems += [f"{b.classes[at]!r} is a class of the other tree only" for at in extra.tolist()]
    if problems:
        raise LabelError("the trees have different classes:", problems)
    return found


def _spellings(tax: Taxonomy, leaf: int) -> tuple[str, str]:
    """The path of a class as text."""
    path = tax.path(leaf)
    return join_path(path), " > ".join(path)


def triplet_distance(a: Taxonomy, b: Taxonomy) -> float:
    """The share of all triples of classes that the two trees group differently, from 0 to 1.

    A tree puts two of three classes closer together, or all three apart. The distance is a metric on trees: it is zero
    only if the trees have the same groups, where the names of inner nodes and only children do not count. The cost
    grows with the number of classes times the product of the depths.

    >>> from arbormax import Taxonomy
    >>> a = Taxonomy.from_nested({"1": ["w", "x"], "2": ["y", "z"]})
    >>> b = Taxonomy.from_nested({"1": ["w", "y"], "2": ["x", "z"]})
    >>> triplet_distance(a, a), triplet_distance(a, b), triplet_distance(a, Taxonomy.from_nested(["w", "x", "y", "z"]))
    (0.0, 1.0, 1.0)
    """
    common = overlaps(a, b)
    classes = a.num_leaves
    total = classes * (classes - 1) * (classes - 2) // 6
    if not total:
        return 0.0
    same = _resolved_alike(a, b, common) + _unresolved_in_both(a, b, common)
    return (total - same) / total


def shared_groups(a: Taxonomy, b: Taxonomy) -> tuple[np.ndarray, np.ndarray]:
    """For each node of `a`, the most similar node of `b` and their similarity.

    The similarity is the number of common classes divided by that of classes below either node. Of equally similar
    nodes, the one nearest to the root is chosen.
    """
    common = overlaps(a, b)
    left, right, count = common.left, common.right, common.count
    share = count / (a.leaf_counts[left] + b.leaf_counts[right] - count)
    order = np.lexsort((right, -share, left))
    first = order[np.unique(left[order], return_index=True)[1]]
    return right[first], share[first]


def _resolved_alike(a: Taxonomy, b: Taxonomy, common: Overlaps) -> int:
    """The number of triples of which both trees put the same two classes closer together."""
    pairs = common.count * (common.count - 1) // 2  # of classes below both nodes
    a_inner, b_inner = common.left > 0, common.right > 0
    exact = pairs.copy()  # of classes whose lowest common ancestors are exactly these nodes
    up = np.searchsorted(common.code, a.parent[common.left[a_inner]] * common.width + common.right[a_inner])
    np.subtract.at(exact, up, pairs[a_inner])
    up = np.searchsorted(common.code, common.left[b_inner] * common.width + b.parent[common.right[b_inner]])
    np.subtract.at(exact, up, pairs[b_inner])
    both = a_inner & b_inner
    up = np.searchsorted(common.code, a.parent[common.left[both]] * common.width + b.parent[common.right[both]])
    np.add.at(exact, up, pairs[both])
    outside = a.num_leaves - a.leaf_counts[common.left] - b.leaf_counts[common.right] + common.count
    return int((exact * outside).sum())


def _unresolved_in_both(a: Taxonomy, b: Taxonomy, common: Overlaps) -> int:
    """The number of triples whose classes are below different children of one node in each of the trees.

    For two nodes, `m` counts the classes below a child of one and a child of the other. Triples of classes in different
    rows and columns of this table are counted by inclusion and exclusion over equal rows and equal columns.
    """
    below = (common.left > 0) & (common.right > 0)
    x, y, m = common.left[below], common.right[below], common.count[below]
    up, over = a.parent[x], b.parent[y]
    cell = up * common.width + over
    nodes, group = np.unique(cell, return_inverse=True)
    n = common.count[np.searchsorted(common.code, nodes)]
    r, c = common.find(x, over), common.find(up, y)  # the sums of the row and of the column of each cell

    def total(values: np.ndarray) -> np.ndarray:
        sums = np.zeros(len(nodes), np.int64)
        np.add.at(sums, group, values)
        return sums

    # the sum of r² over the rows is that of m r over the cells
    ordered = n**3 - 3 * n * (total(m * r) + total(m * c)) + 2 * (total(m * r**2) + total(m * c**2))
    ordered += 3 * n * total(m**2) + 6 * total(m * r * c) - 6 * (total(m**2 * c) + total(m**2 * r)) + 4 * total(m**3)
    return int((ordered // 6).sum())
