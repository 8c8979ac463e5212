"""The way back: each logit's gradient, what it does to the features and, in a group of one tile, to the rows.

The rows of larger groups have a kernel of their own, and so have those that no path goes by, which must be zero.
The gradients of a tile's logits are kept, a few numbers an item, in two halves where the operands are half precision,
so that nothing is lost before the sums.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["items"])
def backward_features(
    own_grad_ptr,  # (B, K)
    mean_grad_ptr,  # (B, K)
    h_ptr,
    weight_ptr,
    order_ptr,
    own_ptr,
    tile_ptr,
    logits_ptr,  # (B, K + cells) log Σ exp of the logits of every level, then the logits
    cells_ptr,  # (K,) where a level's cells begin
    grad_ptr,  # (parts, B, cells) out: the logits' gradients
    features_ptr,  # (K, B, D) out: each level's part of the features' gradients
    ends_ptr,  # where the rows of each tile end, when only the rows on the paths are wanted
    rows_ptr,  # out, then: which rows they are
    weight_out_ptr,  # of a group that is one tile
    bias_out_ptr,
    items,
    levels,
    cells,
    TILE_FIELDS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
    IS_WIDE: tl.constexpr,  # whether some group is wider than WIDTH
    IS_SPARSE: tl.constexpr,
    DTYPE: tl.constexpr,
    IS_HALF: tl.constexpr,
    PRECISION: tl.constexpr,
):
    slot = tile_ptr + TILE_FIELDS * tl.program_id(0)
    count = tl.load(slot + 1)
    if count > 0:
        at = tl.load(slot) + tl.arange(0, TILE)
        start = tl.load(slot + 2)
        size = tl.load(slot + 3)
        level = tl.load(slot + 4)
        is_item = tl.arange(0, TILE) < count
        item = tl.load(order_ptr + at, mask=is_item, other=0).to(tl.int64)
        place = tl.load(own_ptr + level * items + at, mask=is_item, other=0) - 1 - start
        own_grad = tl.load(own_grad_ptr + item * levels + level, mask=is_item, other=0.0).to(tl.float32)
        mean_grad = tl.load(mean_grad_ptr + item * levels + level, mask=is_item, other=0.0).to(tl.float32)
        made_ptr = logits_ptr + item * (levels + cells)
        log_total = tl.load(made_ptr + level, mask=is_item, other=0.0)
        cell = tl.load(cells_ptr + level)
        kept_ptr = grad_ptr + item[:, None] * cells + cell
        part = items.to(tl.int64) * cells
        high = tl.zeros((TILE, WIDTH), dtype=DTYPE)
        low = tl.zeros((TILE, WIDTH), dtype=DTYPE)
        for base in range(0, size, WIDTH):
            column = base + tl.arange(0, WIDTH)
            is_row = column < size
            is_cell = is_item[:, None] & is_row[None, :]
            logits = tl.load(made_ptr[:, None] + levels + cell + column[None, :], mask=is_cell, other=-float("inf"))
            grad = (mean_grad / size)[:, None] - tl.exp(logits - log_total[:, None]) * (own_grad + mean_grad)[:, None]
            grad += tl.where(column[None, :] == place[:, None], own_grad[:, None], 0.0)
            grad = tl.where(is_cell, grad, 0.0)
            high = grad.to(DTYPE)
            tl.store(kept_ptr + column[None, :], high, mask=is_cell)
            if IS_HALF:
                low = (grad - high.to(tl.float32)).to(DTYPE)
                tl.store(kept_ptr + part + column[None, :], low, mask=is_cell)
        is_alone = tl.load(slot + 6) > 0
        goal = (start + tl.arange(0, WIDTH)).to(tl.int64)
        if IS_WIDE:
            tl.debug_barrier()
        elif is_alone:
            column = tl.arange(0, WIDTH)
            sums = tl.sum(high.to(tl.float32), 0)
            if IS_HALF:
                sums += tl.sum(low.to(tl.float32), 0)
            if IS_SPARSE:
                goal = tl.load(ends_ptr + tl.program_id(0)) - size + column
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
                    w = _block(weight_ptr, (start + column).to(tl.int64), column < size, d, D, DTYPE)
                    out = tl.dot(high, w, out, input_precision=PRECISION)
                    if IS_HALF:
                        low = tl.load(kept_ptr + part + column[None, :], mask=is_cell, other=0.0)
                        out = tl.dot(low, w, out, input_precision=PRECISION)
                tl.store(out_ptr + d[None, :], out, mask=is_item[:, None] & (d < D)[None, :])
        else:
            column = tl.arange(0, WIDTH)
            row = (start + column).to(tl.int64)
            for base in range(0, D, BLOCK_D):
                d = base + tl.arange(0, BLOCK_D)
                w = _block(weight_ptr, row, column < size, d, D, DTYPE)
                out = tl.dot(high, w, input_precision=PRECISION)
                if IS_HALF:
                    out = tl.dot(low, w, out, input_precision=PRECISION)
                tl.store(out_ptr + d[None, :], out, mask=is_item[:, None] & (d < D)[None, :])
            if is_alone:
                high_t = tl.trans(high)
                low_t = tl.trans(low)
                for base in range(0, D, BLOCK_D):
                    d = base + tl.arange(0, BLOCK_D)
                    h = _block(h_ptr, item, is_item, d, D, DTYPE)
                    rows = tl.dot(high_t, h, input_precision=PRECISION)
                    if IS_HALF:
                        rows = tl.dot(low_t, h, rows, input_precision=PRECISION)
                    mask = (column < size)[:, None] & (d < D)[None, :]
                    tl.store(weight_out_ptr + goal[:, None] * D + d[None, :], rows, mask=mask)


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


@triton.jit
def _block(table_ptr, row, is_row, d, D: tl.constexpr, DTYPE: tl.constexpr):
    """Some rows of a table, and of these some columns."""
    mask = is_row[:, None] & (d < D)[None, :]
    return tl.load(table_ptr + row[:, None] * D + d[None, :], mask=mask, other=0.0).to(DTYPE)


@triton.jit(do_not_specialize=["items"])
def backward_rows(
    h_ptr,
    order_ptr,
    segment_ptr,
    cells_ptr,
    grad_ptr,
    ends_ptr,
    rows_ptr,
    weight_out_ptr,
    bias_out_ptr,
    items,
    cells,
    SEGMENT_FIELDS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
    IS_SPARSE: tl.constexpr,
    DTYPE: tl.constexpr,
    IS_HALF: tl.constexpr,
    PRECISION: tl.constexpr,
):
    slot = segment_ptr + SEGMENT_FIELDS * tl.program_id(0)
    begin = tl.load(slot)
    end = tl.load(slot + 1)
    if end > begin:
        start = tl.load(slot + 2)
        size = tl.load(slot + 3)
        cell = tl.load(cells_ptr + tl.load(slot + 4))
        target = start.to(tl.int64)
        if IS_SPARSE:
            target = tl.load(ends_ptr + tl.load(slot + 5)) - size
        part = items.to(tl.int64) * cells
        d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
        for base in range(0, size, WIDTH):
            column = base + tl.arange(0, WIDTH)
            is_row = column < size
            out = tl.zeros((WIDTH, BLOCK_D), dtype=tl.float32)
            sums = tl.zeros((WIDTH,), dtype=tl.float32)
            for first in range(begin, end, TILE):
                at = first + tl.arange(0, TILE)
                is_item = at < end
                item = tl.load(order_ptr + at, mask=is_item, other=0).to(tl.int64)
                h = _block(h_ptr, item, is_item, d, D, DTYPE)
                kept_ptr = grad_ptr + item[None, :] * cells + cell + column[:, None]
                is_cell = is_row[:, None] & is_item[None, :]
                high = tl.load(kept_ptr, mask=is_cell, other=0.0)
                out = tl.dot(high, h, out, input_precision=PRECISION)
                sums += tl.sum(high.to(tl.float32), 1)
                if IS_HALF:
                    low = tl.load(kept_ptr + part, mask=is_cell, other=0.0)
                    out = tl.dot(low, h, out, input_precision=PRECISION)
                    sums += tl.sum(low.to(tl.float32), 1)
            goal = target + column
            tl.store(weight_out_ptr + goal[:, None] * D + d[None, :], out, mask=is_row[:, None] & (d < D)[None, :])
            if tl.program_id(1) == 0:
                tl.store(bias_out_ptr + goal, sums, mask=is_row)
                if IS_SPARSE:
                    tl.store(rows_ptr + goal, (start + column).to(tl.int64), mask=is_row)


@triton.jit(do_not_specialize=["groups"])
def clear_untouched(
    touched_ptr,
    inner_ptr,
    start_ptr,
    size_ptr,
    weight_out_ptr,
    bias_out_ptr,
    groups,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Zeros for the children of a node that no path goes by; an only child is on none."""
    at = tl.arange(0, BLOCK)
    zeros = tl.zeros((BLOCK,), dtype=weight_out_ptr.dtype.element_ty)
    for inner in range(tl.program_id(0), groups, tl.num_programs(0)):
        size = tl.load(size_ptr + inner)
        if (tl.load(touched_ptr + tl.load(inner_ptr + inner)) == 0) | (size == 1):
            start = tl.load(start_ptr + inner)
            for base in range(0, size * D, BLOCK):
                tl.store(weight_out_ptr + start * D + base + at, zeros, mask=base + at < size * D)
            for base in range(0, size, BLOCK):
                tl.store(bias_out_ptr + start + base + at, zeros, mask=base + at < size)
