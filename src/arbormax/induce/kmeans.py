"""Balanced k-means, and the random tree of the same shape.

m items, D features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from arbormax.induce.forest import Forest, Halve, Shape, balanced_parts, grow

if TYPE_CHECKING:
    from arbormax.induce.items import Items

_ROUNDS = 4  # of moving the two centres after the balanced cut
_SAMPLE = 20_000  # items that choose the first centres


def cluster_kmeans(items: Items, chosen: np.ndarray, shape: Shape) -> Forest:
    """Divide the classes by balanced k-means of their mean features, from the root down."""
    vectors_mD = items.centroids[chosen]
    rng = np.random.default_rng(items.seed)

    def halve(members: np.ndarray, cut: int) -> np.ndarray:
        ordered: np.ndarray = members[_order_by_side(vectors_mD[members], cut, rng)]
        return ordered

    return _grow_balanced(len(chosen), shape, halve)


def group_randomly(items: Items, chosen: np.ndarray, shape: Shape) -> Forest:
    """Divide the classes at random into parts of equal size."""
    rng = np.random.default_rng(items.seed)

    def halve(members: np.ndarray, _: int) -> np.ndarray:
        return rng.permutation(members)

    return _grow_balanced(len(chosen), shape, halve)


def _grow_balanced(items: int, shape: Shape, halve: Halve) -> Forest:
    return grow(items, shape, lambda members, most, _: balanced_parts(members, most, shape.branching, halve))


def _order_by_side(vectors_mD: np.ndarray, cut: int, rng: np.random.Generator) -> np.ndarray:
    """(m,) the positions of the items, those of the first of two clusters before those of the second.

    The first cluster has `cut` items: those that are nearer to its centre than to the other by the largest difference.
    """
    from sklearn.cluster import kmeans_plusplus

    sample = vectors_mD
    if len(sample) > _SAMPLE:
        sample = sample[rng.choice(len(sample), _SAMPLE, replace=False)]
    seed = int(rng.integers(2**31))
    first, second = kmeans_plusplus(sample, 2, random_state=seed)[0]
    order = np.arange(len(vectors_mD))
    for _ in range(_ROUNDS):
        # the difference of the squared distances from two centres is linear in the vector
        new = np.argsort(vectors_mD @ (second - first), kind="stable")
        if np.array_equal(new, order):
            break
        order = new
        first, second = vectors_mD[order[:cut]].mean(0), vectors_mD[order[cut:]].mean(0)
    return order
