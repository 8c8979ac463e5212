"""The softmaxes of a tile: a few items that share a sibling group, whose rows are read once for all of them.

Of the logits, only their largest and the logarithm of the exponentials' sum below it are kept for the way back.
"""

import triton
import triton.language as tl


@triton.jit
def is_feature(d, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Which there are; where blocks of them leave no rest the compiler need not ask."""
    return (d < D) | (D % BLOCK_D == 0)


@triton.jit
def tile_of(slot, count, order_ptr, own_ptr, items, TILE: tl.constexpr):
    """The first row of its group and their number, its level, its items and the place of each one's own row."""
    at = tl.load(slot) + tl.arange(0, TILE)
    start = tl.load(slot + 2)
    size = tl.load(slot + 3)
    level = tl.load(slot + 4)
    is_item = tl.arange(0, TILE) < count
    item = tl.load(order_ptr + at, mask=is_item, other=0).to(tl.int64)
    place = tl.load(own_ptr + level * items + at, mask=is_item, other=0) - 1 - start
    return start, size, level, is_item, item, place


@triton.jit
def tile_logits(
    h_ptr,
    weight_ptr,
    bias_ptr,
    offset_ptr,
    item,
    is_item,
    row,
    is_row,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    DTYPE: tl.constexpr,
    PRECISION: tl.constexpr,
    CUT: tl.constexpr,
):
    """(TILE, WIDTH) float32; minus infinity where there is no row.

    Tensor cores cut off what is below the sum that they add to, which makes it smaller every time. So each sum of
    theirs is of a few features, and these are added up outside (the mask keeps the compiler from joining the two),
    where what rounding takes is kept and given back; `CUT` is the share that they cut off such a sum on average.
    """
    FEW: tl.constexpr = min(BLOCK_D, 16 if tl.float32 == DTYPE else 32)
    logits = tl.zeros((TILE, WIDTH), dtype=tl.float32)
    lost = tl.zeros((TILE, WIDTH), dtype=tl.float32)
    for base in range(0, D, BLOCK_D):
        part = tl.zeros((TILE, WIDTH), dtype=tl.float32)
        for few in tl.static_range(0, BLOCK_D, FEW):
            d = base + few + tl.arange(0, FEW)
            is_d = is_feature(d, D, BLOCK_D)
            h = tl.load(h_ptr + item[:, None] * D + d[None, :], mask=is_item[:, None] & is_d[None, :], other=0.0)
            w = tl.load(
                weight_ptr + row[None, :] * D + d[:, None],
                mask=is_row[None, :] & is_d[:, None],
                other=0.0,
                eviction_policy="evict_last",  # the way back wants it again
            )
            product = tl.dot(h.to(DTYPE), w.to(DTYPE), input_precision=PRECISION)
            part += tl.where(is_row[None, :], product, 0.0)
        part -= lost
        total = logits + part
        lost = (total - logits) - part
        logits = total
    more = CUT * logits - lost
    if HAS_BIAS:
        more += tl.load(bias_ptr + row, mask=is_row, other=0.0).to(tl.float32)[None, :]
    if HAS_OFFSET:
        more += tl.load(offset_ptr + row, mask=is_row, other=0.0).to(tl.float32)[None, :]
    return tl.where(is_row[None, :], logits + more, -float("inf"))


@triton.jit
def _difference(a, b):
    """And what rounding took from it."""
    found = a - b
    back = found + b
    return found, (a - back) + ((back - found) - b)


@triton.jit(do_not_specialize=["items"])
def forward(
    h_ptr,
    weight_ptr,
    bias_ptr,
    offset_ptr,
    order_ptr,
    own_ptr,
    tile_ptr,
    logp_ptr,  # (B, K) out
    mean_ptr,  # (B, K) out
    kept_ptr,  # (2, B, K) out: the largest of the logits, and log Σ exp of them less it
    items,
    levels,
    TILE_FIELDS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
    IS_WIDE: tl.constexpr,  # whether some group is wider than WIDTH
    HAS_BIAS: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    DTYPE: tl.constexpr,
    PRECISION: tl.constexpr,
    CUT: tl.constexpr,
):
    slot = tile_ptr + TILE_FIELDS * tl.program_id(0)
    count = tl.load(slot + 1)
    if count > 0:
        start, size, level, is_item, item, place = tile_of(slot, count, order_ptr, own_ptr, items, TILE)
        largest = tl.full((TILE,), -float("inf"), dtype=tl.float32)
        total = tl.zeros((TILE,), dtype=tl.float32)
        own = tl.zeros((TILE,), dtype=tl.float32)
        sums = tl.zeros((TILE,), dtype=tl.float32)
        for base in range(0, size, WIDTH):
            column = base + tl.arange(0, WIDTH)
            is_row = column < size
            row = (start + column).to(tl.int64)
            logits = tile_logits(
                h_ptr, weight_ptr, bias_ptr, offset_ptr, item, is_item, row, is_row,
                D, BLOCK_D, TILE, WIDTH, HAS_BIAS, HAS_OFFSET, DTYPE, PRECISION, CUT,
            )  # fmt: skip
            higher = tl.maximum(largest, tl.max(logits, 1))
            below = higher
            if IS_WIDE:  # a part of the group may have no chance at all
                below = tl.where(higher == -float("inf"), 0.0, higher)
            total = total * tl.exp(largest - below) + tl.sum(tl.exp(logits - below[:, None]), 1)
            largest = higher
            own += tl.sum(tl.where(column[None, :] == place[:, None], logits, 0.0), 1)
            sums += tl.sum(tl.where(is_row[None, :], logits, 0.0), 1)
        rest = tl.log(total)
        out = item * levels + level
        below, lost = _difference(own, largest)
        logp, lost_too = _difference(below, rest)
        logp += tl.where(own > -float("inf"), lost + lost_too, 0.0)
        tl.store(logp_ptr + out, logp, mask=is_item)
        tl.store(mean_ptr + out, (sums / size - largest) - rest, mask=is_item)
        tl.store(kept_ptr + out, largest, mask=is_item)
        tl.store(kept_ptr + items.to(tl.int64) * levels + out, rest, mask=is_item)
