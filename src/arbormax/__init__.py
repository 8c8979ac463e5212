"""Global hierarchical classifiers: swap a network's last layer for a head that knows the class taxonomy."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arbormax import decode, errors, functional, metrics
from arbormax.heads import FlatSoftmax, HierarchicalSoftmax, SharedSoftmax, replace_head
from arbormax.taxonomy import Taxonomy

if TYPE_CHECKING:
    from arbormax.integrations.text import TextClassifier

__version__ = "0.1.0"

__all__ = [
    "FlatSoftmax",
    "HierarchicalSoftmax",
    "SharedSoftmax",
    "Taxonomy",
    "TextClassifier",
    "decode",
    "errors",
    "functional",
    "metrics",
    "replace_head",
]

# Names whose modules need more than torch and numpy: imported when they are asked for.
_LAZY = {"TextClassifier": "arbormax.integrations.text"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'arbormax' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
