"""A trained classifier: its settings, its folder on disk, predictions and explanations. Torch, no Lightning.

The classes are imported on first use, so that `arbormax.model.settings` needs no torch.
"""

from typing import TYPE_CHECKING

from arbormax._lazy import lazy_names
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "folder": ("ModelFolderError", "load_model", "read_metrics", "save_model"),
        "network": ("Model",),
        "settings": ("PRESETS", "TrainConfig"),
    },
)
