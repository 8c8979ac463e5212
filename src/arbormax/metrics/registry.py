"""Every measure by name. numpy only, so that tables, choices and reports can list measures without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import numpy as np

from arbormax._registry import Registry
from arbormax.metrics.measure import PLACES, Measure, PerItem, Place, Unit, item_sum
from arbormax.metrics.sums import (
    FIXED,
    QUANTITIES,
    Items,
    Quantity,
    Sums,
    WeightedSums,
    compute_curve,
    folded_normal_mean,
    macro_mean,
    node_information,
    ratio,
    to_fixed,
)

MEASURES: Registry[Measure] = Registry("measure")

# Facts about a training that are shown next to the measures.
COSTS: Mapping[str, Measure] = {
    "seconds": Measure("seconds", "seconds of training", "seconds", None, source="training"),
    "parameters": Measure("parameters", "parameters", "count", None, source="training"),
}


def shown_measures(place: Place) -> tuple[str, ...]:
    """The names of the measures that a listing of this length includes, in the order of the registry."""
    included = PLACES[: PLACES.index(place) + 1]
    return tuple(name for name in MEASURES if MEASURES[name].shown in included)


def compared_measures() -> tuple[str, ...]:
    """The names of the measures whose differences a comparison bootstraps."""
    return tuple(name for name in shown_measures("table") if MEASURES[name].can_bootstrap)


def quantities() -> dict[str, Quantity]:
    """What is summed over the items: the sums of the built-in measures, and the values of per-item measures."""
    per_item = {name: MEASURES[name].per_item for name in MEASURES}
    return {**QUANTITIES, **{item_sum(name): _quantity(found) for name, found in per_item.items() if found is not None}}


def node_sums(items: Items) -> dict[str, np.ndarray]:
    """The sum of each quantity, int64, so that the order of additions does not matter."""
    parts = quantities()
    sums = WeightedSums(items, np.ones((1, len(items))), parts)
    return {name: sums[name][0].astype(np.int64) for name in parts}


def measure_values(sums: Sums, ks: Iterable[int] = ()) -> dict[str, Any]:
    """Every measure, or without sums over log-probabilities every measure of nodes, as plain numbers.

    A measure that has a value for each k is named `…@k`.
    """
    values: dict[str, Any] = {}
    for name in MEASURES:
        measure = MEASURES[name]
        if measure.source == "nodes" or "nll" in sums:
            value = to_plain(measure.compute(sums))
            if measure.per == "k":
                values |= {f"{name}@{k}": value[k - 1] for k in ks if k <= len(value)}
            else:
                values[name] = value
    return values


def to_plain(value: Any) -> Any:
    """A number, or a list with None in place of NaN."""
    listed = np.asarray(value).tolist()
    return [None if number != number else number for number in listed] if isinstance(listed, list) else listed


def _quantity(per_item: PerItem) -> Quantity:
    return Quantity(lambda items: to_fixed(per_item(items.true, items.pred, items.tax)))


def _measure(
    title: str, unit: Unit, better: Literal["higher", "lower"] | None, **options: Any
) -> Callable[[Callable[[Sums], np.ndarray]], Callable[[Sums], np.ndarray]]:
    """Register a function of the sums: its name is that of the measure, and its docstring the definition."""

    def add(value: Callable[[Sums], np.ndarray]) -> Callable[[Sums], np.ndarray]:
        name, definition = value.__name__, value.__doc__ or ""
        MEASURES.add(name, Measure(name, title, unit, better, value, **options), definition)
        return value

    return add


def _seen(sums: Sums) -> np.ndarray:
    return np.asarray(sums["support"] + sums["predicted"] > 0)


def _class_true_depth(sums: Sums) -> np.ndarray:
    return np.asarray(sums["support"] * sums.tax.ancestor_counts[sums.tax.leaves])


@_measure("accuracy", "share", "higher", shown="headline", meaning="texts with exactly the right class")
def accuracy(sums: Sums) -> np.ndarray:
    """share of items whose prediction is exactly the true node"""
    return ratio(sums["count"] - sums["errors"], sums["count"])


@_measure("macro-F1", "share", "higher", shown="headline", meaning="every class counts the same, however rare")
def macro_f1(sums: Sums) -> np.ndarray:
    """mean F1 of the classes in truth or prediction, over items whose truth is a leaf"""
    return macro_mean(2 * sums["hits"], sums["support"] + sums["predicted"], _seen(sums))


@_measure("macro precision", "share", "higher", shown="table")
def macro_precision(sums: Sums) -> np.ndarray:
    """mean precision of these classes; an inner prediction is no false positive"""
    return macro_mean(sums["hits"], sums["predicted"], _seen(sums))


@_measure("macro recall", "share", "higher", shown="table")
def macro_recall(sums: Sums) -> np.ndarray:
    """mean recall of these classes"""
    return macro_mean(sums["hits"], sums["support"], _seen(sums))


@_measure("hierarchical precision", "share", "higher", shown="detail")
def hp(sums: Sums) -> np.ndarray:
    """nodes that both paths share, divided by the nodes of the predicted paths"""
    return ratio(sums["shared_depth"], sums["pred_depth"])


@_measure("hierarchical recall", "share", "higher", shown="detail")
def hr(sums: Sums) -> np.ndarray:
    """nodes that both paths share, divided by the nodes of the true paths"""
    return ratio(sums["shared_depth"], sums["true_depth"])


@_measure(
    "hierarchical F",
    "share",
    "higher",
    shown="headline",
    meaning="share of right nodes on the path, so near misses count in part",
)
def hf(sums: Sums) -> np.ndarray:
    """harmonic mean of `hp` and `hr`"""
    return ratio(2 * sums["shared_depth"], sums["pred_depth"] + sums["true_depth"])


@_measure("macro hierarchical precision", "share", "higher", shown="detail")
def macro_hp(sums: Sums) -> np.ndarray:
    """mean of `hp` over the true classes, over items whose truth is a leaf"""
    return macro_mean(sums["class_shared_depth"], sums["class_pred_depth"], sums["support"] > 0)


@_measure("macro hierarchical recall", "share", "higher", shown="detail")
def macro_hr(sums: Sums) -> np.ndarray:
    """mean of `hr` over the true classes"""
    return macro_mean(sums["class_shared_depth"], _class_true_depth(sums), sums["support"] > 0)


@_measure("macro hierarchical F", "share", "higher", shown="detail")
def macro_hf(sums: Sums) -> np.ndarray:
    """mean of `hf` over the true classes"""
    depths = sums["class_pred_depth"] + _class_true_depth(sums)
    return macro_mean(2 * sums["class_shared_depth"], depths, sums["support"] > 0)


@_measure("accuracy per level", "share", "higher", per="level", shown="detail")
def level_accuracy(sums: Sums) -> np.ndarray:
    """for each level, the share of right nodes among the items that reach it"""
    # truth and prediction agree at depth d exactly when their lowest common ancestor has depth d or more
    reached, right = (
        np.cumsum(sums[name][..., ::-1], -1)[..., ::-1][..., 1:] for name in ("true_levels", "shared_levels")
    )
    return np.where(reached > 0, ratio(right, reached), np.nan)


@_measure(
    "mistake severity",
    "levels",
    "lower",
    shown="headline",
    meaning="levels from a mistake up to the lowest node above it and the truth; lower is better",
)
def mistake_severity(sums: Sums) -> np.ndarray:
    """mean height of the lowest common ancestor with the truth, over the errors"""
    return ratio(sums["severity"], sums["errors"])


@_measure("tree distance", "edges", "lower")
def tree_distance(sums: Sums) -> np.ndarray:
    """mean number of edges between truth and prediction"""
    return ratio(sums["distance"], sums["count"])


@_measure("errors", "count", None, shown="detail")
def errors(sums: Sums) -> np.ndarray:
    """number of items whose prediction is not exactly the true node"""
    return sums["errors"]


@_measure("information", "bits", None, shown="detail")
def information(sums: Sums) -> np.ndarray:
    """mean log2(C / leaves below the prediction): how specific the predictions are"""
    bits_N = node_information(np.arange(sums.tax.num_nodes), sums.tax)
    return ratio(sums["pred_nodes"] @ bits_N, sums["count"])


@_measure("items", "count", None, shown="detail")
def count(sums: Sums) -> np.ndarray:
    """number of items"""
    return sums["count"]


@_measure("items with a leaf truth", "count", None, shown="detail")
def leaf_count(sums: Sums) -> np.ndarray:
    """number of items whose truth is a leaf, the basis of the macro measures"""
    return np.asarray(sums["support"].sum(-1))


@_measure("negative log-likelihood", "nats", "lower", source="log_probs")
def nll(sums: Sums) -> np.ndarray:
    """mean of −log P(true node)"""
    return ratio(sums["nll"], sums["count"])


@_measure("calibration error per level", "share", "lower", source="log_probs", per="level", shown="detail")
def ece(sums: Sums) -> np.ndarray:
    """for each level, the expected calibration error of the most probable node"""
    gaps_L = np.abs(sums["bin_right"] - sums["bin_confidence"] / FIXED).sum(1)
    counts_L = sums["bin_count"].sum(1)
    return np.where(counts_L > 0, ratio(gaps_L, counts_L), np.nan)


@_measure("debiased calibration error per level", "share", "lower", source="log_probs", per="level", shown="detail")
def ece_debiased(sums: Sums) -> np.ndarray:
    """`ece` without the part that chance adds to the error of small bins (Kumar et al. 2019)"""
    counts_Lb = sums["bin_count"]
    right_Lb = ratio(sums["bin_right"], counts_Lb)
    gaps_Lb = np.abs(right_Lb - ratio(sums["bin_confidence"] / FIXED, counts_Lb))
    deviation_Lb = np.sqrt(right_Lb * (1 - right_Lb) / np.maximum(counts_Lb, 1))
    expected_Lb = folded_normal_mean(gaps_Lb, deviation_Lb)
    total_L = (counts_Lb * (2 * gaps_Lb - expected_Lb)).sum(1)
    counts_L = counts_Lb.sum(1)
    return np.where(counts_L > 0, np.maximum(ratio(total_L, counts_L), 0.0), np.nan)


@_measure("Brier score", "number", "lower", source="log_probs", shown="detail")
def brier(sums: Sums) -> np.ndarray:
    """mean squared distance of the probabilities of the classes from the truth, over items whose truth is a leaf"""
    return ratio(sums["brier"], sums["leaf_items"])


@_measure("area of correct against specific", "share", "higher", source="log_probs", shown="table")
def operating_curve_area(sums: Sums) -> np.ndarray:
    """area below correctness against specificity (Valmadre 2022)"""
    return np.asarray(compute_curve(sums).area)


@_measure("hierarchical distance", "levels", "lower", source="log_probs", per="k", shown="detail")
def hierarchical_distance(sums: Sums) -> np.ndarray:
    """`…@k`: mean height of the common ancestors with the k best classes"""
    ranks_K = np.arange(1, len(sums["rank_heights"]) + 1)
    return ratio(np.cumsum(sums["rank_heights"]), sums["count"] * ranks_K)
