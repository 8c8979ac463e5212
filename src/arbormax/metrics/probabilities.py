"""Measures of node log-probabilities: distance of the top k, operating curve, calibration error per level.

B items, N nodes, C classes, L = depth + 1 levels, k ranks, T thresholds. As with the nodes, each measure is a few
whole-number sums over the items and a function that turns them into values.
"""

import operator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from arbormax.errors import OptionError
from arbormax.functional.index import tree_index
from arbormax.functional.threshold import check_tau, level_best, stop_level
from arbormax.metrics.inputs import ranked_classes, scored_nodes
from arbormax.metrics.nodes import Stats, add_at, information, ratio
from arbormax.taxonomy.tree import Taxonomy

# fractions are summed as multiples of 2^-32: exact in any order, good to 1e-9, and room for two billion items
FIXED = 2**32
DEFAULT_THRESHOLDS = tuple(step / 100 for step in range(101))


class Curve(NamedTuple):
    """Correctness and specificity at each threshold, in the order of the thresholds, and the area below them."""

    correct: list[float]
    specificity: list[float]
    area: float


def hierarchical_distance_at_k(true_nodes: Any, topk_classes: Any, tax: Taxonomy) -> float:
    """The mean height of the lowest common ancestor of the truth (...,) and each of its top k classes (..., k).

    Right answers count with the height of the truth, which is 0 for a leaf. 0 when there are no items.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
    >>> hierarchical_distance_at_k([3, 5], [[0, 1], [0, 2]], tax)  # heights 0 and 1, 2 and 0
    0.75
    """
    stats = add_ranked(zero_distance_stats(), *ranked_classes(true_nodes, topk_classes, tax), tax)
    return distance_value(stats)


def operating_curve(log_probs: Any, true_nodes: Any, tax: Taxonomy, thresholds: Any = DEFAULT_THRESHOLDS) -> Curve:
    """Correctness against specificity as the threshold sweeps (Valmadre 2022), and the area below the curve.

    log_probs (..., N), true_nodes (...,). At each threshold the items are decoded with the threshold rule. Correct is
    the share of items whose truth stands at or below the prediction; specificity is the mean information of the
    predictions over log2(C) (1 where there is one class). The area is the trapezoid sum over specificity, from the
    root's end point (specificity 0, correct 1) to the most specific point reached; what lies beyond counts nothing.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]})
    >>> logp = torch.tensor([[1.0, 0.6, 0.4, 0.5, 0.1, 0.4, 0.0]]).log()
    >>> operating_curve(logp, [tax.find("y")], tax, thresholds=[0.7, 0.5, 0.0])
    Curve(correct=[1.0, 1.0, 0.0], specificity=[0.0, 0.5, 1.0], area=0.75)
    """
    taus = check_thresholds(thresholds)
    table = level_table(*scored_nodes(log_probs, true_nodes, tax), tax)
    return curve_value(add_curve(zero_curve_stats(taus), table, taus, tax), taus)


def level_calibration_error(log_probs: Any, true_nodes: Any, tax: Taxonomy, bins: int = 15) -> list[float | None]:
    """The expected calibration error of each level 1..depth, Σ_b (n_b / n)·|acc_b - conf_b|.

    log_probs (..., N), true_nodes (...,). An item's confidence at a level is the largest probability of a node of the
    level, and it is right when the truth stands at or below that node. `bins` equal bins (lo, hi], 0 in the first. A
    leaf truth above the level is a wrong answer there, as its probability lies outside the level; an inner truth above
    the level tells nothing about it and is left out. None where no item is left.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]})
    >>> logp = torch.tensor([[1.0, 0.75, 0.25, 0.5, 0.25, 0.25, 0.0]]).log()
    >>> [round(error, 6) for error in level_calibration_error(logp, [tax.find("y")], tax)]
    [0.25, 0.5]
    """
    bins = check_bins(bins)
    table = level_table(*scored_nodes(log_probs, true_nodes, tax), tax)
    return calibration_values(add_calibration(zero_calibration_stats(tax, bins), table, bins))


@dataclass(frozen=True)
class LevelTable:
    """The most probable node of every level for each item: all that the curve and the calibration need."""

    best: Tensor  # (B, L) its log-probability, in the dtype it came in
    nodes: np.ndarray  # (B, L)
    right: np.ndarray  # (B, L) the truth stands at or below it
    known: np.ndarray  # (B, L) the truth says whether it does


def level_table(logp_BN: Tensor, true_B: np.ndarray, tax: Taxonomy) -> LevelTable:
    """The table of (B, L) entries, on the CPU; (B, N) is read once, where it lies."""
    best_BL, nodes_BL = (part.cpu() for part in level_best(logp_BN, tax))
    nodes = nodes_BL.numpy()
    true_BL = tax.ancestor_at(true_B[:, None], np.arange(tax.depth + 1))
    return LevelTable(best_BL, nodes, true_BL == nodes, (true_BL >= 0) | tax.is_leaf[true_B][:, None])


def top_classes(logp_BN: Tensor, tax: Taxonomy, k: int) -> np.ndarray:
    """The k most probable classes (B, k), best first; ties go by class order, which torch.topk leaves open."""
    leaf_BC = logp_BN[:, tree_index(tax, logp_BN.device).leaves]
    last_B1 = leaf_BC.topk(k).values[:, -1:]
    above_BC, tied_BC = leaf_BC > last_B1, leaf_BC == last_B1
    room_B1 = k - above_BC.sum(-1, keepdim=True)
    chosen_BC = above_BC | (tied_BC & (tied_BC.cumsum(-1, dtype=torch.int32) <= room_B1))
    classes_Bk = chosen_BC.nonzero()[:, 1].reshape(len(leaf_BC), k)
    order_Bk = leaf_BC.gather(-1, classes_Bk).argsort(dim=-1, descending=True, stable=True)
    return classes_Bk.gather(-1, order_Bk).cpu().numpy()


def zero_distance_stats() -> Stats:
    """The sums of hierarchical distance @k over no items."""
    return {"height": torch.zeros((), dtype=torch.int64), "pairs": torch.zeros((), dtype=torch.int64)}


def add_ranked(stats: Stats, true_B: np.ndarray, ranked_Bk: np.ndarray, tax: Taxonomy) -> Stats:
    """The sums with these truths and their ranked classes added."""
    meet_Bk = tax.lca(true_B[:, None], tax.leaves[ranked_Bk])
    return {"height": stats["height"] + int(tax.height[meet_Bk].sum()), "pairs": stats["pairs"] + meet_Bk.size}


def distance_value(stats: Stats) -> float:
    """The mean height."""
    return ratio(int(stats["height"]), int(stats["pairs"]))


def zero_curve_stats(taus: tuple[float, ...]) -> Stats:
    """The sums of the operating curve over no items."""
    zeros_T = torch.zeros(len(taus), dtype=torch.int64)
    return {"correct": zeros_T, "specificity": zeros_T.clone(), "count": torch.zeros((), dtype=torch.int64)}


def add_curve(stats: Stats, table: LevelTable, taus: tuple[float, ...], tax: Taxonomy) -> Stats:
    """The sums with these items added."""
    if tax.num_leaves > 1:
        specific_BL = information(table.nodes, tax) / np.log2(tax.num_leaves)
    else:
        specific_BL = np.ones(table.nodes.shape)
    fixed_BL = _fixed(specific_BL)
    rows_B = np.arange(len(fixed_BL))
    correct, specificity = [], []
    for tau in taus:
        level_B = stop_level(table.best, tau).numpy()
        correct.append(int(table.right[rows_B, level_B].sum()))
        specificity.append(int(fixed_BL[rows_B, level_B].sum()))
    return {
        "correct": stats["correct"] + torch.tensor(correct, device=stats["correct"].device),
        "specificity": stats["specificity"] + torch.tensor(specificity, device=stats["specificity"].device),
        "count": stats["count"] + len(rows_B),
    }


def curve_value(stats: Stats, taus: tuple[float, ...]) -> Curve:
    """The curve and its area; all 0 when there are no items."""
    count = int(stats["count"])
    correct = [ratio(part, count) for part in stats["correct"].tolist()]
    specificity = [ratio(part / FIXED, count) for part in stats["specificity"].tolist()]
    # specificity need not fall with the threshold on uneven trees, and points may share one: strictest first
    order = sorted(range(len(taus)), key=lambda t: (specificity[t], -taus[t]))
    x = np.array([0.0, *(specificity[t] for t in order)])
    y = np.array([1.0, *(correct[t] for t in order)])
    return Curve(correct, specificity, float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2)))


def zero_calibration_stats(tax: Taxonomy, bins: int) -> Stats:
    """The sums of the calibration errors over no items."""
    return {
        name: torch.zeros((tax.depth, bins), dtype=torch.int64) for name in ("bin_count", "bin_right", "bin_confidence")
    }


def add_calibration(stats: Stats, table: LevelTable, bins: int) -> Stats:
    """The sums with these items added."""
    confidence = np.minimum(np.exp(table.best[:, 1:].double().numpy()), 1.0)
    bin_of = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    place = bin_of + bins * np.arange(confidence.shape[1])
    known = table.known[:, 1:]
    amounts = {
        "bin_count": np.ones(place.shape, np.int64),
        "bin_right": table.right[:, 1:].astype(np.int64),
        "bin_confidence": _fixed(confidence),
    }
    return {
        name: add_at(total.flatten(), place[known], amounts[name][known]).view_as(total)
        for name, total in stats.items()
    }


def calibration_values(stats: Stats) -> list[float | None]:
    """The error of each level."""
    right, confidence = stats["bin_right"].cpu().numpy(), stats["bin_confidence"].cpu().numpy() / FIXED
    gaps = np.abs(right - confidence).sum(1).tolist()
    counts = stats["bin_count"].sum(1).tolist()
    return [gap / count if count else None for gap, count in zip(gaps, counts, strict=True)]


def check_thresholds(thresholds: Any) -> tuple[float, ...]:
    """Thresholds as floats in [0, 1], at least one."""
    values = thresholds.tolist() if isinstance(thresholds, Tensor | np.ndarray) else thresholds
    try:
        taus = tuple(check_tau(tau) for tau in values)
    except TypeError as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"thresholds is a list of numbers from 0 to 1, found {thresholds!r}") from error
    if not taus:
        raise OptionError("thresholds holds at least one number from 0 to 1, found none")
    return taus


def check_bins(bins: Any) -> int:
    """A number of bins of at least 1."""
    return check_positive(bins, "bins")


def check_positive(value: Any, name: str) -> int:
    """A whole number of at least 1."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise OptionError(f"{name} is a whole number of at least 1, found {value!r}") from error
    if number < 1:
        raise OptionError(f"{name} is a whole number of at least 1, found {value!r}")
    return number


def _fixed(fractions: np.ndarray) -> np.ndarray:
    return np.asarray(np.rint(fractions * FIXED), np.int64)
