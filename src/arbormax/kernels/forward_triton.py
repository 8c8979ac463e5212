"""Forward: the softmaxes of a tile, a few items that share a sibling group whose rows are read once for all of them.

Of the logits, only the largest and the log of the sum of exponentials relative to it are stored for the backward pass.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from arbormax.kernels.plan_triton import TILE_FIELDS, Plan


class Operands(NamedTuple):
    """What the logits are computed from: `h @ rows.T + bias + offset`."""

    h: Any  # (B, D)
    rows: Any  # (M, D)
    bias: Any  # (M,) or None
    offset: Any  # (M,) or None

    def contiguous(self) -> "Operands":
        return Operands(*(None if tensor is None else tensor.contiguous() for tensor in self))


class Softmaxes(NamedTuple):
    """The results of the forward pass."""

    logp: Any  # (B, K) the log-probability of each step's node given its parent
    mean: Any  # (B, K) the mean log-probability of its sibling group
    stored: Any  # (2, B, K) the largest logit of the group, and the log of the sum of exponentials relative to it


def compute_softmaxes(operands: Operands, plan: Plan, out: Softmaxes, shape: dict[str, Any]) -> None:
    """Compute the softmaxes of all tiles of a plan."""
    items, levels = out.logp.shape
    tiles = plan.only("order", "nodes", "tiles")
    _forward[(len(plan.tiles) // TILE_FIELDS.value,)](operands, tiles, out, items, levels, **shape)


def sum_losses(logp: Tensor, target: Tensor, loss: Tensor, factors: Tensor, ignored: int, is_mean: bool) -> None:
    """Write the sum or mean of the losses of all items that are not ignored, and the factors of its gradients."""
    _sum_losses[(1,)](logp, target, loss, factors, *logp.shape, ignored, IS_MEAN=is_mean, BLOCK=4096, num_warps=8)


@triton.jit
def is_feature(d, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Return which columns exist; without a remainder the compiler needs no mask."""
    return (d < D) | (D % BLOCK_D == 0)


@triton.jit
def load_tile(slot, count, plan, items, TILE: tl.constexpr):
    """Return a tile's first row, rows and level, its items, and the place of each item's node in the group."""
    at = tl.load(slot) + tl.arange(0, TILE)
    start = tl.load(slot + 2)
    size = tl.load(slot + 3)
    level = tl.load(slot + 4)
    is_item = tl.arange(0, TILE) < count
    item = tl.load(plan.order + at, mask=is_item, other=0).to(tl.int64)
    place = tl.load(plan.nodes + level * items + at, mask=is_item, other=0) - 1 - start
    return start, size, level, is_item, item, place


@triton.jit
def tile_logits(
    operands,
    item,
    is_item,
    row,
    is_row,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
    DTYPE: tl.constexpr,
    PRECISION: tl.constexpr,
    CUT: tl.constexpr,
):
    """Return (TILE, WIDTH) float32 logits, minus infinity where there is no row.

    Tensor cores truncate what lies below the sum that they add to, so every addition makes the sum smaller. Therefore
    each of their sums covers a few features, and these sums are added outside (the mask keeps the compiler from
    joining the two) with compensated rounding. `CUT` is the mean share that they truncate from such a sum.
    """
    FEW: tl.constexpr = min(BLOCK_D, 16 if tl.float32 == DTYPE else 32)
    logits = tl.zeros((TILE, WIDTH), dtype=tl.float32)
    lost = tl.zeros((TILE, WIDTH), dtype=tl.float32)
    for base in range(0, D, BLOCK_D):
        part = tl.zeros((TILE, WIDTH), dtype=tl.float32)
        for few in tl.static_range(0, BLOCK_D, FEW):
            d = base + few + tl.arange(0, FEW)
            is_d = is_feature(d, D, BLOCK_D)
            h = tl.load(operands.h + item[:, None] * D + d[None, :], mask=is_item[:, None] & is_d[None, :], other=0.0)
            w = tl.load(
                operands.rows + row[None, :] * D + d[:, None],
                mask=is_row[None, :] & is_d[:, None],
                other=0.0,
                eviction_policy="evict_last",  # the backward pass reads it again
            )
            product = tl.dot(h.to(DTYPE), w.to(DTYPE), input_precision=PRECISION)
            part += tl.where(is_row[None, :], product, 0.0)
        part -= lost
        total = logits + part
        lost = (total - logits) - part
        logits = total
    more = CUT * logits - lost
    if operands.bias is not None:
        more += tl.load(operands.bias + row, mask=is_row, other=0.0).to(tl.float32)[None, :]
    if operands.offset is not None:
        more += tl.load(operands.offset + row, mask=is_row, other=0.0).to(tl.float32)[None, :]
    return tl.where(is_row[None, :], logits + more, -float("inf"))


@triton.jit
def _subtract(a, b):
    """Return a difference and its rounding error."""
    difference = a - b
    back = difference + b
    return difference, (a - back) + ((back - difference) - b)


@triton.jit(do_not_specialize=["items"])
def _forward(
    operands,  # Operands
    plan,  # Plan
    out,  # Softmaxes
    items,
    levels,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
    IS_WIDE: tl.constexpr,  # whether some group is wider than WIDTH
    DTYPE: tl.constexpr,
    PRECISION: tl.constexpr,
    CUT: tl.constexpr,
):
    slot = plan.tiles + TILE_FIELDS * tl.program_id(0)
    count = tl.load(slot + 1)
    if count > 0:
        start, size, level, is_item, item, place = load_tile(slot, count, plan, items, TILE)
        largest = tl.full((TILE,), -float("inf"), dtype=tl.float32)
        total = tl.zeros((TILE,), dtype=tl.float32)
        own = tl.zeros((TILE,), dtype=tl.float32)
        sums = tl.zeros((TILE,), dtype=tl.float32)
        for base in range(0, size, WIDTH):
            column = base + tl.arange(0, WIDTH)
            is_row = column < size
            row = (start + column).to(tl.int64)
            logits = tile_logits(operands, item, is_item, row, is_row, D, BLOCK_D, TILE, WIDTH, DTYPE, PRECISION, CUT)
            higher = tl.maximum(largest, tl.max(logits, 1))
            below = higher
            if IS_WIDE:  # all logits of a part may be minus infinity
                below = tl.where(higher == -float("inf"), 0.0, higher)
            total = total * tl.exp(largest - below) + tl.sum(tl.exp(logits - below[:, None]), 1)
            largest = higher
            own += tl.sum(tl.where(column[None, :] == place[:, None], logits, 0.0), 1)
            sums += tl.sum(tl.where(is_row[None, :], logits, 0.0), 1)
        rest = tl.log(total)
        at = item * levels + level
        below, lost = _subtract(own, largest)
        logp, lost_too = _subtract(below, rest)
        logp += tl.where(own > -float("inf"), lost + lost_too, 0.0)
        tl.store(out.logp + at, logp, mask=is_item)
        tl.store(out.mean + at, (sums / size - largest) - rest, mask=is_item)
        tl.store(out.stored + at, largest, mask=is_item)
        tl.store(out.stored + items.to(tl.int64) * levels + at, rest, mask=is_item)


@triton.jit(do_not_specialize=["items", "levels", "ignored"])
def _sum_losses(
    logp_ptr,  # (B, K)
    target_ptr,  # (B,)
    loss_ptr,  # out: one number
    factor_ptr,  # out: (2,) the factors of the gradients of the log-probabilities and of the means, which is 0
    items,
    levels,
    ignored,
    IS_MEAN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for base in range(0, items * levels, BLOCK):
        at = base + tl.arange(0, BLOCK)
        total += tl.load(logp_ptr + at, mask=at < items * levels, other=0.0)
    loss = -tl.sum(total, 0)
    factor = -1.0
    if IS_MEAN:
        count = tl.zeros((BLOCK,), dtype=tl.int32)
        for base in range(0, items, BLOCK):
            at = base + tl.arange(0, BLOCK)
            target = tl.load(target_ptr + at, mask=at < items, other=ignored)
            count += (target != ignored).to(tl.int32)
        counted = tl.sum(count, 0).to(tl.float32)
        loss = loss / counted
        factor = factor / counted
    tl.store(loss_ptr, loss)
    tl.store(factor_ptr, factor)
    tl.store(factor_ptr + 1, 0.0)
