"""Losses and probabilities on the paths of a batch, without the logits of other nodes, and when these are preferred.

B batch, D features, M rows, K steps of a path.
"""

from __future__ import annotations

from math import inf
from typing import Any

import torch
from torch import Tensor

from arbormax import kernels
from arbormax.errors import InputError, OptionError
from arbormax.functional.checks import check_ids, check_target, is_transformed
from arbormax.functional.index import TreeIndex, path_nodes, tree_index
from arbormax.functional.linear import level_logits, linear
from arbormax.functional.losses import hierarchical_cross_entropy
from arbormax.functional.options import LossOptions
from arbormax.functional.path_ops import path_loss, path_steps
from arbormax.functional.path_tree import path_tree, step_tree
from arbormax.taxonomy import Taxonomy

# With fewer rows, or fewer rows for each row on a path, one dense product is faster than look-ups; devices of other
# types may have no sparse products. On the GPU the limit depends on the host: as measured, eager steps are equally fast
# between 8,420 and 11,154 rows, and steps of a captured graph at about 1,000.
_PATH_ROWS, _SEARCH_ROWS = {"cpu": 4096, "cuda": 10_000}, {"cpu": 4096, "cuda": 1 << 15}
_RATIO = 8

_Operands = tuple[Tensor, Tensor, Tensor | None, Tensor | None]  # features, rows, bias, offset of the logits


def path_cross_entropy(
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    target: Tensor,
    tax: Taxonomy,
    *,
    sparse: bool = False,
    impl: kernels.Impl = "auto",
    per_level: bool = False,
    **loss_options: Any,
) -> Tensor:
    """Return `hierarchical_cross_entropy` of the logits `h @ rows.T + bias`; only those on the paths are computed.

    Time and memory depend on the paths, not on the number of classes.

    Args:
        h: (..., D) features.
        rows: (M, D) weights, one row per non-root node.
        bias: (M,) or None.
        target: as in `hierarchical_cross_entropy`.
        tax: the taxonomy.
        sparse: whether the gradients of `rows` and `bias` are sparse tensors with the rows on the paths.
        impl: `"torch"`, `"triton"` (on a GPU), or `"auto"` for the faster of those that are available.
        per_level: whether `h` is (..., K, D), with the features of each level.
        loss_options: the options of `hierarchical_cross_entropy`.

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> path_cross_entropy(torch.zeros(2, 3), torch.zeros(5, 3), None, torch.tensor([0, 2]), tax, reduction="none")
    tensor([1.3863, 0.6931])
    """
    index = tree_index(tax, h.device)
    wide = torch.promote_types(torch.promote_types(h.dtype, rows.dtype), torch.float32)
    options = LossOptions(**loss_options).check(index, wide)
    _check_operands(h, rows, {"bias": bias, "log_priors": options.log_priors}, index.num_nodes - 1)
    if isinstance(target, Tensor) and target.device != h.device:
        raise InputError(f"the target is on {target.device}, but the features are on {h.device}")
    batch = h.shape[: -2 if per_level else -1]
    operands = (h.reshape(-1, h.shape[-1]), rows, bias, options.offset(wide))
    is_plain = options.reduction != "none" and options.weight is None and not options.changes_steps
    tree = path_tree(tax, h.device)
    if is_plain and not per_level and kernels.choose(impl, *operands[:2], tree) == "triton":
        # one operator that checks the targets on the device and sums the losses
        ids_B = check_target(target, batch, options.target_kind)
        leaves = index.leaves if options.target_kind == "class" else None
        given = (ids_B, leaves, options.limit(index), options.ignore_index, options.reduction == "mean")
        loss: Tensor = path_loss(*operands, *given, tree.tensors, tree.sizes, sparse)[0]
        return loss
    targets = options.targets(target, batch, index)
    nodes_B = options.target_nodes(targets, index)
    logp_BK, mean_BK = _steps(operands, nodes_B, tax, sparse=sparse, impl=impl, per_level=per_level)
    nodes_BK = logp_BK if options.node_weights is None else torch.stack(path_nodes(index, nodes_B), dim=-1)
    loss_B = options.step_losses(logp_BK, mean_BK, nodes_BK).sum(1)
    return options.reduce(loss_B, targets, batch, index)


def path_log_probs(
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    nodes: Tensor,
    tax: Taxonomy,
    impl: kernels.Impl = "auto",
    *,
    per_level: bool = False,
) -> Tensor:
    """Return the log-probability of each node on the path to the given nodes, without scoring other nodes.

    Args:
        h: (..., D) features.
        rows: (M, D) weights, one row per non-root node.
        bias: (M,) or None.
        nodes: (...,) node ids.
        tax: the taxonomy.
        impl: as in `path_cross_entropy`.
        per_level: as in `path_cross_entropy`.

    Returns:
        (..., K) log-probabilities, where K is the depth of the tree; 0 past the end of a path.
    """
    nodes_B = check_nodes(nodes, h.shape[: -2 if per_level else -1], tax)
    _check_operands(h, rows, {"bias": bias}, tax.num_nodes - 1)
    operands = (h.reshape(-1, h.shape[-1]), rows, bias, None)
    cond_BK, _ = _steps(operands, nodes_B, tax, sparse=False, impl=impl, per_level=per_level)
    depth_B1 = tree_index(tax, h.device).node_depth[nodes_B].unsqueeze(1)
    past_end_BK = torch.arange(cond_BK.shape[1], device=h.device) >= depth_B1
    return cond_BK.cumsum(1).masked_fill(past_end_BK, 0.0).view(*nodes.shape, cond_BK.shape[1])


def check_nodes(nodes: Tensor, batch: torch.Size, tax: Taxonomy) -> Tensor:
    """Return the nodes as one row of int64, or raise if one is not a node of the taxonomy."""
    row_B, _ = check_ids(check_target(nodes, batch, "node"), tax.num_nodes, "node", ignore_index=-100)
    return row_B


def _steps(
    operands: _Operands, nodes_B: Tensor, tax: Taxonomy, *, sparse: bool, impl: kernels.Impl, per_level: bool
) -> tuple[Tensor, Tensor]:
    """Return (B, K) log-probabilities of the steps and means of their siblings; the features of levels are B * K."""
    index = tree_index(tax, nodes_B.device)
    if per_level:
        tree, chosen = step_tree(tax, nodes_B.device), "torch"
        nodes = torch.stack(path_nodes(index, nodes_B), dim=-1).flatten()
    else:
        tree, nodes = path_tree(tax, nodes_B.device), nodes_B
        chosen = kernels.choose(impl, *operands[:2], tree)
    logp, mean, *_ = path_steps(*operands, nodes, tree.tensors, tree.sizes, sparse, chosen)
    return logp.view(-1, index.depth), mean.view(-1, index.depth)


def _check_operands(h: Tensor, rows: Tensor, vectors: dict[str, Tensor | None], count: int) -> None:
    if len(rows) != count:  # the sparse product would read past their end
        raise InputError(f"expected one row per non-root node, {count} rows, found {len(rows)}")
    if rows.shape[1:] != h.shape[-1:]:
        raise InputError(f"expected rows of {h.shape[-1]} values, as features have, found {tuple(rows.shape)}")
    for name, vector in vectors.items():
        if vector is not None and vector.shape != rows.shape[:1]:
            message = f"expected the shape ({len(rows)},), one value per row, found {tuple(vector.shape)}"
            raise InputError(message, argument=name)


def prefers_paths(index: TreeIndex) -> bool:
    """Whether the tree is so large that the loss computes the logits on the paths only."""
    return _is_large(index, _PATH_ROWS)


def prefers_search(index: TreeIndex) -> bool:
    """Whether the tree is so large that predictions search for the best leaves."""
    return _is_large(index, _SEARCH_ROWS)


def _is_large(index: TreeIndex, least: dict[str, int]) -> bool:
    rows = index.num_nodes - 1
    return rows >= least.get(index.leaves.device.type, inf) and rows >= _RATIO * index.path_width


def linear_cross_entropy(
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    target: Tensor,
    tax: Taxonomy,
    *,
    sparse: bool = False,
    impl: kernels.Impl = "auto",
    per_level: bool = False,
    **options: Any,
) -> Tensor:
    """Return `hierarchical_cross_entropy` of a linear layer, by paths on a large tree, else by all logits.

    The arguments are those of `path_cross_entropy`. `sparse` and `impl="triton"` select paths on trees of any size;
    sparse features, and transforms of torch.func, need all logits.
    """
    if sparse and h.layout != torch.strided:
        raise OptionError("sparse gradients need dense features: sparse features touch every row", argument="sparse")
    wants_paths = sparse or impl == "triton" or prefers_paths(tree_index(tax, h.device))
    if wants_paths and h.layout == torch.strided and not is_transformed():
        return path_cross_entropy(h, rows, bias, target, tax, sparse=sparse, impl=impl, per_level=per_level, **options)
    logits = level_logits(h, rows, bias, tax) if per_level else linear(h, rows, bias)
    return hierarchical_cross_entropy(logits, target, tax, **options)
