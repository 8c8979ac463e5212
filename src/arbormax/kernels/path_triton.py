"""The softmaxes on the paths of a batch in a handful of launches: two for a plan, one forward, up to three back.

The rows of a sibling group are read once for all items that share it, no logits reach memory, and the host never waits
for the device but to learn how many rows a sparse gradient has. The root's group, which the whole batch shares, gets
its gradient by a dense product.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from arbormax.kernels.gpu import allows_tf32, on_its_device, shared_memory
from arbormax.kernels.path_backward_triton import add_levels, backward_features, backward_rows
from arbormax.kernels.path_forward_triton import forward
from arbormax.kernels.path_plan_triton import SEGMENT_FIELDS, TILE_FIELDS, arrange, plan
from arbormax.kernels.path_torch import Gradients
from arbormax.kernels.path_tree import PathTree

TILE = 16  # items of a tile
_WIDTH = 128  # rows of a sibling group that are looked at together
_BLOCK = 256  # items that a program of the plan looks at
_COUNTED = 1 << 13  # items that are sorted by counting
_CLEARED = 32  # rows of a sibling group, about, from which on zeros are written group by group
_CLEARERS = 1024  # programs that write them, at least
_SEGMENTERS = 64  # programs, for some features each, that go by segments
_ROOMY = 160 * 1024  # bytes of shared memory, about, that the larger blocks ask for
# of each kernel: features that are looked at together in half precision, warps and stages
FORWARD, FEATURES, ROWS = (64, 4, 4), (128, 4, 4), (64, 4, 3)
_HALF = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
plan_type = torch.int32


def kept_shapes(items: int, tree: PathTree, sparse: bool, cells: int) -> tuple[tuple[int, ...], int]:  # noqa: ARG001
    """Of what `log_probs` keeps: log Σ exp of the logits of every step, and a plan.

    The plan is order, own nodes, tiles, segments and their number, and four nodes in each of the rest.
    """
    return (items, len(tree.widths)), sum(_sizes(items, tree, sparse))


@on_its_device
def log_probs(
    h: Tensor, rows: Tensor, bias: Tensor | None, offset: Tensor | None, node: Tensor, tree: PathTree, sparse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `path_torch.log_probs`, but for what it keeps."""
    items, levels = len(h), len(tree.widths)
    logp, mean, totals = (torch.empty((items, levels), dtype=torch.float32, device=h.device) for _ in range(3))
    sizes = _sizes(items, tree, sparse)
    plan_ = torch.zeros(sum(sizes), dtype=plan_type, device=h.device)
    if items:
        h, rows, bias, offset = _contiguous(h, rows, bias, offset)
        order, own, tiles, segments, found, touched = torch.split(plan_, sizes)
        place = _sorted(node, tree, order)
        plan[(levels, triton.cdiv(items, _BLOCK))](
            order, place, node, tree.parent, tree.depth, tree.group_start, tree.group_size, tree.first, tree.after,
            tree.counts, own, tiles, segments, found, touched.view(torch.int8), logp, mean, items, levels,
            TILE_FIELDS=TILE_FIELDS, SEGMENT_FIELDS=SEGMENT_FIELDS, TILE=TILE, BLOCK=_BLOCK, MERGES=_merges(tree),
            TOUCHES=len(touched) > 0, num_warps=8,
        )  # fmt: skip
        forward[(len(tiles) // TILE_FIELDS,)](
            h, rows, bias, offset, order, own, tiles, logp, mean, totals, items, levels,
            TILE_FIELDS=TILE_FIELDS, HAS_BIAS=bias is not None, HAS_OFFSET=offset is not None,
            **_shape(h, rows, tree, FORWARD),
        )  # fmt: skip
    return logp, mean, totals, plan_


@on_its_device
def gradients(
    own_grad: Tensor,
    mean_grad: Tensor,
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    offset: Tensor | None,
    totals: Tensor,
    plan_: Tensor,
    tree: PathTree,
    sparse: bool,
) -> Gradients:
    """As `path_torch.gradients`."""
    (items, levels), width = own_grad.shape, rows.shape[1]
    h, rows, bias, offset = _contiguous(h, rows, bias, offset)
    order, own, tiles, segments, found, touched = torch.split(plan_, _sizes(items, tree, sparse))
    shape = _shape(h, rows, tree, FEATURES)
    is_half, cells = shape["DTYPE"] is not tl.float32, sum(tree.widths)
    # The logits must be those of the way forward to the last bit, or they do not fit their sum: in float32, where a
    # product's rounding depends on how it is cut, they are cut as there.
    logits_block = shape["BLOCK_D"] if is_half else _shape(h, rows, tree, FORWARD)["BLOCK_D"]
    top = tree.widths[0] if tree.widths[0] > 1 and items else 0  # rows of the root's group
    at = ends = None
    clears = not sparse and len(touched) > 0 and items > 0
    if sparse:
        ends = tiles.view(-1, TILE_FIELDS)[:, 5].cumsum(0).add_(top)
        count = int(ends[-1]) if len(ends) else top
        at = torch.arange(count, device=h.device)
        of_rows, of_bias = rows.new_empty(count, width), rows.new_empty(count)
    elif clears:
        of_rows, of_bias = torch.empty_like(rows), rows.new_empty(len(rows))
    else:
        of_rows, of_bias = torch.zeros_like(rows), rows.new_zeros(len(rows))
    kept_type = h.dtype if is_half else torch.float32
    kept = torch.zeros((1 + is_half, items, cells), dtype=kept_type, device=h.device)
    of_levels = torch.empty((levels, items, width), dtype=torch.float32, device=h.device)
    of_h = torch.empty_like(h)
    if top:
        with _beside(h.device):
            features = torch.cat([h, h]) if is_half else h.to(torch.float32)
    count = len(tiles) // TILE_FIELDS
    if items:
        backward_features[(max(count, min(len(tree.inner), _CLEARERS) if clears else 0),)](
            own_grad, mean_grad, *own_grad.stride(), *mean_grad.stride(), h, rows, bias, offset, order, own, tiles,
            totals, tree.cells, kept, of_levels, ends, at, of_rows, of_bias,
            touched.view(torch.int8), tree.inner, tree.inner_start, tree.inner_size, items, levels, cells,
            count, len(tree.inner), TILE_FIELDS=TILE_FIELDS, HAS_BIAS=bias is not None, HAS_OFFSET=offset is not None,
            LOGITS_D=logits_block, CLEARS=clears, IS_WIDE=not _merges(tree), IS_SPARSE=sparse, IS_HALF=is_half, **shape,
        )  # fmt: skip
    if top:
        with _beside(h.device):
            _dense(kept.view(-1, cells)[:, :top], features, of_rows[:top], of_bias[:top])
    if items and len(segments):
        shape = _shape(h, rows, tree, ROWS)
        programs = min(len(segments) // SEGMENT_FIELDS, _SEGMENTERS)
        backward_rows[(programs, triton.cdiv(width, shape["BLOCK_D"]))](
            h, order, segments, found, tree.cells, kept, ends, at, of_rows, of_bias, items, cells,
            SEGMENT_FIELDS=SEGMENT_FIELDS, IS_SPARSE=sparse, IS_HALF=is_half, **shape,
        )  # fmt: skip
    if items:
        block = min(1024, triton.next_power_of_2(width))
        add_levels[(items,)](of_levels, order, own, of_h, items, levels, D=width, BLOCK_D=block, num_warps=4)
    if top:
        _join(h.device)
    return Gradients(of_h, at, of_rows, of_bias)


def _dense(coefficients: Tensor, features: Tensor, of_rows: Tensor, of_bias: Tensor) -> None:
    """The gradients of rows that all items share."""
    if of_rows.dtype is features.dtype:
        torch.mm(coefficients.t(), features, out=of_rows)
    else:
        of_rows.copy_(coefficients.t() @ features)
    of_bias.copy_(coefficients.sum(0, dtype=torch.float32))


def _sorted(node: Tensor, tree: PathTree, order: Tensor) -> Tensor:
    """The nodes' places in the walk of the tree, rising; the items in that order go to `order`."""
    items = len(node)
    if items > _COUNTED:
        place, at = tree.first.index_select(0, node).sort(stable=True)
        order.copy_(at)
        return place
    place = torch.empty_like(order)
    arrange[(triton.cdiv(items, 16),)](
        node, tree.first, order, place, items, MINE=16, BLOCK=max(16, min(2048, triton.next_power_of_2(items))),
        num_warps=8,
    )  # fmt: skip
    return place


def _contiguous(
    h: Tensor, rows: Tensor, bias: Tensor | None, offset: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    bias, offset = (None if vector is None else vector.contiguous() for vector in (bias, offset))
    return h.contiguous(), rows.contiguous(), bias, offset


def _merges(tree: PathTree) -> bool:
    """Whether every sibling group is looked at in one piece."""
    return max(tree.widths) <= _WIDTH


def _sizes(items: int, tree: PathTree, sparse: bool) -> list[int]:
    """Of the parts of a plan."""
    programs, largest = triton.cdiv(items, _BLOCK), items // (TILE + 1) if _merges(tree) else items
    tiles = programs * sum(min(items, _BLOCK, groups + _BLOCK // TILE) if groups else 0 for groups in tree.groups)
    segments = sum(min(largest, groups) for groups in tree.groups[1:])
    nodes, inner = len(tree.parent), len(tree.inner)
    touched = (nodes + 3) // 4 if not sparse and nodes >= _CLEARED * inner else 0
    return [items, items * len(tree.widths), TILE_FIELDS * tiles, SEGMENT_FIELDS * segments, 1, touched]


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
        "PRECISION": "tf32" if allows_tf32() else "tf32x3",
        "num_warps": warps,
        "num_stages": stages,
    }


def _beside(device: torch.device) -> AbstractContextManager[Any]:
    """What is launched within goes on from here beside the current stream, until `_join`."""
    if device.type != "cuda":
        return nullcontext()
    side = _side_stream(device.index)
    side.wait_stream(torch.cuda.current_stream(device))
    return torch.cuda.stream(side)


def _join(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(device).wait_stream(_side_stream(device.index))


@cache
def _side_stream(index: int | None) -> torch.cuda.Stream:
    return torch.cuda.Stream(index)  # type: ignore[no-untyped-call]
