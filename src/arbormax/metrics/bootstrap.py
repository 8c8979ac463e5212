"""Bootstrap intervals of measures and of paired differences between sets of predictions. numpy only.

n items, S seeds, H sets of predictions, R resamples, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from arbormax.errors import InputError, OptionError, did_you_mean
from arbormax.metrics.registry import MEASURES, compared_measures, quantities
from arbormax.metrics.sums import Items, Quantity, Sums
from arbormax.taxonomy import Taxonomy

_CELLS = 100_000  # numbers in one array of a chunk of resamples: three times as fast when it fits the cache


class Interval(NamedTuple):
    """The measured value and the bounds of its bootstrap interval."""

    mean: float
    low: float
    high: float


class Intervals(NamedTuple):
    """For each set of predictions, the intervals of its measures and of their differences from the baseline."""

    own: dict[str, dict[str, Interval]]
    differences: dict[str, dict[str, Interval]]  # without the baseline


def bootstrap(
    true_nodes: np.ndarray,
    predicted: Mapping[str, np.ndarray],
    taxonomy: Taxonomy,
    *,
    baseline: str | None = None,
    measures: Sequence[str] | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Intervals:
    """The intervals of measures for sets of predictions of the same items, each (n,), or (S, n) for S seeds.

    Every resample draws seeds, then items, with replacement, and uses the same draw for all sets; its value is the mean
    over the drawn seeds. The bounds are percentiles over the resamples. The baseline is the first set by default, and
    the measures are those of `compared_measures()`.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # leaves: 3 x, 4 y, 5 z
    >>> true = np.array([3, 4, 5, 5])
    >>> bootstrap(true, {"flat": true, "tree": true}, tax).differences["tree"]["macro_f1"]
    Interval(mean=0.0, low=0.0, high=0.0)
    """
    names = compared_measures() if measures is None else tuple(measures)
    check_options(names, resamples, level)
    true_n, sets = _check_nodes(true_nodes, predicted, taxonomy)
    labels = list(sets)
    base = labels.index(baseline) if baseline is not None else 0
    seeds = len(sets[labels[base]])
    counts = WeightedCounts(true_n, np.concatenate(list(sets.values())), taxonomy)
    rng = np.random.default_rng(seed)
    share_RS = rng.multinomial(seeds, np.full(seeds, 1.0 / seeds), size=resamples) / seeds
    exact = _by_set(counts.values(names, np.ones((1, len(true_n)), dtype=np.int64)), seeds)
    chunks: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in names}
    rows = max(1, _CELLS // max(len(true_n), taxonomy.num_leaves))
    for part_RS in np.split(share_RS, range(rows, resamples, rows)):
        values = _by_set(counts.values(names, _item_weights(rng, len(part_RS), len(true_n))), seeds)
        for name in names:
            chunks[name].append(_seed_means(values[name], base, part_RS))
    result = Intervals({label: {} for label in labels}, {label: {} for label in labels if label != labels[base]})
    whole = np.full((1, seeds), 1.0 / seeds)
    for name in names:
        tables = (result.own, result.differences)
        resampled = (np.concatenate(parts, axis=1) for parts in zip(*chunks[name], strict=True))
        for table, mean_H1, drawn_HR in zip(tables, _seed_means(exact[name], base, whole), resampled, strict=True):
            tail = 50.0 * (1.0 - level)
            low_H, high_H = np.percentile(drawn_HR, [tail, 100.0 - tail], axis=1)
            for label in table:
                at = labels.index(label)
                table[label][name] = Interval(float(mean_H1[at, 0]), float(low_H[at]), float(high_H[at]))
    return result


def paired_bootstrap(
    true_nodes: np.ndarray,
    predicted: np.ndarray,
    baseline: np.ndarray,
    taxonomy: Taxonomy,
    *,
    measures: Sequence[str] | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """The interval of `predicted` minus `baseline` for each measure; both (n,), or (S, n) with a row for each seed.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # leaves: 3 x, 4 y, 5 z
    >>> true = np.array([3, 4, 5, 5])
    >>> paired_bootstrap(true, true, true, tax)["macro_f1"]
    Interval(mean=0.0, low=0.0, high=0.0)
    """
    sets = {"predicted": predicted, "baseline": baseline}
    options = {"measures": measures, "resamples": resamples, "level": level, "seed": seed}
    return paired_differences(true_nodes, sets, "baseline", taxonomy, **options)["predicted"]  # type: ignore[arg-type]


def paired_differences(
    true_nodes: np.ndarray,
    predicted: Mapping[str, np.ndarray],
    baseline: str,
    taxonomy: Taxonomy,
    *,
    measures: Sequence[str] | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, dict[str, Interval]]:
    """For each set of predictions except the baseline, the intervals of its differences from the baseline."""
    return bootstrap(
        true_nodes,
        predicted,
        taxonomy,
        baseline=baseline,
        measures=measures,
        resamples=resamples,
        level=level,
        seed=seed,
    ).differences


class WeightedCounts:
    """The measures of P sets of predictions for any weights of the items; unit weights give those of `evaluate`.

    All sums are of whole numbers, so that equal predictions have equal values to the last bit.
    """

    def __init__(self, true_n: np.ndarray, predicted_Pn: np.ndarray, taxonomy: Taxonomy) -> None:
        self._tax = taxonomy
        self._sets = [Items(true_n, pred_n, taxonomy) for pred_n in predicted_Pn]
        self._parts = quantities()
        self._arrays: dict[tuple[str, int], tuple[np.ndarray, np.ndarray | None]] = {}

    def values(self, measures: Sequence[str], weights_Rn: np.ndarray) -> dict[str, np.ndarray]:
        """(P, R) every measure, with each item counted as often as its weight says."""
        real_Rn = weights_Rn.astype(np.float64)
        shared: dict[str, np.ndarray] = {}  # sums that depend on the truth alone
        rows: dict[str, list[np.ndarray]] = {name: [] for name in measures}
        for place in range(len(self._sets)):
            known: dict[str, np.ndarray] = {}

            def get(name: str, place: int = place, known: dict[str, np.ndarray] = known) -> np.ndarray:
                part = self._parts[name]
                cache = shared if part.truth_only else known
                if name not in cache:
                    cache[name] = self._sum(name, part, place, real_Rn)
                return cache[name]

            sums = Sums(self._tax, get)
            for name in measures:
                rows[name].append(np.broadcast_to(MEASURES[name].compute(sums), len(real_Rn)))
        return {name: np.stack(values) for name, values in rows.items()}

    def _sum(self, name: str, part: Quantity, place: int, weights_Rn: np.ndarray) -> np.ndarray:
        """(R,) or (R, groups) the weighted sum of one quantity."""
        key = name, 0 if part.truth_only else place
        if key not in self._arrays:
            self._arrays[key] = _amounts(part, self._sets[place])
        amount_n, group_n = self._arrays[key]
        if group_n is None:
            return np.asarray(weights_Rn @ amount_n)
        groups, rows = part.groups(self._tax), len(weights_Rn)
        among = np.flatnonzero(group_n >= 0)
        chosen_Rn = weights_Rn if len(among) == len(group_n) else weights_Rn[:, among]
        if part.amount is not None:
            chosen_Rn = chosen_Rn * amount_n[among]
        cells = (np.arange(rows)[:, None] * groups + group_n[among]).ravel()
        return np.bincount(cells, weights=chosen_Rn.ravel(), minlength=rows * groups).reshape(rows, groups)


def check_options(measures: Sequence[str], resamples: int, level: float) -> None:
    """Raise an error for options that no bootstrap accepts."""
    possible = [name for name in MEASURES if MEASURES[name].can_bootstrap]
    for name in measures:
        if name not in possible:
            hint = did_you_mean(name, possible) or f"; expected {', '.join(possible)}"
            raise OptionError(f"{name!r} cannot be bootstrapped{hint}", argument="measures")
    if resamples < 1:
        raise OptionError(f"expected at least 1, found {resamples}", argument="resamples")
    if not 0 < level < 1:
        raise OptionError(f"expected a number between 0 and 1, such as 0.95; found {level}", argument="level")


def _amounts(part: Quantity, items: Items) -> tuple[np.ndarray, np.ndarray | None]:
    return part.amounts(items).astype(np.float64), None if part.group is None else part.group(items)


def _item_weights(rng: np.random.Generator, resamples: int, items: int) -> np.ndarray:
    """(R, n) how often each item is drawn when n are drawn with replacement."""
    cells = rng.integers(items, size=(resamples, items)) + np.arange(resamples)[:, None] * items
    return np.bincount(cells.ravel(), minlength=resamples * items).reshape(resamples, items)


def _by_set(values: dict[str, np.ndarray], seeds: int) -> dict[str, np.ndarray]:
    """(H, S, R) from (H * S, R)."""
    return {name: table.reshape(-1, seeds, table.shape[-1]) for name, table in values.items()}


def _seed_means(values_HSR: np.ndarray, base: int, share_RS: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(H, R) the mean over the drawn seeds of the values, and of their differences from the baseline."""
    share_SR = share_RS.T
    return (values_HSR * share_SR).sum(1), ((values_HSR - values_HSR[base]) * share_SR).sum(1)


def _check_nodes(
    true_nodes: np.ndarray, predicted: Mapping[str, np.ndarray], taxonomy: Taxonomy
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    true_n = np.asarray(true_nodes, dtype=np.int64)
    sets = {name: np.atleast_2d(np.asarray(rows, dtype=np.int64)) for name, rows in predicted.items()}
    shapes = {name: rows.shape for name, rows in sets.items()}
    if true_n.ndim != 1 or not len(true_n):
        raise InputError(f"expected (n,) true nodes, found the shape {true_n.shape}", argument="true_nodes")
    if len(set(shapes.values())) != 1 or next(iter(shapes.values()))[-1] != len(true_n):
        raise InputError(
            f"a bootstrap is paired: expected ({len(true_n)},) or (seeds, {len(true_n)}) nodes in every set of "
            f"predictions, found {shapes}",
            argument="predicted",
        )
    for argument, rows in (("true_nodes", true_n), *(("predicted", rows) for rows in sets.values())):
        if rows.min() < 0 or rows.max() >= taxonomy.num_nodes:
            raise InputError(
                f"nodes lie between 0 and {taxonomy.num_nodes - 1}, found {rows.min()} to {rows.max()}",
                argument=argument,
            )
    return true_n, sets
