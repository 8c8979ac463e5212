"""Search for the most probable leaves, or the deepest nodes above a threshold, of a large tree.

A child is never more probable than its parent. So a node below the k-th best leaf found so far has no better leaf, and
a node at or below tau has no descendant above it. B items, F nodes whose children have not been scored, Z their
children, k leaves.
"""

from __future__ import annotations

import torch
from torch import Tensor

from arbormax import kernels
from arbormax.functional.checks import is_transformed
from arbormax.functional.index import TreeIndex, tree_index
from arbormax.functional.threshold import passes
from arbormax.kernels import path_torch
from arbormax.kernels.path_tree import SearchTree
from arbormax.taxonomy import Taxonomy

_TORCH_ITEMS = 256  # items that torch searches together: one that is too even ends the search for all
_KERNEL_ITEMS = 4096  # items that the kernel searches in one launch
_CELLS = 1 << 22  # numbers in the arrays of one round, about
_SORTED = 4096  # numbers up to which a full sort is faster than one more operator
_SHARE = 0.05  # of the tree: beyond it, scoring all nodes is faster


def top_classes(logp: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest of (..., C) log-probabilities in descending order and their classes, ties in class order.

    >>> top_classes(torch.tensor([0.1, 0.4, 0.1, 0.4]).log(), 3)[1]
    tensor([1, 3, 0])
    """
    can_read = not (torch.compiler.is_compiling() or is_transformed() or logp.is_meta)
    if can_read and logp.numel() > _SORTED:
        best, classes = logp.detach().topk(k)
        if bool(((logp.detach() >= best[..., -1:]).sum(-1) == k).all()):  # no tie with a class outside
            classes = classes.sort(dim=-1).values
            order = logp.detach().gather(-1, classes).argsort(dim=-1, descending=True, stable=True)
            classes = classes.gather(-1, order)
            return logp.gather(-1, classes), classes
    logp, classes = logp.sort(dim=-1, descending=True, stable=True)
    return logp[..., :k], classes[..., :k]


def best_leaves(h: Tensor, rows: Tensor, bias: Tensor | None, tax: Taxonomy, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Search for the k most probable leaves of each item, without gradients.

    Args:
        h: (B, D) features, or (B, K, D) features of each level.
        rows: (M, D) weights, one row per non-root node.
        bias: (M,) or None.
        tax: the taxonomy.
        k: how many leaves.

    Returns:
        (B, k) log-probabilities in descending order, (B, k) classes, ties in class order, and (B,) which items have
        no result, because their probabilities are NaN or so even that scoring all leaves is faster.
    """
    index = tree_index(tax, h.device)
    tree = SearchTree(
        index.first_child, index.num_children, index.class_of, index.depth, index.max_children, index.levels[0]
    )
    kernel = kernels.search_kernel(h, rows, tree, k) if h.dim() == 2 else None
    items = _KERNEL_ITEMS if kernel else _torch_items(k * index.path_width)
    results = []
    with torch.no_grad():
        for part in torch.split(h, items):
            if kernel:
                most_nodes = max(64, int(_SHARE * tax.num_parents))
                results.append(kernel.best_leaves(part, rows, bias, tree, k, most_nodes))
            else:
                found = _search(part, rows, bias, index, k)
                is_open = torch.full((len(part),), found is None, device=h.device)
                results.append((*(found or _no_leaves(part, rows, index, k)), is_open))
    logp, classes, is_open = map(torch.cat, zip(*results, strict=True))
    return logp, classes, is_open


def _torch_items(cells: float) -> int:
    """Return the number of items that torch searches together if an item takes this many cells."""
    return max(1, int(min(_TORCH_ITEMS, _CELLS // cells)))


def _no_leaves(h: Tensor, rows: Tensor, index: TreeIndex, k: int) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of minus infinity, and no class."""
    wide = torch.promote_types(torch.promote_types(h.dtype, rows.dtype), torch.float32)
    logp = torch.full((len(h), k), -torch.inf, dtype=wide, device=h.device)
    return logp, torch.full((len(h), k), index.num_leaves, device=h.device)


def _search(h: Tensor, rows: Tensor, bias: Tensor | None, index: TreeIndex, k: int) -> tuple[Tensor, Tensor] | None:
    items, device = len(h), h.device
    best, classes = _no_leaves(h, rows, index, k)
    item_F = torch.arange(items, device=device)
    node_F, logp_F = torch.zeros_like(item_F), torch.zeros(items, dtype=best.dtype, device=device)
    scored, rounds, width = 0, 0, k
    while len(item_F):
        # The best few nodes of each item are expanded, and more of them once the leaves have been reached.
        order_F = _order(item_F, logp_F, node_F)
        item_F, node_F, logp_F = item_F[order_F], node_F[order_F], logp_F[order_F]
        chosen_F = _rank(item_F, items) < width
        item, parent_logp, parent = item_F[chosen_F], logp_F[chosen_F], node_F[chosen_F]
        if h.dim() == 3:  # the features of one level of one item are together
            order = (item * index.depth + index.node_depth[parent]).argsort(stable=True)
            item, parent_logp, parent = item[order], parent_logp[order], parent[order]
        scored += int(index.num_children[parent].sum())
        if scored > _SHARE * items * index.num_nodes:
            return None
        logp_Z, cells = _child_log_probs(h, rows, bias, item, parent, index)
        if bool(logp_Z.isnan().any()):
            return None  # NaN has no order
        logp_Z = logp_Z + parent_logp[cells.step]
        item_Z, node_Z = item[cells.step], cells.row + 1
        may_win_Z = logp_Z >= best[:, -1][item_Z]
        item_Z, node_Z, logp_Z = item_Z[may_win_Z], node_Z[may_win_Z], logp_Z[may_win_Z]
        is_leaf_Z = index.num_children[node_Z] == 0
        best, classes = _merge(best, classes, item_Z[is_leaf_Z], index.class_of[node_Z[is_leaf_Z]], logp_Z[is_leaf_Z])
        inner_Z = ~is_leaf_Z
        item_F = torch.cat([item_F[~chosen_F], item_Z[inner_Z]])
        node_F = torch.cat([node_F[~chosen_F], node_Z[inner_Z]])
        logp_F = torch.cat([logp_F[~chosen_F], logp_Z[inner_Z]])
        may_win_F = logp_F >= best[:, -1][item_F]
        item_F, node_F, logp_F = item_F[may_win_F], node_F[may_win_F], logp_F[may_win_F]
        rounds += 1
        if rounds >= index.depth:
            width *= 2
    return best, classes


def deepest_nodes(h: Tensor, rows: Tensor, bias: Tensor | None, tax: Taxonomy, tau: float) -> tuple[Tensor, Tensor]:
    """Search for the deepest node with P > tau of each item; ties go to the more probable, then to the lower node id.

    The arguments are those of `best_leaves`. Nodes below one that does not pass are not scored, so a NaN among their
    weights has no effect.

    Returns:
        (B,) node ids, and (B,) which items have no result, because so many nodes pass that scoring all nodes is faster,
        or because a score is NaN.
    """
    index = tree_index(tax, h.device)
    nodes_B = torch.zeros(len(h), dtype=torch.int64, device=h.device)
    is_open = torch.zeros_like(nodes_B, dtype=torch.bool)
    # At most 1 / tau nodes of a level pass.
    widest = min(_SHARE * index.num_nodes, index.path_width / tau if tau else torch.inf)
    with torch.no_grad():
        # Features that are not finite give no probability but the root's.
        finite = h.isfinite().flatten(1).all(1).nonzero().squeeze(1)
        for items in torch.split(finite, _torch_items(widest)):
            found = _descend(h[items], rows, bias, index, tau)
            if found is None:
                is_open[items] = True
            else:
                nodes_B[items] = found
    return nodes_B, is_open


def _descend(h: Tensor, rows: Tensor, bias: Tensor | None, index: TreeIndex, tau: float) -> Tensor | None:
    """Visit all nodes that pass, level by level."""
    items, device = len(h), h.device
    wide = torch.promote_types(torch.promote_types(h.dtype, rows.dtype), torch.float32)
    deepest = torch.zeros(items, dtype=torch.int64, device=device)
    item_F = torch.arange(items, device=device)
    node_F, logp_F = torch.zeros_like(item_F), torch.zeros(items, dtype=wide, device=device)
    scored = 0
    while True:
        open_F = passes(logp_F, tau) & (index.num_children[node_F] > 0)
        item_F, node_F, logp_F = item_F[open_F], node_F[open_F], logp_F[open_F]
        if not len(item_F):
            return deepest
        scored += int(index.num_children[node_F].sum())
        if scored > _SHARE * items * index.num_nodes:
            return None
        logp_Z, cells = _child_log_probs(h, rows, bias, item_F, node_F, index)
        if bool(logp_Z.isnan().any()):
            return None
        logp_Z = logp_Z + logp_F[cells.step]
        pass_Z = passes(logp_Z, tau)
        item_F, node_F, logp_F = item_F[cells.step][pass_Z], (cells.row + 1)[pass_Z], logp_Z[pass_Z]
        best = logp_F.new_full((items,), -torch.inf).scatter_reduce(0, item_F, logp_F, "amax")
        is_best_F = logp_F == best[item_F]
        first = torch.full_like(deepest, index.num_nodes)
        first = first.scatter_reduce(0, item_F[is_best_F], node_F[is_best_F], "amin")
        deepest = torch.where(first < index.num_nodes, first, deepest)


def _child_log_probs(
    h: Tensor, rows: Tensor, bias: Tensor | None, item_F: Tensor, parent_F: Tensor, index: TreeIndex
) -> tuple[Tensor, path_torch.Cells]:
    """Return the (Z,) log-probabilities of all children of F parents; the rows of `h` in use are in order."""
    start_F, size_F = index.first_child[parent_F] - 1, index.num_children[parent_F]
    if h.dim() == 3:
        item_F, h = item_F * index.depth + index.node_depth[parent_F], h.flatten(0, 1)
    return path_torch.group_log_probs(h, rows, bias, item_F, start_F, size_F)


def _merge(best: Tensor, classes: Tensor, item_Z: Tensor, class_Z: Tensor, logp_Z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the k best of the leaves found before and those found now."""
    items, k = best.shape
    item = torch.cat([torch.arange(items, device=best.device).repeat_interleave(k), item_Z])
    all_classes, logp = torch.cat([classes.flatten(), class_Z]), torch.cat([best.flatten(), logp_Z])
    order = _order(item, logp, all_classes)
    order = order[_rank(item[order], items) < k]
    return logp[order].view(items, k), all_classes[order].view(items, k)


def _order(item: Tensor, logp: Tensor, last: Tensor) -> Tensor:
    """Return the order by item, then by descending log-probability, then by the last."""
    order = last.argsort(stable=True)
    order = order[logp[order].argsort(stable=True, descending=True)]
    return order[item[order].argsort(stable=True)]


def _rank(item: Tensor, items: int) -> Tensor:
    """Return the rank of each entry among those of its item, which are adjacent."""
    counts = torch.bincount(item, minlength=items)
    return torch.arange(len(item), device=item.device) - (counts.cumsum(0) - counts)[item]
