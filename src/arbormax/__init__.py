"""Global hierarchical classifiers: swap a network's last layer for a head that knows the class taxonomy.

The public names are loaded when first asked for: a taxonomy needs no torch, and the command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arbormax import decode, errors, functional, metrics
    from arbormax.heads import FlatSoftmax, HierarchicalSoftmax, SharedSoftmax
    from arbormax.heads.edit import edit
    from arbormax.integrations.features import HierarchicalClassifier
    from arbormax.integrations.hf import from_pretrained, trainer_loss
    from arbormax.integrations.replace import replace_head
    from arbormax.integrations.text import TextClassifier
    from arbormax.taxonomy import Taxonomy

__version__ = "0.1.0"

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

_ROOMS = {
    "FlatSoftmax": "arbormax.heads",
    "HierarchicalClassifier": "arbormax.integrations.features",
    "HierarchicalSoftmax": "arbormax.heads",
    "SharedSoftmax": "arbormax.heads",
    "Taxonomy": "arbormax.taxonomy",
    "TextClassifier": "arbormax.integrations.text",
    "edit": "arbormax.heads.edit",
    "from_pretrained": "arbormax.integrations.hf",
    "replace_head": "arbormax.integrations.replace",
    "trainer_loss": "arbormax.integrations.hf",
}
_MODULES = ("data", "decode", "encoders", "errors", "functional", "metrics", "training")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"arbormax.{name}")
    if name not in _ROOMS:
        raise AttributeError(f"module 'arbormax' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_ROOMS[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS, *_MODULES})
