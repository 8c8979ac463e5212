"""Targets to nodes: checked on the device, so that the host need not wait."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["items", "limit", "ignored"], debug=True)  # or it would not assert
def look_up(
    target_ptr,  # (B,)
    leaves_ptr,  # (C,) the node of each class
    node_ptr,  # out: (B,) the node of each item, the root where it is ignored
    items,
    limit,
    ignored,
    HAS_CLASSES: tl.constexpr,  # whether targets are classes, or nodes
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(target_ptr + at, mask=at < items, other=ignored)
    is_there = (target >= 0) & (target < limit)
    tl.device_assert(is_there | (target == ignored), "a target is no id of the tree")
    is_there = is_there & (target != ignored)
    node = tl.where(is_there, target, 0)
    if HAS_CLASSES:
        node = tl.load(leaves_ptr + node, mask=is_there, other=0)
    tl.store(node_ptr + at, node, mask=at < items)
