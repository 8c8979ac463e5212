"""Backward: the gradients of the logits, and from them those of the features and of the rows.

The logits are computed again, because the rows have to be read for the features in any case. If a group is one tile,
the same kernel also computes the gradients of its rows. The rows of larger groups have a kernel of their own, a dense
product for each segment of their items; for it the gradients of the logits are stored: in two bfloat16 halves if the
operands are bfloat16, so that nothing is lost before the sums, else in float32 (the second half of a float16 would
often underflow). The gradients of rows on no path are zero; every program writes some of these zeros, which keeps the
memory busy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from arbormax.kernels.forward_triton import Operands, is_feature, load_tile, tile_logits
from arbormax.kernels.gpu import ceil_div, next_power_of_2
from arbormax.kernels.path_tree import PathTree
from arbormax.kernels.plan_triton import SEGMENT_FIELDS, TILE_FIELDS, Plan, part_index, segment_length

_CLEAR_PROGRAMS = 1024  # programs that write zeros, at least
_SEGMENT_PROGRAMS = 64  # programs, for each block of features, that share the segments
_GROUP_PROGRAMS = 128  # programs that add up the parts of one shared group


class RowGradients(NamedTuple):
    """The gradients of rows and bias: of all rows, or of those on the paths."""

    ends: Any  # (tiles,) where the rows of each tile end, for rows on the paths; None: all rows
    row_ids: Any  # (R,) out: which rows, for rows on the paths
    rows: Any  # (M, D) or (R, D) out
    bias: Any  # (M,) or (R,) out


class LogitGradients(NamedTuple):
    """The gradients of logits that are stored for `backward_rows`."""

    cells: Any  # (K,) where the cells of each level begin
    grads: Any  # (halves, B, cells) out; not `values`, which is an attribute of every tuple of Triton


class Parts(NamedTuple):
    """The gradients of shared groups, one part for each segment."""

    rows: Any  # (parts, largest group, D) out
    bias: Any  # (parts, largest group) out


class InnerNodes(NamedTuple):
    """The nodes with children, whose rows are cleared if no path visits them."""

    visited: Any  # (N,) whether the children of a node are on a path
    node: Any  # (P,)
    start: Any  # (P,) the first row of the children
    size: Any  # (P,)


def compute_features(
    grads: Tensor,
    operands: Operands,
    plan: Plan,
    stored: Tensor,
    logits: LogitGradients,
    features: Tensor,
    out: RowGradients,
    tree: PathTree,
    shape: dict[str, Any],
) -> None:
    """Compute the gradients of the logits, of the features per level, and of the rows of groups with one tile."""
    tiles, inner, programs, groups = len(plan.tiles) // TILE_FIELDS.value, None, 0, len(tree.inner)
    if plan.visited is not None:
        inner = InnerNodes(plan.visited, tree.inner, tree.inner_start, tree.inner_size)
        programs = min(groups, _CLEAR_PROGRAMS)
    sizes = (len(operands.h), tree.levels, tree.num_cells, tiles, groups)
    _backward_features[(max(tiles, programs),)](
        grads, *grads.stride(), operands, plan.only("order", "nodes", "tiles"), stored, logits, features, out, inner,
        *sizes, **shape,
    )  # fmt: skip


def compute_rows(
    h: Tensor,
    plan: Plan,
    logits: LogitGradients,
    parts: Parts,
    out: RowGradients,
    tree: PathTree,
    shape: dict[str, Any],
) -> None:
    """Compute the gradients of the rows of groups with several tiles."""
    segments = len(plan.segments) // SEGMENT_FIELDS.value
    if not segments:
        return
    blocks, widths = ceil_div(h.shape[1], shape["BLOCK_D"]), ceil_div(tree.max_width, shape["WIDTH"])
    _backward_rows[(min(segments, _SEGMENT_PROGRAMS), blocks, widths)](
        h, plan.only("order", "segments", "found"), logits, parts, out, len(h), tree.num_cells, tree.max_width, **shape
    )


def add_parts(features: Tensor, of_h: Tensor, plan: Plan, parts: Parts, out: RowGradients, tree: PathTree) -> None:
    """Add up the gradients of the features over the levels, and those of shared groups over the segments."""
    (items, width), groups = of_h.shape, len(plan.shared) // SEGMENT_FIELDS.value
    _add_parts[(items + groups * _GROUP_PROGRAMS,)](
        features, of_h, plan.only("order", "nodes", "shared", "found"), parts, out, items, tree.levels, tree.max_width,
        SEGMENT=segment_length(tree), PROGRAMS=_GROUP_PROGRAMS, D=width,
        BLOCK_D=min(1024, next_power_of_2(width)), num_warps=4,
    )  # fmt: skip


@triton.jit(do_not_specialize=["items", "grad_output", "grad_item", "grad_level", "tiles", "groups"])
def _backward_features(
    grads_ptr,  # (2, B, K) of any strides: often one number for all steps
    grad_output,
    grad_item,
    grad_level,
    operands,  # Operands
    plan,  # Plan
    stored_ptr,  # (2, B, K) from the forward pass
    logits,  # LogitGradients, written for groups with several tiles
    features_ptr,  # (K, B, D) out: the gradients of the features, each level's part
    out,  # RowGradients, written for groups with one tile
    inner,  # InnerNodes, or None if zeros were written before
    items,
    levels,
    cells,
    tiles,
    groups,
    LOGITS_D: tl.constexpr,  # features that are read together for the logits
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
    IS_WIDE: tl.constexpr,  # whether some group is wider than WIDTH
    DTYPE: tl.constexpr,
    FACTOR: tl.constexpr,
    PRECISION: tl.constexpr,
    CUT: tl.constexpr,
):
    IS_HALF: tl.constexpr = tl.bfloat16 == FACTOR
    # The last tile comes first, because the forward pass read it last.
    tile = tiles - 1 - tl.program_id(0)
    slot = plan.tiles + TILE_FIELDS * tile
    count = tl.load(slot + 1, mask=tile >= 0, other=0)
    if inner is not None:
        for group in range(tl.program_id(0), groups, tl.num_programs(0)):
            _clear_rows(inner, out, group, D)
    if count > 0:
        start, size, level, is_item, item, place = load_tile(slot, count, plan, items, TILE)
        grad_at = grads_ptr + item * grad_item + level * grad_level
        own_grad = tl.load(grad_at, mask=is_item, other=0.0)
        mean_grad = tl.load(grad_at + grad_output, mask=is_item, other=0.0)
        own_grad, mean_grad = own_grad.to(tl.float32), mean_grad.to(tl.float32)
        largest = tl.load(stored_ptr + item * levels + level, mask=is_item, other=0.0)
        rest = tl.load(stored_ptr + (items.to(tl.int64) + item) * levels + level, mask=is_item, other=0.0)
        is_only_tile = tl.load(slot + 6) > 0
        cell = tl.load(logits.cells + level)
        kept_ptr = logits.grads + item[:, None] * cells + cell
        half = items.to(tl.int64) * cells
        high = tl.zeros((TILE, WIDTH), dtype=FACTOR)
        low = tl.zeros((TILE, WIDTH), dtype=FACTOR)
        for base in range(0, size, WIDTH):
            column = base + tl.arange(0, WIDTH)
            is_row = column < size
            is_cell = is_item[:, None] & is_row[None, :]
            row = (start + column).to(tl.int64)
            z = tile_logits(operands, item, is_item, row, is_row, D, LOGITS_D, TILE, WIDTH, DTYPE, PRECISION, CUT)
            share = tl.exp((z - largest[:, None]) - rest[:, None])
            grad = (mean_grad / size)[:, None] - share * (own_grad + mean_grad)[:, None]
            grad += tl.where(column[None, :] == place[:, None], own_grad[:, None], 0.0)
            grad = tl.where(is_cell, grad, 0.0)
            high = grad.to(FACTOR)
            if IS_HALF:
                low = (grad - high.to(tl.float32)).to(FACTOR)
            if is_only_tile == 0:
                tl.store(kept_ptr + column[None, :], high, mask=is_cell)
                if IS_HALF:
                    tl.store(kept_ptr + half + column[None, :], low, mask=is_cell)
        goal = (start + tl.arange(0, WIDTH)).to(tl.int64)
        if IS_WIDE:
            tl.debug_barrier()
        elif is_only_tile:
            column = tl.arange(0, WIDTH)
            sums = tl.sum(high.to(tl.float32), 0)
            if IS_HALF:
                sums += tl.sum(low.to(tl.float32), 0)
            if out.ends is not None:
                goal = tl.load(out.ends + tile) - size + column
                tl.store(out.row_ids + goal, (start + column).to(tl.int64), mask=column < size)
            tl.store(out.bias + goal, sums, mask=column < size)
        out_ptr = features_ptr + (level.to(tl.int64) * items + item)[:, None] * D
        # Loops without branches, which the compiler can overlap.
        if IS_WIDE:
            for base in range(0, D, BLOCK_D):
                d = base + tl.arange(0, BLOCK_D)
                of_h = tl.zeros((TILE, BLOCK_D), dtype=tl.float32)
                for first in range(0, size, WIDTH):
                    column = first + tl.arange(0, WIDTH)
                    is_cell = is_item[:, None] & (column < size)[None, :]
                    high = tl.load(kept_ptr + column[None, :], mask=is_cell, other=0.0)
                    w = _load_rows(operands.rows, (start + column).to(tl.int64), column < size, d, D, BLOCK_D, FACTOR)
                    of_h = tl.dot(high, w, of_h, input_precision=PRECISION)
                    if IS_HALF:
                        low = tl.load(kept_ptr + half + column[None, :], mask=is_cell, other=0.0)
                        of_h = tl.dot(low, w, of_h, input_precision=PRECISION)
                tl.store(out_ptr + d[None, :], of_h, mask=is_item[:, None] & is_feature(d, D, BLOCK_D)[None, :])
        else:
            column = tl.arange(0, WIDTH)
            row = (start + column).to(tl.int64)
            for base in range(0, D, BLOCK_D):  # the last block comes first: it was read last and may be in the cache
                d = (D - 1) // BLOCK_D * BLOCK_D - base + tl.arange(0, BLOCK_D)
                w = _load_rows(operands.rows, row, column < size, d, D, BLOCK_D, FACTOR)
                of_h = tl.dot(high, w, input_precision=PRECISION)
                if IS_HALF:
                    of_h = tl.dot(low, w, of_h, input_precision=PRECISION)
                tl.store(out_ptr + d[None, :], of_h, mask=is_item[:, None] & is_feature(d, D, BLOCK_D)[None, :])
            if is_only_tile:
                high_t = tl.trans(high)
                low_t = tl.trans(low)
                for base in range(0, D, BLOCK_D):
                    d = base + tl.arange(0, BLOCK_D)
                    h = _load_rows(operands.h, item, is_item, d, D, BLOCK_D, FACTOR)
                    of_rows = tl.dot(high_t, h, input_precision=PRECISION)
                    if IS_HALF:
                        of_rows = tl.dot(low_t, h, of_rows, input_precision=PRECISION)
                    mask = (column < size)[:, None] & is_feature(d, D, BLOCK_D)[None, :]
                    goal_ptr = out.rows + goal[:, None] * D + d[None, :]
                    tl.store(goal_ptr, of_rows, mask=mask, eviction_policy="evict_first")


@triton.jit
def _clear_rows(inner, out, group, D: tl.constexpr):
    """Write zeros for the children of a node if they are on no path; an only child never is."""
    BLOCK: tl.constexpr = 4096
    at = tl.arange(0, BLOCK)
    zeros = tl.zeros((BLOCK,), dtype=out.rows.dtype.element_ty)
    size = tl.load(inner.size + group)
    if (tl.load(inner.visited + tl.load(inner.node + group)) == 0) | (size == 1):
        start = tl.load(inner.start + group)
        for base in range(0, size * D, BLOCK):
            goal = out.rows + start * D + base + at
            tl.store(goal, zeros, mask=base + at < size * D, eviction_policy="evict_first")
        for base in range(0, size, BLOCK):
            tl.store(out.bias + start + base + at, zeros, mask=base + at < size)


@triton.jit(do_not_specialize=["items", "widest"])
def _backward_rows(
    h_ptr,
    plan,  # Plan
    logits,  # LogitGradients
    parts,  # Parts, written for shared groups
    out,  # RowGradients, written for other groups
    items,
    cells,
    widest,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
    FACTOR: tl.constexpr,
    PRECISION: tl.constexpr,
):
    IS_HALF: tl.constexpr = tl.bfloat16 == FACTOR
    for segment in range(tl.program_id(0), tl.load(plan.found), tl.num_programs(0)):
        slot = plan.segments + SEGMENT_FIELDS * segment
        begin = tl.load(slot)
        end = tl.load(slot + 1)
        start = tl.load(slot + 2)
        size = tl.load(slot + 3)
        cell = tl.multiple_of(tl.load(logits.cells + tl.load(slot + 4)), 16)
        where = tl.load(slot + 5)
        half = items.to(tl.int64) * cells
        d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
        for base in range(tl.program_id(2) * WIDTH, size, tl.num_programs(2) * WIDTH):
            column = base + tl.arange(0, WIDTH)
            is_row = column < size
            of_rows = tl.zeros((WIDTH, BLOCK_D), dtype=tl.float32)
            sums = tl.zeros((WIDTH, TILE), dtype=tl.float32)
            for first in range(begin, end, TILE):
                at = first + tl.arange(0, TILE)
                is_item = at < end
                item = tl.load(plan.order + at, mask=is_item, other=0).to(tl.int64)
                h = _load_rows(h_ptr, item, is_item, d, D, BLOCK_D, FACTOR)
                # Cells beyond the group hold other values; a mask in the load would split it into single reads.
                kept_ptr = logits.grads + item[None, :] * cells + cell + column[:, None]
                high = tl.where(is_row[:, None], tl.load(kept_ptr, mask=is_item[None, :], other=0.0), 0.0)
                sums += high.to(tl.float32)
                if IS_HALF:
                    of_rows = tl.dot(high, h, of_rows, input_precision=PRECISION)
                    low = tl.load(kept_ptr + half, mask=is_item[None, :], other=0.0)
                    low = tl.where(is_row[:, None], low, 0.0)
                    of_rows = tl.dot(low, h, of_rows, input_precision=PRECISION)
                    sums += low.to(tl.float32)
                else:  # added outside the tensor cores, which truncate what lies below the sum that they add to
                    of_rows += tl.where(is_row[:, None], tl.dot(high, h, input_precision=PRECISION), 0.0)
            of_bias = tl.sum(sums, 1)
            mask = is_row[:, None] & is_feature(d, D, BLOCK_D)[None, :]
            if where < 0:
                goal = (-1 - where).to(tl.int64) * widest + column
                tl.store(parts.rows + goal[:, None] * D + d[None, :], of_rows, mask=mask)
                tl.store(parts.bias + goal, of_bias, mask=is_row & (tl.program_id(1) == 0))
            else:
                goal = _first_goal(start, size, where, out) + column
                tl.store(out.rows + goal[:, None] * D + d[None, :], of_rows, mask=mask)
                if tl.program_id(1) == 0:
                    tl.store(out.bias + goal, of_bias, mask=is_row)
                    if out.ends is not None:
                        tl.store(out.row_ids + goal, (start + column).to(tl.int64), mask=is_row)


@triton.jit(do_not_specialize=["items", "levels", "widest"])
def _add_parts(
    features_ptr,  # (K, B, D), of which only the steps of each item were written
    features_out_ptr,  # (B, D) out
    plan,  # Plan
    parts,  # Parts; those of a group are in the order of its items, so that two runs give the same bits
    out,  # RowGradients
    items,
    levels,
    widest,
    SEGMENT: tl.constexpr,
    PROGRAMS: tl.constexpr,  # programs that share a group
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One program for each item, then PROGRAMS for each group that may have several segments."""
    if tl.program_id(0) < items:
        _add_levels(features_ptr, plan, features_out_ptr, items, levels, D, BLOCK_D)
    else:
        group = (tl.program_id(0) - items) // PROGRAMS
        if group < tl.load(plan.found + 1):
            slot = plan.shared + SEGMENT_FIELDS * group
            begin = tl.load(slot)
            end = tl.load(slot + 1)
            start = tl.load(slot + 2)
            size = tl.load(slot + 3)
            level = tl.load(slot + 4)
            goal = _first_goal(start, size, tl.load(slot + 5), out)
            for column in range((tl.program_id(0) - items) % PROGRAMS, size, PROGRAMS):
                for base in range(0, D, BLOCK_D):
                    d = base + tl.arange(0, BLOCK_D)
                    of_rows = tl.zeros((BLOCK_D,), dtype=tl.float32)
                    for at in range(begin, end, SEGMENT):
                        part = part_index(at, begin, level, items, SEGMENT).to(tl.int64) * widest + column
                        of_rows += tl.load(parts.rows + part * D + d, mask=d < D, other=0.0)
                    tl.store(out.rows + (goal + column) * D + d, of_rows, mask=d < D)
                total = 0.0
                for at in range(begin, end, SEGMENT):
                    part = part_index(at, begin, level, items, SEGMENT).to(tl.int64) * widest + column
                    total += tl.load(parts.bias + part)
                tl.store(out.bias + goal + column, total)
                if out.ends is not None:
                    tl.store(out.row_ids + goal + column, (start + column).to(tl.int64))


@triton.jit
def _add_levels(features_ptr, plan, out_ptr, items, levels, D: tl.constexpr, BLOCK_D: tl.constexpr):
    at = tl.program_id(0)
    item = tl.load(plan.order + at).to(tl.int64)
    for base in range(0, D, BLOCK_D):
        d = base + tl.arange(0, BLOCK_D)
        of_h = tl.zeros((BLOCK_D,), dtype=tl.float32)
        row = item
        for level in range(levels):
            count = tl.where(tl.load(plan.nodes + level * items + at) > 0, D, 0)
            of_h += tl.load(features_ptr + row * D + d, mask=d < count, other=0.0)
            row += items
        tl.store(out_ptr + item * D + d, of_h, mask=d < D)


@triton.jit
def _first_goal(start, size, tile, out):
    """Return where the gradients of a group's rows begin."""
    goal = start.to(tl.int64)
    if out.ends is not None:
        goal = tl.load(out.ends + tile) - size
    return goal


@triton.jit
def _load_rows(table_ptr, row, is_row, d, D: tl.constexpr, BLOCK_D: tl.constexpr, DTYPE: tl.constexpr):
    """Return some columns of some rows of a table."""
    mask = is_row[:, None] & is_feature(d, D, BLOCK_D)[None, :]
    return tl.load(table_ptr + row[:, None] * D + d[None, :], mask=mask, other=0.0).to(DTYPE)
