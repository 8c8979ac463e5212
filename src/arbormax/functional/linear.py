"""A linear layer for dense and sparse features. B batch, D features."""

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
