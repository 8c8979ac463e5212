"""The gradients of the rows of groups that several tiles share."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["items"])
def backward_rows(
    h_ptr,
    order_ptr,
    segment_ptr,
    segments_ptr,
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
    FACTOR: tl.constexpr,
    IS_HALF: tl.constexpr,
    PRECISION: tl.constexpr,
):
    for segment in range(tl.program_id(0), tl.load(segments_ptr), tl.num_programs(0)):
        slot = segment_ptr + SEGMENT_FIELDS * segment
        begin = tl.load(slot)
        end = tl.load(slot + 1)
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
                h = rows_of(h_ptr, item, is_item, d, D, FACTOR)
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


@triton.jit
def rows_of(table_ptr, row, is_row, d, D: tl.constexpr, DTYPE: tl.constexpr):
    """Some rows of a table, and of these some columns."""
    mask = is_row[:, None] & (d < D)[None, :]
    return tl.load(table_ptr + row[:, None] * D + d[None, :], mask=mask, other=0.0).to(DTYPE)
