"""The way back: each logit's gradient, what it does to the features and, in a group of one tile, to the rows.

The logits are computed again: the rows have to be read for the features in any case. The rows of larger groups have a
kernel of their own, and for it the gradients of their logits are kept, in two halves where the operands are bfloat16,
so that nothing is lost before the sums; a second half of float16 would often be too small for it, so there they are
float32. Rows that no path goes by must be zero, and there are many of them: each program writes some, so that the
memory reads and writes all the time.
"""

import triton
import triton.language as tl

from arbormax.kernels.path_forward_triton import is_feature, tile_logits, tile_of
from arbormax.kernels.path_rows_triton import rows_of


@triton.jit(do_not_specialize=["items", "own_item", "own_level", "mean_item", "mean_level", "tiles", "groups"])
def backward_features(
    own_grad_ptr,  # (B, K) of any strides, as it is often one number for all
    mean_grad_ptr,  # (B, K)
    own_item,
    own_level,
    mean_item,
    mean_level,
    h_ptr,
    weight_ptr,
    bias_ptr,
    offset_ptr,
    order_ptr,
    own_ptr,
    tile_ptr,
    softmax_ptr,  # (2, B, K) what the way forward kept
    cells_ptr,  # (K,) where a level's cells begin
    grad_ptr,  # (parts, B, cells) out: the logits' gradients, where a group has several tiles
    features_ptr,  # (K, B, D) out: each level's part of the features' gradients
    ends_ptr,  # where the rows of each tile end, when only the rows on the paths are wanted
    rows_ptr,  # out, then: which rows they are
    weight_out_ptr,  # of a group that is one tile
    bias_out_ptr,
    touched_ptr,  # of a node with children: whether they are on a path
    inner_ptr,
    inner_start_ptr,
    inner_size_ptr,
    items,
    levels,
    cells,
    tiles,
    groups,
    TILE_FIELDS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    LOGITS_D: tl.constexpr,  # features that are looked at together for the logits
    CLEARS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
    IS_WIDE: tl.constexpr,  # whether some group is wider than WIDTH
    IS_SPARSE: tl.constexpr,
    DTYPE: tl.constexpr,
    FACTOR: tl.constexpr,
    IS_HALF: tl.constexpr,
    PRECISION: tl.constexpr,
    CUT: tl.constexpr,
):
    # the last first here, too: the way forward read it last
    tile = tiles - 1 - tl.program_id(0)
    slot = tile_ptr + TILE_FIELDS * tile
    count = tl.load(slot + 1, mask=tile >= 0, other=0)
    if CLEARS:
        for inner in range(tl.program_id(0), groups, tl.num_programs(0)):
            _clear(touched_ptr, inner_ptr, inner_start_ptr, inner_size_ptr, weight_out_ptr, bias_out_ptr, inner, D)
    if count > 0:
        start, size, level, is_item, item, place = tile_of(slot, count, order_ptr, own_ptr, items, TILE)
        own_grad = tl.load(own_grad_ptr + item * own_item + level * own_level, mask=is_item, other=0.0)
        mean_grad = tl.load(mean_grad_ptr + item * mean_item + level * mean_level, mask=is_item, other=0.0)
        own_grad, mean_grad = own_grad.to(tl.float32), mean_grad.to(tl.float32)
        largest = tl.load(softmax_ptr + item * levels + level, mask=is_item, other=0.0)
        rest = tl.load(softmax_ptr + (items.to(tl.int64) + item) * levels + level, mask=is_item, other=0.0)
        is_alone = tl.load(slot + 6) > 0
        cell = tl.load(cells_ptr + level)
        kept_ptr = grad_ptr + item[:, None] * cells + cell
        part = items.to(tl.int64) * cells
        high = tl.zeros((TILE, WIDTH), dtype=FACTOR)
        low = tl.zeros((TILE, WIDTH), dtype=FACTOR)
        for base in range(0, size, WIDTH):
            column = base + tl.arange(0, WIDTH)
            is_row = column < size
            is_cell = is_item[:, None] & is_row[None, :]
            logits = tile_logits(
                h_ptr, weight_ptr, bias_ptr, offset_ptr, item, is_item, (start + column).to(tl.int64), is_row,
                D, LOGITS_D, TILE, WIDTH, HAS_BIAS, HAS_OFFSET, DTYPE, PRECISION, CUT,
            )  # fmt: skip
            share = tl.exp((logits - largest[:, None]) - rest[:, None])
            grad = (mean_grad / size)[:, None] - share * (own_grad + mean_grad)[:, None]
            grad += tl.where(column[None, :] == place[:, None], own_grad[:, None], 0.0)
            grad = tl.where(is_cell, grad, 0.0)
            high = grad.to(FACTOR)
            if IS_HALF:
                low = (grad - high.to(tl.float32)).to(FACTOR)
            if is_alone == 0:
                tl.store(kept_ptr + column[None, :], high, mask=is_cell)
                if IS_HALF:
                    tl.store(kept_ptr + part + column[None, :], low, mask=is_cell)
        goal = (start + tl.arange(0, WIDTH)).to(tl.int64)
        if IS_WIDE:
            tl.debug_barrier()
        elif is_alone:
            column = tl.arange(0, WIDTH)
            sums = tl.sum(high.to(tl.float32), 0)
            if IS_HALF:
                sums += tl.sum(low.to(tl.float32), 0)
            if IS_SPARSE:
                goal = tl.load(ends_ptr + tile) - size + column
                tl.store(rows_ptr + goal, (start + column).to(tl.int64), mask=column < size)
            tl.store(bias_out_ptr + goal, sums, mask=column < size)
        out_ptr = features_ptr + (level.to(tl.int64) * items + item)[:, None] * D
        # loops without branches, which the compiler can overlap
        if IS_WIDE:
            for base in range(0, D, BLOCK_D):
                d = base + tl.arange(0, BLOCK_D)
                out = tl.zeros((TILE, BLOCK_D), dtype=tl.float32)
                for first in range(0, size, WIDTH):
                    column = first + tl.arange(0, WIDTH)
                    is_cell = is_item[:, None] & (column < size)[None, :]
                    high = tl.load(kept_ptr + column[None, :], mask=is_cell, other=0.0)
                    w = rows_of(weight_ptr, (start + column).to(tl.int64), column < size, d, D, BLOCK_D, FACTOR)
                    out = tl.dot(high, w, out, input_precision=PRECISION)
                    if IS_HALF:
                        low = tl.load(kept_ptr + part + column[None, :], mask=is_cell, other=0.0)
                        out = tl.dot(low, w, out, input_precision=PRECISION)
                tl.store(out_ptr + d[None, :], out, mask=is_item[:, None] & is_feature(d, D, BLOCK_D)[None, :])
        else:
            column = tl.arange(0, WIDTH)
            row = (start + column).to(tl.int64)
            for base in range(0, D, BLOCK_D):  # the last first: it was read last, and may be at hand still
                d = (D - 1) // BLOCK_D * BLOCK_D - base + tl.arange(0, BLOCK_D)
                w = rows_of(weight_ptr, row, column < size, d, D, BLOCK_D, FACTOR)
                out = tl.dot(high, w, input_precision=PRECISION)
                if IS_HALF:
                    out = tl.dot(low, w, out, input_precision=PRECISION)
                tl.store(out_ptr + d[None, :], out, mask=is_item[:, None] & is_feature(d, D, BLOCK_D)[None, :])
            if is_alone:
                high_t = tl.trans(high)
                low_t = tl.trans(low)
                for base in range(0, D, BLOCK_D):
                    d = base + tl.arange(0, BLOCK_D)
                    h = rows_of(h_ptr, item, is_item, d, D, BLOCK_D, FACTOR)
                    rows = tl.dot(high_t, h, input_precision=PRECISION)
                    if IS_HALF:
                        rows = tl.dot(low_t, h, rows, input_precision=PRECISION)
                    mask = (column < size)[:, None] & is_feature(d, D, BLOCK_D)[None, :]
                    goal_ptr = weight_out_ptr + goal[:, None] * D + d[None, :]
                    tl.store(goal_ptr, rows, mask=mask, eviction_policy="evict_first")


@triton.jit
def _clear(touched_ptr, inner_ptr, start_ptr, size_ptr, weight_out_ptr, bias_out_ptr, inner, D: tl.constexpr):
    """Zeros for the children of a node, if no path goes by them; an only child is on none."""
    BLOCK: tl.constexpr = 4096
    at = tl.arange(0, BLOCK)
    zeros = tl.zeros((BLOCK,), dtype=weight_out_ptr.dtype.element_ty)
    size = tl.load(size_ptr + inner)
    if (tl.load(touched_ptr + tl.load(inner_ptr + inner)) == 0) | (size == 1):
        start = tl.load(start_ptr + inner)
        for base in range(0, size * D, BLOCK):
            goal = weight_out_ptr + start * D + base + at
            tl.store(goal, zeros, mask=base + at < size * D, eviction_policy="evict_first")
        for base in range(0, size, BLOCK):
            tl.store(bias_out_ptr + start + base + at, zeros, mask=base + at < size)
