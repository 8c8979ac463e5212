"""Sums over items, from which the measures of predicted nodes are computed. numpy only.

n items, N nodes, C classes, L = depth + 1 levels. A(y) is y and its ancestors without the root. In a tree |A(y)| is the
depth of y, and |A(ŷ) ∩ A(y)| is the depth of the lowest common ancestor of truth and prediction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.queries import Common

# fractions are summed as multiples of 2^-32: exact in any order, good to 1e-9, and room for two billion items
FIXED = 2**32


class Items:
    """The true and predicted nodes of n items, with the arrays that several sums need."""

    def __init__(self, true_n: np.ndarray, pred_n: np.ndarray, tax: Taxonomy) -> None:
        self.true, self.pred, self.tax = true_n, pred_n, tax

    def __len__(self) -> int:
        return len(self.true)

    @cached_property
    def wrong(self) -> np.ndarray:
        return np.asarray(self.true != self.pred)

    @cached_property
    def common(self) -> Common:
        """What truth and prediction have in common."""
        return self.tax.common(self.true, self.pred)

    @property
    def ancestor(self) -> np.ndarray:
        """(n,) the lowest common ancestor of truth and prediction."""
        return self.common.deepest

    @cached_property
    def true_class(self) -> np.ndarray:
        return np.take(self.tax.class_of, self.true)

    @cached_property
    def pred_class(self) -> np.ndarray:
        """(n,) the predicted class, -1 for inner predictions and for items whose truth is an inner node."""
        return np.where(self.true_class < 0, -1, self.tax.class_of[self.pred])


@dataclass(frozen=True)
class Quantity:
    """A whole number for each item, to be summed over all items, or over the items of each class, node or level."""

    amount: Callable[[Items], np.ndarray] | None = None  # (n,) the number; None counts every item once
    group: Callable[[Items], np.ndarray] | None = None  # (n,) the class, node or level; -1 leaves the item out
    by: Literal["class", "node", "level"] | None = None

    def sum(self, items: Items, weights_Rn: np.ndarray) -> np.ndarray:
        """(R,) or (R, groups) the sum for each row of weights; float64 is exact for whole numbers below 2^53."""
        amount_n = None if self.amount is None else self.amount(items).astype(np.float64)
        if self.group is None or self.by is None:
            return np.asarray(weights_Rn.sum(1) if amount_n is None else weights_Rn @ amount_n)
        group_n, rows, tax = self.group(items), len(weights_Rn), items.tax
        groups = {"class": tax.num_leaves, "node": tax.num_nodes, "level": tax.depth + 1}[self.by]
        among = np.flatnonzero(group_n >= 0)
        if len(among) < len(items):
            weights_Rn = weights_Rn.take(among, axis=1)
        if amount_n is not None:
            weights_Rn = weights_Rn * amount_n[among]
        cells_Rn = np.arange(rows)[:, None] * groups + group_n[among]
        sums = np.bincount(cells_Rn.ravel(), weights=weights_Rn.ravel(), minlength=rows * groups)
        return sums.reshape(rows, groups)


QUANTITIES: Mapping[str, Quantity] = {
    "count": Quantity(),
    "errors": Quantity(lambda items: items.wrong),
    "severity": Quantity(lambda items: items.tax.height[items.ancestor] * items.wrong),
    "true_depth": Quantity(lambda items: items.tax.ancestor_counts[items.true]),
    "pred_depth": Quantity(lambda items: items.tax.ancestor_counts[items.pred]),
    "shared_depth": Quantity(lambda items: items.common.shared),
    "distance": Quantity(lambda items: items.common.distance),
    "support": Quantity(group=lambda items: items.true_class, by="class"),
    "predicted": Quantity(group=lambda items: items.pred_class, by="class"),
    "hits": Quantity(group=lambda items: np.where(items.wrong, -1, items.true_class), by="class"),
    "class_pred_depth": Quantity(
        lambda items: items.tax.ancestor_counts[items.pred], lambda items: items.true_class, "class"
    ),
    "class_shared_depth": Quantity(lambda items: items.common.shared, lambda items: items.true_class, "class"),
    "pred_nodes": Quantity(group=lambda items: items.pred, by="node"),
    "true_levels": Quantity(group=lambda items: items.tax.node_depth[items.true], by="level"),
    "shared_levels": Quantity(group=lambda items: items.tax.node_depth[items.ancestor], by="level"),
}


class Sums(dict[str, np.ndarray]):
    """Sums by name, each an array of shape (...,) or (..., groups), and the taxonomy they belong to."""

    def __init__(self, tax: Taxonomy, sums: Mapping[str, np.ndarray]) -> None:
        super().__init__(sums)
        self.tax = tax


class WeightedSums(Sums):
    """The sums of `quantities` with item i counted weights[r, i] times, for each of R rows; computed on first use."""

    def __init__(self, items: Items, weights_Rn: np.ndarray, quantities: Mapping[str, Quantity]) -> None:
        super().__init__(items.tax, {})
        self._items, self._weights, self._quantities = items, weights_Rn, quantities

    def __missing__(self, name: str) -> np.ndarray:
        self[name] = self._quantities[name].sum(self._items, self._weights)
        return self[name]


def ratio(part: np.ndarray | float, whole: np.ndarray | float) -> np.ndarray:
    """part / whole, and 0 where whole is 0."""
    return np.asarray(part / np.where(np.equal(whole, 0), 1, whole))


def macro_mean(part: np.ndarray, whole: np.ndarray, among: np.ndarray) -> np.ndarray:
    """The mean of part / whole over the classes (last axis) of `among`; `part` is 0 for all other classes."""
    return ratio(ratio(part, whole).sum(-1), among.sum(-1))


def folded_normal_mean(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """The mean of |X| for normal X with this mean and standard deviation."""
    steps = np.where(deviation > 0, ratio(mean, deviation), np.inf)
    inside = np.vectorize(math.erf, otypes=[float])(steps / math.sqrt(2))
    return np.asarray(deviation * math.sqrt(2 / math.pi) * np.exp(-(steps**2) / 2) + mean * inside)


def node_information(nodes: np.ndarray, tax: Taxonomy) -> np.ndarray:
    """log2(leaves / leaves below the node), in bits, for each node id."""
    return np.asarray(np.log2(tax.num_leaves / tax.leaf_counts[nodes]))


def to_fixed(fractions: np.ndarray) -> np.ndarray:
    """Fractions as whole multiples of 1 / FIXED."""
    return np.asarray(np.rint(np.asarray(fractions, np.float64) * FIXED), np.int64)


class Curve(NamedTuple):
    """Correctness and specificity at each threshold, in the order of the thresholds, and the area below the curve."""

    correct: list[float]
    specificity: list[float]
    area: float


def compute_curve(sums: Sums) -> Curve:
    """The curve and its area; all 0 without items."""
    count_T = sums["answered"].sum(-1)
    correct = ratio(sums["answered_right"].sum(-1), count_T)
    specificity = ratio(sums["specificity"] / FIXED, count_T)
    # specificity need not fall with the threshold on uneven trees, and points may share one: strictest first
    order = np.lexsort((-sums["thresholds"], specificity))
    x, y = np.append(0.0, specificity[order]), np.append(1.0, correct[order])
    return Curve(correct.tolist(), specificity.tolist(), float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2)))
