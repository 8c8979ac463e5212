"""The weight of a head with few values: only these are stored, trained and saved.

D features, M rows, E values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from arbormax.errors import InputError
from arbormax.functional.sparse import Frequent, SparseRows, find_frequent, sparse_linear


class SparseWeight(nn.Module):
    """An (M, D) weight in which a row has values for some features only; all others are zero.

    A new one has no values. `set_rows` sets them, and loading a state dict takes as many as were saved.
    """

    rows: Tensor  # (E,) int32
    columns: Tensor  # (E,) the feature of each value, which follows from `starts`
    starts: Tensor  # (D + 1,) int32

    def __init__(
        self,
        num_rows: int,
        in_features: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_rows, self.in_features = num_rows, in_features
        self._cached: tuple[tuple[int, int, int], Frequent] | None = None
        self.values = nn.Parameter(torch.empty(0, device=device, dtype=dtype))
        self.register_buffer("rows", torch.empty(0, dtype=torch.int32, device=device))
        self.register_buffer("starts", torch.zeros(in_features + 1, dtype=torch.int32, device=device))
        self.register_buffer("columns", torch.empty(0, dtype=torch.int64, device=device), persistent=False)

    def tensors(self) -> SparseRows:
        return SparseRows(self.values, self.rows, self.starts, self.columns, self.num_rows)

    def forward(self, h: Tensor, bias: Tensor | None) -> Tensor:
        """Return the (..., M) product of the features with the rows, plus the bias."""
        weight = self.tensors()
        if h.layout == torch.strided or torch.is_grad_enabled():
            return sparse_linear(h, weight, bias)
        # torch counts the changes of a tensor, and has no public name for that
        version = (self.values.data_ptr(), self.values._version, len(self.values))  # noqa: SLF001
        if self._cached is None or self._cached[0] != version:
            self._cached = version, find_frequent(weight)
        return sparse_linear(h, weight, bias, self._cached[1])

    @torch.no_grad()
    def set_rows(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
        """Set the values at these rows and columns, each pair once; all others are zero."""
        order = np.lexsort((rows, columns))
        starts = np.zeros(self.in_features + 1, np.int64)
        np.cumsum(np.bincount(columns, minlength=self.in_features), out=starts[1:])
        if len(starts) != self.in_features + 1 or starts[-1] > np.iinfo(np.int32).max:
            raise InputError(f"expected columns below {self.in_features:,}, and fewer than 2³¹ values")
        device, dtype = self.values.device, self.values.dtype
        new_values = torch.from_numpy(np.asarray(values)[order]).to(device, dtype)
        self.values = nn.Parameter(new_values, requires_grad=self.values.requires_grad)
        self.rows = torch.from_numpy(rows[order].astype(np.int32)).to(device)
        self.starts = torch.from_numpy(starts.astype(np.int32)).to(device)
        self._find_columns()
        self.tensors().check()

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the values of these rows: their positions among `rows`, their columns and the values."""
        position = np.full(self.num_rows, -1, np.int64)
        position[rows] = np.arange(len(rows))
        found = position[self.rows.cpu().numpy()]
        is_read = found >= 0
        columns = self.columns.cpu().numpy()
        return found[is_read], columns[is_read], self.values.detach().cpu().numpy()[is_read]

    def extra_repr(self) -> str:
        return f"{self.num_rows} × {self.in_features}, {len(self.values):,} values"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        names = [prefix + name for name in ("values", "rows", "starts")]
        if all(name in state_dict for name in names):
            values, rows, starts = (state_dict[name] for name in names)
            if values.device.type != "meta":
                SparseRows(values, rows, starts, rows, self.num_rows).check()
            if values.shape != self.values.shape:
                self.values = nn.Parameter(self.values.new_empty(values.shape), self.values.requires_grad)
                self.rows = self.rows.new_empty(rows.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self._find_columns()

    def _find_columns(self) -> None:
        features = torch.arange(self.in_features, device=self.starts.device)
        if self.starts.device.type != "meta":
            self.columns = features.repeat_interleave(self.starts.diff())
