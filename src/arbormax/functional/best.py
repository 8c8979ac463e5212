"""The most probable leaves of a large tree, or the deepest nodes that are sure enough, without a look at most of it.

A child is never more probable than its parent, so that a node below the k-th best leaf found so far has no leaf worth a
look, and one that is not more probable than tau has nothing below it that is. B items, F nodes at the edge of what was
looked at, Z their children, k leaves.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from arbormax import kernels
from arbormax.functional.checks import is_transformed
from arbormax.functional.index import TreeIndex, tree_index
from arbormax.functional.threshold import passes
from arbormax.kernels import path_torch
from arbormax.taxonomy import Taxonomy

_ITEMS = 256  # that torch searches for together, where one may spoil it for all
_DESCENTS = 4096  # that go down on their own, in one launch
_CELLS = 1 << 22  # numbers in the arrays of one round, about
_FEW = 4096  # numbers that are sorted in less time than one operator more takes
_SHARE = 0.05  # of the tree: who has looked at so much of it looks at all of it


def top_classes(logp: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(..., k) the largest of (..., C) log-probabilities, falling, and their classes; ties by class order.

    >>> top_classes(torch.tensor([0.1, 0.4, 0.1, 0.4]).log(), 3)[1]
    tensor([1, 3, 0])
    """
    is_few = logp.numel() <= _FEW
    if not (is_few or torch.compiler.is_compiling() or is_transformed() or logp.is_meta):
        best, classes = logp.detach().topk(k)
        if bool(((logp.detach() >= best[..., -1:]).sum(-1) == k).all()):  # no class outside is as good as the last
            classes = classes.sort(dim=-1).values
            order = logp.detach().gather(-1, classes).argsort(dim=-1, descending=True, stable=True)
            classes = classes.gather(-1, order)
            return logp.gather(-1, classes), classes
    logp, classes = logp.sort(dim=-1, descending=True, stable=True)
    return logp[..., :k], classes[..., :k]


def at_once(h: Tensor, rows: Tensor, tax: Taxonomy, k: int) -> int:
    """How many items to ask `best_leaves` for in one call."""
    return _ITEMS if _descent(h, rows, tree_index(tax, h.device), k) is None else _DESCENTS


def _descent(h: Tensor, rows: Tensor, index: TreeIndex, k: int) -> ModuleType | None:
    return kernels.descends(h, rows, _widest(index), index.depth, k)


def _widest(index: TreeIndex) -> int:
    """The children of the node that has most of them."""
    return max(width for *_, width in index.slabs)


def best_leaves(h: Tensor, rows: Tensor, bias: Tensor | None, tax: Taxonomy, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """(B, k) log-probabilities, falling, and classes of the best leaves for (B, D) features; ties by class order.

    The last (B,) tells which items' rows hold nothing: their probabilities are so even that scoring all leaves is
    faster, or no numbers. No gradients.
    """
    index = tree_index(tax, h.device)
    descent = _descent(h, rows, index, k)
    with torch.no_grad():
        if descent is not None:
            tree = index.first_child, index.num_children, index.class_of
            most = max(64, int(_SHARE * tax.num_parents))
            made: tuple[Tensor, Tensor, Tensor] = descent.best_leaves(
                h, rows, bias, *tree, k, index.depth, _widest(index), index.levels[0], most
            )
            return made
        found = _searched(h, rows, bias, index, k)
        is_left = torch.full((len(h),), found is None, device=h.device)
        if found is not None:
            return *found, is_left
        wide = torch.promote_types(torch.promote_types(h.dtype, rows.dtype), torch.float32)
        return h.new_empty((len(h), k), dtype=wide), h.new_empty((len(h), k), dtype=torch.int64), is_left


def _searched(h: Tensor, rows: Tensor, bias: Tensor | None, index: TreeIndex, k: int) -> tuple[Tensor, Tensor] | None:
    at_once = max(1, int(_CELLS // (k * index.path_width)))
    parts = []
    for start in range(0, len(h), at_once):
        found = _search(h[start : start + at_once], rows, bias, index, k)
        if found is None:
            return None
        parts.append(found)
    return torch.cat([logp for logp, _ in parts]), torch.cat([classes for _, classes in parts])


def _search(h: Tensor, rows: Tensor, bias: Tensor | None, index: TreeIndex, k: int) -> tuple[Tensor, Tensor] | None:
    items, device = len(h), h.device
    wide = torch.promote_types(torch.promote_types(h.dtype, rows.dtype), torch.float32)
    best = torch.full((items, k), -torch.inf, dtype=wide, device=device)
    classes = torch.full((items, k), index.num_leaves, device=device)
    item_F = torch.arange(items, device=device)
    node_F, logp_F = torch.zeros_like(item_F), torch.zeros(items, dtype=wide, device=device)
    seen, rounds, width = 0, 0, k
    while len(item_F):
        # the best few nodes of each item go on, more of them when it is not enough to go down to the leaves
        order_F = _order(item_F, logp_F, node_F)
        item_F, node_F, logp_F = item_F[order_F], node_F[order_F], logp_F[order_F]
        chosen_F = _rank(item_F, items) < width
        item, parent_logp = item_F[chosen_F], logp_F[chosen_F]
        parent = node_F[chosen_F]
        start, size = index.first_child[parent] - 1, index.num_children[parent]
        seen += int(size.sum())
        if seen > _SHARE * items * index.num_nodes:
            return None
        logp_Z, cells = path_torch.group_log_probs(h, rows, bias, item, start, size)
        if bool(logp_Z.isnan().any()):
            return None  # what is no number has no order
        logp_Z = logp_Z + parent_logp[cells.step]
        item_Z, node_Z = item[cells.step], cells.row + 1
        worth_Z = logp_Z >= best[:, -1][item_Z]
        item_Z, node_Z, logp_Z = item_Z[worth_Z], node_Z[worth_Z], logp_Z[worth_Z]
        is_leaf_Z = index.num_children[node_Z] == 0
        best, classes = _merge(best, classes, item_Z[is_leaf_Z], index.class_of[node_Z[is_leaf_Z]], logp_Z[is_leaf_Z])
        inner_Z = ~is_leaf_Z
        item_F = torch.cat([item_F[~chosen_F], item_Z[inner_Z]])
        node_F = torch.cat([node_F[~chosen_F], node_Z[inner_Z]])
        logp_F = torch.cat([logp_F[~chosen_F], logp_Z[inner_Z]])
        worth_F = logp_F >= best[:, -1][item_F]
        item_F, node_F, logp_F = item_F[worth_F], node_F[worth_F], logp_F[worth_F]
        rounds += 1
        if rounds >= index.depth:
            width *= 2
    return best, classes


def deepest_nodes(h: Tensor, rows: Tensor, bias: Tensor | None, tax: Taxonomy, tau: float) -> Tensor | None:
    """(B,) the deepest node with P > tau for (B, D) features, the most probable of them; ties to the lower node id.

    None where so many nodes pass that scoring all of them is faster, or where a number is none. What is below a node
    that does not pass is not looked at, so that a NaN among its weights goes unseen.
    """
    index = tree_index(tax, h.device)
    nodes_B = torch.zeros(len(h), dtype=torch.int64, device=h.device)
    with torch.no_grad():
        # with features that are no numbers no probability is one, but the root's
        usable = h.isfinite().all(1).nonzero().squeeze(1)
        # at most 1 / tau nodes of a level pass
        widest = min(_SHARE * index.num_nodes, index.path_width / tau if tau else torch.inf)
        at_once = max(1, int(_CELLS // widest))
        for chosen in torch.split(usable, at_once):
            found = _descend(h[chosen], rows, bias, index, tau)
            if found is None:
                return None
            nodes_B[chosen] = found
    return nodes_B


def _descend(h: Tensor, rows: Tensor, bias: Tensor | None, index: TreeIndex, tau: float) -> Tensor | None:
    """Level by level, through all nodes that pass."""
    items, device = len(h), h.device
    wide = torch.promote_types(torch.promote_types(h.dtype, rows.dtype), torch.float32)
    answer = torch.zeros(items, dtype=torch.int64, device=device)
    item_F = torch.arange(items, device=device)
    node_F, logp_F = torch.zeros_like(item_F), torch.zeros(items, dtype=wide, device=device)
    seen = 0
    while True:
        open_F = passes(logp_F, tau) & (index.num_children[node_F] > 0)
        item_F, node_F, logp_F = item_F[open_F], node_F[open_F], logp_F[open_F]
        if not len(item_F):
            return answer
        start, size = index.first_child[node_F] - 1, index.num_children[node_F]
        seen += int(size.sum())
        if seen > _SHARE * items * index.num_nodes:
            return None
        logp_Z, cells = path_torch.group_log_probs(h, rows, bias, item_F, start, size)
        if bool(logp_Z.isnan().any()):
            return None
        logp_Z = logp_Z + logp_F[cells.step]
        pass_Z = passes(logp_Z, tau)
        item_F, node_F, logp_F = item_F[cells.step][pass_Z], (cells.row + 1)[pass_Z], logp_Z[pass_Z]
        best = logp_F.new_full((items,), -torch.inf).scatter_reduce(0, item_F, logp_F, "amax")
        is_best_F = logp_F == best[item_F]
        first = torch.full_like(answer, index.num_nodes)
        first = first.scatter_reduce(0, item_F[is_best_F], node_F[is_best_F], "amin")
        answer = torch.where(first < index.num_nodes, first, answer)


def _merge(best: Tensor, classes: Tensor, item_Z: Tensor, class_Z: Tensor, logp_Z: Tensor) -> tuple[Tensor, Tensor]:
    """The k best of those known and those found."""
    items, k = best.shape
    item = torch.cat([torch.arange(items, device=best.device).repeat_interleave(k), item_Z])
    all_classes, logp = torch.cat([classes.flatten(), class_Z]), torch.cat([best.flatten(), logp_Z])
    order = _order(item, logp, all_classes)
    order = order[_rank(item[order], items) < k]
    return logp[order].view(items, k), all_classes[order].view(items, k)


def _order(item: Tensor, logp: Tensor, last: Tensor) -> Tensor:
    """By item, then from the most probable down, then by the last."""
    order = last.argsort(stable=True)
    order = order[logp[order].argsort(stable=True, descending=True)]
    return order[item[order].argsort(stable=True)]


def _rank(item: Tensor, items: int) -> Tensor:
    """The place of each entry among those of its item, which stand together."""
    counts = torch.bincount(item, minlength=items)
    return torch.arange(len(item), device=item.device) - (counts.cumsum(0) - counts)[item]
