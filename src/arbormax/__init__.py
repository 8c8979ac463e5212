"""Global hierarchical classifiers: replace a network's last layer with a head that knows the class taxonomy.

The public names are imported on first use, so that a taxonomy needs no torch and the command line starts quickly.
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

_MODULE_OF = {
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
_SUBMODULES = (
    "data",
    "decode",
    "encoders",
    "errors",
    "functional",
    "heads",
    "metrics",
    "model",
    "studies",
    "taxonomy",
    "training",
)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"arbormax.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'arbormax' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_SUBMODULES})
