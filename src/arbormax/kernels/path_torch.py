"""The softmaxes on the paths of a batch in plain torch: the reference for all other implementations.

B items, D features, M rows of the weight, K steps of a path, Z cells: one for each sibling of each step of each item, R
distinct rows among them. A step is a sibling group, `start` and `size` in rows, and the place in it of the path's node;
a step of size 0 is none. The cells are a sparse (B, M) matrix: its values are dot products of features and rows, and
both gradients are products with it.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from arbormax.kernels.path_tree import PathTree

with warnings.catch_warnings():  # torch warns once that its sparse matrices may change
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 0], [], [], (1, 1), dtype=torch.float32, device="cpu")


class Cells(NamedTuple):
    """All siblings of all steps, item by item."""

    step: Tensor  # (Z,) the step of each cell, among B * K
    row: Tensor  # (Z,) the row of the weight
    starts: Tensor  # (B + 1,) where the cells of each item begin
    sizes: Tensor  # (B * K,)


def make_cells(start: Tensor, size: Tensor, count_B: Tensor) -> Cells:
    """Return the cells of steps in the order of their items; `count_B` is the number of cells of each item."""
    sizes = size.reshape(-1)
    step_Z = torch.repeat_interleave(sizes)
    shift = start.reshape(-1) - (sizes.cumsum(0) - sizes)
    row_Z = torch.arange(len(step_Z), device=sizes.device) + shift.index_select(0, step_Z)
    return Cells(step_Z, row_Z, F.pad(count_B.cumsum(0), (1, 0)), sizes)


def find_steps(node_B: Tensor, tree: PathTree) -> tuple[Tensor, Tensor, Tensor]:
    """Return (B, K) each: start and size of the sibling groups on the paths, and the place of the path's node."""
    own = []
    for depth in range(tree.levels, 0, -1):
        here_B = tree.depth.index_select(0, node_B) == depth
        own.append(torch.where(here_B, node_B, 0))
        node_B = torch.where(here_B, tree.parent[node_B], node_B)
    own_BK = torch.stack(own[::-1], dim=-1)
    start_BK, size_BK = tree.group_start[own_BK], tree.group_size[own_BK]
    size_BK = torch.where((own_BK > 0) & (size_BK > 1), size_BK, 0)  # an only child is certain
    return start_BK, size_BK, own_BK - 1 - start_BK


def stored_shapes(items: int, tree: PathTree, sparse: bool, cells: int) -> tuple[tuple[int, ...], int]:  # noqa: ARG001
    """Return the shape of what `log_probs` stores for `gradients`, and the size of its plan."""
    return (cells,), 2 * items * tree.levels + 2 * cells


plan_type = torch.int64


def log_probs(
    h_BD: Tensor,
    weight_MD: Tensor,
    bias_M: Tensor | None,
    offset_M: Tensor | None,
    node_B: Tensor,
    tree: PathTree,
    sparse: bool,  # noqa: ARG001 - other implementations read it
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the softmaxes on the paths to (B,) nodes.

    Returns:
        (B, K) log-probabilities of the nodes on the path given their parents, (B, K) means over their sibling groups, 0
        where there is no step, and what `gradients` needs: the log-probability of every cell, and a plan.
    """
    start_BK, size_BK, place_BK = find_steps(node_B, tree)
    cells = make_cells(start_BK, size_BK, size_BK.sum(1))
    rest_Z = _below_largest(_logits(h_BD, weight_MD, (bias_M, offset_M), cells), cells)
    is_step = cells.sizes > 0
    none = rest_Z.new_zeros(len(is_step))
    total = none.index_add(0, cells.step, rest_Z.exp())
    log_total = total.masked_fill_(~is_step, 1.0).log_()
    sums = none.index_add(0, cells.step, rest_Z)
    mean_logp = (sums / cells.sizes.clamp(min=1) - log_total).masked_fill_(~is_step, 0.0)
    logp_Z = rest_Z.sub_(log_total.index_select(0, cells.step))
    own = (cells.sizes.cumsum(0) - cells.sizes + place_BK.reshape(-1)).masked_fill(~is_step, 0)
    own_logp = logp_Z.index_select(0, own).masked_fill_(~is_step, 0.0) if len(logp_Z) else none
    shape = start_BK.shape
    plan = torch.cat([size_BK.flatten(), place_BK.flatten(), cells.step, cells.row])
    return own_logp.view(shape), mean_logp.view(shape), logp_Z, plan


def group_log_probs(
    h_BD: Tensor, weight_MD: Tensor, bias_M: Tensor | None, item_F: Tensor, start_F: Tensor, size_F: Tensor
) -> tuple[Tensor, Cells]:
    """Return the (Z,) log-probabilities of all rows of F sibling groups given their parents; `item_F` is sorted."""
    count_B = torch.zeros(len(h_BD), dtype=torch.int64, device=h_BD.device).index_add_(0, item_F, size_F)
    cells = make_cells(start_F, size_F, count_B)
    rest_Z = _below_largest(_logits(h_BD, weight_MD, (bias_M,), cells), cells)
    total = rest_Z.new_zeros(len(size_F)).index_add_(0, cells.step, rest_Z.exp())
    return rest_Z.sub_(total.log_().index_select(0, cells.step)), cells


class Gradients(NamedTuple):
    """The gradients of the features, the rows and the bias; the last two of all rows, or of R of them."""

    h: Tensor  # (B, D)
    rows: Tensor | None  # (R,) sorted; None: all rows
    weight: Tensor  # (R, D) or (M, D)
    bias: Tensor  # (R,) or (M,)


def gradients(
    grads_2BK: Tensor,
    h_BD: Tensor,
    weight_MD: Tensor,
    bias_M: Tensor | None,  # noqa: ARG001 - other implementations read it, and the next
    offset_M: Tensor | None,  # noqa: ARG001
    logp_Z: Tensor,
    plan: Tensor,
    tree: PathTree,  # noqa: ARG001
    sparse: bool,
) -> Gradients:
    """Return the gradients, from those of the two results of `log_probs`."""
    own_grad_BK, mean_grad_BK = grads_2BK.unbind()
    steps, wide = own_grad_BK.numel(), logp_Z.dtype
    size, place, step_Z, row_Z = torch.split(plan, [steps, steps, len(logp_Z), len(logp_Z)])
    own_grad, mean_grad = own_grad_BK.reshape(-1).to(wide), mean_grad_BK.reshape(-1).to(wide)
    share = mean_grad / size.clamp(min=1)
    first = size.cumsum(0) - size  # the first cell of each step
    grad_Z = share.index_select(0, step_Z) - logp_Z.exp().mul_((own_grad + mean_grad).index_select(0, step_Z))
    is_step = size > 0
    grad_Z.index_add_(0, (first + place)[is_step], own_grad[is_step])

    sorted_rows_Z, order_Z = row_Z.sort(stable=True)
    rows_R, counts_R = torch.unique_consecutive(sorted_rows_Z, return_counts=True)
    item_Z = step_Z.index_select(0, order_Z) // own_grad_BK.shape[1]
    sorted_Z = grad_Z.index_select(0, order_Z)
    grad_RD = _weighted_sums(h_BD.to(wide), item_Z, counts_R.cumsum(0) - counts_R, sorted_Z)
    grad_R = torch.segment_reduce(sorted_Z, "sum", lengths=counts_R, unsafe=True)
    weight = weight_MD
    if weight.dtype is not wide:  # only the rows in use, in the wider type
        weight, old_Z = weight_MD.index_select(0, rows_R).to(wide), row_Z
        row_Z = torch.empty_like(old_Z)
        row_Z[order_Z] = torch.repeat_interleave(counts_R)
    count_B = size.view(own_grad_BK.shape).sum(1)
    grad_BD = _weighted_sums(weight, row_Z, count_B.cumsum(0) - count_B, grad_Z)
    grad_BD, grad_RD, grad_R = grad_BD.to(h_BD.dtype), grad_RD.to(weight_MD.dtype), grad_R.to(weight_MD.dtype)
    if sparse:
        return Gradients(grad_BD, rows_R, grad_RD, grad_R)
    grad_MD = torch.zeros_like(weight_MD).index_copy_(0, rows_R, grad_RD)
    return Gradients(grad_BD, None, grad_MD, weight_MD.new_zeros(len(weight_MD)).index_copy_(0, rows_R, grad_R))


def _logits(h_BD: Tensor, weight_MD: Tensor, added: tuple[Tensor | None, ...], cells: Cells) -> Tensor:
    """Return the (Z,) logits in float32 or wider; `added` are (M,) vectors."""
    wide = torch.promote_types(torch.promote_types(h_BD.dtype, weight_MD.dtype), torch.float32)
    rows_Z, weight = cells.row, weight_MD
    if weight.dtype is not wide:
        rows_R, rows_Z = torch.unique(cells.row, return_inverse=True)
        weight = weight_MD.index_select(0, rows_R).to(wide)
    # the products at the cells only, read from the rows of the weight without a copy
    empty = torch.sparse_csr_tensor(
        cells.starts,
        rows_Z,
        torch.zeros(len(rows_Z), dtype=wide, device=h_BD.device),
        (len(h_BD), len(weight)),
        device=h_BD.device,  # else it would be on the default device
        check_invariants=False,
    )
    logits_Z: Tensor = torch.sparse.sampled_addmm(empty, h_BD.to(wide), weight.t()).values()
    for vector_M in added:
        if vector_M is not None:
            logits_Z.add_(vector_M.index_select(0, cells.row))
    return logits_Z


def _below_largest(logits_Z: Tensor, cells: Cells) -> Tensor:
    """Return the logits minus the largest of their step."""
    largest = torch.segment_reduce(logits_Z, "max", lengths=cells.sizes, unsafe=True)
    return logits_Z - largest.index_select(0, cells.step)


def _weighted_sums(table_XD: Tensor, row_Z: Tensor, starts: Tensor, weight_Z: Tensor) -> Tensor:
    """Return the (len(starts), D) sums of weight · table[row] over each run of cells."""
    if not len(starts) or not len(row_Z):
        return table_XD.new_zeros(len(starts), table_XD.shape[1])
    return F.embedding_bag(row_Z, table_XD, starts, mode="sum", per_sample_weights=weight_Z)
