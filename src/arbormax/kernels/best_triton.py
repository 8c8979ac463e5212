"""The most probable leaves, one program an item: down to the best leaf, then back to whatever may hold a better one.

The children of every node on the way down wait with their log-probabilities. A child is never more probable than its
parent, so a program is done when none that waits is as probable as the last of the leaves it found.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from arbormax.kernels.gpu import on_its_device

WIDEST, MOST, DEEPEST = 256, 16, 32  # siblings, leaves and levels; larger ones are left to torch
BLOCK = 64  # features at a time
WARPS = {128: 4, 256: 16}  # of a program, by siblings: with fewer, what a wide group asks for would not fit registers
_AT_ONCE = 512  # programs, about, that a GPU runs side by side: the order of fewer does not matter
_NONE = tl.constexpr(2147483647)
UNROLLED = tl.constexpr(1024)  # features up to which a loop over them is unrolled: it takes seconds to compile


@triton.jit
def _descend(
    h_ptr,
    weight_ptr,
    bias_ptr,
    root_ptr,  # (B, top) logits of the root's children
    order_ptr,  # (B,) the items, in the order that they are taken in; None: as they come
    child_ptr,  # (N,) first child of each node
    count_ptr,  # (N,) its children
    class_ptr,  # (N,) its class, -1 if it has children
    logp_ptr,  # (B, K) out
    leaf_ptr,  # (B, K) out
    left_ptr,  # (B,) out: whether something better may be left
    most,  # nodes that may be opened
    top,  # children of the root
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    LEVELS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_ORDER: tl.constexpr,
):
    item = tl.program_id(0).to(tl.int64)
    if HAS_ORDER:
        item = tl.load(order_ptr + item)
    slot = tl.arange(0, SLOTS)
    column = tl.arange(0, WIDTH)
    depth = tl.arange(0, LEVELS)
    waiting = tl.full((LEVELS, WIDTH), -float("inf"), dtype=tl.float32)  # log-probabilities of nodes not opened yet
    best = tl.full((SLOTS,), -float("inf"), dtype=tl.float32)
    leaves = tl.full((SLOTS,), _NONE, dtype=tl.int32)
    firsts = tl.zeros((LEVELS,), dtype=tl.int32)
    node = tl.program_id(0) * 0
    above = 0.0
    level = node
    opened = node
    last = -float("inf")
    while (node >= 0) & (opened < most):
        first = tl.load(child_ptr + node).to(tl.int32)
        there = column < tl.load(count_ptr + node)
        child = first + column
        if node == 0:
            logits = tl.load(root_ptr + item * top + column, mask=there, other=0.0)
        else:
            products = tl.zeros((WIDTH, BLOCK_D), dtype=tl.float32)
            row_ptr = weight_ptr + (child - 1).to(tl.int64)[:, None] * D
            if D <= UNROLLED:  # all of them are asked for before the first has come
                for base in tl.static_range(0, D, BLOCK_D):
                    products += _products(h_ptr + item * D, row_ptr, there, base, D, BLOCK_D)
            else:
                for base in range(0, D, BLOCK_D):
                    products += _products(h_ptr + item * D, row_ptr, there, base, D, BLOCK_D)
            logits = tl.sum(products, 1)
            if HAS_BIAS:
                logits += tl.load(bias_ptr + child - 1, mask=there, other=0.0).to(tl.float32)
        logits = tl.where(there, logits, -float("inf"))
        largest = tl.max(logits, 0)
        total = tl.sum(tl.exp(logits - largest), 0)
        found = tl.where(there, above + ((logits - largest) - tl.log(total)), -float("inf"))
        opened = tl.where(total - total == 0.0, opened + 1, most + 1)  # what is no number has no order
        leaf = tl.load(class_ptr + child, mask=there, other=-1).to(tl.int32)
        is_leaf = leaf >= 0
        at_leaves = tl.where(is_leaf, found, -float("inf"))
        largest, taken = tl.max(at_leaves, 0), level * 0
        while (taken < K) & (largest >= last) & (largest > -float("inf")):
            best, leaves, at_leaves = _taken(best, leaves, slot, at_leaves, leaf, K)
            last = tl.min(tl.where(slot < K, best, float("inf")), 0)
            largest, taken = tl.max(at_leaves, 0), taken + 1
        inner = tl.where(is_leaf, -float("inf"), found)
        if tl.max(inner, 0) > -float("inf"):
            waiting = tl.where((depth == level)[:, None], inner[None, :], waiting)
            firsts = tl.where(depth == level, first, firsts)
        else:
            level -= 1
        # the best that waits at the deepest level where one may hold a better leaf
        node = level * 0 - 1
        while (node < 0) & (level >= 0):
            here = tl.max(tl.where((depth == level)[:, None], waiting, -float("inf")), 0)
            above = tl.max(here, 0)
            place = tl.min(tl.where(here == above, column, WIDTH), 0)
            is_open = (above >= last) & (above > -float("inf"))
            waiting = tl.where((depth == level)[:, None] & (column == place)[None, :], -float("inf"), waiting)
            its_first = tl.sum(tl.where(depth == level, firsts, 0), 0)
            node = tl.where(is_open, its_first + place, -1)
            level = tl.where(is_open, level + 1, level - 1)
    is_whole = tl.min(tl.where(slot < K, best, float("inf")), 0) > -float("inf")
    tl.store(left_ptr + item, (is_whole & (node < 0) & (opened <= most)) == 0)
    for place in range(K):
        largest = tl.max(tl.where(slot < K, best, -float("inf")), 0)
        leaf = tl.min(tl.where((best == largest) & (slot < K), leaves, _NONE), 0)
        tl.store(logp_ptr + item * K + place, largest)
        tl.store(leaf_ptr + item * K + place, leaf.to(tl.int64))
        best = tl.where((best == largest) & (leaves == leaf), -float("inf"), best)


@triton.jit
def _products(h_ptr, row_ptr, there, base, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """(WIDTH, BLOCK_D) of some of the features."""
    d = base + tl.arange(0, BLOCK_D)
    x = tl.load(h_ptr + d, mask=d < D, other=0.0).to(tl.float32)
    w = tl.load(row_ptr + d[None, :], mask=there[:, None] & (d < D)[None, :], other=0.0).to(tl.float32)
    return w * x[None, :]


@triton.jit
def _taken(best, leaves, slot, found, leaf, K: tl.constexpr):
    """The largest of those found in the place of the last kept, if it comes before it: by size, then by class."""
    largest = tl.max(found, 0)
    its_leaf = tl.min(tl.where(found == largest, leaf, _NONE), 0)
    last = tl.min(tl.where(slot < K, best, float("inf")), 0)
    last_leaf = tl.max(tl.where((best == last) & (slot < K), leaves, -1), 0)
    place = tl.min(tl.where((best == last) & (leaves == last_leaf) & (slot < K), slot, _NONE), 0)
    is_before = (largest > last) | ((largest == last) & (its_leaf < last_leaf))
    place = tl.where(is_before & (largest > -float("inf")), place, -1)
    best = tl.where(slot == place, largest, best)
    leaves = tl.where(slot == place, its_leaf, leaves)
    found = tl.where((found == largest) & (leaf == its_leaf), -float("inf"), found)
    return best, leaves, found


@on_its_device
def best_leaves(
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    first_child: Tensor,
    num_children: Tensor,
    class_of: Tensor,
    k: int,
    levels: int,
    widest: int,
    top: int,
    most: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """(B, k) log-probabilities, falling, and classes of leaves, ties by class order, and (B,) where better may be left.

    The root has `top` children, whose rows all items share: one product. Of many items, those that go the same way from
    there are taken together, since what one of them read is still at hand for the next. An item that would have to
    open more than `most` nodes is left.
    """
    items, width = h.shape
    h, rows, bias = h.contiguous(), rows.contiguous(), None if bias is None else bias.contiguous()
    size, depth = max(16, triton.next_power_of_2(widest)), triton.next_power_of_2(levels)
    logp = torch.empty((items, k), dtype=torch.float32, device=h.device)
    classes = torch.empty((items, k), dtype=torch.int64, device=h.device)
    is_left = torch.empty(items, dtype=torch.bool, device=h.device)
    with torch.autocast("cuda", enabled=False):
        at_root = F.linear(h.float(), rows[:top].float(), None if bias is None else bias[:top].float())
    order = at_root.argmax(1).argsort() if items > _AT_ONCE else None
    _descend[(items,)](
        h, rows, bias, at_root, order, first_child, num_children, class_of, logp, classes, is_left, most, top,
        K=k, SLOTS=max(4, triton.next_power_of_2(k)), LEVELS=depth, D=width,
        BLOCK_D=min(BLOCK, triton.next_power_of_2(width)), WIDTH=size, HAS_BIAS=bias is not None,
        HAS_ORDER=order is not None, num_warps=WARPS[max(128, size)],
    )  # fmt: skip
    return logp, classes, is_left
