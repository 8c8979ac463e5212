"""Many trainings and their measures: evaluation, cross-validation, comparison and search.

Lightning is loaded on first use of `train_model`; evaluation does not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arbormax._lazy import lazy_names
from arbormax.studies.evaluate import Evaluation, evaluate

if TYPE_CHECKING:
    from arbormax.studies.train import TrainedModel, train_model

__all__ = ["Evaluation", "TrainedModel", "evaluate", "train_model"]


__getattr__, __dir__ = lazy_names(__name__, {"train": ("TrainedModel", "train_model")})
