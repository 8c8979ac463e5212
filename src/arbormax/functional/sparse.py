"""The product of features with a weight that has few values.

B batch, D features, M rows of the weight, E values of the weight, T stored values of the features.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from arbormax.errors import InputError


class SparseRows(NamedTuple):
    """An (M, D) weight, stored by feature: `values[starts[d]:starts[d + 1]]` belong to feature d.

    Within a feature the rows are sorted and unique.
    """

    values: Tensor  # (E,)
    rows: Tensor  # (E,) int32
    starts: Tensor  # (D + 1,) int32
    num_rows: int  # M

    @property
    def num_features(self) -> int:
        return self.starts.shape[0] - 1

    def columns(self) -> Tensor:
        """Return the (E,) feature of each value."""
        features = torch.arange(self.num_features, device=self.rows.device)
        return features.repeat_interleave(self.starts.diff(), output_size=self.rows.shape[0])

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


def sparse_linear(features: Tensor, weight: SparseRows, bias: Tensor | None) -> Tensor:
    """Return the (..., M) product of dense (..., D) or sparse (B, D) features with a sparse weight, plus the bias."""
    if features.layout != torch.strided and features.dim() != 2:
        raise InputError(f"expected sparse features of two dimensions, found the shape {tuple(features.shape)}")
    with torch.autocast(features.device.type, enabled=False):  # sparse products have no half-precision kernels
        if torch.compiler.is_compiling():  # for export, which has no sparse tensors
            cells = features[..., weight.columns()] * weight.values
            logits = cells.new_zeros(*features.shape[:-1], weight.num_rows).index_add(-1, weight.rows.long(), cells)
        else:
            flat = features if features.layout != torch.strided else features.reshape(-1, features.shape[-1])
            logits = _Product.apply(flat, *weight)  # type: ignore[no-untyped-call]
            logits = logits.view(*features.shape[:-1], weight.num_rows)
        return logits if bias is None else logits + bias


class _Product(torch.autograd.Function):
    """Features times the transposed weight; the gradient of the weight has its values only."""

    @staticmethod
    def forward(ctx: Any, h_BD: Tensor, values: Tensor, rows: Tensor, starts: Tensor, num_rows: int) -> Tensor:
        ctx.save_for_backward(h_BD, values, rows, starts)
        ctx.num_rows = num_rows
        if not h_BD.shape[0] or not len(values):
            return values.new_zeros(h_BD.shape[0], num_rows)
        if values.is_cuda or torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
            weight_DM = _csr(starts, rows, values, num_rows)
            return (_to_csr(h_BD, values.dtype) @ weight_DM).to_dense()
        cells = _cells(h_BD, starts, rows, num_rows)
        out = values.new_zeros(h_BD.shape[0] * num_rows)
        return out.index_add_(0, cells.place, cells.feature * values[cells.value]).view(-1, num_rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        h_BD, values, rows, starts = ctx.saved_tensors
        (grad_BM,) = grads
        grad_h = grad_values = None
        if ctx.needs_input_grad[0]:
            weight_DM = _csr(starts, rows, values, ctx.num_rows)
            grad_h = (weight_DM @ grad_BM.t().contiguous()).t()
            if h_BD.layout != torch.strided:
                grad_h = grad_h.contiguous().sparse_mask(h_BD)
        if ctx.needs_input_grad[1]:
            cells = _cells(h_BD, starts, rows, ctx.num_rows)
            grad_values = torch.zeros_like(values)
            grad_values.index_add_(0, cells.value, cells.feature * grad_BM.reshape(-1)[cells.place])
        return grad_h, grad_values, None, None, None


class _Cells(NamedTuple):
    """One entry for each pair of a stored feature and a value of the weight that meet."""

    feature: Tensor  # the feature's number
    value: Tensor  # the position of the weight's value
    place: Tensor  # the position in the flattened (B, M) result


def _cells(h_BD: Tensor, starts: Tensor, rows: Tensor, num_rows: int) -> _Cells:
    stored = (h_BD if h_BD.layout == torch.sparse_coo else h_BD.to_sparse()).coalesce()
    item_T, column_T = stored.indices()
    first_T, last_T = starts[column_T].long(), starts[column_T + 1].long()
    count_T = last_T - first_T
    step_E = torch.arange(len(count_T), device=rows.device).repeat_interleave(count_T)
    offset_T = first_T - (count_T.cumsum(0) - count_T)
    value_E = offset_T[step_E] + torch.arange(len(step_E), device=rows.device)
    return _Cells(stored.values()[step_E], value_E, item_T[step_E] * num_rows + rows[value_E])


def _to_csr(h_BD: Tensor, dtype: torch.dtype) -> Tensor:
    stored = h_BD.to(dtype).to_sparse_csr()
    return _csr(stored.crow_indices().int(), stored.col_indices().int(), stored.values(), h_BD.shape[1])


def _csr(starts: Tensor, columns: Tensor, values: Tensor, width: int) -> Tensor:
    size = (starts.shape[0] - 1, width)
    return torch.sparse_csr_tensor(starts, columns, values.detach(), size, check_invariants=False)
