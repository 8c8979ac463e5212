"""A trained classifier: its settings, its folder on disk, predictions and explanations. Torch, no Lightning.

The classes are imported on first use, so that `arbormax.model.settings` needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arbormax.errors import MissingDependencyError

try:
    import pydantic  # noqa: F401
    import safetensors  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingDependencyError("a trained model", str(error.name), "train") from error

if TYPE_CHECKING:
    from arbormax.model.folder import ModelFolderError, load_model, read_metrics, save_model
    from arbormax.model.network import Model
    from arbormax.model.settings import PRESETS, TrainConfig

__all__ = ["PRESETS", "Model", "ModelFolderError", "TrainConfig", "load_model", "read_metrics", "save_model"]

_MODULES = {
    "PRESETS": "settings",
    "Model": "network",
    "ModelFolderError": "folder",
    "TrainConfig": "settings",
    "load_model": "folder",
    "read_metrics": "folder",
    "save_model": "folder",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"arbormax.model.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
