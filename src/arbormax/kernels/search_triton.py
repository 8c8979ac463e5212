"""Search for the most probable leaves, one program for each item.

A program descends to the best leaf and then returns to every node that may contain a better one. The children of all
nodes on the way down wait with their log-probabilities. A child is never more probable than its parent, so the program
ends when no waiting node is as probable as the last of the leaves it has found.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from arbormax.kernels.gpu import next_power_of_2, on_device_of_first
from arbormax.kernels.path_tree import SearchTree

MAX_CHILDREN, MAX_RESULTS, MAX_LEVELS = 256, 16, 32  # larger searches are left to torch
_BLOCK = 64  # features that are read together
_WARPS = {128: 4, 256: 16}  # warps of a program, by siblings: with fewer, a wide group would not fit the registers
_UNSORTED = 512  # items, about, that a GPU processes at the same time: the order of fewer does not matter
_NONE = tl.constexpr(2147483647)
_UNROLLED = tl.constexpr(1024)  # up to this many features the loop is unrolled, which takes seconds to compile


class Operands(NamedTuple):
    """What the logits are computed from."""

    h: Any  # (B, D)
    rows: Any  # (M, D)
    bias: Any  # (M,) or None
    root: Any  # (B, children of the root) logits of the root's children
    order: Any  # (B,) the order in which the items are processed, or None


class Nodes(NamedTuple):
    """The tensors of a `SearchTree`."""

    first_child: Any  # (N,)
    num_children: Any  # (N,)
    class_of: Any  # (N,)


class Results(NamedTuple):
    """The results of a search."""

    logp: Any  # (B, k)
    classes: Any  # (B, k)
    is_open: Any  # (B,) whether a better leaf may exist


@on_device_of_first
def best_leaves(
    h: Tensor, rows: Tensor, bias: Tensor | None, tree: SearchTree, k: int, most_nodes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the k most probable leaves of each item.

    All items share the rows of the root's children: one product. Items that go the same way from there are processed
    together, because what one of them has read is still in the cache for the next.

    Returns:
        (B, k) log-probabilities in descending order, (B, k) classes, ties in class order, and (B,) where a better leaf
        may exist, because the item would have to expand more than `most_nodes` nodes or a score is NaN.
    """
    items, width = h.shape
    h, rows, bias = h.contiguous(), rows.contiguous(), None if bias is None else bias.contiguous()
    siblings, top = max(16, next_power_of_2(tree.max_children)), tree.root_children
    out = Results(
        torch.empty((items, k), dtype=torch.float32, device=h.device),
        torch.empty((items, k), dtype=torch.int64, device=h.device),
        torch.empty(items, dtype=torch.bool, device=h.device),
    )
    with torch.autocast("cuda", enabled=False):
        at_root = F.linear(h.float(), rows[:top].float(), None if bias is None else bias[:top].float())
    order = at_root.argmax(1).argsort() if items > _UNSORTED else None
    _search[(items,)](
        Operands(h, rows, bias, at_root, order), Nodes(*tree[:3]), out, most_nodes, top,
        K=k, SLOTS=max(4, next_power_of_2(k)), LEVELS=next_power_of_2(tree.levels), D=width,
        BLOCK_D=min(_BLOCK, next_power_of_2(width)), WIDTH=siblings, num_warps=_WARPS[max(128, siblings)],
    )  # fmt: skip
    return out


@triton.jit
def _search(
    operands,  # Operands
    nodes,  # Nodes
    out,  # Results
    most_nodes,  # that may be expanded
    top,  # children of the root
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    LEVELS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WIDTH: tl.constexpr,
):
    item = tl.program_id(0).to(tl.int64)
    if operands.order is not None:
        item = tl.load(operands.order + item)
    slot = tl.arange(0, SLOTS)
    column = tl.arange(0, WIDTH)
    depth = tl.arange(0, LEVELS)
    waiting = tl.full((LEVELS, WIDTH), -float("inf"), dtype=tl.float32)  # log-probabilities of nodes to expand
    best = tl.full((SLOTS,), -float("inf"), dtype=tl.float32)
    leaves = tl.full((SLOTS,), _NONE, dtype=tl.int32)
    firsts = tl.zeros((LEVELS,), dtype=tl.int32)
    node = tl.program_id(0) * 0
    above = 0.0
    level = node
    expanded = node
    last = -float("inf")
    while (node >= 0) & (expanded < most_nodes):
        first = tl.load(nodes.first_child + node).to(tl.int32)
        is_child = column < tl.load(nodes.num_children + node)
        child = first + column
        if node == 0:
            logits = tl.load(operands.root + item * top + column, mask=is_child, other=0.0)
        else:
            products = tl.zeros((WIDTH, BLOCK_D), dtype=tl.float32)
            row_ptr = operands.rows + (child - 1).to(tl.int64)[:, None] * D
            if D <= _UNROLLED:  # all loads are issued before the first arrives
                for base in tl.static_range(0, D, BLOCK_D):
                    products += _products(operands.h + item * D, row_ptr, is_child, base, D, BLOCK_D)
            else:
                for base in range(0, D, BLOCK_D):
                    products += _products(operands.h + item * D, row_ptr, is_child, base, D, BLOCK_D)
            logits = tl.sum(products, 1)
            if operands.bias is not None:
                logits += tl.load(operands.bias + child - 1, mask=is_child, other=0.0).to(tl.float32)
        logits = tl.where(is_child, logits, -float("inf"))
        largest = tl.max(logits, 0)
        total = tl.sum(tl.exp(logits - largest), 0)
        found = tl.where(is_child, above + ((logits - largest) - tl.log(total)), -float("inf"))
        expanded = tl.where(total - total == 0.0, expanded + 1, most_nodes + 1)  # NaN has no order
        leaf = tl.load(nodes.class_of + child, mask=is_child, other=-1).to(tl.int32)
        is_leaf = leaf >= 0
        at_leaves = tl.where(is_leaf, found, -float("inf"))
        largest, inserted = tl.max(at_leaves, 0), level * 0
        while (inserted < K) & (largest >= last) & (largest > -float("inf")):
            best, leaves, at_leaves = _insert(best, leaves, slot, at_leaves, leaf, K)
            last = tl.min(tl.where(slot < K, best, float("inf")), 0)
            largest, inserted = tl.max(at_leaves, 0), inserted + 1
        inner = tl.where(is_leaf, -float("inf"), found)
        if tl.max(inner, 0) > -float("inf"):
            waiting = tl.where((depth == level)[:, None], inner[None, :], waiting)
            firsts = tl.where(depth == level, first, firsts)
        else:
            level -= 1
        # the best waiting node of the deepest level where one may contain a better leaf
        node = level * 0 - 1
        while (node < 0) & (level >= 0):
            here = tl.max(tl.where((depth == level)[:, None], waiting, -float("inf")), 0)
            above = tl.max(here, 0)
            place = tl.min(tl.where(here == above, column, WIDTH), 0)
            is_open = (above >= last) & (above > -float("inf"))
            waiting = tl.where((depth == level)[:, None] & (column == place)[None, :], -float("inf"), waiting)
            first_of_level = tl.sum(tl.where(depth == level, firsts, 0), 0)
            node = tl.where(is_open, first_of_level + place, -1)
            level = tl.where(is_open, level + 1, level - 1)
    is_full = tl.min(tl.where(slot < K, best, float("inf")), 0) > -float("inf")
    tl.store(out.is_open + item, (is_full & (node < 0) & (expanded <= most_nodes)) == 0)
    for place in range(K):
        largest = tl.max(tl.where(slot < K, best, -float("inf")), 0)
        leaf = tl.min(tl.where((best == largest) & (slot < K), leaves, _NONE), 0)
        tl.store(out.logp + item * K + place, largest)
        tl.store(out.classes + item * K + place, leaf.to(tl.int64))
        best = tl.where((best == largest) & (leaves == leaf), -float("inf"), best)


@triton.jit
def _products(h_ptr, row_ptr, is_child, base, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Return the (WIDTH, BLOCK_D) products of a block of features."""
    d = base + tl.arange(0, BLOCK_D)
    x = tl.load(h_ptr + d, mask=d < D, other=0.0).to(tl.float32)
    w = tl.load(row_ptr + d[None, :], mask=is_child[:, None] & (d < D)[None, :], other=0.0).to(tl.float32)
    return w * x[None, :]


@triton.jit
def _insert(best, leaves, slot, found, leaf, K: tl.constexpr):
    """Replace the last result by the largest leaf found, if that precedes it: by log-probability, then by class."""
    largest = tl.max(found, 0)
    leaf_of_largest = tl.min(tl.where(found == largest, leaf, _NONE), 0)
    last = tl.min(tl.where(slot < K, best, float("inf")), 0)
    last_leaf = tl.max(tl.where((best == last) & (slot < K), leaves, -1), 0)
    place = tl.min(tl.where((best == last) & (leaves == last_leaf) & (slot < K), slot, _NONE), 0)
    precedes = (largest > last) | ((largest == last) & (leaf_of_largest < last_leaf))
    place = tl.where(precedes & (largest > -float("inf")), place, -1)
    best = tl.where(slot == place, largest, best)
    leaves = tl.where(slot == place, leaf_of_largest, leaves)
    found = tl.where((found == largest) & (leaf == leaf_of_largest), -float("inf"), found)
    return best, leaves, found
