"""The product of features with a weight that has few values.

B batch, D features, M rows of the weight, E values of the weight.
"""

from __future__ import annotations

from typing import NamedTuple

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


def to_matrix(weight: SparseRows) -> Tensor:
    """Return the transposed weight as a sparse (D, M) tensor."""
    return torch.sparse_coo_tensor(
        torch.stack([weight.columns, weight.rows.long()]),
        weight.values,
        (weight.num_features, weight.num_rows),
        is_coalesced=True,
        check_invariants=False,
    )


Frequent = Tensor
find_frequent = to_matrix  # the names that heads use


def sparse_linear(features: Tensor, weight: SparseRows, bias: Tensor | None, matrix: Tensor | None = None) -> Tensor:
    """Return the (..., M) product of dense (..., D) or sparse (B, D) features with a sparse weight, plus the bias.

    `matrix` is the result of `to_matrix`, for callers that multiply by the same weight several times.
    """
    with torch.autocast(features.device.type, enabled=False):  # sparse products have no half-precision kernels
        if features.layout == torch.strided:
            cells = features[..., weight.columns] * weight.values
            logits = cells.new_zeros(*features.shape[:-1], weight.num_rows).index_add(-1, weight.rows.long(), cells)
        else:
            if features.dim() != 2:
                raise InputError(f"expected sparse features of two dimensions, found shape {tuple(features.shape)}")
            matrix = to_matrix(weight) if matrix is None else matrix
            logits = torch.sparse.mm(features.to(matrix.dtype), matrix).to_dense()
        return logits if bias is None else logits + bias
