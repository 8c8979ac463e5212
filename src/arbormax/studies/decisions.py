"""Measures of decisions: what predictions cost, and the coverage of sets.

B items, N nodes, P possible predictions, C classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from arbormax.decode import cost_matrix
from arbormax.model.predict import Decoding
from arbormax.taxonomy import Taxonomy


class DecisionMeasures:
    """The measure `cost` of a decoder with costs, and `sets` of a decoding that finds sets."""

    def __init__(self, decoding: Decoding, tax: Taxonomy) -> None:
        self.taxonomy, self._sets = tax, decoding.sets
        self._set_sums: dict[str, np.ndarray] = {}
        costs = decoding.options.get("costs")
        self._costs = None if costs is None else _Costs(costs, tax)

    def update(self, predicted_B: Tensor, true_B: np.ndarray, logp_BN: Tensor) -> None:
        """Add items; a true node above the number of nodes is a label that the taxonomy does not have."""
        if self._costs is not None:
            self._costs.update(predicted_B.numpy(), true_B)
        if self._sets is not None:
            known_B = np.where(true_B < self.taxonomy.num_nodes, true_B, -1)  # no set covers an unknown label
            found = self._sets.sums(logp_BN.double().exp().numpy(), known_B)
            self._set_sums = {name: self._set_sums.get(name, 0) + value for name, value in found.items()}

    def values(self) -> dict[str, Any]:
        """The measures by name."""
        found: dict[str, Any] = {} if self._costs is None else {"cost": self._costs.mean}
        if self._sets is not None:
            found["sets"] = self._sets.measures(self._set_sums)
        return found


class _Costs:
    """The costs of predictions whose truth is a class of the taxonomy."""

    def __init__(self, costs: Any, tax: Taxonomy) -> None:
        self.taxonomy = tax
        self._function = costs if callable(costs) else None
        self._matrix = None if callable(costs) else cost_matrix(costs, tax).double().cpu().numpy()  # (P, C)
        self._total, self._items = 0.0, 0

    def update(self, predicted_B: np.ndarray, true_B: np.ndarray) -> None:
        tax = self.taxonomy
        is_class = true_B < tax.num_nodes
        is_class[is_class] = tax.is_leaf[true_B[is_class]]
        predicted, true = predicted_B[is_class], true_B[is_class]
        if self._matrix is None:
            assert self._function is not None
            found = np.asarray(self._function(predicted, true), np.float64)
        else:
            by_class = len(self._matrix) == tax.num_leaves
            found = self._matrix[tax.class_of[predicted] if by_class else predicted, tax.class_of[true]]
        self._total += float(found.sum())
        self._items += len(true)

    @property
    def mean(self) -> float | None:
        """The mean, None without items."""
        return self._total / self._items if self._items else None
