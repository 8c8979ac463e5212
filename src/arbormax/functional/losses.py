r"""Cross entropy on a tree, from logits.

    loss = w_y · Σ_{n on the path to y} v_n · (1 - p_n)^γ · CE_ε(n | siblings, logits + τ log π)

B batch, M columns, C classes, K steps of a path, S siblings.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from arbormax.functional.checks import Reduction, TargetKind, check_path_weight, check_width
from arbormax.functional.graphs import node_index, refuse_step_options
from arbormax.functional.index import STOP, TreeIndex, Windows, path_nodes, path_windows, tree_index
from arbormax.functional.options import LossOptions
from arbormax.functional.probabilities import check_logits, flat_node_log_probs, node_log_probs
from arbormax.taxonomy import Taxonomy


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
    """Return the negative log-probability of each target, summed over the softmaxes on its path.

    Only the sibling groups on the paths are read. With a graph, the logits have one column per edge, the probability of
    a target is the sum over all its paths, and the options that act on steps (label_smoothing, gamma, node_weights,
    tau) are errors.

    Args:
        logits: (..., M), one column per non-root node in node order.
        target: (...) class ids, or node ids with `target_kind="node"`; a node trains the softmaxes down to itself.
        tax: the taxonomy.
        reduction: `"none"` returns (...), `"sum"` and `"mean"` a scalar; the mean divides by the sum of the weights.
        target_kind: what the target contains, `"class"` or `"node"` ids.
        ignore_index: items with this target are ignored.
        weight: (C,) class weights w; a node target has the mean weight of the leaves below it.
        label_smoothing: ε, the share of the target that is spread evenly over each sibling group.
        gamma: γ of the focal loss, applied at every step of the path.
        node_weights: (N,) the weight v of each node's step: see `level_weights`, `parent_weights`, `hxe_weights`.
        log_priors: (M,) log π, the log of each node's training frequency among its siblings: see `sibling_log_priors`.
        tau: τ, the factor of log π, which is added to the logits.

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> hierarchical_cross_entropy(torch.zeros(2, 5), torch.tensor([0, 2]), tax, reduction="none")
    tensor([1.3863, 0.6931])
    """
    check_logits(logits, tax)
    if tax.is_graph:
        refuse_step_options(label_smoothing=label_smoothing, gamma=gamma, node_weights=node_weights, tau=tau)
        return _node_loss(
            node_log_probs(logits, tax),
            target,
            tax,
            LossOptions(reduction=reduction, target_kind=target_kind, ignore_index=ignore_index, weight=weight),
        )
    index = tree_index(tax, logits.device)
    wide = torch.promote_types(logits.dtype, torch.float32)
    options = LossOptions(
        reduction=reduction,
        target_kind=target_kind,
        ignore_index=ignore_index,
        weight=weight,
        label_smoothing=label_smoothing,
        gamma=gamma,
        node_weights=node_weights,
        log_priors=log_priors,
        tau=tau,
    ).check(index, wide)
    batch = logits.shape[:-1]
    targets = options.targets(target, batch, index)
    logits_BM, offset_M = logits.reshape(-1, index.num_nodes - 1), options.offset(wide)
    losses = []
    for windows in path_windows(index, options.target_nodes(targets, index)):
        steps_BX = logits_BM.gather(1, windows.columns).to(wide)
        if offset_M is not None:
            steps_BX = steps_BX + offset_M[windows.columns]
        steps_BKS = (steps_BX + windows.padding).view(*windows.position.shape, windows.width)
        losses.append(_window_loss(steps_BKS, windows, index, options))
    return options.reduce(sum(losses[1:], losses[0]), targets, batch, index)


def _node_loss(logp: Tensor, target: Tensor, tax: Taxonomy, options: LossOptions) -> Tensor:
    """Return the negative log-probabilities of the targets, from (..., N) node log-probabilities."""
    index = node_index(tax, logp.device)
    options = options.check(index, logp.dtype)
    targets = options.targets(target, logp.shape[:-1], index)
    nodes_B = options.target_nodes(targets, index)
    loss_B = -logp.reshape(-1, index.num_nodes).gather(1, nodes_B.unsqueeze(1)).squeeze(1)
    return options.reduce(loss_B, targets, logp.shape[:-1], index)


def _window_loss(steps_BKS: Tensor, windows: Windows, index: TreeIndex, options: LossOptions) -> Tensor:
    """Return the losses of the steps of one window: (B,) sums over the steps, or one sum where that is enough."""
    if not options.changes_steps:
        reduction = "none" if options.reduction == "none" or options.weight is not None else "sum"
        steps, position = steps_BKS.flatten(0, 1), windows.position.flatten()
        loss = F.cross_entropy(steps, position, ignore_index=STOP, reduction=reduction)
        return loss if reduction == "sum" else loss.view(windows.position.shape).sum(1)
    logp_BKS, nodes_BK = steps_BKS.log_softmax(-1), windows.nodes
    logp_BK = logp_BKS.gather(-1, windows.position.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    mean_BK = None
    if options.label_smoothing:
        padded_BKS = windows.padding.view(logp_BKS.shape) < 0
        mean_BK = logp_BKS.masked_fill(padded_BKS, 0.0).sum(-1) / index.group_size[nodes_BK]
    return options.step_losses(logp_BK, mean_BK, nodes_BK).masked_fill(windows.position < 0, 0.0).sum(1)


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
    path_weight: float | Sequence[float] = 0.0,
) -> Tensor:
    """Return the negative log-probability of each target under one softmax over all classes.

    The arguments are those of `hierarchical_cross_entropy`, with (..., C) logits. The probability of an inner node is
    the sum over its leaves, and `label_smoothing` spreads its share of the target evenly over all classes.

    `path_weight` moves a share of the loss from the target to its ancestors below the root: a number is divided
    equally among them, and a sequence has one share for each level that has inner nodes. If a path does not reach all
    these levels, the others take over their part in proportion; a target without ancestors keeps the whole loss.

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> logits, target = torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([0])
    >>> flat_cross_entropy(logits, target, tax, path_weight=0.6)  # -0.4 log(1/3) - 0.6 log(2/3)
    tensor(0.6827)
    """
    index = node_index(tax, leaf_logits.device)
    check_width(leaf_logits, index.num_leaves, "one column per class")
    if tax.is_graph:
        refuse_step_options(path_weight=path_weight)
    wide = torch.promote_types(leaf_logits.dtype, torch.float32)
    options = LossOptions(
        reduction=reduction,
        target_kind=target_kind,
        ignore_index=ignore_index,
        weight=weight,
        label_smoothing=label_smoothing,
    ).check(index, wide)
    share, levels = check_path_weight(path_weight, index.depth)
    batch = leaf_logits.shape[:-1]
    targets = options.targets(target, batch, index)
    logits_BC = leaf_logits.reshape(-1, index.num_leaves).to(wide)
    # torch would spread class weights over the smoothed target
    if target_kind == "class" and (weight is None or not label_smoothing) and not share:
        ids_B = targets.ids.masked_fill(targets.ignored, STOP)
        loss = F.cross_entropy(
            logits_BC, ids_B, options.weight, reduction=reduction, ignore_index=STOP, label_smoothing=label_smoothing
        )
        return loss.reshape(batch) if reduction == "none" else loss
    nodes_B = options.target_nodes(targets, index)
    logp_BN = flat_node_log_probs(logits_BC, tax)
    if share:
        loss_B = _shared_path_loss(logp_BN, nodes_B, tree_index(tax, leaf_logits.device), share, levels)
    else:
        loss_B = -logp_BN.gather(1, nodes_B.unsqueeze(1)).squeeze(1)
    if label_smoothing:
        spread_B = -logits_BC.log_softmax(-1).mean(-1).masked_fill(nodes_B == 0, 0.0)  # the root costs nothing
        loss_B = (1.0 - label_smoothing) * loss_B + label_smoothing * spread_B
    return options.reduce(loss_B, targets, batch, index)


def _shared_path_loss(
    logp_BN: Tensor, nodes_B: Tensor, index: TreeIndex, share: float, levels: tuple[float, ...]
) -> Tensor:
    """Return the (B,) losses of nodes that leave a share to their ancestors, divided in proportion to the levels."""
    path_BK = torch.stack(path_nodes(index, nodes_B), dim=-1)
    depth_B1, level_K = index.node_depth[nodes_B].unsqueeze(1), torch.arange(1, index.depth + 1, device=nodes_B.device)
    above_BK = (level_K < depth_B1) * logp_BN.new_tensor([*levels, 0.0])
    total_B1 = above_BK.sum(1, keepdim=True)
    share_B1 = share * (total_B1 > 0)
    part_BK = share_B1 * above_BK / total_B1.clamp(min=torch.finfo(total_B1.dtype).tiny)
    part_BK = part_BK + (1.0 - share_B1) * (level_K == depth_B1)
    # A part of 0 costs nothing, also where the probability is 0.
    return -(part_BK * logp_BN.gather(1, path_BK).masked_fill(part_BK == 0, 0.0)).sum(1)
