"""Training text classifiers: settings, Lightning, model folders, cross-validation, comparison and search."""

from arbormax.errors import MissingDependencyError

try:
    import pydantic  # noqa: F401
    import pytorch_lightning  # noqa: F401
    import safetensors  # noqa: F401
    import torchmetrics  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingDependencyError("training", str(error.name).replace("_", "-"), "train") from error

from arbormax.training.callbacks import TrainingInterrupted
from arbormax.training.compare import Comparison, compare
from arbormax.training.config import PRESETS, TrainConfig
from arbormax.training.crossval import CrossValidation, crossval
from arbormax.training.evaluate import Evaluation, evaluate
from arbormax.training.fit import Hardware, Run, fit
from arbormax.training.folder import ModelFolderError, load_model, read_metrics, save_model
from arbormax.training.folds import fold_of, held_out
from arbormax.training.model import TextModel
from arbormax.training.search import SearchError, SearchResult, SearchSpace, search

__all__ = [
    "PRESETS",
    "Comparison",
    "CrossValidation",
    "Evaluation",
    "Hardware",
    "ModelFolderError",
    "Run",
    "SearchError",
    "SearchResult",
    "SearchSpace",
    "TextModel",
    "TrainConfig",
    "TrainingInterrupted",
    "compare",
    "crossval",
    "evaluate",
    "fit",
    "fold_of",
    "held_out",
    "load_model",
    "read_metrics",
    "save_model",
    "search",
]
