"""The softmaxes on the paths of a batch in a handful of launches: two for a plan, one forward, up to three back.

The usual loss has two more, for its targets and its sum.

The rows of a sibling group are read once for a tile of items that share it, no logits reach memory, and the host never
waits for the device but to learn how many rows a sparse gradient has. Groups that much of the batch shares get their
gradients by dense products, one for each segment of their items.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from arbormax.kernels.gpu import allows_tf32, on_its_device, shared_memory
from arbormax.kernels.path_features_triton import backward_features
from arbormax.kernels.path_forward_triton import forward
from arbormax.kernels.path_loss_triton import add_up
from arbormax.kernels.path_order_triton import arrange
from arbormax.kernels.path_parts_triton import add_parts
from arbormax.kernels.path_plan_triton import SEGMENT_FIELDS, TILE_FIELDS, plan
from arbormax.kernels.path_rows_triton import backward_rows
from arbormax.kernels.path_targets_triton import look_up
from arbormax.kernels.path_torch import Gradients
from arbormax.kernels.path_tree import PathTree

TILE = 16  # items of a tile
_TOGETHER, _EXACT = 64, 16  # items of a segment that are looked at together, and where sums are to be exact
_WIDTH = 128  # rows of a sibling group that are looked at together
_BLOCK = 256  # items that a program of the plan looks at
_COUNTED = 1 << 13  # items that are sorted by counting
_CLEARED = 32  # rows of a sibling group, about, from which on zeros are written group by group
_CLEARERS = 1024  # programs that write them, at least
_SEGMENT = 256  # items of a segment, at least
_SEGMENTERS = 64  # programs, for some features each, that go by segments
_ADDERS = 128  # programs that add up the parts of a shared group
_ROOMY = 160 * 1024  # bytes of shared memory, about, that the larger blocks ask for
# of each kernel: features that are looked at together in half precision, warps and stages
FORWARD, FEATURES, ROWS = (128, 4, 3), (128, 4, 4), (128, 8, 3)
_HALF = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
plan_type = torch.int32


def kept_shapes(items: int, tree: PathTree, sparse: bool, cells: int) -> tuple[tuple[int, ...], int]:  # noqa: ARG001
    """Of what `log_probs` keeps: the largest logit of every step and log Σ exp of all less it, and a plan.

    The plan is order, own nodes, tiles, segments and shared groups, their numbers, and four nodes in each of the rest.
    """
    return (2, items, len(tree.widths)), sum(_sizes(items, tree, sparse))


@on_its_device
def log_probs(
    h: Tensor, rows: Tensor, bias: Tensor | None, offset: Tensor | None, node: Tensor, tree: PathTree, sparse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `path_torch.log_probs`, but for what it keeps."""
    items, levels = len(h), len(tree.widths)
    logp, mean = (torch.empty((items, levels), dtype=torch.float32, device=h.device) for _ in range(2))
    kept = torch.empty((2, items, levels), dtype=torch.float32, device=h.device)
    sizes = _sizes(items, tree, sparse)
    plan_ = torch.zeros(sum(sizes), dtype=plan_type, device=h.device)
    if items:
        h, rows, bias, offset = _contiguous(h, rows, bias, offset)
        dtype = _operands(h, rows)
        order, own, tiles, segments, shared, found, touched = torch.split(plan_, sizes)
        place = _sorted(node, tree, order)
        plan[(levels, triton.cdiv(items, _BLOCK))](
            order, place, node, tree.parent, tree.depth, tree.group_start, tree.group_size, tree.first, tree.after,
            tree.counts, own, tiles, segments, shared, found, touched.view(torch.int8), logp, mean, items, levels,
            TILE_FIELDS=TILE_FIELDS, SEGMENT_FIELDS=SEGMENT_FIELDS, TILE=TILE, SEGMENT=_segment(tree), BLOCK=_BLOCK,
            MERGES=_merges(tree), TOUCHES=len(touched) > 0, num_warps=8,
        )  # fmt: skip
        forward[(len(tiles) // TILE_FIELDS,)](
            h, rows, bias, offset, order, own, tiles, logp, mean, kept, items, levels,
            TILE_FIELDS=TILE_FIELDS, HAS_BIAS=bias is not None, HAS_OFFSET=offset is not None, DTYPE=dtype,
            IS_WIDE=not _merges(tree), CUT=_cut(h, dtype), **_shape(h, tree, FORWARD, dtype),
        )  # fmt: skip
    return logp, mean, kept, plan_


@on_its_device
def loss(
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    offset: Tensor | None,
    target: Tensor,
    leaves: Tensor | None,
    limit: int,
    ignored: int,
    tree: PathTree,
    sparse: bool,
    is_mean: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum or mean of all steps' losses, a launch each before and after `log_probs` where torch would take a dozen.

    `leaves` are the nodes of the classes; None: the targets are nodes. Then what `gradients` needs: two factors, those
    of the gradients of the log-probabilities and of the means; and what `log_probs` keeps.
    """
    items, levels, target = len(h), len(tree.widths), target.contiguous()
    node = torch.empty_like(target)
    if items:
        look_up[(triton.cdiv(items, 1024),)](
            target, leaves, node, items, limit, ignored, HAS_CLASSES=leaves is not None, BLOCK=1024
        )
    logp, _, kept, plan_ = log_probs(h, rows, bias, offset, node, tree, sparse)
    found, factors = (torch.empty(shape, dtype=torch.float32, device=h.device) for shape in ((), (2,)))
    add_up[(1,)](logp, target, found, factors, items, levels, ignored, IS_MEAN=is_mean, BLOCK=4096, num_warps=8)
    return found, factors, kept, plan_


@on_its_device
def gradients(
    own_grad: Tensor,
    mean_grad: Tensor,
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    offset: Tensor | None,
    softmax: Tensor,
    plan_: Tensor,
    tree: PathTree,
    sparse: bool,
) -> Gradients:
    """As `path_torch.gradients`."""
    (items, levels), width = own_grad.shape, rows.shape[1]
    h, rows, bias, offset = _contiguous(h, rows, bias, offset)
    order, own, tiles, segments, shared, found, touched = torch.split(plan_, _sizes(items, tree, sparse))
    cells, dtype = tree.num_cells, _operands(h, rows)
    is_half = dtype is tl.bfloat16
    factor = dtype if is_half else tl.float32
    # The logits must be those of the way forward to the last bit, or they do not fit their sum: a product's rounding
    # depends on how it is cut.
    logits_block = _shape(h, tree, FORWARD, dtype)["BLOCK_D"]
    at = ends = None
    clears = not sparse and len(touched) > 0 and items > 0
    if sparse:
        ends = tiles.view(-1, TILE_FIELDS)[:, 5].cumsum(0)
        count = int(ends[-1]) if len(ends) else 0
        at = torch.empty(count, dtype=torch.int64, device=h.device)
        of_rows, of_bias = rows.new_empty(count, width), rows.new_empty(count)
    elif clears:
        of_rows, of_bias = torch.empty_like(rows), rows.new_empty(len(rows))
    else:
        of_rows, of_bias = torch.zeros_like(rows), rows.new_zeros(len(rows))
    # some more, since the cells of a level may be read to the end of a block
    kept = h.new_empty((1 + is_half) * items * cells + _WIDTH, dtype=h.dtype if is_half else torch.float32)
    of_levels = torch.empty((levels, items, width), dtype=torch.float32, device=h.device)
    of_h = torch.empty_like(h)
    widest = max(tree.widths)
    places = 2 * triton.cdiv(items, _segment(tree)) * levels * widest if len(shared) else 0
    parts = [torch.empty(shape, dtype=torch.float32, device=h.device) for shape in ((places, width), (places,))]
    count = len(tiles) // TILE_FIELDS
    if items:
        backward_features[(max(count, min(len(tree.inner), _CLEARERS) if clears else 0),)](
            own_grad, mean_grad, *own_grad.stride(), *mean_grad.stride(), h, rows, bias, offset, order, own, tiles,
            softmax, tree.cells, kept, of_levels, ends, at, of_rows, of_bias,
            touched.view(torch.int8), tree.inner, tree.inner_start, tree.inner_size, items, levels, cells,
            count, len(tree.inner), TILE_FIELDS=TILE_FIELDS, HAS_BIAS=bias is not None, HAS_OFFSET=offset is not None,
            LOGITS_D=logits_block, CLEARS=clears, IS_WIDE=not _merges(tree), IS_SPARSE=sparse, DTYPE=dtype,
            FACTOR=factor, IS_HALF=is_half, CUT=_cut(h, dtype), **_shape(h, tree, FEATURES, factor),
        )  # fmt: skip
    if items and len(segments):
        shape = _shape(h, tree, ROWS, factor) | {"TILE": _TOGETHER if is_half else _EXACT}
        programs = min(len(segments) // SEGMENT_FIELDS, _SEGMENTERS)
        backward_rows[(programs, triton.cdiv(width, shape["BLOCK_D"]), triton.cdiv(widest, shape["WIDTH"]))](
            h, order, segments, found, tree.cells, kept, ends, at, of_rows, of_bias, *parts, items, cells, widest,
            SEGMENT_FIELDS=SEGMENT_FIELDS, IS_SPARSE=sparse, FACTOR=factor, IS_HALF=is_half, **shape,
        )  # fmt: skip
    if items:
        add_parts[(items + len(shared) // SEGMENT_FIELDS * _ADDERS,)](
            of_levels, order, own, of_h, shared, found, ends, at, *parts, of_rows, of_bias, items, levels, widest,
            SEGMENT_FIELDS=SEGMENT_FIELDS, SEGMENT=_segment(tree), PROGRAMS=_ADDERS, IS_SPARSE=sparse, D=width,
            BLOCK_D=min(1024, triton.next_power_of_2(width)), num_warps=4,
        )  # fmt: skip
    return Gradients(of_h, at, of_rows, of_bias)


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


def _segment(tree: PathTree) -> int:
    """Items of a segment: more where groups are wide, which many programs share anyway, and whose parts are large."""
    return _SEGMENT * -(-max(tree.widths) // _WIDTH)


def _sizes(items: int, tree: PathTree, sparse: bool) -> list[int]:
    """Of the parts of a plan."""
    programs, largest = triton.cdiv(items, _BLOCK), items // (TILE + 1) if _merges(tree) else items
    tiles = programs * sum(min(items, _BLOCK, groups + _BLOCK // TILE) if groups else 0 for groups in tree.groups)
    length, some = _segment(tree), [groups for groups in tree.groups if groups]
    segments = sum(min(largest, groups) + items // length for groups in some)
    shared = sum(min(items // (length + 1), groups) for groups in some)
    nodes, inner = len(tree.parent), len(tree.inner)
    touched = (nodes + 3) // 4 if not sparse and nodes >= _CLEARED * inner else 0
    own = items * len(tree.widths)
    return [items, own, TILE_FIELDS * tiles, SEGMENT_FIELDS * segments, SEGMENT_FIELDS * shared, 2, touched]


def _operands(h: Tensor, rows: Tensor) -> tl.dtype:
    """What the logits are products of."""
    return _HALF.get(h.dtype, tl.float32) if h.dtype is rows.dtype else tl.float32


def _cut(h: Tensor, dtype: tl.dtype) -> float:
    """The share that tensor cores cut off a sum of a few products on average, as measured: about half a unit in its
    last place for each time they add to it, and half of that where the products are short.
    """
    if not h.is_cuda or torch.version.hip is not None:
        return 0.0
    return 2.0**-25 if dtype is tl.bfloat16 else 2.0**-24


def _shape(h: Tensor, tree: PathTree, how: tuple[int, int, int], dtype: tl.dtype) -> dict[str, Any]:
    """What a kernel with operands of a type is built for: sizes, precision, and how it is launched."""
    width, (block, warps, stages) = h.shape[1], how
    if dtype is tl.float32:
        block //= 2
    if h.is_cuda and shared_memory(h.device.index or 0) < _ROOMY:
        block, stages = block // 2, min(stages, 3)
    return {
        "D": width,
        "BLOCK_D": max(16, min(block, triton.next_power_of_2(width))),
        "TILE": TILE,
        "WIDTH": max(16, min(_WIDTH, triton.next_power_of_2(max(tree.widths)))),
        "PRECISION": "tf32" if h.dtype is torch.float32 and allows_tf32() else "tf32x3",
        "num_warps": warps,
        "num_stages": stages,
    }
