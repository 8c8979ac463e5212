"""Global hierarchical classifiers: replace a network's last layer with a head that knows the class taxonomy.

The public names are imported on first use, so that a taxonomy needs no torch and the command line starts quickly.
"""

from typing import TYPE_CHECKING

from arbormax._lazy import lazy_names
from arbormax._version import __version__ as __version__

if TYPE_CHECKING:
    from arbormax import decode, errors, functional, metrics
    from arbormax.heads import BlendedSoftmax, FlatSoftmax, HierarchicalSoftmax, SharedSoftmax
    from arbormax.heads.edit import edit
    from arbormax.induce import induce
    from arbormax.integrations.replace import replace_head
    from arbormax.integrations.transformers import from_pretrained, trainer_loss
    from arbormax.sklearn.features import HierarchicalClassifier
    from arbormax.sklearn.text import TextClassifier
    from arbormax.taxonomy import Graph, Taxonomy


__all__ = [
    "BlendedSoftmax",
    "FlatSoftmax",
    "Graph",
    "HierarchicalClassifier",
    "HierarchicalSoftmax",
    "SharedSoftmax",
    "Taxonomy",
    "TextClassifier",
    "decode",
    "edit",
    "errors",
    "from_pretrained",
    "functional",
    "induce",
    "metrics",
    "replace_head",
    "trainer_loss",
]

_SUBMODULES = (
    "data",
    "decode",
    "encoders",
    "errors",
    "functional",
    "heads",
    "induce",
    "metrics",
    "model",
    "studies",
    "taxonomy",
    "training",
    "uncertainty",
)
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(_SUBMODULES, ()),
        "heads": ("heads", "BlendedSoftmax", "FlatSoftmax", "HierarchicalSoftmax", "SharedSoftmax"),
        "heads.edit": ("edit",),
        "integrations.replace": ("replace_head",),
        "integrations.transformers": ("from_pretrained", "trainer_loss"),
        "sklearn.features": ("HierarchicalClassifier",),
        "sklearn.text": ("TextClassifier",),
        "taxonomy": ("taxonomy", "Graph", "Taxonomy"),
    },
)
