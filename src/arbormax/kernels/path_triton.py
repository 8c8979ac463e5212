"""The softmaxes on the paths of a batch in a handful of launches: a plan, forward, and up to three on the way back.

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

from arbormax.kernels.path_backward_triton import backward_features, backward_rows, clear_untouched
from arbormax.kernels.path_forward_triton import forward
from arbormax.kernels.path_plan_triton import SEGMENT_FIELDS, TILE_FIELDS, plan
from arbormax.kernels.path_torch import Gradients
from arbormax.kernels.path_tree import PathTree

TILE = 16  # items of a tile
_WIDTH = 128  # rows of a sibling group that are looked at together
_BLOCK = 4096  # items that the plan looks at together
_CLEARED = 32  # rows of a sibling group, about, from which on zeros are written group by group
FORWARD: dict[str, Any] = {"num_warps": 4, "num_stages": 4}
FEATURES: dict[str, Any] = {"num_warps": 4, "num_stages": 3}
ROWS: dict[str, Any] = {"num_warps": 4, "num_stages": 3}
BLOCK_D = 64  # features that are looked at together
_HALF = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
plan_type = torch.int32


def kept_shapes(items: int, tree: PathTree, sparse: bool, cells: int) -> tuple[tuple[int, ...], int]:  # noqa: ARG001
    """Of what `log_probs` keeps: log Σ exp of the logits of every step, and a plan.

    The plan is order, own nodes, tiles, segments, and four nodes in each of the rest.
    """
    return (items, len(tree.widths)), sum(_sizes(items, tree, sparse))


def log_probs(
    h: Tensor, rows: Tensor, bias: Tensor | None, offset: Tensor | None, node: Tensor, tree: PathTree, sparse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `path_torch.log_probs`, but that it keeps the log Σ exp of the logits of every step."""
    items, levels = len(h), len(tree.widths)
    logp, mean, log_total = (torch.empty((items, levels), dtype=torch.float32, device=h.device) for _ in range(3))
    sizes = _sizes(items, tree, sparse)
    plan_ = torch.zeros(sum(sizes), dtype=plan_type, device=h.device)
    if items:
        h, rows = h.contiguous(), rows.contiguous()
        order, own, tiles, segments, touched = torch.split(plan_, sizes)
        place, sorted_ = tree.first.index_select(0, node).sort()
        shape = _shape(h, rows, bias, offset, tree)
        plan[(levels,)](
            sorted_, place, node, tree.parent, tree.depth, tree.group_start, tree.group_size, tree.first, tree.after,
            tree.counts, order, own, tiles, segments, touched.view(torch.int8), logp, mean, log_total, items, levels,
            TILE_FIELDS=TILE_FIELDS, SEGMENT_FIELDS=SEGMENT_FIELDS, TILE=TILE,
            BLOCK=min(_BLOCK, triton.next_power_of_2(items)), MERGES=_merges(tree), TOUCHES=len(touched) > 0,
            num_warps=16,
        )  # fmt: skip
        forward[(len(tiles) // TILE_FIELDS,)](
            h, rows, bias, offset, order, own, tiles, logp, mean, log_total, items, levels,
            TILE_FIELDS=TILE_FIELDS, **shape, **FORWARD,
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
    order, own, tiles, segments, touched = torch.split(plan_, _sizes(items, tree, sparse))
    shape = _shape(h, rows, bias, offset, tree)
    is_half, cells = shape["DTYPE"] is not tl.float32, sum(tree.widths)
    top = tree.widths[0] if tree.widths[0] > 1 and items else 0  # rows of the root's group
    at = ends = None
    if sparse:
        ends = tiles.view(-1, TILE_FIELDS)[:, 5].cumsum(0).add_(top)
        count = int(ends[-1]) if len(ends) else top
        at = torch.arange(count, device=h.device)
        of_rows, of_bias = rows.new_empty(count, width), rows.new_empty(count)
    elif len(touched) and items:
        of_rows, of_bias = torch.empty_like(rows), rows.new_empty(len(rows))
        clear_untouched[(len(tree.inner),)](
            touched.view(torch.int8), tree.inner, tree.inner_start, tree.inner_size, of_rows, of_bias,
            D=width, BLOCK=4096, num_warps=8,
        )  # fmt: skip
    else:
        of_rows, of_bias = torch.zeros_like(rows), rows.new_zeros(len(rows))
    kept_type = h.dtype if is_half else torch.float32
    kept = torch.zeros((1 + is_half, items, cells), dtype=kept_type, device=h.device)
    of_levels = torch.zeros((levels, items, width), dtype=torch.float32, device=h.device)
    if items:
        backward_features[(len(tiles) // TILE_FIELDS,)](
            own_grad.contiguous(), mean_grad.contiguous(), h, rows, bias, offset, order, own, tiles, log_total,
            tree.cells, kept, of_levels, ends, at, of_rows, of_bias, items, levels, cells,
            TILE_FIELDS=TILE_FIELDS, IS_WIDE=not _merges(tree), IS_SPARSE=sparse, IS_HALF=is_half, **shape,
            **FEATURES,
        )  # fmt: skip
    if items and len(segments):
        del shape["HAS_BIAS"], shape["HAS_OFFSET"]
        backward_rows[(len(segments) // SEGMENT_FIELDS, triton.cdiv(width, shape["BLOCK_D"]))](
            h, order, segments, tree.cells, kept, ends, at, of_rows, of_bias, items, cells,
            SEGMENT_FIELDS=SEGMENT_FIELDS, IS_SPARSE=sparse, IS_HALF=is_half, **shape, **ROWS,
        )  # fmt: skip
    if top:
        coefficients = kept.view(-1, cells)[:, :top]
        features = torch.cat([h, h]) if is_half else h.to(torch.float32)
        if of_rows.dtype is features.dtype:
            torch.mm(coefficients.t(), features, out=of_rows[:top])
        else:
            of_rows[:top] = coefficients.t() @ features
        of_bias[:top] = coefficients.sum(0, dtype=torch.float32)
    return Gradients(of_levels.sum(0).to(h.dtype), at, of_rows, of_bias)


def _merges(tree: PathTree) -> bool:
    """Whether every sibling group is looked at in one piece."""
    return max(tree.widths) <= _WIDTH


def _sizes(items: int, tree: PathTree, sparse: bool) -> list[int]:
    """Of the parts of a plan."""
    tiles = sum(min(items, groups + items // TILE) if groups else 0 for groups in tree.groups)
    largest = items // (TILE + 1) if _merges(tree) else items
    segments = sum(min(largest, groups) for groups in tree.groups[1:])
    nodes, inner = len(tree.parent), len(tree.inner)
    touched = (nodes + 3) // 4 if not sparse and nodes >= _CLEARED * inner else 0
    return [items, items * len(tree.widths), TILE_FIELDS * tiles, SEGMENT_FIELDS * segments, touched]


def _shape(h: Tensor, rows: Tensor, bias: Tensor | None, offset: Tensor | None, tree: PathTree) -> dict[str, Any]:
    width = h.shape[1]
    return {
        "D": width,
        "BLOCK_D": max(16, min(BLOCK_D, triton.next_power_of_2(width))),
        "TILE": TILE,
        "WIDTH": max(16, min(_WIDTH, triton.next_power_of_2(max(tree.widths)))),
        "HAS_BIAS": bias is not None,
        "HAS_OFFSET": offset is not None,
        "DTYPE": _HALF.get(h.dtype, tl.float32) if h.dtype is rows.dtype else tl.float32,
        "PRECISION": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3",
    }
