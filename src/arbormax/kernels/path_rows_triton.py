"""The gradients of the rows of groups that several tiles share: a dense product for each segment of their items.

Those of a group that is one segment are written where they belong, others as parts, which `add_parts` adds up.
"""

import triton
import triton.language as tl

from arbormax.kernels.path_forward_triton import is_feature


@triton.jit(do_not_specialize=["items", "widest"])
def backward_rows(
    h_ptr,
    order_ptr,
    segment_ptr,
    found_ptr,
    cells_ptr,
    grad_ptr,
    ends_ptr,
    rows_ptr,
    weight_out_ptr,
    bias_out_ptr,
    weight_part_ptr,  # (parts, widest group, D) out
    bias_part_ptr,
    items,
    cells,
    widest,
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
    for segment in range(tl.program_id(0), tl.load(found_ptr), tl.num_programs(0)):
        slot = segment_ptr + SEGMENT_FIELDS * segment
        begin = tl.load(slot)
        end = tl.load(slot + 1)
        start = tl.load(slot + 2)
        size = tl.load(slot + 3)
        cell = tl.multiple_of(tl.load(cells_ptr + tl.load(slot + 4)), 16)
        where = tl.load(slot + 5)
        half = items.to(tl.int64) * cells
        d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
        for base in range(tl.program_id(2) * WIDTH, size, tl.num_programs(2) * WIDTH):
            column = base + tl.arange(0, WIDTH)
            is_row = column < size
            out = tl.zeros((WIDTH, BLOCK_D), dtype=tl.float32)
            sums = tl.zeros((WIDTH, TILE), dtype=tl.float32)
            for first in range(begin, end, TILE):
                at = first + tl.arange(0, TILE)
                is_item = at < end
                item = tl.load(order_ptr + at, mask=is_item, other=0).to(tl.int64)
                h = rows_of(h_ptr, item, is_item, d, D, BLOCK_D, FACTOR)
                # beyond the group stands something else; to ask first would be to read one at a time
                kept_ptr = grad_ptr + item[None, :] * cells + cell + column[:, None]
                high = tl.where(is_row[:, None], tl.load(kept_ptr, mask=is_item[None, :], other=0.0), 0.0)
                sums += high.to(tl.float32)
                if IS_HALF:
                    out = tl.dot(high, h, out, input_precision=PRECISION)
                    low = tl.load(kept_ptr + half, mask=is_item[None, :], other=0.0)
                    low = tl.where(is_row[:, None], low, 0.0)
                    out = tl.dot(low, h, out, input_precision=PRECISION)
                    sums += low.to(tl.float32)
                else:  # a sum of its own, added outside: tensor cores cut off what is below the sum that they add to
                    out += tl.where(is_row[:, None], tl.dot(high, h, input_precision=PRECISION), 0.0)
            of_bias = tl.sum(sums, 1)
            mask = is_row[:, None] & is_feature(d, D, BLOCK_D)[None, :]
            if where < 0:
                goal = (-1 - where).to(tl.int64) * widest + column
                tl.store(weight_part_ptr + goal[:, None] * D + d[None, :], out, mask=mask)
                tl.store(bias_part_ptr + goal, of_bias, mask=is_row & (tl.program_id(1) == 0))
            else:
                goal = goal_of(start, size, where, ends_ptr, IS_SPARSE) + column
                tl.store(weight_out_ptr + goal[:, None] * D + d[None, :], out, mask=mask)
                if tl.program_id(1) == 0:
                    tl.store(bias_out_ptr + goal, of_bias, mask=is_row)
                    if IS_SPARSE:
                        tl.store(rows_ptr + goal, (start + column).to(tl.int64), mask=is_row)


@triton.jit
def goal_of(start, size, tile, ends_ptr, IS_SPARSE: tl.constexpr):
    """Where the gradients of a group's rows begin."""
    goal = start.to(tl.int64)
    if IS_SPARSE:
        goal = tl.load(ends_ptr + tile) - size
    return goal


@triton.jit
def rows_of(table_ptr, row, is_row, d, D: tl.constexpr, BLOCK_D: tl.constexpr, DTYPE: tl.constexpr):
    """Some rows of a table, and of these some columns."""
    mask = is_row[:, None] & is_feature(d, D, BLOCK_D)[None, :]
    return tl.load(table_ptr + row[:, None] * D + d[None, :], mask=mask, other=0.0).to(DTYPE)
