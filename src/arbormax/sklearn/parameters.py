"""The parameters that both classifiers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False, repr=False, kw_only=True)
class TrainingParameters:
    """Settings of the training, most of them fields of `arbormax.model.TrainConfig`; None selects a suitable value."""

    solver: str = "auto"
    strength: float | str | None = None
    convex_loss: str | None = None
    prune: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    head_learning_rate: float | None = None
    schedule: str | None = None
    warmup: float | None = None
    adam_epsilon: float | None = None
    weight_decay: float = 0.0
    clip: float | None = 5.0
    validation: float = 0.1
    monitor: str = "both"
    patience: int | None = 3
    refit: bool = True
    calibration: str | None = None
    precision: str = "32-true"
    class_weight: str | Mapping[Any, float] | None = None
    label_smoothing: float = 0.0
    gamma: float = 0.0
    tau: float = 0.0
    hxe_alpha: float | None = None
    path_weight: float | Sequence[float] = 0.0
    adapter: int = 0
    sparse_head: bool = False
    seed: int = 0
    accelerator: str = "auto"
    devices: int | str = 1
    verbose: bool = False
