"""A new row from the text of its class: a combination of the rows of classes with similar texts.

A linear map from the vectors of texts to rows is fitted to the rows of the head by ridge regression, both relative to
the rows that they compete with. In its dual form it needs only the products of vectors. n rows.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

_RIDGE = 0.1  # relative to the mean square of the vectors
MOST_ROWS = 4096  # rows of the regression; its cost grows with their cube


class TextSimilarity(Protocol):
    """Compares the texts of nodes with one another and with a new text."""

    def __call__(self, nodes: np.ndarray, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return (n, n) products of the unit vectors of the texts of nodes, and (n,) with that of another text."""


def choose_rows(nodes: np.ndarray, rivals: np.ndarray) -> np.ndarray:
    """Return the rows of the regression: all of them, or of many the rivals and evenly spaced others, sorted."""
    if len(nodes) <= MOST_ROWS:
        return nodes
    rivals = rivals[:MOST_ROWS]
    spaced = np.linspace(0, len(nodes) - 1, MOST_ROWS - len(rivals)).astype(np.int64)
    return np.union1d(rivals, nodes[spaced])


def row_factors(products: np.ndarray, new: np.ndarray, groups: np.ndarray, is_rival: np.ndarray) -> np.ndarray:
    """Return (n,) the factor of each row in the difference between the new row and the mean of its rivals.

    `products` (n, n) and `new` (n,) are those of `TextSimilarity`, `groups` (n,) numbers the groups of rows that
    compete, and `is_rival` (n,) marks the rows that the new one competes with.
    """
    _, group = np.unique(groups, return_inverse=True)
    sizes = np.bincount(group)

    def center(values: np.ndarray) -> np.ndarray:
        """Subtract the mean of each group."""
        sums = np.zeros((len(sizes), *values.shape[1:]))
        np.add.at(sums, group, values)
        means = sums / sizes.reshape(-1, *(1,) * (values.ndim - 1))
        centered: np.ndarray = values - means[group]
        return centered

    kernel = center(center(products).T)
    ridge = _RIDGE * max(float(np.diag(kernel).mean()), 1e-12)
    difference = center(new - products[:, is_rival].mean(1))
    return center(np.linalg.solve(kernel + ridge * np.eye(len(kernel)), difference))
