"""Every measure by name. numpy only, so that tables, choices and reports can list measures without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from arbormax._registry import Registry
from arbormax.metrics.curves import calibration_errors, curve_area, distances
from arbormax.metrics.measure import PLACES, Measure, Place, item_sum
from arbormax.metrics.sums import QUANTITIES, Items, Quantity, Sums, information, macro_mean, ratio, to_fixed

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
    own = {item_sum(name): _per_item(MEASURES[name]) for name in MEASURES if MEASURES[name].per_item is not None}
    return {**QUANTITIES, **own}


def node_values(sums: Sums) -> dict[str, Any]:
    """Every measure of predicted nodes, as plain numbers."""
    return {name: plain(measure, sums) for name, measure in _entries() if measure.source == "nodes"}


def probability_values(sums: Sums) -> dict[str, Any]:
    """Every measure of log-probabilities, as plain numbers; one with a value per k has a name for each k."""
    values: dict[str, Any] = {}
    for name, measure in _entries():
        if measure.source == "log_probs":
            found = plain(measure, sums)
            values |= {f"{name}@{k}": value for k, value in found.items()} if measure.per == "k" else {name: found}
    return values


def plain(measure: Measure, sums: Sums) -> Any:
    """The value as a number, as a list with one number or None per level, or as a dict with one number per k."""
    value = measure.compute(sums)
    if measure.per == "k":
        return {int(k): float(number) for k, number in value.items()}
    listed = np.asarray(value).tolist()
    return [None if number != number else number for number in listed] if measure.per == "level" else listed


def _entries() -> list[tuple[str, Measure]]:
    return [(name, MEASURES[name]) for name in MEASURES]


def _per_item(measure: Measure) -> Quantity:
    per_item = measure.per_item
    assert per_item is not None

    def amount(items: Items) -> np.ndarray:
        return to_fixed(per_item(items.true, items.pred, items.tax))

    return Quantity(amount)


def _add(measure: Measure, summary: str) -> None:
    MEASURES.add(measure.name, measure, summary)


def _seen(sums: Sums) -> np.ndarray:
    return np.asarray(sums["support"] + sums["predicted"] > 0)


def _class_true_depth(sums: Sums) -> np.ndarray:
    return np.asarray(sums["support"] * sums.tax.node_depth[sums.tax.leaves])


def _level_accuracy(sums: Sums) -> np.ndarray:
    # truth and prediction agree at depth d exactly when their lowest common ancestor has depth d or more
    reached, right = (
        np.cumsum(sums[name][..., ::-1], -1)[..., ::-1][..., 1:] for name in ("true_levels", "shared_levels")
    )
    return np.where(reached > 0, ratio(right, reached), np.nan)


_add(
    Measure(
        "accuracy",
        "accuracy",
        "share",
        "higher",
        lambda sums: ratio(sums["count"] - sums["errors"], sums["count"]),
        shown="headline",
        meaning="texts with exactly the right class",
    ),
    "share of items whose prediction is exactly the true node",
)
_add(
    Measure(
        "macro_f1",
        "macro-F1",
        "share",
        "higher",
        lambda sums: macro_mean(2 * sums["hits"], sums["support"] + sums["predicted"], _seen(sums)),
        shown="headline",
        meaning="every class counts the same, however rare",
    ),
    "mean F1 of the classes in truth or prediction, over items whose truth is a leaf",
)
_add(
    Measure(
        "macro_precision",
        "macro precision",
        "share",
        "higher",
        lambda sums: macro_mean(sums["hits"], sums["predicted"], _seen(sums)),
        shown="table",
    ),
    "mean precision of these classes; an inner prediction is no false positive",
)
_add(
    Measure(
        "macro_recall",
        "macro recall",
        "share",
        "higher",
        lambda sums: macro_mean(sums["hits"], sums["support"], _seen(sums)),
        shown="table",
    ),
    "mean recall of these classes",
)
_add(
    Measure(
        "hp",
        "hierarchical precision",
        "share",
        "higher",
        lambda sums: ratio(sums["shared_depth"], sums["pred_depth"]),
        shown="detail",
    ),
    "nodes that both paths share, divided by the nodes of the predicted paths",
)
_add(
    Measure(
        "hr",
        "hierarchical recall",
        "share",
        "higher",
        lambda sums: ratio(sums["shared_depth"], sums["true_depth"]),
        shown="detail",
    ),
    "nodes that both paths share, divided by the nodes of the true paths",
)
_add(
    Measure(
        "hf",
        "hierarchical F",
        "share",
        "higher",
        lambda sums: ratio(2 * sums["shared_depth"], sums["pred_depth"] + sums["true_depth"]),
        shown="headline",
        meaning="share of right nodes on the path, so near misses count in part",
    ),
    "harmonic mean of `hp` and `hr`",
)
_add(
    Measure(
        "macro_hp",
        "macro hierarchical precision",
        "share",
        "higher",
        lambda sums: macro_mean(sums["class_shared_depth"], sums["class_pred_depth"], sums["support"] > 0),
        shown="detail",
    ),
    "mean of `hp` over the true classes, over items whose truth is a leaf",
)
_add(
    Measure(
        "macro_hr",
        "macro hierarchical recall",
        "share",
        "higher",
        lambda sums: macro_mean(sums["class_shared_depth"], _class_true_depth(sums), sums["support"] > 0),
        shown="detail",
    ),
    "mean of `hr` over the true classes",
)
_add(
    Measure(
        "macro_hf",
        "macro hierarchical F",
        "share",
        "higher",
        lambda sums: macro_mean(
            2 * sums["class_shared_depth"], sums["class_pred_depth"] + _class_true_depth(sums), sums["support"] > 0
        ),
        shown="detail",
    ),
    "mean of `hf` over the true classes",
)
_add(
    Measure("level_accuracy", "accuracy per level", "share", "higher", _level_accuracy, per="level", shown="detail"),
    "for each level, the share of right nodes among the items that reach it",
)
_add(
    Measure(
        "mistake_severity",
        "mistake severity",
        "levels",
        "lower",
        lambda sums: ratio(sums["severity"], sums["errors"]),
        shown="headline",
        meaning="levels from a mistake up to the lowest node above it and the truth; lower is better",
    ),
    "mean height of the lowest common ancestor with the truth, over the errors",
)
_add(
    Measure(
        "tree_distance",
        "tree distance",
        "edges",
        "lower",
        lambda sums: ratio(sums["pred_depth"] + sums["true_depth"] - 2 * sums["shared_depth"], sums["count"]),
    ),
    "mean number of edges between truth and prediction",
)
_add(
    Measure("errors", "errors", "count", None, lambda sums: sums["errors"], shown="detail"),
    "number of items whose prediction is not exactly the true node",
)
_add(
    Measure(
        "information",
        "information",
        "bits",
        None,
        lambda sums: ratio(sums["pred_nodes"] @ information(np.arange(sums.tax.num_nodes), sums.tax), sums["count"]),
        shown="detail",
    ),
    "mean log2(C / leaves below the prediction): how specific the predictions are",
)
_add(Measure("count", "items", "count", None, lambda sums: sums["count"], shown="detail"), "number of items")
_add(
    Measure(
        "leaf_count", "items with a leaf truth", "count", None, lambda sums: sums["support"].sum(-1), shown="detail"
    ),
    "number of items whose truth is a leaf, the basis of the macro measures",
)
_add(
    Measure(
        "nll",
        "negative log-likelihood",
        "nats",
        "lower",
        lambda sums: ratio(sums["nll"], sums["count"]),
        source="log_probs",
    ),
    "mean of −log P(true node)",
)
_add(
    Measure(
        "ece",
        "calibration error per level",
        "share",
        "lower",
        calibration_errors,
        source="log_probs",
        per="level",
        shown="detail",
    ),
    "for each level, the expected calibration error of the most probable node",
)
_add(
    Measure(
        "operating_curve_area",
        "area of correct against specific",
        "share",
        "higher",
        curve_area,
        source="log_probs",
        shown="table",
    ),
    "area below correctness against specificity (Valmadre 2022)",
)
_add(
    Measure(
        "hierarchical_distance",
        "hierarchical distance",
        "levels",
        "lower",
        distances,
        source="log_probs",
        per="k",
        shown="detail",
    ),
    "`…@k`: mean height of the common ancestors with the k best classes",
)
