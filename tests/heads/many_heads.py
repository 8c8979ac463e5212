"""Shared by the tests of heads: the heads, a tree with many special cases, and random features."""

from __future__ import annotations

import torch
from torch import Tensor

import arbormax as am

HEADS = [am.HierarchicalSoftmax, am.FlatSoftmax, am.SharedSoftmax, am.BlendedSoftmax]
NESTED = {"a": ["x", "y"], "b": ["z", {"c": ["u", "v", "w"]}], "o": ["only"], "early": []}
TREE = am.Taxonomy.from_nested(NESTED, classes=["w", "x", "only", "u", "early", "z", "v", "y"])
C, N, D = TREE.num_leaves, TREE.num_nodes, 6


def fresh_tree() -> am.Taxonomy:
    """Return TREE as a new object without cached tensors."""
    return am.Taxonomy.from_nested(NESTED, classes=TREE.classes)


def large_tree() -> am.Taxonomy:
    """22³ classes: too many for a table of windows."""
    return am.Taxonomy.from_parents([-1, *[node // 22 for node in range(22 + 22**2 + 22**3)]])


def make(kind: type, tax: am.Taxonomy = TREE, seed: int = 0, dtype: torch.dtype = torch.float64, **options):
    """Return a head with random weights and biases."""
    head = kind(options.pop("in_features", D), tax, dtype=dtype, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return head


def features(*batch: int, seed: int = 1, dtype: torch.dtype = torch.float64, width: int = D) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*batch, width, generator=generator, dtype=torch.float64).to(dtype)


def targets(kind: str, *batch: int, tax: am.Taxonomy = TREE, seed: int = 2) -> Tensor:
    """Random class ids, or node ids with kind "node"."""
    limit = tax.num_leaves if kind == "class" else tax.num_nodes
    return torch.randint(limit, batch, generator=torch.Generator().manual_seed(seed))
