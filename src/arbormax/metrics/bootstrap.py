"""How sure a difference between two sets of predictions is: a paired bootstrap over items and seeds.

n items, S seeds, H sets of predictions, R resamples, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from arbormax.errors import InputError, OptionError, did_you_mean
from arbormax.taxonomy import Taxonomy

MEASURES = (
    "accuracy",
    "macro_f1",
    "macro_precision",
    "macro_recall",
    "hf",
    "mistake_severity",
    "tree_distance",
)
_CELLS = 100_000  # numbers in one array of a chunk of resamples: what stays in the cache is three times as fast


class Interval(NamedTuple):
    """The difference as it was measured, and the bounds of its bootstrap interval."""

    mean: float
    low: float
    high: float


def paired_bootstrap(
    true_nodes: np.ndarray,
    predicted: np.ndarray,
    baseline: np.ndarray,
    taxonomy: Taxonomy,
    *,
    measures: Sequence[str] = MEASURES,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """The interval of `predicted` minus `baseline` for each measure; both (n,), or (S, n) with a row for each seed.

    A resample draws seeds, then items, with replacement, and the same ones for both sides; its difference is the mean
    over the drawn seeds. The interval lies between the percentiles of these differences.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # leaves: 3 x, 4 y, 5 z
    >>> true = np.array([3, 4, 5, 5])
    >>> paired_bootstrap(true, true, true, tax)["macro_f1"]
    Interval(mean=0.0, low=0.0, high=0.0)
    """
    sides = {"predicted": predicted, "baseline": baseline}
    found = paired_differences(
        true_nodes, sides, "baseline", taxonomy, measures=measures, resamples=resamples, level=level, seed=seed
    )
    return found["predicted"]


def paired_differences(
    true_nodes: np.ndarray,
    predicted: Mapping[str, np.ndarray],
    baseline: str,
    taxonomy: Taxonomy,
    *,
    measures: Sequence[str] = MEASURES,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, dict[str, Interval]]:
    """For each set of predictions but the baseline, its intervals as `paired_bootstrap` gives them, in one pass."""
    true_n, sides = _checked(true_nodes, predicted, taxonomy)
    check_options(measures, resamples, level)
    others = [name for name in sides if name != baseline]
    every = np.concatenate(list(sides.values()))  # (H * S, n)
    counts = _Counts(true_n, every, taxonomy)
    seeds = len(sides[baseline])
    rng = np.random.default_rng(seed)
    exact = _by_side(counts.values(np.ones((1, len(true_n)), dtype=np.int64)), seeds)
    share = np.full((1, seeds), 1.0 / seeds)
    names = list(sides)
    kept: dict[str, list[np.ndarray]] = {measure: [] for measure in measures}
    drawn_RS = rng.multinomial(seeds, share[0], size=resamples) / seeds
    rows = max(1, _CELLS // max(len(true_n), taxonomy.num_leaves))
    for share_RS in np.split(drawn_RS, range(rows, resamples, rows)):
        values = _by_side(counts.values(_item_weights(rng, len(share_RS), len(true_n))), seeds)
        for measure in measures:
            kept[measure].append(_against(values[measure], names.index(baseline), share_RS))
    tail = 50.0 * (1.0 - level)
    result: dict[str, dict[str, Interval]] = {name: {} for name in others}
    for measure in measures:
        mean_H = _against(exact[measure], names.index(baseline), share)[:, 0]
        low_H, high_H = np.percentile(np.concatenate(kept[measure], axis=1), [tail, 100.0 - tail], axis=1)
        for name in others:
            place = names.index(name)
            result[name][measure] = Interval(float(mean_H[place]), float(low_H[place]), float(high_H[place]))
    return result


class _Counts:
    """The measures of P sets of predictions for any weights of the items; they agree with `arbormax.metrics.evaluate`.

    All sums are of whole numbers, so that equal predictions have equal values to the last bit.
    """

    def __init__(self, true_n: np.ndarray, predicted_Pn: np.ndarray, taxonomy: Taxonomy) -> None:
        tax = taxonomy
        self.classes = tax.num_leaves
        true_class_n = tax.class_of[true_n]
        self.leaf = np.flatnonzero(true_class_n >= 0)  # the macro measures look at these only
        self.true_class = true_class_n[self.leaf]
        self.pred_class = [tax.class_of[row[self.leaf]] for row in predicted_Pn]
        meet_Pn = np.stack([tax.lca(row, true_n) for row in predicted_Pn])
        wrong_Pn = predicted_Pn != true_n
        self.true_depth_n = tax.node_depth[true_n].astype(np.float64)
        # (n, P) what each item adds to a sum; a product with the weights sums it over the items
        self.adds = {
            "errors": wrong_Pn.T.astype(np.float64),
            "severity": (tax.height[meet_Pn] * wrong_Pn).T.astype(np.float64),
            "meet": tax.node_depth[meet_Pn].T.astype(np.float64),
            "depth": tax.node_depth[predicted_Pn].T.astype(np.float64),
        }

    def values(self, weights_Rn: np.ndarray) -> dict[str, np.ndarray]:
        """(P, R) every measure, with each item counted as often as its weight says."""
        real_Rn = weights_Rn.astype(np.float64)
        sums = {name: (real_Rn @ adds_nP).T for name, adds_nP in self.adds.items()}
        count_R, true_R = real_Rn.sum(1), real_Rn @ self.true_depth_n
        leaf_Rn = weights_Rn[:, self.leaf]
        support_RC = self._per_class(self.true_class, leaf_Rn)
        macro = [self._macro(pred, leaf_Rn, support_RC) for pred in self.pred_class]
        f1, precision, recall = (np.stack(rows) for rows in zip(*macro, strict=True))
        return {
            "accuracy": _ratio(count_R - sums["errors"], count_R),
            "macro_f1": f1,
            "macro_precision": precision,
            "macro_recall": recall,
            "hf": _ratio(2 * sums["meet"], sums["depth"] + true_R),
            "mistake_severity": _ratio(sums["severity"], sums["errors"]),
            "tree_distance": _ratio(sums["depth"] + true_R - 2 * sums["meet"], count_R),
        }

    def _macro(
        self, pred: np.ndarray, weights_Rn: np.ndarray, support_RC: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(R,) macro F1, precision and recall over the classes in truth or prediction of each resample."""
        named, right = pred >= 0, pred == self.true_class  # an inner prediction is no class's false positive
        predicted_RC = self._per_class(pred[named], weights_Rn if named.all() else weights_Rn[:, named])
        hits_RC = self._per_class(pred[right], weights_Rn[:, right])
        seen_R = ((support_RC + predicted_RC) > 0).sum(1)
        f1, precision, recall = (
            _ratio(_ratio(part, whole).sum(1), seen_R)
            for part, whole in (
                (2 * hits_RC, support_RC + predicted_RC),
                (hits_RC, predicted_RC),
                (hits_RC, support_RC),
            )
        )
        return f1, precision, recall

    def _per_class(self, classes: np.ndarray, weights_Rn: np.ndarray) -> np.ndarray:
        """(R, C) the summed weights of the items of each class."""
        rows = len(weights_Rn)
        cells = (np.arange(rows)[:, None] * self.classes + classes).ravel()
        sums = np.bincount(cells, weights=weights_Rn.ravel(), minlength=rows * self.classes)
        return sums.reshape(rows, self.classes)


def _item_weights(rng: np.random.Generator, resamples: int, items: int) -> np.ndarray:
    """(R, n) how often each item is drawn when n are drawn with replacement."""
    cells = rng.integers(items, size=(resamples, items)) + np.arange(resamples)[:, None] * items
    return np.bincount(cells.ravel(), minlength=resamples * items).reshape(resamples, items)


def _by_side(values: dict[str, np.ndarray], seeds: int) -> dict[str, np.ndarray]:
    """(H, S, R) from (H * S, R)."""
    return {name: table.reshape(-1, seeds, table.shape[-1]) for name, table in values.items()}


def _against(values_HSR: np.ndarray, baseline: int, share_RS: np.ndarray) -> np.ndarray:
    """(H, R) the mean over the drawn seeds of the differences from the baseline."""
    differences_HSR = values_HSR - values_HSR[baseline]
    return np.asarray((differences_HSR * share_RS.T).sum(1))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, and 0 where there is nothing to divide by."""
    return np.asarray(part / np.where(whole == 0, 1, whole))


def _checked(
    true_nodes: np.ndarray, predicted: Mapping[str, np.ndarray], taxonomy: Taxonomy
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    true_n = np.asarray(true_nodes, dtype=np.int64)
    sides = {name: np.atleast_2d(np.asarray(rows, dtype=np.int64)) for name, rows in predicted.items()}
    shapes: dict[str, Any] = {name: rows.shape for name, rows in sides.items()}
    if true_n.ndim != 1 or not len(true_n):
        raise InputError(f"a bootstrap needs (n,) true nodes, found the shape {true_n.shape}")
    if len(set(shapes.values())) != 1 or next(iter(shapes.values()))[-1] != len(true_n):
        raise InputError(f"a bootstrap is paired: each side needs ({len(true_n)},) or (seeds, n) nodes; found {shapes}")
    for rows in (true_n, *sides.values()):
        if rows.min() < 0 or rows.max() >= taxonomy.num_nodes:
            raise InputError(f"nodes lie between 0 and {taxonomy.num_nodes - 1}, found {rows.min()} to {rows.max()}")
    return true_n, sides


def check_options(measures: Sequence[str], resamples: int, level: float) -> None:
    """Raise for what no bootstrap can do."""
    for measure in measures:
        if measure not in MEASURES:
            raise OptionError(f"no bootstrap of {measure!r}{did_you_mean(measure, MEASURES) or f'; of {MEASURES}'}")
    if resamples < 1:
        raise OptionError(f"resamples is at least 1, found {resamples}")
    if not 0 < level < 1:
        raise OptionError(f"level lies between 0 and 1, such as 0.95; found {level}")
