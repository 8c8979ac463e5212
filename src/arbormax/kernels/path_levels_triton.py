"""The features' gradients, of which each level made its part."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["items", "levels"])
def add_levels(
    features_ptr,  # (K, B, D), of which only those of an item's own steps were written
    order_ptr,
    own_ptr,
    out_ptr,  # (B, D)
    items,
    levels,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """The features' gradients: the sum of their levels' parts."""
    at = tl.program_id(0)
    item = tl.load(order_ptr + at).to(tl.int64)
    for base in range(0, D, BLOCK_D):
        d = base + tl.arange(0, BLOCK_D)
        out = tl.zeros((BLOCK_D,), dtype=tl.float32)
        row = item
        for level in range(levels):
            count = tl.where(tl.load(own_ptr + level * items + at) > 0, D, 0)
            out += tl.load(features_ptr + row * D + d, mask=d < count, other=0.0)
            row += items
        tl.store(out_ptr + item * D + d, out, mask=d < D)
