"""Measures of node log-probabilities: distance of the k best classes, operating curve, calibration error per level.

B items, N nodes, C classes, L = depth + 1 levels, K ranks, T thresholds. Each measure is computed from a
few whole-number sums over the items, so that the result does not depend on how the items are split into batches.
"""

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.errors import OptionError
from arbormax.functional.best import top_classes
from arbormax.functional.graphs import node_index
from arbormax.functional.threshold import check_tau, level_best, stop_level
from arbormax.metrics.inputs import ranked_classes, scored_nodes
from arbormax.metrics.registry import ece, hierarchical_distance, to_plain
from arbormax.metrics.sums import Curve, Sums, compute_curve, node_information, to_fixed
from arbormax.taxonomy import Taxonomy

DEFAULT_THRESHOLDS = tuple(step / 100 for step in range(101))


def hierarchical_distance_at_k(true_nodes: Any, topk_classes: Any, tax: Taxonomy) -> float:
    """The mean height of the lowest common ancestor of the truth (...,) and each of its k best classes (..., k).

    A right class counts with the height of the truth, which is 0 for a leaf. Without items the result is 0.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
    >>> hierarchical_distance_at_k([3, 5], [[0, 1], [0, 2]], tax)  # heights 0 and 1, 2 and 0
    0.75
    """
    true_B, ranked_BK = ranked_classes(true_nodes, topk_classes, tax)
    return float(hierarchical_distance(Sums(tax, rank_sums(true_B, ranked_BK, tax)))[-1])


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
    return compute_curve(Sums(tax, {**curve_sums(table, taus, tax), "thresholds": np.array(taus)}))


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
    errors: list[float | None] = to_plain(ece(Sums(tax, calibration_sums(table, bins))))
    return errors


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
    reaches_BL = tax.node_depth[true_B][:, None] >= np.arange(tax.depth + 1)
    return LevelTable(best_BL, nodes, tax.is_above(nodes, true_B[:, None]), reaches_BL | tax.is_leaf[true_B][:, None])


def log_prob_sums(
    logp_BN: Tensor,
    true_B: np.ndarray,
    tax: Taxonomy,
    k: int,
    bins: int = 15,
    taus: tuple[float, ...] = DEFAULT_THRESHOLDS,
) -> dict[str, np.ndarray]:
    """The sums of every measure of log-probabilities, over the k best classes."""
    table = level_table(logp_BN, true_B, tax)
    truth_B1 = torch.tensor(true_B, device=logp_BN.device)[:, None]
    leaf_BC = logp_BN[:, node_index(tax, logp_BN.device).leaves]
    ranked_BK = top_classes(leaf_BC, min(k, tax.num_leaves))[1].cpu().numpy()
    return {
        "nll": np.asarray(0.0 - float(logp_BN.gather(1, truth_B1).double().sum())),
        **brier_sums(leaf_BC, true_B, tax),
        **rank_sums(true_B, ranked_BK, tax),
        **curve_sums(table, taus, tax),
        **calibration_sums(table, bins),
    }


def brier_sums(leaf_BC: Tensor, true_B: np.ndarray, tax: Taxonomy) -> dict[str, np.ndarray]:
    """The squared distances from the truth, of the items whose truth is a leaf, and the number of these items."""
    class_B = tax.class_of[true_B]
    at = torch.from_numpy(np.flatnonzero(class_B >= 0)).to(leaf_BC.device)
    p_AC = leaf_BC[at].double().exp() if len(at) < len(class_B) else leaf_BC.double().exp()
    true_A1 = torch.from_numpy(class_B[class_B >= 0]).to(leaf_BC.device)[:, None]
    total = float((p_AC * p_AC).sum()) - 2 * float(p_AC.gather(1, true_A1).sum()) + len(at)
    return {"brier": np.asarray(total), "leaf_items": np.asarray(len(at))}


def rank_sums(true_B: np.ndarray, ranked_BK: np.ndarray, tax: Taxonomy) -> dict[str, np.ndarray]:
    """(K,) the height of the lowest common ancestor of the truth and the class of each rank; and the items."""
    heights_BK = tax.height[tax.lca(true_B[:, None], tax.leaves[ranked_BK])]
    return {"rank_heights": heights_BK.sum(0, dtype=np.int64), "count": np.asarray(len(true_B))}


def curve_sums(table: LevelTable, taus: tuple[float, ...], tax: Taxonomy) -> dict[str, np.ndarray]:
    """The answers of the threshold rule: (T, L) by level and (T,) at a leaf, each with the right ones; specificity."""
    if tax.num_leaves > 1:
        specific_BL = node_information(table.nodes, tax) / np.log2(tax.num_leaves)
    else:
        specific_BL = np.ones(table.nodes.shape)
    fixed_BL, leaf_BL = to_fixed(specific_BL), tax.is_leaf[table.nodes]
    rows_B, levels = np.arange(len(fixed_BL)), tax.depth + 1
    by_level = np.zeros((2, len(taus), levels), np.int64)
    by_threshold = np.zeros((3, len(taus)), np.int64)
    for place, tau in enumerate(taus):
        level_B = stop_level(table.best, tau).numpy()
        right_B, leaf_B = table.right[rows_B, level_B], leaf_BL[rows_B, level_B]
        by_level[0, place] = np.bincount(level_B, minlength=levels)
        by_level[1, place] = np.bincount(level_B[right_B], minlength=levels)
        by_threshold[:, place] = leaf_B.sum(), (leaf_B & right_B).sum(), fixed_BL[rows_B, level_B].sum()
    names = ("answered", "answered_right", "leaves", "leaves_right", "specificity")
    return dict(zip(names, (*by_level, *by_threshold), strict=True))


def calibration_sums(table: LevelTable, bins: int) -> dict[str, np.ndarray]:
    """(L - 1, bins) items, right items and confidence, the latter as multiples of 2^-32, of each level and bin."""
    confidence = np.minimum(np.exp(table.best[:, 1:].double().numpy()), 1.0)
    bin_BL = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    level_BL = np.broadcast_to(np.arange(bin_BL.shape[1]), bin_BL.shape)
    known = table.known[:, 1:]
    sums = {}
    for name, amount in (
        ("bin_count", known),
        ("bin_right", table.right[:, 1:]),
        ("bin_confidence", to_fixed(confidence)),
    ):
        sums[name] = np.zeros((bin_BL.shape[1], bins), np.int64)
        np.add.at(sums[name], (level_BL[known], bin_BL[known]), amount[known])
    return sums


def check_thresholds(thresholds: Any) -> tuple[float, ...]:
    """Thresholds as floats in [0, 1], at least one."""
    values = thresholds.tolist() if isinstance(thresholds, Tensor | np.ndarray) else thresholds
    taus = tuple(check_tau(tau) for tau in values) if isinstance(values, Iterable) else ()
    if not taus:
        raise OptionError(f"expected a list of numbers from 0 to 1, found {thresholds!r}", argument="thresholds")
    return taus


def check_positive(value: Any, name: str) -> int:
    """A whole number of at least 1."""
    number = operator.index(value) if hasattr(value, "__index__") else 0
    if number < 1:
        raise OptionError(f"expected a whole number of at least 1, found {value!r}", argument=name)
    return number
