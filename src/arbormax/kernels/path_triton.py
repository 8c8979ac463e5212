"""The softmaxes on the paths of a batch in four launches: plan, forward, and two on the way back.

The rows of a sibling group are read once for all items that share it, no logits reach memory, and the host never waits
for the device but to learn how many rows a sparse gradient has. The root's group, which the whole batch shares, gets
its gradient by a dense product.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from arbormax.kernels.path_backward_triton import backward_features, backward_rows
from arbormax.kernels.path_forward_triton import forward
from arbormax.kernels.path_plan_triton import FIELDS, plan
from arbormax.kernels.path_torch import Gradients
from arbormax.kernels.path_tree import PathTree

TILE = 16  # items of a tile
_WIDTH = 128  # rows of a sibling group that are looked at together
_BLOCK = 1024  # items that the plan looks at together
_HALF = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
plan_type = torch.int32


def plan_size(items: int, tree: PathTree) -> int:
    """The numbers in the plan: order, own nodes, tiles and segments."""
    tiles, segments = _bounds(items, tree)
    return items * (1 + len(tree.widths)) + FIELDS * (sum(tiles) + sum(segments))


def log_probs(
    h: Tensor, rows: Tensor, bias: Tensor | None, offset: Tensor | None, node: Tensor, tree: PathTree
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `path_torch.log_probs`; its log Σ exp is that of the logits themselves."""
    items, levels = len(h), len(tree.widths)
    logp, mean, log_total = (torch.zeros((items, levels), dtype=torch.float32, device=h.device) for _ in range(3))
    plan_ = torch.zeros(plan_size(items, tree), dtype=plan_type, device=h.device)
    if items:
        h, rows = h.contiguous(), rows.contiguous()
        order, own, tiles, segments = _parts(plan_, items, tree)
        place, sorted_ = tree.first.index_select(0, node).sort()
        order.copy_(sorted_)
        plan[(levels,)](
            sorted_, place, node, tree.parent, tree.depth, tree.group_start, tree.group_size, tree.first, tree.after,
            tree.counts, own, tiles, segments, items, levels,
            FIELDS=FIELDS, TILE=TILE, BLOCK=_BLOCK, num_warps=8,
        )  # fmt: skip
        forward[(len(tiles) // FIELDS,)](
            h, rows, bias, offset, order, own, tiles, logp, mean, log_total, items, levels,
            FIELDS=FIELDS, **_shape(h, rows, bias, offset, tree), num_warps=4, num_stages=4,
        )  # fmt: skip
    return logp, mean, log_total, plan_


def gradients(
    own_grad: Tensor,
    mean_grad: Tensor,
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    offset: Tensor | None,
    log_total: Tensor,
    plan_: Tensor,
    tree: PathTree,
    sparse: bool,
) -> Gradients:
    """As `path_torch.gradients`."""
    (items, levels), width = log_total.shape, rows.shape[1]
    h, rows = h.contiguous(), rows.contiguous()
    order, own, tiles, segments = _parts(plan_, items, tree)
    shape = _shape(h, rows, bias, offset, tree)
    is_half = shape["DTYPE"] is not tl.float32
    cells = sum(tree.widths)
    kept = torch.zeros(
        (2 if is_half else 1, items, cells), dtype=h.dtype if is_half else torch.float32, device=h.device
    )
    of_levels = torch.zeros((levels, items, width), dtype=torch.float32, device=h.device)
    if items:
        backward_features[(len(tiles) // FIELDS,)](
            own_grad.contiguous(), mean_grad.contiguous(), h, rows, bias, offset, order, own, tiles, log_total,
            tree.cells, kept, of_levels, items, levels, cells,
            FIELDS=FIELDS, IS_WIDE=max(tree.widths) > shape["WIDTH"], IS_HALF=is_half, **shape,
            num_warps=4, num_stages=3,
        )  # fmt: skip
    top = tree.widths[0] if tree.widths[0] > 1 and items else 0  # rows of the root's group
    at = ends = None
    if sparse:
        ends = segments.view(-1, FIELDS)[:, 3].cumsum(0).add_(top)
        count = int(ends[-1]) if len(ends) else top
        at = torch.arange(count, device=h.device)
        of_rows, of_bias = rows.new_empty(count, width), rows.new_empty(count)
    else:
        of_rows, of_bias = torch.zeros_like(rows), rows.new_zeros(len(rows))
    if top:
        coefficients = kept.view(-1, cells)[:, :top]
        features = torch.cat([h, h]) if is_half else h.to(torch.float32)
        if of_rows.dtype is features.dtype:
            torch.mm(coefficients.t(), features, out=of_rows[:top])
        else:
            of_rows[:top] = coefficients.t() @ features
        of_bias[:top] = coefficients.sum(0, dtype=torch.float32)
    if items and len(segments):
        del shape["HAS_BIAS"], shape["HAS_OFFSET"]
        shape["BLOCK_D"] = max(16, min(128, triton.next_power_of_2(width)))
        backward_rows[(len(segments) // FIELDS, triton.cdiv(width, shape["BLOCK_D"]))](
            h, order, segments, tree.cells, kept, ends, at, of_rows, of_bias, items, cells,
            FIELDS=FIELDS, IS_SPARSE=sparse, IS_HALF=is_half, **shape, num_warps=4, num_stages=2,
        )  # fmt: skip
    return Gradients(of_levels.sum(0).to(h.dtype), at, of_rows, of_bias)


def _bounds(items: int, tree: PathTree) -> tuple[list[int], list[int]]:
    """At most so many tiles and segments on each level; the root's own segment is not among them."""
    tiles = [min(items, groups + items // TILE) if groups else 0 for groups in tree.groups]
    return tiles, [0, *(min(items, groups) for groups in tree.groups[1:])]


def _parts(plan_: Tensor, items: int, tree: PathTree) -> tuple[Tensor, ...]:
    tiles, segments = _bounds(items, tree)
    sizes = [items, items * len(tree.widths), FIELDS * sum(tiles), FIELDS * sum(segments)]
    return torch.split(plan_, sizes)


def _shape(h: Tensor, rows: Tensor, bias: Tensor | None, offset: Tensor | None, tree: PathTree) -> dict[str, Any]:
    width = h.shape[1]
    dtype = _HALF.get(h.dtype, tl.float32) if h.dtype is rows.dtype else tl.float32
    return {
        "D": width,
        "BLOCK_D": max(16, min(64, triton.next_power_of_2(width))),
        "TILE": TILE,
        "WIDTH": max(16, min(_WIDTH, triton.next_power_of_2(max(tree.widths)))),
        "HAS_BIAS": bias is not None,
        "HAS_OFFSET": offset is not None,
        "DTYPE": dtype,
        "PRECISION": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3",
    }
