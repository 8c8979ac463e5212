"""The product of features with a weight that has few values.

B batch, D features, M rows of the weight, E values of the weight, T stored values of the features.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from arbormax.errors import InputError

_SHARE = 1 / 128  # of the rows: a feature with more values is faster in a dense table
_TABLE = 1 << 25  # numbers in the table at most


class SparseRows(NamedTuple):
    """An (M, D) weight, stored by feature: `values[starts[d]:starts[d + 1]]` belong to feature d.

    Within a feature the rows are sorted and unique.
    """

    values: Tensor  # (E,)
    rows: Tensor  # (E,) int32
    starts: Tensor  # (D + 1,) int32
    columns: Tensor  # (E,) the feature of each value
    num_rows: int  # M

    @property
    def num_features(self) -> int:
        return self.starts.shape[0] - 1

    def check(self) -> None:
        """Raise if the indices are out of range, which compiled products do not check."""
        starts, rows = self.starts.long(), self.rows
        lengths = starts.diff()
        is_valid = starts[0] == 0 and starts[-1] == len(rows) == len(self.values) and bool((lengths >= 0).all())
        if not is_valid or (len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self.num_rows):
            raise InputError("the indices of a sparse weight are out of range")
        is_later = rows[1:] > rows[:-1]
        is_later[starts[1:-1][(starts[1:-1] > 0) & (starts[1:-1] < len(rows))] - 1] = True
        if not bool(is_later.all()):
            raise InputError("the rows of a sparse weight are not sorted")


class Frequent(NamedTuple):
    """The features that most rows have a value for, as a dense matrix: a product with it is faster."""

    table: Tensor  # (F, M) their values
    place: Tensor  # (D,) the row of each feature in the table, -1 for the others


def find_frequent(weight: SparseRows) -> Frequent:
    """Return the table of the features with the most values, within a limit of memory."""
    counts_D = weight.starts.diff()
    most = max(1, _TABLE // max(weight.num_rows, 1))
    threshold = max(weight.num_rows * _SHARE, 1)
    if len(counts_D) > most:
        threshold = max(threshold, float(counts_D.topk(most).values[-1]))
    is_frequent_D = counts_D > threshold
    place_D = torch.where(is_frequent_D, is_frequent_D.cumsum(0) - 1, -1)
    table = weight.values.new_zeros(int(is_frequent_D.sum()), weight.num_rows)
    place_E = place_D[weight.columns]
    chosen = place_E >= 0
    table[place_E[chosen], weight.rows[chosen].long()] = weight.values.detach()[chosen]
    return Frequent(table, place_D)


def sparse_linear(
    features: Tensor, weight: SparseRows, bias: Tensor | None, frequent: Frequent | None = None
) -> Tensor:
    """Return the (..., M) product of dense (..., D) or sparse (B, D) features with a sparse weight, plus the bias.

    `frequent` is the result of `find_frequent`, for callers that multiply by the same weight several times.
    """
    with torch.autocast(features.device.type, enabled=False):  # sparse products have no half-precision kernels
        if features.layout == torch.strided:
            cells = features[..., weight.columns] * weight.values
            logits = cells.new_zeros(*features.shape[:-1], weight.num_rows).index_add(-1, weight.rows.long(), cells)
        else:
            if features.dim() != 2:
                raise InputError(f"expected sparse features of two dimensions, found shape {tuple(features.shape)}")
            stored = features.coalesce()
            item_T, column_T = stored.indices()
            frequent = frequent or find_frequent(weight)
            logits = _Product.apply(  # type: ignore[no-untyped-call]
                stored.values().to(weight.values.dtype),
                weight.values,
                weight,
                frequent,
                item_T,
                column_T,
                len(features),
            )
        return logits if bias is None else logits + bias


class _Product(torch.autograd.Function):
    """Sparse features times the transposed weight; the gradients belong to the stored values of both."""

    @staticmethod
    def forward(
        ctx: Any,
        x_T: Tensor,
        values: Tensor,
        weight: SparseRows,
        frequent: Frequent,
        item_T: Tensor,
        column_T: Tensor,
        items: int,
    ) -> Tensor:
        ctx.save_for_backward(x_T, values, item_T, column_T, *frequent)
        ctx.weight, ctx.items = weight, items
        place_T = frequent.place[column_T]
        dense = place_T >= 0
        indices = torch.stack([item_T[dense], place_T[dense]])
        size = (items, len(frequent.table))
        known = torch.sparse_coo_tensor(indices, x_T[dense], size, is_coalesced=True, check_invariants=False)
        out = torch.sparse.mm(known, frequent.table) if size[1] else x_T.new_zeros(items, weight.num_rows)
        cells = _find_cells(item_T, column_T, ~dense, weight)
        out.view(-1).index_add_(0, cells.place, x_T[cells.stored] * values[cells.value])
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_T, values, item_T, column_T, table, place_D = ctx.saved_tensors
        grad_BM = grads[0].contiguous()
        grad_x = grad_values = None
        if ctx.needs_input_grad[0]:
            place_T = place_D[column_T]
            dense = place_T >= 0
            cells = _find_cells(item_T, column_T, ~dense, ctx.weight)
            grad_x = torch.zeros_like(x_T)
            grad_x[dense] = (grad_BM[item_T[dense]] * table[place_T[dense]]).sum(1)
            grad_x.index_add_(0, cells.stored, values[cells.value] * grad_BM.view(-1)[cells.place])
        if ctx.needs_input_grad[1]:
            cells = _find_cells(item_T, column_T, torch.ones_like(item_T, dtype=torch.bool), ctx.weight)
            grad_values = torch.zeros_like(values)
            grad_values.index_add_(0, cells.value, x_T[cells.stored] * grad_BM.view(-1)[cells.place])
        return grad_x, grad_values, None, None, None, None, None


class _Cells(NamedTuple):
    """One entry for each pair of a stored feature and a value of the weight that meet."""

    stored: Tensor  # the position among the stored features
    value: Tensor  # the position among the values of the weight
    place: Tensor  # the position in the flattened (B, M) result


def _find_cells(item_T: Tensor, column_T: Tensor, chosen_T: Tensor, weight: SparseRows) -> _Cells:
    """Return the pairs of the chosen features."""
    first_T = weight.starts[column_T].long()
    count_T = (weight.starts[column_T + 1].long() - first_T) * chosen_T
    stored_E = torch.arange(len(count_T), device=item_T.device).repeat_interleave(count_T)
    offset_T = first_T - (count_T.cumsum(0) - count_T)
    value_E = offset_T[stored_E] + torch.arange(len(stored_E), device=item_T.device)
    return _Cells(stored_E, value_E, item_T[stored_E] * weight.num_rows + weight.rows[value_E])
