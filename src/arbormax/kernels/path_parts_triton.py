"""What was made in parts is added up: of the features' gradients each level's, of a shared group's rows each segment's.

The parts of a group stand in the order of its items, so that two runs give the same bits.
"""

import triton
import triton.language as tl

from arbormax.kernels.path_plan_triton import part_of
from arbormax.kernels.path_rows_triton import goal_of


@triton.jit(do_not_specialize=["items", "levels", "widest"])
def add_parts(
    features_ptr,  # (K, B, D), of which only those of an item's own steps were written
    order_ptr,
    own_ptr,
    features_out_ptr,  # (B, D) out
    shared_ptr,
    found_ptr,
    ends_ptr,
    rows_ptr,
    weight_part_ptr,
    bias_part_ptr,
    weight_out_ptr,
    bias_out_ptr,
    items,
    levels,
    widest,
    SEGMENT_FIELDS: tl.constexpr,
    SEGMENT: tl.constexpr,
    PROGRAMS: tl.constexpr,  # that share a group
    IS_SPARSE: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """A program for each item, then some for each group of several segments that there may be."""
    if tl.program_id(0) < items:
        _add_levels(features_ptr, order_ptr, own_ptr, features_out_ptr, items, levels, D, BLOCK_D)
    else:
        group = (tl.program_id(0) - items) // PROGRAMS
        if group < tl.load(found_ptr + 1):
            slot = shared_ptr + SEGMENT_FIELDS * group
            begin = tl.load(slot)
            end = tl.load(slot + 1)
            start = tl.load(slot + 2)
            size = tl.load(slot + 3)
            level = tl.load(slot + 4)
            goal = goal_of(start, size, tl.load(slot + 5), ends_ptr, IS_SPARSE)
            for column in range((tl.program_id(0) - items) % PROGRAMS, size, PROGRAMS):
                for base in range(0, D, BLOCK_D):
                    d = base + tl.arange(0, BLOCK_D)
                    out = tl.zeros((BLOCK_D,), dtype=tl.float32)
                    for at in range(begin, end, SEGMENT):
                        part = part_of(at, begin, level, items, SEGMENT).to(tl.int64) * widest + column
                        out += tl.load(weight_part_ptr + part * D + d, mask=d < D, other=0.0)
                    tl.store(weight_out_ptr + (goal + column) * D + d, out, mask=d < D)
                total = 0.0
                for at in range(begin, end, SEGMENT):
                    part = part_of(at, begin, level, items, SEGMENT).to(tl.int64) * widest + column
                    total += tl.load(bias_part_ptr + part)
                tl.store(bias_out_ptr + goal + column, total)
                if IS_SPARSE:
                    tl.store(rows_ptr + goal + column, (start + column).to(tl.int64))


@triton.jit
def _add_levels(features_ptr, order_ptr, own_ptr, out_ptr, items, levels, D: tl.constexpr, BLOCK_D: tl.constexpr):
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
