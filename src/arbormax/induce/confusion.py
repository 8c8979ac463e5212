"""Spectral clustering of a cross-validated confusion matrix.

n examples, m items, D features.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from arbormax.data.folds import assign_folds
from arbormax.errors import OptionError
from arbormax.induce.agglomerative import cluster_vectors
from arbormax.induce.forest import Forest, Shape

if TYPE_CHECKING:
    from arbormax.induce.items import Items

FOLDS = 3
MOST_ITEMS = 3_000
_ROWS = 4096  # examples whose probabilities are in memory together


def cluster_confusions(items: Items, chosen: np.ndarray, shape: Shape) -> Forest:
    """Join the classes that a linear model confuses."""
    if items.num_items > MOST_ITEMS:
        raise OptionError(
            f"'confusion' takes at most {MOST_ITEMS:,} classes, found {items.num_items:,}: it trains a softmax over "
            "all of them and computes the eigenvectors of their matrix",
            argument="method",
            fix={"method": ("centroids", "kmeans")},
        )
    if len(chosen) <= shape.slots:
        return Forest(np.array([-1]), np.zeros(len(chosen), np.int64))
    confusion_mm = items.cached("confusion", lambda: cross_validated_confusion(items))[np.ix_(chosen, chosen)]
    return cluster_vectors(_spectral_embedding(confusion_mm, 2 * shape.branching), shape)


def cross_validated_confusion(items: Items) -> np.ndarray:
    """(m, m) the mean probability of each class for the examples of each class, in folds without these examples."""
    from sklearn.linear_model import LogisticRegression

    features_nD, item_n = items.features, items.item_n
    if len(item_n) < FOLDS or np.bincount(item_n).max(initial=0) < 2:
        raise OptionError(
            "'confusion' cross-validates and needs classes with at least two examples",
            argument="method",
            fix={"method": "centroids"},
        )
    fold_n = assign_folds(item_n, FOLDS, items.seed)
    total = np.zeros((items.num_items, items.num_items))
    for fold in range(FOLDS):
        train, test = np.flatnonzero(fold_n != fold), np.flatnonzero(fold_n == fold)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a solution that has not converged tells confusions just as well
            model = LogisticRegression(C=10.0, max_iter=50).fit(features_nD[train], item_n[train])
        for part in np.array_split(test, -(-len(test) // _ROWS)):
            probabilities = model.predict_proba(features_nD[part])
            sums = np.zeros((items.num_items, len(model.classes_)))
            np.add.at(sums, item_n[part], probabilities)
            total[:, model.classes_] += sums
    return np.asarray(total / np.maximum(total.sum(1, keepdims=True), 1e-12))


def _spectral_embedding(confusion_mm: np.ndarray, width: int) -> np.ndarray:
    """(m, width) the diffusion map of the symmetric confusions.

    These are the eigenvectors of a random walk between confused classes, without the constant one, multiplied by
    their eigenvalues: directions along which classes are hardly connected count most.
    """
    from scipy.linalg import eigh
    from scipy.sparse.csgraph import laplacian

    affinity = confusion_mm + confusion_mm.T
    np.fill_diagonal(affinity, 0.0)
    affinity += 1e-6 * max(affinity.max(), 1e-12)  # connects what is never confused
    normalised, root = laplacian(affinity, normed=True, return_diag=True)
    values, vectors = eigh(normalised, subset_by_index=(1, min(len(affinity) - 1, width)))
    return np.asarray(vectors / root[:, None] * np.maximum(1.0 - values, 0.0))
