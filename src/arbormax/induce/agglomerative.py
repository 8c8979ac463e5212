"""Agglomerative clustering of vectors: of class centroids, or of names.

m items, D features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from arbormax.errors import OptionError
from arbormax.induce.forest import Forest, Shape, cut_dendrogram

if TYPE_CHECKING:
    from arbormax.induce.items import Items

MOST_ITEMS = 20_000
_BYTES = 8e-9  # GB for each entry of the square matrix of distances: SciPy stores one half of it twice


def cluster_centroids(items: Items, chosen: np.ndarray, shape: Shape) -> Forest:
    """Join the classes with the nearest mean features."""
    _check_size(len(chosen), "centroids")
    return cluster_vectors(items.centroids[chosen], shape)


def cluster_names(items: Items, chosen: np.ndarray, shape: Shape) -> Forest:
    """Join the classes with the nearest names."""
    _check_size(len(chosen), "names")
    return cluster_vectors(items.name_vectors[chosen], shape)


def _check_size(items: int, method: str) -> None:
    """Raise an error if the distances of all pairs of items need too much memory."""
    if items > MOST_ITEMS:
        raise OptionError(
            f"{method!r} compares all pairs of classes and takes at most {MOST_ITEMS:,} classes, which need "
            f"{_BYTES * MOST_ITEMS**2:.1f} GB; {items:,} would need {_BYTES * items**2:.1f} GB",
            argument="method",
            fix={"method": "kmeans"},
        )


def cluster_vectors(vectors_mD: np.ndarray, shape: Shape) -> Forest:
    """Ward's clustering, cut into a tree of the shape."""
    from scipy.cluster.hierarchy import linkage

    count = len(vectors_mD)
    if count <= shape.slots:
        return Forest(np.array([-1]), np.zeros(count, np.int64))
    merges = linkage(vectors_mD, "ward")
    return cut_dendrogram(*_left_to_right(merges), shape)


def _left_to_right(merges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m,) the items of a dendrogram from left to right, and (m - 1,) the merge that joins each with the next."""
    count = len(merges) + 1
    sizes = np.concatenate([np.ones(count, np.int64), merges[:, 3].astype(np.int64)])
    start = np.zeros(2 * count - 1, np.int64)
    heights = np.zeros(count - 1, np.int64)
    for merge in range(count - 2, -1, -1):
        left, right = (int(child) for child in merges[merge, :2])
        start[left] = start[count + merge]
        start[right] = start[left] + sizes[left]
        heights[start[right] - 1] = merge
    order = np.empty(count, np.int64)
    order[start[:count]] = np.arange(count)
    return order, heights
