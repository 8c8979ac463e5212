"""The softmaxes on the paths of a batch in a handful of launches: a plan, forward, and up to three on the way back.

The rows of a sibling group are read once for all items that share it, no logits but those of the paths reach memory,
and the host never waits for the device but to learn how many rows a sparse gradient has. The root's group, which the
whole batch shares, gets its gradient by a dense product.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from arbormax.kernels.gpu import shared_memory
from arbormax.kernels.path_backward_triton import add_levels, backward_features, backward_rows, clear_untouched
from arbormax.kernels.path_forward_triton import forward
from arbormax.kernels.path_plan_triton import SEGMENT_FIELDS, TILE_FIELDS, plan
from arbormax.kernels.path_torch import Gradients
from arbormax.kernels.path_tree import PathTree

TILE = 16  # items of a tile
_WIDTH = 128  # rows of a sibling group that are looked at together
_BLOCK = 4096  # items that the plan looks at together
_CLEARED = 32  # rows of a sibling group, about, from which on zeros are written group by group
_CLEARERS = 132  # programs that write them: as many as a large GPU has processors
_ROOMY = 160 * 1024  # bytes of shared memory, about, that the larger blocks ask for
# of each kernel: features that are looked at together in half precision, warps and stages
FORWARD, FEATURES, ROWS = (64, 4, 4), (128, 4, 4), (64, 4, 3)
_HALF = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
plan_type = torch.int32


def kept_shapes(items: int, tree: PathTree, sparse: bool, cells: int) -> tuple[tuple[int, ...], int]:  # noqa: ARG001
    """Of what `log_probs` keeps: log Σ exp of the logits of every step and the logits, and a plan.

    The plan is order, own nodes, tiles, segments, and four nodes in each of the rest.
    """
    return (items, len(tree.widths) + sum(tree.widths)), sum(_sizes(items, tree, sparse))


def log_probs(
    h: Tensor, rows: Tensor, bias: Tensor | None, offset: Tensor | None, node: Tensor, tree: PathTree, sparse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `path_torch.log_probs`, but for what it keeps."""
    items, levels, cells = len(h), len(tree.widths), sum(tree.widths)
    logp, mean = (torch.empty((items, levels), dtype=torch.float32, device=h.device) for _ in range(2))
    kept = torch.empty((items, levels + cells), dtype=torch.float32, device=h.device)
    sizes = _sizes(items, tree, sparse)
    plan_ = torch.zeros(sum(sizes), dtype=plan_type, device=h.device)
    if items:
        h, rows = h.contiguous(), rows.contiguous()
        order, own, tiles, segments, touched = torch.split(plan_, sizes)
        place, sorted_ = tree.first.index_select(0, node).sort()
        plan[(levels,)](
            sorted_, place, node, tree.parent, tree.depth, tree.group_start, tree.group_size, tree.first, tree.after,
            tree.counts, order, own, tiles, segments, touched.view(torch.int8), logp, mean, items, levels,
            TILE_FIELDS=TILE_FIELDS, SEGMENT_FIELDS=SEGMENT_FIELDS, TILE=TILE,
            BLOCK=min(_BLOCK, triton.next_power_of_2(items)), MERGES=_merges(tree), TOUCHES=len(touched) > 0,
            num_warps=16,
        )  # fmt: skip
        forward[(len(tiles) // TILE_FIELDS,)](
            h, rows, bias, offset, order, own, tiles, logp, mean, kept, tree.cells, items, levels, cells,
            TILE_FIELDS=TILE_FIELDS, HAS_BIAS=bias is not None, HAS_OFFSET=offset is not None,
            **_shape(h, rows, tree, FORWARD),
        )  # fmt: skip
    return logp, mean, kept, plan_


def gradients(
    own_grad: Tensor,
    mean_grad: Tensor,
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,  # noqa: ARG001 - others read it, and the next
    offset: Tensor | None,  # noqa: ARG001
    made: Tensor,
    plan_: Tensor,
    tree: PathTree,
    sparse: bool,
) -> Gradients:
    """As `path_torch.gradients`."""
    (items, levels), width = own_grad.shape, rows.shape[1]
    h, rows = h.contiguous(), rows.contiguous()
    order, own, tiles, segments, touched = torch.split(plan_, _sizes(items, tree, sparse))
    shape = _shape(h, rows, tree, FEATURES)
    is_half, cells = shape["DTYPE"] is not tl.float32, sum(tree.widths)
    top = tree.widths[0] if tree.widths[0] > 1 and items else 0  # rows of the root's group
    at = ends = side = None
    clears = not sparse and len(touched) > 0 and items > 0
    if sparse:
        ends = tiles.view(-1, TILE_FIELDS)[:, 5].cumsum(0).add_(top)
        count = int(ends[-1]) if len(ends) else top
        at = torch.arange(count, device=h.device)
        of_rows, of_bias = rows.new_empty(count, width), rows.new_empty(count)
    elif clears:
        of_rows, of_bias = torch.empty_like(rows), rows.new_empty(len(rows))
        side = _beside(h.device)
    else:
        of_rows, of_bias = torch.zeros_like(rows), rows.new_zeros(len(rows))
    kept_type = h.dtype if is_half else torch.float32
    kept = torch.zeros((1 + is_half, items, cells), dtype=kept_type, device=h.device)
    of_levels = torch.empty((levels, items, width), dtype=torch.float32, device=h.device)
    of_h = torch.empty_like(h)
    if clears:  # first, and by few programs, which leaves room for the other kernels beside them
        with torch.cuda.stream(side):
            clear_untouched[(min(len(tree.inner), _CLEARERS),)](
                touched.view(torch.int8), tree.inner, tree.inner_start, tree.inner_size, of_rows, of_bias,
                len(tree.inner), D=width, BLOCK=4096, num_warps=4,
            )  # fmt: skip
    if items:
        backward_features[(len(tiles) // TILE_FIELDS,)](
            own_grad.contiguous(), mean_grad.contiguous(), h, rows, order, own, tiles, made,
            tree.cells, kept, of_levels, ends, at, of_rows, of_bias, items, levels, cells,
            TILE_FIELDS=TILE_FIELDS, IS_WIDE=not _merges(tree), IS_SPARSE=sparse, IS_HALF=is_half,
            **shape,
        )  # fmt: skip
    if items and len(segments):
        shape = _shape(h, rows, tree, ROWS)
        backward_rows[(len(segments) // SEGMENT_FIELDS, triton.cdiv(width, shape["BLOCK_D"]))](
            h, order, segments, tree.cells, kept, ends, at, of_rows, of_bias, items, cells,
            SEGMENT_FIELDS=SEGMENT_FIELDS, IS_SPARSE=sparse, IS_HALF=is_half, **shape,
        )  # fmt: skip
    if top:
        coefficients = kept.view(-1, cells)[:, :top]
        features = torch.cat([h, h]) if is_half else h.to(torch.float32)
        if of_rows.dtype is features.dtype:
            torch.mm(coefficients.t(), features, out=of_rows[:top])
        else:
            of_rows[:top] = coefficients.t() @ features
        of_bias[:top] = coefficients.sum(0, dtype=torch.float32)
    if items:
        block = min(1024, triton.next_power_of_2(width))
        add_levels[(items,)](of_levels, order, own, of_h, items, levels, D=width, BLOCK_D=block, num_warps=4)
    if side is not None:
        torch.cuda.current_stream(h.device).wait_stream(side)
    return Gradients(of_h, at, of_rows, of_bias)


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


def _shape(h: Tensor, rows: Tensor, tree: PathTree, how: tuple[int, int, int]) -> dict[str, Any]:
    """What a kernel is built for: sizes, precision, and how it is launched."""
    width, (block, warps, stages) = h.shape[1], how
    dtype = _HALF.get(h.dtype, tl.float32) if h.dtype is rows.dtype else tl.float32
    if dtype is tl.float32:
        block //= 2
    if h.is_cuda and shared_memory(h.device.index or 0) < _ROOMY:
        block, stages = block // 2, min(stages, 3)
    return {
        "D": width,
        "BLOCK_D": max(16, min(block, triton.next_power_of_2(width))),
        "TILE": TILE,
        "WIDTH": max(16, min(_WIDTH, triton.next_power_of_2(max(tree.widths)))),
        "DTYPE": dtype,
        "PRECISION": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3",
        "num_warps": warps,
        "num_stages": stages,
    }


def _beside(device: torch.device) -> torch.cuda.Stream | None:
    """A stream that goes on from here beside the current one; none without a GPU."""
    if device.type != "cuda":
        return None
    side = _side_stream(device.index)
    side.wait_stream(torch.cuda.current_stream(device))
    return side


@cache
def _side_stream(index: int | None) -> torch.cuda.Stream:
    return torch.cuda.Stream(index)  # type: ignore[no-untyped-call]
