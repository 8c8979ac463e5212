"""Measures of predicted nodes against true nodes: whole-number sums over the items, and their values.

B items, N nodes, C classes. A(y) is y and its ancestors without the root, so |A(y)| is the depth of y and
|A(ŷ) ∩ A(y)| the depth of their lowest common ancestor, here called where they meet.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.taxonomy.tree import Taxonomy

Stats = dict[str, Tensor]

NODE_MEASURES = (
    "accuracy",
    "macro_f1",
    "macro_precision",
    "macro_recall",
    "hp",
    "hr",
    "hf",
    "macro_hp",
    "macro_hr",
    "macro_hf",
    "tree_distance",
    "mistake_severity",
    "errors",
    "information",
    "count",
    "leaf_count",
)


def zero_node_stats(tax: Taxonomy) -> Stats:
    """The sums over no items. All are int64, so that adding them up in any order or place gives the same."""
    sizes: dict[str, tuple[int, ...]] = {
        "tp": (tax.num_leaves,),  # tp, fp, fn: items whose truth is a leaf
        "fp": (tax.num_leaves,),
        "fn": (tax.num_leaves,),
        "class_pred": (tax.num_leaves,),  # Σ |A(ŷ)| over the items of each true class
        "class_meet": (tax.num_leaves,),  # Σ |A(ŷ) ∩ A(y)| over the items of each true class
        "pred_nodes": (tax.num_nodes,),  # predictions of each node
        "true_depth": (tax.depth + 1,),  # truths at each depth
        "meet_depth": (tax.depth + 1,),  # truth and prediction meet at each depth
        "errors": (),
        "severity": (),  # Σ height of the meeting node over the errors
    }
    return {name: torch.zeros(size, dtype=torch.int64) for name, size in sizes.items()}


def add_nodes(stats: Stats, true_B: np.ndarray, pred_B: np.ndarray, tax: Taxonomy) -> Stats:
    """The sums with these items added, on the device where the sums are."""
    meet_B = tax.lca(true_B, pred_B)
    pred_depth_B, meet_depth_B = tax.node_depth[pred_B], tax.node_depth[meet_B]
    true_class_B, pred_class_B = tax.class_of[true_B], tax.class_of[pred_B]
    wrong_B, leaf_B = true_B != pred_B, true_class_B >= 0
    return {
        "tp": add_at(stats["tp"], true_class_B[leaf_B & ~wrong_B]),
        "fp": add_at(stats["fp"], pred_class_B[leaf_B & wrong_B & (pred_class_B >= 0)]),
        "fn": add_at(stats["fn"], true_class_B[leaf_B & wrong_B]),
        "class_pred": add_at(stats["class_pred"], true_class_B[leaf_B], pred_depth_B[leaf_B]),
        "class_meet": add_at(stats["class_meet"], true_class_B[leaf_B], meet_depth_B[leaf_B]),
        "pred_nodes": add_at(stats["pred_nodes"], pred_B),
        "true_depth": add_at(stats["true_depth"], tax.node_depth[true_B]),
        "meet_depth": add_at(stats["meet_depth"], meet_depth_B),
        "errors": stats["errors"] + int(wrong_B.sum()),
        "severity": stats["severity"] + int(tax.height[meet_B[wrong_B]].sum()),
    }


def node_values(stats: Stats, tax: Taxonomy) -> dict[str, Any]:
    """The measures as plain numbers; a mean over nothing is 0."""
    s = {name: total.cpu().numpy() for name, total in stats.items()}
    count, errors = int(s["pred_nodes"].sum()), int(s["errors"])
    depths = np.arange(tax.depth + 1)
    true_sum, meet_sum = int(s["true_depth"] @ depths), int(s["meet_depth"] @ depths)
    pred_sum = int(s["pred_nodes"] @ tax.node_depth)

    tp, fp, fn = s["tp"], s["fp"], s["fn"]
    seen, support = tp + fp + fn > 0, tp + fn
    held, class_true = support > 0, support * tax.node_depth[tax.leaves]

    # truth and prediction agree at depth d exactly when they meet at d or deeper
    reached, right = (np.cumsum(s[name][::-1])[::-1][1:].tolist() for name in ("true_depth", "meet_depth"))
    return {
        "accuracy": ratio(count - errors, count),
        "macro_f1": _mean_ratio(2 * tp, 2 * tp + fp + fn, seen),
        "macro_precision": _mean_ratio(tp, tp + fp, seen),
        "macro_recall": _mean_ratio(tp, support, seen),
        "hp": ratio(meet_sum, pred_sum),
        "hr": ratio(meet_sum, true_sum),
        "hf": ratio(2 * meet_sum, pred_sum + true_sum),
        "macro_hp": _mean_ratio(s["class_meet"], s["class_pred"], held),
        "macro_hr": _mean_ratio(s["class_meet"], class_true, held),
        "macro_hf": _mean_ratio(2 * s["class_meet"], s["class_pred"] + class_true, held),
        "level_accuracy": [hits / total if total else None for hits, total in zip(right, reached, strict=True)],
        "tree_distance": ratio(true_sum + pred_sum - 2 * meet_sum, count),
        "mistake_severity": ratio(int(s["severity"]), errors),
        "errors": errors,
        "information": ratio(float(s["pred_nodes"] @ information(np.arange(tax.num_nodes), tax)), count),
        "count": count,
        "leaf_count": int(support.sum()),
    }


def information(nodes: np.ndarray, tax: Taxonomy) -> np.ndarray:
    """log2(leaves / leaves under the node), in bits, for each node id."""
    return np.asarray(np.log2(tax.num_leaves / tax.leaf_counts[nodes]))


def add_at(total: Tensor, index: np.ndarray, amount: np.ndarray | None = None) -> Tensor:
    """The one-dimensional sums with an amount (default 1) added at each index, in place where that is allowed."""
    # a state that was reset in inference mode may not be changed in place outside it
    if total.is_inference() and not torch.is_inference_mode_enabled():
        total = total.clone()
    places = torch.from_numpy(index).to(total.device)
    amounts = torch.ones_like(places) if amount is None else torch.from_numpy(amount).to(total.device)
    return total.index_add_(0, places, amounts)


def ratio(part: float, whole: float) -> float:
    """part / whole, and 0 where there is nothing to divide by."""
    return part / whole if whole else 0.0


def _mean_ratio(part: np.ndarray, whole: np.ndarray, among: np.ndarray) -> float:
    if not among.any():
        return 0.0
    return float(np.mean(part[among] / np.maximum(whole[among], 1)))
