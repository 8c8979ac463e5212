"""Every measure in one call, or accumulated over batches.

B items, N nodes, C classes, k ranks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.functional.best import top_classes
from arbormax.functional.index import tree_index
from arbormax.metrics.inputs import node_ids, node_pairs, scored_nodes
from arbormax.metrics.probabilities import (
    DEFAULT_THRESHOLDS,
    LevelTable,
    Totals,
    add_at,
    add_calibration,
    add_curve,
    add_ranked,
    check_positive,
    check_thresholds,
    level_table,
    to_sums,
    zero_calibration,
    zero_curve,
    zero_ranked,
)
from arbormax.metrics.registry import node_values, probability_values, quantities
from arbormax.metrics.sums import Items, Quantity
from arbormax.taxonomy import Taxonomy

KS = (1, 5, 20)


def zero_nodes(tax: Taxonomy, parts: dict[str, Quantity]) -> Totals:
    """The totals without items. All are int64, so that the order of additions does not matter."""
    return {name: torch.zeros(part.groups(tax) if part.by else (), dtype=torch.int64) for name, part in parts.items()}


def add_nodes(totals: Totals, items: Items, parts: dict[str, Quantity]) -> Totals:
    """The totals with these items added, on the device of the totals."""
    added: Totals = {}
    for name, part in parts.items():
        amount_B = part.amounts(items)
        if part.group is None:
            added[name] = totals[name] + int(amount_B.sum())
        else:
            group_B = part.group(items)
            among = group_B >= 0
            added[name] = add_at(totals[name], group_B[among], amount_B[among])
    return added


class Evaluator:
    """Accumulates every measure, a batch at a time; memory depends on the tree and not on the number of items.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> evaluator = Evaluator(tax)
    >>> evaluator.add(np.array([3, 4]), np.array([3, 3]))
    >>> evaluator.add(np.array([5, 5]), np.array([5, 2]))
    >>> evaluator.compute()["accuracy"]
    0.5
    """

    def __init__(
        self,
        tax: Taxonomy,
        *,
        ks: Iterable[int] = KS,
        bins: int = 15,
        thresholds: Any = DEFAULT_THRESHOLDS,
    ) -> None:
        self.tax = tax
        self.ks = tuple(k for k in (check_positive(k, "ks") for k in ks) if k <= tax.num_leaves)
        self.bins, self.thresholds = check_positive(bins, "bins"), check_thresholds(thresholds)
        self._parts = quantities()
        self._nodes = zero_nodes(tax, self._parts)
        self._probabilities: Totals | None = None

    @property
    def ranks(self) -> int:
        """How many of the best classes of each item `add_log_probs` needs."""
        return max(self.ks, default=0)

    def add(self, true_B: np.ndarray, pred_B: np.ndarray) -> None:
        """Add true and predicted node ids."""
        self._nodes = add_nodes(self._nodes, Items(true_B, pred_B, self.tax), self._parts)

    def add_log_probs(self, logp_BN: Tensor, true_B: np.ndarray, ranked_BK: np.ndarray | None = None) -> LevelTable:
        """Add node log-probabilities, with the `ranks` best classes if they are known; returns the table per level."""
        if self._probabilities is None:
            zeros = zero_curve(self.thresholds) | zero_calibration(self.tax, self.bins) | zero_ranked(self.ks)
            self._probabilities = zeros | {"nll": torch.zeros((), dtype=torch.float64)}
        totals = self._probabilities
        if ranked_BK is None:
            ranked_BK = _best_classes(logp_BN, self.tax, self.ranks)
        table = level_table(logp_BN, true_B, self.tax)
        truth_B1 = torch.tensor(true_B, device=logp_BN.device)[:, None]
        curve, bins, ranked = (
            {name: totals[name] for name in names}
            for names in (
                ("correct", "specificity", "curve_count"),
                ("bin_count", "bin_right", "bin_confidence"),
                ("ranked_height", "ranked_pairs"),
            )
        )
        self._probabilities = {
            **add_curve(curve, table, self.thresholds, self.tax),
            **add_calibration(bins, table, self.bins),
            **add_ranked(ranked, true_B, ranked_BK, self.ks, self.tax),
            "nll": totals["nll"] - float(logp_BN.gather(1, truth_B1).double().sum()),
        }
        return table

    def calibration(self) -> dict[str, np.ndarray]:
        """(levels, bins) items, right items and summed confidence, the latter as multiples of 2^-32."""
        assert self._probabilities is not None, "no log-probabilities were added"
        return {name: self._probabilities[name].numpy() for name in ("bin_count", "bin_right", "bin_confidence")}

    def compute(self) -> dict[str, Any]:
        """Every measure of what was added, as plain numbers."""
        values = node_values(to_sums(self.tax, self._nodes))
        if self._probabilities is not None:
            totals = {**self._nodes, **self._probabilities}
            values |= probability_values(to_sums(self.tax, totals, ks=self.ks, thresholds=self.thresholds))
        return values


def evaluate(
    true_nodes: Any,
    pred_nodes: Any,
    tax: Taxonomy,
    log_probs: Any = None,
    *,
    ks: Iterable[int] = KS,
    bins: int = 15,
    thresholds: Any = DEFAULT_THRESHOLDS,
) -> dict[str, Any]:
    """Every measure of predictions against the truth, as plain numbers ready for JSON.

    Truth and prediction are node ids (...,) in lists, numpy arrays or tensors, or lists of labels: strings or paths, as
    `tax.find` takes them. Both may name inner nodes. Log-probabilities (..., N) of all nodes add `nll`,
    `ece`, `operating_curve_area` and `hierarchical_distance@k` for each k of `ks` up to C. `arbormax.metrics.MEASURES`
    lists all measures with their definitions. A mean over nothing is 0, or None in a list over levels.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
    >>> values = evaluate([3, 4, 5, 5], [3, 3, 5, 2], tax)
    >>> values["accuracy"], values["hp"], values["mistake_severity"], values["level_accuracy"]
    (0.5, 0.8571428571428571, 1.0, [1.0, 0.5])
    >>> evaluate(["x", "y", "z", "z"], ["x", ("a", "x"), "z", "b"], tax) == values
    True
    """
    evaluator = Evaluator(tax, ks=ks, bins=bins, thresholds=thresholds)
    true_B, pred_B = node_pairs(true_nodes, pred_nodes, tax)
    evaluator.add(true_B, pred_B)
    if log_probs is not None:
        true = node_ids(true_nodes, tax, "true_nodes")
        evaluator.add_log_probs(*scored_nodes(log_probs, true, tax))
    return evaluator.compute()


def _best_classes(logp_BN: Tensor, tax: Taxonomy, k: int) -> np.ndarray:
    """(B, k) the most probable classes, best first, ties in class order."""
    leaf_BC = logp_BN[:, tree_index(tax, logp_BN.device).leaves]
    return top_classes(leaf_BC, k)[1].cpu().numpy() if k else np.zeros((len(logp_BN), 0), np.int64)
