"""Bootstrap intervals of measures and of paired differences between sets of predictions. numpy only.

A resample is a random half of the items: items have the weight 0 or 1, so a class with one item keeps its result or
drops out, each with probability 1/2. Drawing n items with replacement underestimates the variance of macro measures if
many classes are rare (by 40 % for a class with one item), because such a class stays too often.

n items, S seeds, H sets of predictions, P = H·S, M measures, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from arbormax.errors import InputError, OptionError, did_you_mean
from arbormax.metrics.registry import MEASURES, compared_measures, quantities
from arbormax.metrics.sums import Items, WeightedSums
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

    Every resample draws seeds with replacement and a random half of the items, the same for all sets; its value is the
    mean over the drawn seeds. Rare classes drop out of a half, which shifts macro measures, so the bounds are the
    percentiles of the deviations from the mean of all resamples, added to the measured value. The baseline is the first
    set by default, and the measures are those of `compared_measures()`.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # leaves: 3 x, 4 y, 5 z
    >>> true = np.array([3, 4, 5, 5])
    >>> bootstrap(true, {"flat": true, "tree": true}, tax).differences["tree"]["macro_f1"]
    Interval(mean=0.0, low=0.0, high=0.0)
    """
    names = compared_measures() if measures is None else tuple(measures)
    check_options(names, resamples, level)
    true_n, sets = _check_nodes(true_nodes, predicted, taxonomy)
    labels, n = list(sets), len(true_n)
    base = labels.index(baseline) if baseline is not None else 0
    seeds = len(sets[labels[base]])
    items = [Items(true_n, pred_n, taxonomy) for rows in sets.values() for pred_n in rows]

    def measure(weights_Rn: np.ndarray, share_RS: np.ndarray) -> np.ndarray:
        """(2, M, H, R) the mean over the seeds of the measures, and of their differences from the baseline."""
        values = weighted_values(items, names, weights_Rn).reshape(len(names), len(labels), seeds, -1)
        return np.stack([(side * share_RS.T).sum(2) for side in (values, values - values[:, [base]])])

    rng = np.random.default_rng(seed)
    share_RS = rng.multinomial(seeds, np.full(seeds, 1.0 / seeds), size=resamples) / seeds
    sizes_R = np.maximum(1, (n + np.arange(resamples) % 2) // 2)
    mean = measure(np.ones((1, n)), np.full((1, seeds), 1.0 / seeds))[..., 0]  # (2, M, H)
    starts = range(0, resamples, max(1, _CELLS // max(n, taxonomy.num_leaves)))
    parts = [slice(start, start + starts.step) for start in starts]
    drawn = np.concatenate([measure(_halves(rng, n, sizes_R[part]), share_RS[part]) for part in parts], axis=-1)
    tail = 50.0 * (1.0 - level)
    deviations = drawn - mean[..., None]
    deviations -= deviations.mean(-1, keepdims=True)
    bounds = mean + np.percentile(deviations, [tail, 100.0 - tail], axis=-1)  # (2, 2, M, H)
    shares = [place for place, name in enumerate(names) if MEASURES[name].unit == "share"]
    lowest = np.array([0.0, -1.0])[:, None, None]  # of a share, and of a difference of shares
    bounds[:, :, shares] = bounds[:, :, shares].clip(lowest, 1.0)
    own, differences = (
        {
            label: {name: Interval(*table[:, place, at].tolist()) for place, name in enumerate(names)}
            for at, label in enumerate(labels)
        }
        for table in np.concatenate([mean[None], bounds]).swapaxes(0, 1)
    )
    del differences[labels[base]]
    return Intervals(own, differences)


def bootstrap_means(
    values: Mapping[str, np.ndarray],
    *,
    baseline: str | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """The differences from the baseline of the means of (n,) values of the same items, such as their log losses.

    The resamples are those of `bootstrap`.

    >>> bootstrap_means({"flat": np.array([1.0, 2.0]), "tree": np.array([0.5, 1.5])})["tree"].mean
    -0.5
    """
    check_options((), resamples, level)
    base = next(iter(values)) if baseline is None else baseline
    n, tail, rng = len(values[base]), 50.0 * (1.0 - level), np.random.default_rng(seed)
    others = [name for name in values if name != base]
    difference_Hn = np.stack([np.asarray(values[name], np.float64) - values[base] for name in others])
    sizes_R = np.maximum(1, (n + np.arange(resamples) % 2) // 2)
    step = max(1, _CELLS // n)
    starts = range(0, resamples, step)
    parts = [_halves(rng, n, sizes_R[start : start + step]) for start in starts]
    drawn_HR = np.concatenate([difference_Hn @ part.T / part.sum(1) for part in parts], axis=1)
    mean_H = difference_Hn.mean(1)
    bounds = mean_H + np.percentile(drawn_HR - drawn_HR.mean(1, keepdims=True), [tail, 100.0 - tail], axis=1)
    return {name: Interval(*row) for name, row in zip(others, np.stack([mean_H, *bounds], 1).tolist(), strict=True)}


def weighted_values(items: Sequence[Items], measures: Sequence[str], weights_Rn: np.ndarray) -> np.ndarray:
    """(M, P, R) the measures of P sets of predictions, with each item counted as often as its weight says.

    All sums are of whole numbers, so that equal predictions have equal values to the last bit.
    """
    parts, real_Rn = quantities(), weights_Rn.astype(np.float64)
    sums = [WeightedSums(own, real_Rn, parts) for own in items]
    values = [[np.broadcast_to(MEASURES[name].compute(own), len(weights_Rn)) for own in sums] for name in measures]
    return np.array(values)


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


def _halves(rng: np.random.Generator, items: int, sizes_R: np.ndarray) -> np.ndarray:
    """(R, n) 1 for the items of a random subset of each size, 0 for the others."""
    order_Rn = rng.random((len(sizes_R), items))
    places = np.unique(sizes_R) - 1
    last_R = np.partition(order_Rn, places, axis=1)[np.arange(len(sizes_R)), sizes_R - 1]
    return np.asarray(order_Rn <= last_R[:, None])


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
