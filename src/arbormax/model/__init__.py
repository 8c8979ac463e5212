"""A trained classifier: its settings, its folder on disk, predictions and explanations. Torch, no Lightning."""

from arbormax.errors import MissingDependencyError

try:
    import pydantic  # noqa: F401
    import safetensors  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingDependencyError("a trained model", str(error.name), "train") from error

from arbormax.model.folder import ModelFolderError, load_model, read_metrics, save_model
from arbormax.model.network import Model
from arbormax.model.settings import PRESETS, TrainConfig

__all__ = ["PRESETS", "Model", "ModelFolderError", "TrainConfig", "load_model", "read_metrics", "save_model"]
