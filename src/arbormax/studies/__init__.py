"""Many trainings and their measures: evaluation, cross-validation, comparison and search.

Lightning is loaded on first use of `train_model`; evaluation does not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arbormax.studies.evaluate import Evaluation, evaluate

if TYPE_CHECKING:
    from arbormax.studies.train import TrainedModel, train_model

__all__ = ["Evaluation", "TrainedModel", "evaluate", "train_model"]


def __getattr__(name: str) -> Any:
    if name not in ("TrainedModel", "train_model"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from arbormax.studies import train

    return getattr(train, name)
