r"""Cross entropy on a tree, with all its options in one formula.

    loss = w_y · Σ_{n on the path to y} v_n · (1 - p_n)^γ · CE_ε(n | siblings, logits + τ log π)

B batch, M columns, C classes, K steps of a path, S siblings, X = K·S, b = B·K. Only the sibling groups on the paths are
read.
"""

from __future__ import annotations

from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from arbormax.errors import OptionError
from arbormax.functional.checks import (
    Reduction,
    TargetKind,
    check_choice,
    check_target,
    check_weights,
    check_width,
    mask_target,
    may_look_up_unread,
)
from arbormax.functional.index import STOP, TreeIndex, Windows, path_windows, tree_index
from arbormax.functional.probabilities import flat_node_log_probs
from arbormax.taxonomy import Taxonomy

_REDUCTIONS, _KINDS = get_args(Reduction), get_args(TargetKind)
_WIDE = (torch.float32, torch.float64)
_cross_entropy, _MEAN = torch._C._nn.cross_entropy_loss, 1  # noqa: SLF001  # F.cross_entropy without its Python


def hierarchical_cross_entropy(
    logits: Tensor,
    target: Tensor,
    tax: Taxonomy,
    *,
    reduction: Reduction = "mean",
    target_kind: TargetKind = "class",
    ignore_index: int = -100,
    weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    gamma: float = 0.0,
    node_weights: Tensor | None = None,
    log_priors: Tensor | None = None,
    tau: float = 0.0,
) -> Tensor:
    """The negative log-probability of each target, summed over the softmaxes on its path.

    Args:
        logits: (..., M), one column per non-root node in node order.
        target: (...) class ids, or node ids with `target_kind="node"`; a node trains the softmaxes down to itself.
        tax: the taxonomy.
        reduction: `"none"` gives (...), `"sum"` and `"mean"` a scalar; the mean divides by the sum of the weights.
        target_kind: what the target holds, `"class"` or `"node"`.
        ignore_index: items with this target count for nothing.
        weight: (C,) class weights w; a node target takes the mean weight of the leaves below it.
        label_smoothing: ε, the share of the target spread evenly over each sibling group.
        gamma: γ of the focal loss, applied at every step of the path.
        node_weights: (N,) the weight v of each node's step: see `level_weights`, `parent_weights`, `hxe_weights`.
        log_priors: (M,) log π, the log of each node's training frequency among its siblings: see `sibling_log_priors`.
        tau: τ, how much of log π is added to the logits.

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> hierarchical_cross_entropy(torch.zeros(2, 5), torch.tensor([0, 2]), tax, reduction="none")
    tensor([1.3863, 0.6931])
    """
    index = tree_index(tax, logits.device)
    is_default = not (label_smoothing or gamma or tau) and weight is None and node_weights is None
    if is_default and reduction == "mean" and target_kind == "class":
        mean = usual_loss(logits, target, ignore_index, index)
        if mean is not None:
            return mean
    batch = logits.shape[:-1]
    if logits.dim() == 0 or logits.shape[-1] != index.num_nodes - 1 or not logits.is_floating_point():
        check_width(logits, index.num_nodes - 1, "one column per non-root node")
    if reduction not in _REDUCTIONS or target_kind not in _KINDS or label_smoothing or gamma or tau:
        check_options(reduction, target_kind, label_smoothing, gamma)
    if tau and log_priors is None:
        raise OptionError("tau adjusts the logits by the training frequencies of siblings: give them as log_priors")
    row_B = check_target(target, batch, target_kind)
    wide = logits.dtype if logits.dtype in _WIDE else torch.float32
    if weight is not None:
        weight = check_weights(weight, index.num_leaves, "weight", logits.device, wide)
    if node_weights is not None:
        node_weights = check_weights(node_weights, index.num_nodes, "node_weights", logits.device, wide)
    logits_BM = logits if logits.dim() == 2 else logits.reshape(-1, index.num_nodes - 1)
    slabs, row_B, counted_B = _target_windows(row_B, target_kind, ignore_index, index)
    is_plain = not (label_smoothing or gamma or node_weights is not None)
    # Where the caller wants one number, the kernel may sum: an ignored item has no step that counts.
    sums = is_plain and weight is None and reduction != "none"
    losses = []
    for windows in slabs:
        steps_BX = logits_BM.gather(1, windows.columns)
        if wide is not logits.dtype:
            steps_BX = steps_BX.to(wide)
        if tau and log_priors is not None:
            steps_BX = steps_BX + tau * log_priors.to(wide)[windows.columns]
        steps_BX = steps_BX + windows.padding
        if is_plain:
            steps_bS, position_b = steps_BX.view(-1, windows.width), windows.position.view(-1)
            loss = F.cross_entropy(steps_bS, position_b, reduction="sum" if sums else "none", ignore_index=STOP)
            losses.append(loss if sums else loss.view(windows.position.shape).sum(1))
        else:
            losses.append(_weighted_steps(steps_BX, windows, index, label_smoothing, gamma, node_weights).sum(1))
    loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum(0)
    if sums:
        return loss if reduction == "sum" else loss / _count(row_B, counted_B)
    return reduced(loss, item_weights(row_B, target_kind, weight, index), counted_B, reduction, batch)


def usual_loss(logits: Tensor, target: Tensor, ignore_index: int, index: TreeIndex) -> Tensor | None:
    """The mean over class targets in eager CPU code on a small tree, where every check costs as much as a kernel.

    None where the call is not that usual, or a target is ignored or wrong; then the general way finds the words.
    """
    levels, table = index.class_levels, index.class_table
    if (
        table is None
        or not logits.is_cpu
        or logits.dtype not in _WIDE
        or logits.dim() != 2
        or 0 <= ignore_index < index.num_leaves
        or torch.compiler.is_compiling()
    ):
        return None
    mean = None
    try:
        if target.dim() != 1:
            return None
        if levels is None:
            if logits.shape != (target.size(0), index.num_nodes - 1):
                return None
            steps_BX = logits.gather(1, table.columns.index_select(0, target)) + table.padding.index_select(0, target)
            position_b = table.position.index_select(0, target).view(-1)
            total = F.cross_entropy(steps_BX.view(-1, table.width), position_b, reduction="sum", ignore_index=STOP)
            return total / float(target.size(0))
        # Masks save the gather and, going back, the scatter.
        for part_BL, (mask, position) in zip(logits.split_with_sizes(index.levels, 1), levels):  # noqa: B905
            masked_BL = part_BL if mask is None else part_BL + mask.index_select(0, target)
            position_B = target if position is None else position.index_select(0, target)
            step = _cross_entropy(masked_BL, position_B, None, _MEAN)  # type: ignore[arg-type]  # its stub wants a str
            mean = step if mean is None else mean + step
        return mean
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return None


def flat_cross_entropy(
    leaf_logits: Tensor,
    target: Tensor,
    tax: Taxonomy,
    *,
    reduction: Reduction = "mean",
    target_kind: TargetKind = "class",
    ignore_index: int = -100,
    weight: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The negative log-probability of each target under one softmax over all classes.

    As `hierarchical_cross_entropy`, from (..., C) logits; an inner node's probability is the sum of its leaves', and
    what `label_smoothing` takes from the target is spread evenly over all classes.
    """
    index = tree_index(tax, leaf_logits.device)
    check_width(leaf_logits, index.num_leaves, "one column per class")
    check_options(reduction, target_kind, label_smoothing)
    batch = leaf_logits.shape[:-1]
    row_B = check_target(target, batch, target_kind)
    logits_BC = leaf_logits.reshape(-1, index.num_leaves)
    logits_BC = logits_BC.to(torch.promote_types(logits_BC.dtype, torch.float32))
    if weight is not None:
        weight = check_weights(weight, index.num_leaves, "weight", logits_BC.device, logits_BC.dtype)
    # torch would spread class weights over the smoothed target
    if target_kind == "class" and (weight is None or not label_smoothing):
        if not may_look_up_unread(row_B, index.num_leaves, STOP) or ignore_index != STOP:
            row_B, counted_B = mask_target(row_B, index.num_leaves, target_kind, ignore_index)
            row_B = row_B.masked_fill(~counted_B, STOP)
        try:
            loss = F.cross_entropy(
                logits_BC, row_B, weight, reduction=reduction, ignore_index=STOP, label_smoothing=label_smoothing
            )
        except IndexError:
            mask_target(row_B, index.num_leaves, target_kind, ignore_index)  # says which target it was
            raise
        return loss.reshape(batch) if reduction == "none" else loss
    limit = index.num_leaves if target_kind == "class" else index.num_nodes
    row_B, counted_B = mask_target(row_B, limit, target_kind, ignore_index)
    nodes_B = row_B if target_kind == "node" else index.leaves.index_select(0, row_B)
    loss_B = -flat_node_log_probs(logits_BC, tax).gather(1, nodes_B.unsqueeze(1)).squeeze(1)
    if label_smoothing:
        spread_B = -logits_BC.log_softmax(-1).mean(-1).masked_fill(nodes_B == 0, 0.0)  # the root costs nothing
        loss_B = (1.0 - label_smoothing) * loss_B + label_smoothing * spread_B
    weight_B = item_weights(row_B, target_kind, weight, index)
    return reduced(loss_B, weight_B, counted_B, reduction, batch)


def check_options(reduction: str, target_kind: str, label_smoothing: float = 0.0, gamma: float = 0.0) -> None:
    check_choice("reduction", reduction, _REDUCTIONS)
    check_choice("target_kind", target_kind, _KINDS)
    if not 0.0 <= label_smoothing <= 1.0:
        raise OptionError(f"label_smoothing lies between 0 and 1, not {label_smoothing}")
    if not gamma >= 0.0:
        raise OptionError(f"gamma is at least 0, not {gamma}")


def _target_windows(
    row_B: Tensor, kind: TargetKind, ignore_index: int, index: TreeIndex
) -> tuple[list[Windows], Tensor, Tensor | None]:
    """The windows of each target, the checked row, and which items count (None: all of them)."""
    limit = index.num_leaves if kind == "class" else index.num_nodes
    if may_look_up_unread(row_B, limit, ignore_index):
        try:
            return path_windows(index, row_B, kind), row_B, None
        except IndexError:
            pass  # ignored items, or wrong ones
    row_B, counted_B = mask_target(row_B, limit, kind, ignore_index)
    # An ignored item is sent to the root, whose path is empty.
    nodes_B = row_B if kind == "node" else index.leaves.index_select(0, row_B)
    return path_windows(index, nodes_B.masked_fill(~counted_B, 0), "node"), row_B, counted_B


def _weighted_steps(
    steps_BX: Tensor, windows: Windows, index: TreeIndex, smoothing: float, gamma: float, node_weights: Tensor | None
) -> Tensor:
    """(B, K) the loss of each step with smoothing, focus and node weights."""
    past_end_BK = windows.position < 0
    nodes_BK = windows.nodes
    logp_BKS = steps_BX.view(*nodes_BK.shape, windows.width).log_softmax(-1)
    logp_BK = logp_BKS.gather(-1, windows.position.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    mean_BK = None
    if smoothing:
        padded_BKS = windows.padding.view(logp_BKS.shape) < 0
        mean_BK = logp_BKS.masked_fill(padded_BKS, 0.0).sum(-1) / index.group_size[nodes_BK]
    return step_losses(logp_BK, mean_BK, nodes_BK, smoothing, gamma, node_weights).masked_fill(past_end_BK, 0.0)


def step_losses(
    logp_BK: Tensor,
    mean_BK: Tensor | None,
    nodes_BK: Tensor,
    smoothing: float,
    gamma: float,
    node_weights: Tensor | None,
) -> Tensor:
    """(B, K) from the log-probability of each step's node given its parent, and with `smoothing` its siblings' mean."""
    loss_BK = -logp_BK
    if mean_BK is not None:
        loss_BK = (1.0 - smoothing) * loss_BK - smoothing * mean_BK
    if gamma:
        rest_BK = -torch.expm1(logp_BK)
        # A power below one has an infinite slope at zero, where the loss is flat: both must give zero.
        certain_BK = rest_BK <= 0
        loss_BK = loss_BK * rest_BK.masked_fill(certain_BK, 1.0).pow(gamma).masked_fill(certain_BK, 0.0)
    if node_weights is not None:
        loss_BK = loss_BK * node_weights[nodes_BK]
    return loss_BK


def item_weights(row_B: Tensor, kind: TargetKind, weight: Tensor | None, index: TreeIndex) -> Tensor | None:
    if weight is None:
        return None
    if kind == "class":
        return weight[row_B]
    totals_N = weight.new_zeros(index.num_nodes).index_copy(0, index.leaves, weight)
    stop = index.num_nodes
    for size in reversed(index.levels):
        level = slice(stop - size, stop)
        totals_N = totals_N.index_add(0, index.parent[level], totals_N[level])
        stop -= size
    return (totals_N / index.leaf_counts)[row_B]


def reduced(
    loss_B: Tensor, weight_B: Tensor | None, counted_B: Tensor | None, reduction: Reduction, batch: torch.Size
) -> Tensor:
    if counted_B is not None:
        loss_B = loss_B.masked_fill(~counted_B, 0.0)
    if weight_B is not None:
        weight_B = weight_B if counted_B is None else weight_B.masked_fill(~counted_B, 0.0)
        loss_B = loss_B * weight_B
    if reduction == "none":
        return loss_B.reshape(batch)
    total = loss_B.sum()
    if reduction == "sum":
        return total
    if weight_B is not None:
        return total / weight_B.sum()
    return total / _count(loss_B, counted_B)


def _count(row_B: Tensor, counted_B: Tensor | None) -> float | Tensor:
    return float(row_B.shape[0]) if counted_B is None else counted_B.sum()
