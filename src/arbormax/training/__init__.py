"""One training on Lightning: `fit`, its callbacks, optimisers and devices."""

from arbormax.errors import MissingDependencyError

try:
    import pydantic  # noqa: F401
    import pytorch_lightning  # noqa: F401
    import safetensors  # noqa: F401
    import torchmetrics  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingDependencyError("training", str(error.name).replace("_", "-"), "train") from error

from arbormax.model.run import Run
from arbormax.training.continuing import continue_training
from arbormax.training.errors import TrainingError, TrainingInterrupted, WorkerLostError
from arbormax.training.fit import fit
from arbormax.training.hardware import Hardware

__all__ = ["Hardware", "Run", "TrainingError", "TrainingInterrupted", "WorkerLostError", "continue_training", "fit"]
