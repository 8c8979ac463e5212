"""A residual adapter for each level of the tree."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from arbormax.functional.levels import adapt_levels


class LevelAdapters(nn.Module):
    """From (..., D) features to (..., K, D) features of each level: `h + up_k gelu(down_k h + shift_k)`.

    The second layer starts at zero, so that all levels start with the features themselves; 2DR + R parameters for each
    of K levels.

    >>> LevelAdapters(8, levels=3, width=2)(torch.ones(5, 8)).shape
    torch.Size([5, 3, 8])
    """

    def __init__(
        self,
        in_features: int,
        levels: int,
        width: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(levels, width, in_features, device=device, dtype=dtype))
        self.shift = nn.Parameter(torch.empty(levels, width, device=device, dtype=dtype))
        self.up = nn.Parameter(torch.empty(levels, in_features, width, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the parameters again: every level has the features themselves."""
        nn.init.normal_(self.down, std=self.down.shape[-1] ** -0.5)
        nn.init.zeros_(self.shift)
        nn.init.zeros_(self.up)

    def forward(self, h: Tensor) -> Tensor:
        return adapt_levels(h, self.down, self.shift, self.up)
