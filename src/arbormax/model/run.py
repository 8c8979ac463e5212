"""The result of a training."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arbormax.model.network import Model


@dataclass(frozen=True)
class Run:
    """A finished training: the model, and how the training went."""

    model: Model
    epochs: int  # number of epochs that were run
    best_epoch: int  # counted from 1; the last one if nothing was held out
    valid_macro_f1: float | None
    seconds: float  # training time, over all restarts
    curve: tuple[dict[str, float], ...] = ()  # loss, macro_f1, accuracy and hf on the held-out examples of each epoch
    calibration: dict[str, Any] | None = None  # what the calibration on the held-out examples changed
    refit_epochs: int | None = None  # epochs of the training on all examples; without it, the weights are the best's

    def to_record(self) -> dict[str, Any]:
        """All fields but the model and its calibration, as plain values for JSON."""
        names = [field.name for field in fields(self) if field.name not in ("model", "calibration")]
        values = {name: getattr(self, name) for name in names}
        return {**values, "curve": [dict(epoch) for epoch in self.curve]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], model: Model) -> Self:
        """The run that `to_record` described."""
        values = dict(record)
        if values.get("best_epoch") is None:  # as version 0.1 wrote it where nothing was held out
            values["best_epoch"] = values["epochs"]
        return cls(model, **{**values, "curve": tuple(values.get("curve", ()))})
