"""The choice between computing with all rows of a head and computing with the rows on some paths."""

from __future__ import annotations

from math import inf
from typing import Any

import torch
from torch import Tensor

from arbormax import kernels
from arbormax.errors import OptionError
from arbormax.functional.checks import is_transformed
from arbormax.functional.index import TreeIndex, tree_index
from arbormax.functional.levels import level_logits
from arbormax.functional.linear import linear
from arbormax.functional.losses import hierarchical_cross_entropy
from arbormax.functional.paths import path_cross_entropy
from arbormax.taxonomy import Taxonomy

# With fewer rows, or fewer rows for each row on a path, one dense product is faster than look-ups; devices of other
# types may have no sparse products. On the GPU the limit depends on the host: as measured, eager steps are equally fast
# between 8,420 and 11,154 rows, and steps of a captured graph at about 1,000.
_PATH_ROWS, _SEARCH_ROWS = {"cpu": 4096, "cuda": 10_000}, {"cpu": 4096, "cuda": 1 << 15}
_RATIO = 8


def prefers_paths(index: TreeIndex) -> bool:
    """Whether the tree is so large that the loss computes the logits on the paths only."""
    return _is_large(index, _PATH_ROWS)


def prefers_search(index: TreeIndex) -> bool:
    """Whether the tree is so large that predictions search for the best leaves."""
    return _is_large(index, _SEARCH_ROWS)


def _is_large(index: TreeIndex, least: dict[str, int]) -> bool:
    rows = index.num_nodes - 1
    return rows >= least.get(index.leaves.device.type, inf) and rows >= _RATIO * index.path_width


def linear_cross_entropy(
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    target: Tensor,
    tax: Taxonomy,
    *,
    sparse: bool = False,
    impl: kernels.Impl = "auto",
    per_level: bool = False,
    **options: Any,
) -> Tensor:
    """Return `hierarchical_cross_entropy` of a linear layer, by paths on a large tree, else by all logits.

    The arguments are those of `path_cross_entropy`. `sparse` and `impl="triton"` select paths on trees of any size;
    sparse features, and transforms of torch.func, need all logits.
    """
    if sparse and h.layout != torch.strided:
        raise OptionError("sparse gradients need dense features: sparse features touch every row", argument="sparse")
    wants_paths = sparse or impl == "triton" or prefers_paths(tree_index(tax, h.device))
    if wants_paths and h.layout == torch.strided and not is_transformed():
        return path_cross_entropy(h, rows, bias, target, tax, sparse=sparse, impl=impl, per_level=per_level, **options)
    logits = level_logits(h, rows, bias, tax) if per_level else linear(h, rows, bias)
    return hierarchical_cross_entropy(logits, target, tax, **options)
