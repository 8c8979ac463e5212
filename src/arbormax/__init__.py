"""Global hierarchical classifiers: swap a network's last layer for a head that knows the class taxonomy.

The public names are loaded when first asked for: a taxonomy needs no torch, and the command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arbormax._version import __version__ as __version__

if TYPE_CHECKING:
    from arbormax import decode, errors, functional, metrics
    from arbormax.heads import FlatSoftmax, HierarchicalSoftmax, SharedSoftmax
    from arbormax.heads.edit import edit
    from arbormax.integrations.replace import replace_head
    from arbormax.integrations.transformers import from_pretrained, trainer_loss
    from arbormax.sklearn.features import HierarchicalClassifier
    from arbormax.sklearn.text import TextClassifier
    from arbormax.taxonomy import Taxonomy


__all__ = [
    "FlatSoftmax",
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
    "metrics",
    "replace_head",
    "trainer_loss",
]

_HOMES = {
    "FlatSoftmax": "arbormax.heads",
    "HierarchicalClassifier": "arbormax.sklearn.features",
    "HierarchicalSoftmax": "arbormax.heads",
    "SharedSoftmax": "arbormax.heads",
    "Taxonomy": "arbormax.taxonomy",
    "TextClassifier": "arbormax.sklearn.text",
    "edit": "arbormax.heads.edit",
    "from_pretrained": "arbormax.integrations.transformers",
    "replace_head": "arbormax.integrations.replace",
    "trainer_loss": "arbormax.integrations.transformers",
}
_MODULES = ("data", "decode", "encoders", "errors", "functional", "metrics", "model", "studies", "training")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"arbormax.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'arbormax' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
