"""Global hierarchical classifiers: swap a network's last layer for a head that knows the class taxonomy."""

from arbormax import decode, errors, functional, metrics
from arbormax.heads import FlatSoftmax, HierarchicalSoftmax, SharedSoftmax, replace_head
from arbormax.taxonomy import Taxonomy

__version__ = "0.1.0"

__all__ = [
    "FlatSoftmax",
    "HierarchicalSoftmax",
    "SharedSoftmax",
    "Taxonomy",
    "decode",
    "errors",
    "functional",
    "metrics",
    "replace_head",
]
