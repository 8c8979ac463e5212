"""The class taxonomy: an immutable tree in arrays, its builders and its files. numpy only."""

from arbormax.taxonomy._draft import InnerClasses
from arbormax.taxonomy.graph import Graph, load_taxonomy
from arbormax.taxonomy.tree import Taxonomy

__all__ = ["Graph", "InnerClasses", "Taxonomy", "load_taxonomy"]
