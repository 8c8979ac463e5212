"""The most probable leaves by descent, one program an item, with a word on whether they are surely the best.

The best few nodes of each level are opened. What is left aside on the way is remembered by its largest probability: a
child is never more probable than its parent, so where that is below the last of the leaves found, no leaf was missed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST, MOST = 256, 16  # siblings and leaves; larger ones are left to torch


@triton.jit
def _descend(
    h_ptr,
    weight_ptr,
    bias_ptr,
    child_ptr,  # (N,) first child of each node
    count_ptr,  # (N,) its children
    class_ptr,  # (N,) its class, -1 if it has children
    logp_ptr,  # (B, K) out
    leaf_ptr,  # (B, K) out
    certain_ptr,  # (B,) out
    levels,
    K: tl.constexpr,
    BEAM: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    item = tl.program_id(0).to(tl.int64)
    slot = tl.arange(0, BEAM)
    column = tl.arange(0, WIDTH)
    none = 2147483647
    nodes = tl.where(slot == 0, 0, -1)
    logps = tl.where(slot == 0, 0.0, -float("inf"))
    best = tl.full((BEAM,), -float("inf"), dtype=tl.float32)
    leaves = tl.full((BEAM,), none, dtype=tl.int32)
    aside = -float("inf")
    for _ in range(levels):
        next_nodes = tl.full((BEAM,), -1, dtype=tl.int32)
        next_logps = tl.full((BEAM,), -float("inf"), dtype=tl.float32)
        for place in range(BEAM):
            node = tl.sum(tl.where(slot == place, nodes, 0), 0)
            above = tl.sum(tl.where(slot == place, logps, 0.0), 0)
            last = tl.min(tl.where(slot < K, best, float("inf")), 0)
            if (node >= 0) & (above >= last):
                first = tl.load(child_ptr + node).to(tl.int32)
                size = tl.load(count_ptr + node).to(tl.int32)
                there = column < size
                child = first + column
                logits = tl.zeros((WIDTH,), dtype=tl.float32)
                for base in range(0, D, BLOCK_D):
                    d = base + tl.arange(0, BLOCK_D)
                    x = tl.load(h_ptr + item * D + d, mask=d < D, other=0.0).to(tl.float32)
                    mask = there[:, None] & (d < D)[None, :]
                    row = (child - 1).to(tl.int64)[:, None] * D
                    w = tl.load(weight_ptr + row + d[None, :], mask=mask, other=0.0).to(tl.float32)
                    logits += tl.sum(w * x[None, :], 1)
                if HAS_BIAS:
                    logits += tl.load(bias_ptr + child - 1, mask=there, other=0.0).to(tl.float32)
                logits = tl.where(there, logits, -float("inf"))
                largest = tl.max(logits, 0)
                total = tl.sum(tl.exp(logits - largest), 0)
                # what is no number has no order
                aside = tl.where(total - total == 0.0, aside, float("inf"))
                found = tl.where(there, above + ((logits - largest) - tl.log(total)), -float("inf"))
                leaf = tl.load(class_ptr + child, mask=there, other=-1).to(tl.int32)
                is_leaf = leaf >= 0
                at_leaves = tl.where(is_leaf, found, -float("inf"))
                at_inner = tl.where(is_leaf, -float("inf"), found)
                for _k in range(K):
                    best, leaves, at_leaves, aside = _taken(best, leaves, slot < K, slot, at_leaves, leaf, aside)
                for _b in range(BEAM):
                    next_logps, next_nodes, at_inner, aside = _taken(
                        next_logps, next_nodes, slot < BEAM, slot, at_inner, child, aside
                    )
                aside = tl.maximum(aside, tl.maximum(tl.max(at_leaves, 0), tl.max(at_inner, 0)))
        nodes = next_nodes
        logps = next_logps
    last = tl.min(tl.where(slot < K, best, float("inf")), 0)
    tl.store(certain_ptr + item, (aside < last).to(tl.int8))
    for place in range(K):
        largest = tl.max(tl.where(slot < K, best, -float("inf")), 0)
        leaf = tl.min(tl.where((best == largest) & (slot < K), leaves, none), 0)
        tl.store(logp_ptr + item * K + place, largest)
        tl.store(leaf_ptr + item * K + place, leaf.to(tl.int64))
        best = tl.where((best == largest) & (leaves == leaf), -float("inf"), best)


@triton.jit
def _taken(kept, names, is_slot, slot, found, name, aside):
    """The largest of those found in the place of the smallest kept, if it is larger; the loser is left aside."""
    none = 2147483647
    largest = tl.max(found, 0)
    its_name = tl.min(tl.where(found == largest, name, none), 0)
    smallest = tl.min(tl.where(is_slot, kept, float("inf")), 0)
    place = tl.min(tl.where((kept == smallest) & is_slot, slot, none), 0)
    place = tl.where(largest > smallest, place, -1)
    aside = tl.maximum(aside, tl.minimum(largest, smallest))
    kept = tl.where(slot == place, largest, kept)
    names = tl.where(slot == place, its_name, names)
    found = tl.where((found == largest) & (name == its_name), -float("inf"), found)
    return kept, names, found, aside


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
) -> tuple[Tensor, Tensor, Tensor]:
    """(B, k) log-probabilities, falling, and classes of leaves, ties by class order, and (B,) whether they are sure."""
    items, width = h.shape
    h, rows = h.contiguous(), rows.contiguous()
    logp = torch.empty((items, k), dtype=torch.float32, device=h.device)
    classes = torch.empty((items, k), dtype=torch.int64, device=h.device)
    certain = torch.empty(items, dtype=torch.int8, device=h.device)
    _descend[(items,)](
        h, rows, bias, first_child, num_children, class_of, logp, classes, certain, levels,
        K=k, BEAM=max(4, triton.next_power_of_2(k)), D=width, BLOCK_D=min(64, triton.next_power_of_2(width)),
        WIDTH=max(16, triton.next_power_of_2(widest)), HAS_BIAS=bias is not None, num_warps=8,
    )  # fmt: skip
    return logp, classes, certain.bool()
