"""The softmaxes on the paths of a batch with Triton, in a few launches: two for the plan, one forward, three backward.

The sum of the losses takes two more, one for the targets and one for the sum. The rows of a sibling group are read once
for a tile of items that share it, no logits reach memory, and the host waits for the device only to learn the number of
rows of a sparse gradient.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from arbormax.kernels.backward_triton import (
    LogitGradients,
    Parts,
    RowGradients,
    add_parts,
    compute_features,
    compute_rows,
)
from arbormax.kernels.forward_triton import Operands, Softmaxes, compute_softmaxes, sum_losses
from arbormax.kernels.gpu import allows_tf32, ceil_div, next_power_of_2, on_device_of_first, shared_memory
from arbormax.kernels.path_torch import Gradients
from arbormax.kernels.path_tree import PathTree
from arbormax.kernels.plan_triton import (
    TILE,
    TILE_FIELDS,
    WIDTH,
    Plan,
    find_nodes,
    is_wide,
    make_plan,
    plan_sizes,
    segment_length,
    split_plan,
)

_SEGMENT_TILE, _EXACT_TILE = 64, 16  # items of a segment that are read together: in bfloat16, and in float32
_SHARED_MEMORY = 160 * 1024  # bytes that the larger blocks need, about
# features that are read together in half precision, warps and stages of each kernel
FORWARD, FEATURES, ROWS = (128, 4, 3), (128, 4, 4), (128, 8, 3)
_HALF = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
plan_type = torch.int32


def stored_shapes(items: int, tree: PathTree, sparse: bool, cells: int) -> tuple[tuple[int, ...], int]:  # noqa: ARG001
    """Return the shape of what `log_probs` stores for `gradients`, and the size of its plan."""
    return (2, items, tree.levels), sum(plan_sizes(items, tree, sparse))


@on_device_of_first
def log_probs(
    h: Tensor, rows: Tensor, bias: Tensor | None, offset: Tensor | None, node: Tensor, tree: PathTree, sparse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what `path_torch.log_probs` returns, but for what is stored for `gradients`."""
    items = len(h)
    logp, mean = (torch.empty((items, tree.levels), dtype=torch.float32, device=h.device) for _ in range(2))
    out = Softmaxes(logp, mean, torch.empty((2, items, tree.levels), dtype=torch.float32, device=h.device))
    if not items:
        return *out, torch.zeros(sum(plan_sizes(0, tree, sparse)), dtype=plan_type, device=h.device)
    operands = Operands(h, rows, bias, offset).contiguous()
    buffer, plan = make_plan(node, tree, sparse, logp, mean)
    dtype = _operand_type(h, rows)
    shape = _shape(h, tree, FORWARD, dtype) | {"IS_WIDE": is_wide(tree), "DTYPE": dtype, "CUT": _cut(h, dtype)}
    compute_softmaxes(operands, plan, out, shape)
    return *out, buffer


@on_device_of_first
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
    """Return the sum or mean of all losses: a launch each before and after `log_probs`, where torch would take a dozen.

    `leaves` are the nodes of the classes; None: the targets are nodes. The other results are the factors of its two
    gradients, and what `log_probs` stores.
    """
    target = target.contiguous()
    node = find_nodes(target, leaves, limit, ignored)
    logp, _, stored, buffer = log_probs(h, rows, bias, offset, node, tree, sparse)
    total, factors = (torch.empty(shape, dtype=torch.float32, device=h.device) for shape in ((), (2,)))
    sum_losses(logp, target, total, factors, ignored, is_mean)
    return total, factors, stored, buffer


@on_device_of_first
def gradients(
    grads: Tensor,
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    offset: Tensor | None,
    stored: Tensor,
    buffer: Tensor,
    tree: PathTree,
    sparse: bool,
) -> Gradients:
    """Return what `path_torch.gradients` returns."""
    items, width = h.shape
    operands, plan = Operands(h, rows, bias, offset).contiguous(), split_plan(buffer, plan_sizes(items, tree, sparse))
    out = _allocate_rows(operands, plan, sparse)
    of_h = torch.empty_like(operands.h)
    if not items:
        return Gradients(of_h, out.row_ids, out.rows, out.bias)
    dtype = _operand_type(h, rows)
    factor = dtype if dtype is tl.bfloat16 else tl.float32
    halves, stored_type = (2, h.dtype) if dtype is tl.bfloat16 else (1, torch.float32)
    # one block more, because the cells of a level may be read to the end of a block
    values = h.new_empty(halves * items * tree.num_cells + WIDTH, dtype=stored_type)
    logits = LogitGradients(tree.cells, values)
    features = torch.empty((tree.levels, items, width), dtype=torch.float32, device=h.device)
    count = 2 * ceil_div(items, segment_length(tree)) * tree.levels * tree.max_width if len(plan.shared) else 0
    parts = Parts(*(torch.empty(size, dtype=torch.float32, device=h.device) for size in ((count, width), (count,))))
    shape = _shape(h, tree, FEATURES, factor) | {"IS_WIDE": is_wide(tree), "DTYPE": dtype, "CUT": _cut(h, dtype)}
    # The logits must equal those of the forward pass to the last bit, and rounding depends on the blocks.
    shape |= {"LOGITS_D": _shape(h, tree, FORWARD, dtype)["BLOCK_D"], "FACTOR": factor}
    compute_features(grads, operands, plan, stored, logits, features, out, tree, shape)
    tile = _SEGMENT_TILE if dtype is tl.bfloat16 else _EXACT_TILE
    shape = _shape(h, tree, ROWS, factor) | {"TILE": tile, "FACTOR": factor}
    compute_rows(operands.h, plan, logits, parts, out, tree, shape)
    add_parts(features, of_h, plan, parts, out, tree)
    return Gradients(of_h, out.row_ids, out.rows, out.bias)


def _allocate_rows(operands: Operands, plan: Plan, sparse: bool) -> RowGradients:
    """Return tensors for the gradients of the rows, filled with zeros unless the kernels write all of them."""
    rows = operands.rows
    if sparse:
        ends = plan.tiles.view(-1, TILE_FIELDS.value)[:, 5].cumsum(0)
        count = int(ends[-1]) if len(ends) else 0
        index = torch.empty(count, dtype=torch.int64, device=rows.device)
        return RowGradients(ends, index, rows.new_empty(count, rows.shape[1]), rows.new_empty(count))
    if plan.visited is not None and len(operands.h):
        return RowGradients(None, None, torch.empty_like(rows), rows.new_empty(len(rows)))
    return RowGradients(None, None, torch.zeros_like(rows), rows.new_zeros(len(rows)))


def _operand_type(h: Tensor, rows: Tensor) -> tl.dtype:
    """Return the type of the factors of the logits."""
    return _HALF.get(h.dtype, tl.float32) if h.dtype is rows.dtype else tl.float32


def _cut(h: Tensor, dtype: tl.dtype) -> float:
    """Return the mean share that tensor cores truncate from a sum of a few products, as measured.

    It is about half a unit in the last place for each time they add to the sum, and half of that for bfloat16.
    """
    if not h.is_cuda or torch.version.hip is not None:
        return 0.0
    return 2.0**-25 if dtype is tl.bfloat16 else 2.0**-24


def _shape(h: Tensor, tree: PathTree, config: tuple[int, int, int], dtype: tl.dtype) -> dict[str, Any]:
    """Return the block sizes, precision and launch options of a kernel whose operands have this type."""
    width, (block, warps, stages) = h.shape[1], config
    if dtype is tl.float32:
        block //= 2
    if h.is_cuda and shared_memory(h.device.index or 0) < _SHARED_MEMORY:
        block, stages = block // 2, min(stages, 3)
    return {
        "D": width,
        "BLOCK_D": max(16, min(block, next_power_of_2(width))),
        "TILE": TILE,
        "WIDTH": max(16, min(WIDTH, next_power_of_2(tree.max_width))),
        "PRECISION": "tf32" if h.dtype is torch.float32 and allows_tf32() else "tf32x3",
        "num_warps": warps,
        "num_stages": stages,
    }
