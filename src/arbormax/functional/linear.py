"""Linear layers: for dense and for sparse features, and for features that differ from level to level.

B batch, D features, T stored values of the batch, K levels below the root, M rows, R width of the adapters.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from arbormax.errors import InputError
from arbormax.functional.index import tree_index
from arbormax.taxonomy import Taxonomy


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


def adapt_levels(h: Tensor, down: Tensor, shift: Tensor, up: Tensor) -> Tensor:
    """Return (..., K, D) features of each level: `h + up @ gelu(down @ h + shift)`.

    Args:
        h: (..., D) features.
        down: (K, R, D) weights of the first layer.
        shift: (K, R) biases of the first layer.
        up: (K, D, R) weights of the second layer.

    >>> adapt_levels(torch.ones(4), torch.ones(2, 3, 4), torch.zeros(2, 3), torch.zeros(2, 4, 3)).shape
    torch.Size([2, 4])
    """
    hidden = F.gelu(F.linear(h, down.flatten(0, 1), shift.flatten())).view(*h.shape[:-1], *down.shape[:2])
    return h.unsqueeze(-2) + torch.matmul(hidden.unsqueeze(-2), up.transpose(1, 2)).squeeze(-2)


def level_logits(h: Tensor, rows: Tensor, bias: Tensor | None, tax: Taxonomy) -> Tensor:
    """Return (..., M) logits from (..., K, D) features, in which the rows of a level meet the features of that level.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> level_logits(torch.tensor([[1.0], [10.0]]), torch.ones(5, 1), None, tax)
    tensor([ 1.,  1., 10., 10., 10.])
    """
    sizes = list(tree_index(tax, h.device).levels)
    biases = [None] * len(sizes) if bias is None else torch.split(bias, sizes)
    parts = zip(h.unbind(-2), torch.split(rows, sizes), biases, strict=True)
    return torch.cat([F.linear(level_h, level_rows, level_bias) for level_h, level_rows, level_bias in parts], dim=-1)
