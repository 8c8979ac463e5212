"""The class taxonomy: an immutable tree in arrays, its builders and its files. numpy only."""

from arbormax.taxonomy._draft import InnerClasses
from arbormax.taxonomy.tree import Taxonomy

__all__ = ["InnerClasses", "Taxonomy"]
