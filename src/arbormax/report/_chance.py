"""How sure measures and their differences are: a paired bootstrap over the test texts.

n items, P runs, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arbormax.report._runs import Run

LEVEL = 0.95
_CELLS, _MOST = 200_000, 100_000_000  # numbers in one array, and in all resamples together


class Interval(NamedTuple):
    """A measured value and the bounds of its interval."""

    value: float
    low: float
    high: float


class Chances(NamedTuple):
    """The intervals of every run, and those of each run minus the first, by measure; what is not known is missing."""

    own: list[dict[str, Interval]]
    against_first: list[dict[str, Interval]]


def chances(runs: Sequence[Run], seed: int = 0) -> Chances:
    """The intervals of runs that were measured on the same texts, the same resamples for all of them."""
    counts = _Counts(runs)
    rng, items = np.random.default_rng(seed), counts.items
    resamples = int(np.clip(_MOST // (max(items, counts.classes) * len(runs)), 200, 2000))
    exact = counts.values(np.ones((1, items)))
    rows = max(1, _CELLS // max(items, counts.classes))
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in exact}
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        cells = rng.integers(items, size=(size, items)) + np.arange(size)[:, None] * items
        weights = np.bincount(cells.ravel(), minlength=size * items).reshape(size, items).astype(np.float64)
        for name, values in counts.values(weights).items():
            drawn[name].append(values)
    own: list[dict[str, Interval]] = [{} for _ in runs]
    against: list[dict[str, Interval]] = [{} for _ in runs]
    for name, parts in drawn.items():
        values_PR, exact_P = np.concatenate(parts, axis=1), exact[name][:, 0]
        for table, value_P, drawn_PR in (
            (own, exact_P, values_PR),
            (against, exact_P - exact_P[0], values_PR - values_PR[0]),
        ):
            tail = 50 * (1 - LEVEL)
            low_P, high_P = np.percentile(drawn_PR, [tail, 100 - tail], axis=1)
            for row, value, low, high in zip(table, value_P, low_P, high_P, strict=True):
                # resamples of too few texts may all come to the same, which says nothing of how sure it is
                if low < high or (table is against and not value):
                    row[name] = Interval(float(value), float(low), float(high))
    return Chances(own, against)


class _Counts:
    """The measures of the runs for any weights of the items."""

    def __init__(self, runs: Sequence[Run]) -> None:
        tax, true = runs[0].tree.tax, runs[0].true
        assert true is not None
        predicted = [run.predicted for run in runs if run.predicted is not None]
        self.items, self.classes = len(true), tax.num_leaves
        self.true_class = tax.class_of[true]
        self.leaf = self.true_class >= 0  # the macro measures look at these only
        self.pred_class = [tax.class_of[row] for row in predicted]
        meet = [tax.lca(row, true) for row in predicted]
        self.true_depth = tax.node_depth[true].astype(np.float64)
        self.depth = np.stack([tax.node_depth[row] for row in predicted], 1).astype(np.float64)
        self.meet = np.stack([tax.node_depth[row] for row in meet], 1).astype(np.float64)
        wrong = np.stack([row != true for row in predicted], 1)
        self.wrong = wrong.astype(np.float64)
        self.height = np.stack([tax.height[row] for row in meet], 1) * self.wrong

    def values(self, weights_Rn: np.ndarray) -> dict[str, np.ndarray]:
        """(P, R) each measure."""
        whole_R = weights_Rn.sum(1)
        wrong_PR, height_PR = (weights_Rn @ self.wrong).T, (weights_Rn @ self.height).T
        meet_PR = (weights_Rn @ self.meet).T
        depth_PR = (weights_Rn @ self.depth).T + weights_Rn @ self.true_depth
        support = self._per_class(self.true_class, weights_Rn, self.leaf)
        return {
            "accuracy": 1 - wrong_PR / whole_R,
            "macro_f1": np.stack([self._macro_f1(pred, weights_Rn, support) for pred in self.pred_class]),
            "hf": _ratio(2 * meet_PR, depth_PR),
            "mistake_severity": _ratio(height_PR, wrong_PR),
        }

    def _macro_f1(self, pred: np.ndarray, weights_Rn: np.ndarray, support_RC: np.ndarray) -> np.ndarray:
        both = support_RC + self._per_class(pred, weights_Rn, self.leaf & (pred >= 0))
        hits = self._per_class(pred, weights_Rn, self.leaf & (pred == self.true_class))
        return _ratio(_ratio(2 * hits, both).sum(1), (both > 0).sum(1))

    def _per_class(self, classes: np.ndarray, weights_Rn: np.ndarray, among: np.ndarray) -> np.ndarray:
        rows = len(weights_Rn)
        cells = (np.arange(rows)[:, None] * self.classes + classes[among]).ravel()
        sums = np.bincount(cells, weights=weights_Rn[:, among].ravel(), minlength=rows * self.classes)
        return sums.reshape(rows, self.classes)


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.asarray(part / np.where(whole == 0, 1, whole))
