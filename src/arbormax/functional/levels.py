"""Features that differ from level to level: a residual adapter for each level of the tree.

B batch, D features, K levels below the root, M rows, R width of the adapters.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from arbormax.functional.index import tree_index
from arbormax.taxonomy import Taxonomy


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
