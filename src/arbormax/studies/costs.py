"""What predictions cost, if the decoder has costs.

n items.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from arbormax.decode import cost_matrix
from arbormax.model.predict import Decoding
from arbormax.taxonomy import Taxonomy


class CostMean:
    """The mean cost of predictions whose truth is a class of the taxonomy."""

    def __init__(self, costs: Any, tax: Taxonomy) -> None:
        self.taxonomy = tax
        self._function = costs if callable(costs) else None
        self._matrix = None if callable(costs) else cost_matrix(costs, tax).double().cpu().numpy()  # (P, C)
        self._total, self._items = 0.0, 0

    @classmethod
    def of(cls, decoding: Decoding, tax: Taxonomy) -> CostMean | None:
        """The mean cost for the costs of a decoder, if it has any."""
        costs = decoding.options.get("costs")
        return None if costs is None else cls(costs, tax)

    def update(self, predicted_n: np.ndarray, true_n: np.ndarray) -> None:
        """Add items; nodes above the number of nodes are labels that the taxonomy does not have."""
        tax = self.taxonomy
        is_class = true_n < tax.num_nodes
        is_class[is_class] = tax.is_leaf[true_n[is_class]]
        predicted, true = predicted_n[is_class], true_n[is_class]
        if self._matrix is None:
            assert self._function is not None
            found = np.asarray(self._function(predicted, true), np.float64)
        else:
            by_class = len(self._matrix) == tax.num_leaves
            found = self._matrix[tax.class_of[predicted] if by_class else predicted, tax.class_of[true]]
        self._total += float(found.sum())
        self._items += len(true)

    @property
    def value(self) -> float | None:
        """The mean, None without items."""
        return self._total / self._items if self._items else None
