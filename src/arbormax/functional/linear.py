"""Sparse features, and a linear layer for dense and sparse ones. B batch, D features, T stored values of the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from arbormax.errors import InputError


def linear(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear` that also accepts a sparse (B, D) tensor; the gradient of the weight is dense in both cases."""
    if features.layout == torch.strided:
        return F.linear(features, weight, bias)
    if features.dim() != 2:
        raise InputError(f"expected sparse features of two dimensions, found the shape {tuple(features.shape)}")
    with torch.autocast(features.device.type, enabled=False):  # sparse products have no half-precision kernels
        logits: Tensor = torch.sparse.mm(features, weight.t())
        return logits if bias is None else logits + bias


def sparse_rows(lengths_B: Tensor, columns_T: Tensor, values_T: Tensor, num_columns: int) -> Tensor:
    """A sparse (B, D) tensor of rows with these numbers of values; the columns of a row are sorted and unique."""
    rows_B = torch.arange(len(lengths_B), device=lengths_B.device)
    rows_T = rows_B.repeat_interleave(lengths_B, output_size=len(columns_T))
    return torch.sparse_coo_tensor(
        torch.stack([rows_T, columns_T]),
        values_T,
        (len(lengths_B), num_columns),
        is_coalesced=True,
        check_invariants=False,
    )
