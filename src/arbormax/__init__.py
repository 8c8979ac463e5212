"""Global hierarchical classifiers: swap a network's last layer for a head that knows the class taxonomy."""

from arbormax.taxonomy import Taxonomy

__all__ = ["Taxonomy"]
