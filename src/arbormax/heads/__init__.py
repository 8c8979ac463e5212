"""Heads: thin modules that turn features into log-probabilities on a tree."""

from arbormax.heads.base import TreeHead
from arbormax.heads.flat import FlatSoftmax
from arbormax.heads.hierarchical import HierarchicalSoftmax
from arbormax.heads.replace import replace_head
from arbormax.heads.shared import SharedSoftmax

__all__ = ["FlatSoftmax", "HierarchicalSoftmax", "SharedSoftmax", "TreeHead", "replace_head"]
