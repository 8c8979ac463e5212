"""The items in the order of a walk of the tree."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["items"])
def arrange(
    node_ptr,  # (B,)
    first_ptr,  # (N,) each node's place in the walk
    order_ptr,  # out: (B,) the items, sorted by their place, then as they came
    place_ptr,  # out: (B,) rising: their places
    items,
    MINE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each item goes where as many are before it: for a few thousand of them counting is faster than sorting."""
    at = tl.program_id(0) * MINE + tl.arange(0, MINE)
    is_item = at < items
    place = tl.load(first_ptr + tl.load(node_ptr + at, mask=is_item, other=0), mask=is_item, other=0)
    before = tl.zeros((MINE,), dtype=tl.int32)
    for base in range(0, items, BLOCK):
        other_at = base + tl.arange(0, BLOCK)
        is_other = other_at < items
        other = tl.load(first_ptr + tl.load(node_ptr + other_at, mask=is_other, other=0))
        is_before = (other[None, :] == place[:, None]) & (other_at[None, :] < at[:, None])
        is_before = (is_before | (other[None, :] < place[:, None])) & is_other[None, :]
        before += tl.sum(is_before.to(tl.int32), 1)
    tl.store(order_ptr + before, at, mask=is_item)
    tl.store(place_ptr + before, place, mask=is_item)
