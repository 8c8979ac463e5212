"""The methods by name. A method is a function `(items, chosen, shape) -> Forest` and one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from arbormax._registry import Registry

if TYPE_CHECKING:
    import numpy as np

    from arbormax.induce.forest import Forest, Shape
    from arbormax.induce.items import Items

DEFAULT = "centroids"
INDUCERS: Registry[Callable[[Items, np.ndarray, Shape], Forest]] = Registry("method")
_PLACE = "arbormax.induce"
INDUCERS.add("centroids", f"{_PLACE}.agglomerative:cluster_centroids", "agglomerative clustering of mean features")
INDUCERS.add("confusion", f"{_PLACE}.confusion:cluster_confusions", "spectral clustering of cross-validated confusions")
INDUCERS.add("names", f"{_PLACE}.agglomerative:cluster_names", "agglomerative clustering of names or longer texts")
INDUCERS.add("kmeans", f"{_PLACE}.kmeans:cluster_kmeans", "balanced k-means of mean features, for very many classes")
INDUCERS.add("huffman", f"{_PLACE}.huffman:group_by_frequency", "Huffman's tree: frequent classes are near the root")
INDUCERS.add("random", f"{_PLACE}.kmeans:group_randomly", "a random tree, as a control")
