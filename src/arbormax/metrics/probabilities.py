"""Measures of node log-probabilities: distance of the k best classes, operating curve, calibration error per level.

B items, N nodes, C classes, L = depth + 1 levels, k ranks, T thresholds, Q values of k. Each measure is computed from a
few whole-number sums over the items, so that the result does not depend on how the items are split into batches.
"""

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.errors import OptionError
from arbormax.functional.threshold import check_tau, level_best, stop_level
from arbormax.metrics.curves import Curve, distances, operating_curve_value
from arbormax.metrics.inputs import ranked_classes, scored_nodes
from arbormax.metrics.registry import MEASURES, plain
from arbormax.metrics.sums import Sums, information, to_fixed
from arbormax.taxonomy import Taxonomy

Totals = dict[str, Tensor]
DEFAULT_THRESHOLDS = tuple(step / 100 for step in range(101))


def hierarchical_distance_at_k(true_nodes: Any, topk_classes: Any, tax: Taxonomy) -> float:
    """The mean height of the lowest common ancestor of the truth (...,) and each of its k best classes (..., k).

    A right class counts with the height of the truth, which is 0 for a leaf. Without items the result is 0.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
    >>> hierarchical_distance_at_k([3, 5], [[0, 1], [0, 2]], tax)  # heights 0 and 1, 2 and 0
    0.75
    """
    true_B, ranked_Bk = ranked_classes(true_nodes, topk_classes, tax)
    ks = (ranked_Bk.shape[1],)
    return distances(to_sums(tax, add_ranked(zero_ranked(ks), true_B, ranked_Bk, ks, tax), ks=ks))[ks[0]]


def operating_curve(log_probs: Any, true_nodes: Any, tax: Taxonomy, thresholds: Any = DEFAULT_THRESHOLDS) -> Curve:
    """Correctness against specificity at each threshold (Valmadre 2022), and the area below the curve.

    log_probs (..., N), true_nodes (...,). At each threshold the items are decoded with the threshold rule. Correct is
    the share of items whose truth is at or below the prediction; specificity is the mean information of the
    predictions divided by log2(C) (1 if there is one class). The area is the trapezoid sum over specificity, from the
    root's end point (specificity 0, correct 1) to the most specific point; the range beyond adds nothing.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]})
    >>> logp = torch.tensor([[1.0, 0.6, 0.4, 0.5, 0.1, 0.4, 0.0]]).log()
    >>> operating_curve(logp, [tax.find("y")], tax, thresholds=[0.7, 0.5, 0.0])
    Curve(correct=[1.0, 1.0, 0.0], specificity=[0.0, 0.5, 1.0], area=0.75)
    """
    taus = check_thresholds(thresholds)
    table = level_table(*scored_nodes(log_probs, true_nodes, tax), tax)
    return operating_curve_value(to_sums(tax, add_curve(zero_curve(taus), table, taus, tax), thresholds=taus))


def level_calibration_error(log_probs: Any, true_nodes: Any, tax: Taxonomy, bins: int = 15) -> list[float | None]:
    """The expected calibration error of each level 1 to depth, Σ_b (n_b / n)·|acc_b - conf_b|.

    log_probs (..., N), true_nodes (...,). The confidence of an item at a level is the largest probability of a node of
    the level; it is right if the truth is at or below that node. There are `bins` equal bins (lo, hi], 0 is in the
    first. A leaf truth above the level counts as wrong there, because its probability lies outside the level; an inner
    truth above the level is left out, because the right node of the level is unknown. None where no item is left.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]})
    >>> logp = torch.tensor([[1.0, 0.75, 0.25, 0.5, 0.25, 0.25, 0.0]]).log()
    >>> [round(error, 6) for error in level_calibration_error(logp, [tax.find("y")], tax)]
    [0.25, 0.5]
    """
    bins = check_positive(bins, "bins")
    table = level_table(*scored_nodes(log_probs, true_nodes, tax), tax)
    return calibration_values(tax, add_calibration(zero_calibration(tax, bins), table, bins))


@dataclass(frozen=True)
class LevelTable:
    """The most probable node of every level for each item: the input of the curve and of the calibration error."""

    best: Tensor  # (B, L) its log-probability, in the dtype of the input
    nodes: np.ndarray  # (B, L)
    right: np.ndarray  # (B, L) the truth is at or below the node
    known: np.ndarray  # (B, L) the truth determines whether it is


def level_table(logp_BN: Tensor, true_B: np.ndarray, tax: Taxonomy) -> LevelTable:
    """The table of (B, L) entries, on the CPU; (B, N) is read once, on its own device."""
    best_BL, nodes_BL = (part.cpu() for part in level_best(logp_BN, tax))
    nodes = nodes_BL.numpy()
    true_BL = tax.ancestor_at(true_B[:, None], np.arange(tax.depth + 1))
    return LevelTable(best_BL, nodes, true_BL == nodes, (true_BL >= 0) | tax.is_leaf[true_B][:, None])


def to_sums(tax: Taxonomy, totals: Totals, **options: Any) -> Sums:
    """The totals as numpy arrays, together with the options `ks` or `thresholds` that they were computed with."""
    arrays = {name: total.cpu().numpy() for name, total in totals.items()}
    return Sums(tax, {**arrays, **{name: np.asarray(value) for name, value in options.items()}}.__getitem__)


def zero_ranked(ks: tuple[int, ...]) -> Totals:
    """The totals of the hierarchical distance without items."""
    return {name: torch.zeros(len(ks), dtype=torch.int64) for name in ("ranked_height", "ranked_pairs")}


def add_ranked(totals: Totals, true_B: np.ndarray, ranked_BK: np.ndarray, ks: tuple[int, ...], tax: Taxonomy) -> Totals:
    """The totals with these truths and their ranked classes added."""
    height_BK = tax.height[tax.lca(true_B[:, None], tax.leaves[ranked_BK])]
    added = {
        "ranked_height": [int(height_BK[:, :k].sum()) for k in ks],
        "ranked_pairs": [len(true_B) * k for k in ks],
    }
    return {name: total + torch.tensor(added[name], device=total.device) for name, total in totals.items()}


def zero_curve(taus: tuple[float, ...]) -> Totals:
    """The totals of the operating curve without items."""
    zeros_T = torch.zeros(len(taus), dtype=torch.int64)
    return {"correct": zeros_T, "specificity": zeros_T.clone(), "curve_count": torch.zeros((), dtype=torch.int64)}


def add_curve(totals: Totals, table: LevelTable, taus: tuple[float, ...], tax: Taxonomy) -> Totals:
    """The totals with these items added."""
    if tax.num_leaves > 1:
        specific_BL = information(table.nodes, tax) / np.log2(tax.num_leaves)
    else:
        specific_BL = np.ones(table.nodes.shape)
    fixed_BL = to_fixed(specific_BL)
    rows_B = np.arange(len(fixed_BL))
    correct, specificity = [], []
    for tau in taus:
        level_B = stop_level(table.best, tau).numpy()
        correct.append(int(table.right[rows_B, level_B].sum()))
        specificity.append(int(fixed_BL[rows_B, level_B].sum()))
    return {
        "correct": totals["correct"] + torch.tensor(correct, device=totals["correct"].device),
        "specificity": totals["specificity"] + torch.tensor(specificity, device=totals["specificity"].device),
        "curve_count": totals["curve_count"] + len(rows_B),
    }


def zero_calibration(tax: Taxonomy, bins: int) -> Totals:
    """The totals of the calibration errors without items."""
    return {
        name: torch.zeros((tax.depth, bins), dtype=torch.int64) for name in ("bin_count", "bin_right", "bin_confidence")
    }


def add_calibration(totals: Totals, table: LevelTable, bins: int) -> Totals:
    """The totals with these items added."""
    confidence = np.minimum(np.exp(table.best[:, 1:].double().numpy()), 1.0)
    bin_of = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    cell = bin_of + bins * np.arange(confidence.shape[1])
    known = table.known[:, 1:]
    amounts = {
        "bin_count": np.ones(cell.shape, np.int64),
        "bin_right": table.right[:, 1:].astype(np.int64),
        "bin_confidence": to_fixed(confidence),
    }
    return {
        name: add_at(total.flatten(), cell[known], amounts[name][known]).view_as(total)
        for name, total in totals.items()
    }


def calibration_values(tax: Taxonomy, totals: Totals) -> list[float | None]:
    """The error of each level."""
    errors: list[float | None] = plain(MEASURES["ece"], to_sums(tax, totals))
    return errors


def add_at(total: Tensor, index: np.ndarray, amount: np.ndarray) -> Tensor:
    """The one-dimensional total with an amount added at each index, in place where torch allows it."""
    # a tensor that was created in inference mode may not be changed in place outside it
    if total.is_inference() and not torch.is_inference_mode_enabled():
        total = total.clone()
    return total.index_add_(0, torch.from_numpy(index).to(total.device), torch.from_numpy(amount).to(total.device))


def check_thresholds(thresholds: Any) -> tuple[float, ...]:
    """Thresholds as floats in [0, 1], at least one."""
    values = thresholds.tolist() if isinstance(thresholds, Tensor | np.ndarray) else thresholds
    try:
        taus = tuple(check_tau(tau) for tau in values)
    except TypeError as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(
            f"expected a list of numbers from 0 to 1, found {thresholds!r}", argument="thresholds"
        ) from error
    if not taus:
        raise OptionError("expected at least one number from 0 to 1, found none", argument="thresholds")
    return taus


def check_positive(value: Any, name: str) -> int:
    """A whole number of at least 1."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise OptionError(f"expected a whole number of at least 1, found {value!r}", argument=name) from error
    if number < 1:
        raise OptionError(f"expected a whole number of at least 1, found {value!r}", argument=name)
    return number
