"""The loss on a large tree: the softmaxes on the paths of a batch, and no look at the rest of the tree.

B batch, D features, M rows, K steps of a path.
"""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from arbormax import kernels
from arbormax.errors import InputError, OptionError
from arbormax.functional.checks import Reduction, TargetKind, check_target, check_weights, mask_target
from arbormax.functional.index import TreeIndex, path_nodes, tree_index
from arbormax.functional.losses import check_options, item_weights, reduced, step_losses
from arbormax.functional.path_ops import path_loss, path_steps
from arbormax.functional.path_tree import path_tree
from arbormax.taxonomy import Taxonomy

# Below so many rows of the tree, or rows for each on a path, one dense product is faster than the look-ups; devices of
# other kinds may have no sparse products at all. The GPU's depends on its host: where it was measured, an eager step
# crosses between 8,420 and 11,154 rows, and one of a captured graph at about a thousand.
_ROWS, _RATIO = {"cpu": 4096, "cuda": 10_000}, 8
_SEARCHED = {"cpu": 4096, "cuda": 1 << 15}


def prefers_paths(index: TreeIndex) -> bool:
    """Whether the tree is so large that the loss looks at its paths alone."""
    return _is_large(index, _ROWS)


def prefers_search(index: TreeIndex) -> bool:
    """Whether the tree is so large that the best leaves are searched for."""
    return _is_large(index, _SEARCHED)


def _is_large(index: TreeIndex, least: dict[str, int]) -> bool:
    rows = index.num_nodes - 1
    return rows >= least.get(index.leaves.device.type, inf) and rows >= _RATIO * index.path_width


def path_cross_entropy(
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    target: Tensor,
    tax: Taxonomy,
    *,
    sparse: bool = False,
    impl: kernels.Impl = "auto",
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
    """`hierarchical_cross_entropy` of the logits `h @ rows.T + bias`, of which only those on the paths are computed.

    Time and memory follow the paths, not the number of classes. With `sparse` the gradients of `rows` (M, D) and
    `bias` (M,) are sparse tensors of the rows on the paths. `impl` is who computes: `torch` anywhere, `triton` on
    a GPU, `auto` the faster of those that can.

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> path_cross_entropy(torch.zeros(2, 3), torch.zeros(5, 3), None, torch.tensor([0, 2]), tax, reduction="none")
    tensor([1.3863, 0.6931])
    """
    index = tree_index(tax, h.device)
    if len(rows) != index.num_nodes - 1:  # the sparse product would read past their end
        raise InputError(f"expected one row per non-root node, so {index.num_nodes - 1}, found {len(rows)}")
    if rows.shape[1:] != h.shape[-1:]:
        raise InputError(f"expected rows of {h.shape[-1]} numbers, as features have, found {tuple(rows.shape)}")
    for name, vector in (("bias", bias), ("log_priors", log_priors)):
        if vector is not None and vector.shape != rows.shape[:1]:
            raise InputError(f"expected {name} of shape ({len(rows)},), one for each row, found {tuple(vector.shape)}")
    if isinstance(target, Tensor) and target.device != h.device:
        raise InputError(f"the target is on {target.device}, the features are on {h.device}")
    check_options(reduction, target_kind, label_smoothing, gamma)
    if tau and log_priors is None:
        raise OptionError("tau adjusts the logits by the training frequencies of siblings: give them as log_priors")
    batch = h.shape[:-1]
    wide = torch.promote_types(torch.promote_types(h.dtype, rows.dtype), torch.float32)
    if weight is not None:
        weight = check_weights(weight, index.num_leaves, "weight", h.device, wide)
    if node_weights is not None:
        node_weights = check_weights(node_weights, index.num_nodes, "node_weights", h.device, wide)
    limit = index.num_leaves if target_kind == "class" else index.num_nodes
    row_B = check_target(target, batch, target_kind)
    offset = tau * log_priors.to(wide) if tau and log_priors is not None else None
    tree = path_tree(tax, h.device)
    features = h.reshape(-1, h.shape[-1])
    chosen = kernels.choose(impl, features, rows, tree)
    operands = (features, rows, bias, offset)
    is_plain = reduction != "none" and weight is None and node_weights is None and not (label_smoothing or gamma)
    if is_plain and chosen == "triton":
        targets = (row_B, None if target_kind == "node" else index.leaves, limit, ignore_index, reduction == "mean")
        loss: Tensor = path_loss(*operands, *targets, tree.tensors, tree.sizes, sparse)[0]
        return loss
    row_B, counted_B = mask_target(row_B, limit, target_kind, ignore_index)
    nodes_B = row_B if target_kind == "node" else index.leaves.index_select(0, row_B)
    nodes_B = torch.where(counted_B, nodes_B, 0)
    logp_BK, mean_BK, *_ = path_steps(*operands, nodes_B, tree.tensors, tree.sizes, sparse, chosen)
    if is_plain:
        total: Tensor = -logp_BK.sum()  # an ignored item has no steps
        return total if reduction == "sum" else total / counted_B.sum()
    nodes_BK = logp_BK  # not looked at without node weights
    if node_weights is not None:
        nodes_BK = torch.stack(path_nodes(index, nodes_B), dim=-1)
    smoothed_BK = mean_BK if label_smoothing else None
    loss_BK = step_losses(logp_BK, smoothed_BK, nodes_BK, label_smoothing, gamma, node_weights)
    return reduced(loss_BK.sum(1), item_weights(row_B, target_kind, weight, index), counted_B, reduction, batch)


def path_log_probs(
    h: Tensor, rows: Tensor, bias: Tensor | None, nodes: Tensor, tax: Taxonomy, impl: kernels.Impl = "auto"
) -> Tensor:
    """Return the log-probability of each node on the path to the given nodes, without scoring other nodes.

    Args:
        h: (..., D) features.
        rows: (M, D) weights, one row per non-root node.
        bias: (M,) or None.
        nodes: (...,) node ids.
        tax: the taxonomy.
        impl: as in `path_cross_entropy`.

    Returns:
        (..., K) log-probabilities, where K is the depth of the tree; 0 past the end of a path.
    """
    nodes_B = check_nodes(nodes, h.shape[:-1], tax)
    tree, features = path_tree(tax, h.device), h.reshape(-1, h.shape[-1])
    chosen = kernels.choose(impl, features, rows, tree)
    cond_BK: Tensor = path_steps(features, rows, bias, None, nodes_B, tree.tensors, tree.sizes, False, chosen)[0]
    depth_B1 = tree_index(tax, h.device).node_depth[nodes_B].unsqueeze(1)
    past_end_BK = torch.arange(cond_BK.shape[1], device=h.device) >= depth_B1
    return cond_BK.cumsum(1).masked_fill(past_end_BK, 0.0).view(*nodes.shape, cond_BK.shape[1])


def check_nodes(nodes: Tensor, batch: torch.Size, tax: Taxonomy) -> Tensor:
    """Return the nodes as one row of int64, or raise if one is not a node of the taxonomy."""
    row_B, _ = mask_target(check_target(nodes, batch, "node"), tax.num_nodes, "node", -100)
    return row_B
