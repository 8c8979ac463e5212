"""Heads: the last layer of a network, from features to log-probabilities on a tree.

A new head is one class derived from `TreeHead` and one line here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arbormax._lazy import lazy_names
from arbormax._registry import Registry

if TYPE_CHECKING:
    from arbormax.heads.base import TreeHead
    from arbormax.heads.blended import BlendedSoftmax
    from arbormax.heads.flat import FlatSoftmax
    from arbormax.heads.hierarchical import HierarchicalSoftmax
    from arbormax.heads.replace import replace_head
    from arbormax.heads.shared import SharedSoftmax

__all__ = [
    "HEADS",
    "BlendedSoftmax",
    "FlatSoftmax",
    "HierarchicalSoftmax",
    "SharedSoftmax",
    "TreeHead",
    "replace_head",
]

HEADS: Registry[type[TreeHead]] = Registry("head")
HEADS.add("hierarchical", "arbormax.heads.hierarchical:HierarchicalSoftmax", "one softmax per parent")
HEADS.add("flat", "arbormax.heads.flat:FlatSoftmax", "one softmax over all classes")
HEADS.add("shared", "arbormax.heads.shared:SharedSoftmax", "one softmax, whose logits are sums along the path")
HEADS.add("blended", "arbormax.heads.blended:BlendedSoftmax", "one softmax per parent, and a row for each class on top")

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "base": ("TreeHead",),
        "blended": ("BlendedSoftmax",),
        "flat": ("FlatSoftmax",),
        "hierarchical": ("HierarchicalSoftmax",),
        "replace": ("replace_head",),
        "shared": ("SharedSoftmax",),
    },
)
