"""The random numbers of the draws of a posterior, which are the same for every item.

An item therefore has the same draws in every batch.
"""

from __future__ import annotations

import torch
from torch import Tensor


def standard_normals(draws: int, size: int, generator: torch.Generator) -> Tensor:
    """(draws, size) normal values; each column is shifted and scaled to a mean of 0 and a variance of 1.

    >>> standard_normals(2, 3, torch.Generator().manual_seed(0)).abs().round()
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """
    normal = torch.randn(draws, size, generator=generator, device=generator.device)
    std, mean = torch.std_mean(normal, 0, correction=0)
    return (normal - mean) / std
