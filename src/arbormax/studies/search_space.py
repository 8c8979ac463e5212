"""The settings that a search tries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from arbormax.encoders import ENCODERS
from arbormax.heads import HEADS
from arbormax.model.settings import EncoderName, HeadName, TrainConfig, validate

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

_LIMITS = {"width": (1, math.inf), "dropout": (0, 1), "learning_rate": (1e-12, math.inf)}


class SearchSpace(BaseModel):
    """The settings to try. A range is (minimum, maximum); None keeps the value of the configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoders: tuple[EncoderName, ...] = Field(
        default_factory=lambda: tuple(name for name in ENCODERS if ENCODERS[name].searched),
        description="names of encoders",
    )
    heads: tuple[HeadName, ...] = Field(
        default_factory=lambda: HEADS.names, description="names of heads; by default all"
    )
    width: tuple[int, int] | None = Field(
        default=(32, 512), description="range of the encoder's width option, such as hidden or dim; log scale"
    )
    dropout: tuple[float, float] | None = Field(
        default=(0.0, 0.6), description="range of dropout, for encoders that have it"
    )
    learning_rate: tuple[float, float] | Literal["around"] | None = Field(
        default="around",
        description="range of the learning rate, log scale; around: a tenth to ten times the encoder's default",
    )

    @field_validator("width", "dropout", "learning_rate")
    @classmethod
    def _check_range(cls, bounds: Any, field: ValidationInfo) -> Any:
        low, high = _LIMITS[field.field_name or ""]
        if isinstance(bounds, tuple) and not low <= bounds[0] <= bounds[1] < high:
            raise ValueError(f"expected (minimum, maximum) within [{low}, {high}), found {bounds}")
        return bounds

    @classmethod
    def make(cls, **given: Any) -> Self:
        """The space with the given settings and the defaults; one error reports all wrong settings.

        >>> SearchSpace.make(encoders=["bag"], width=[8, 64]).width
        (8, 64)
        """
        return validate(cls, given, "a search space")

    def suggest(self, trial: BaseTrial, base: TrainConfig) -> TrainConfig:
        """The settings of one trial; each encoder has its own parameters in the study."""
        encoder = trial.suggest_categorical("encoder", list(self.encoders))
        head = trial.suggest_categorical("head", list(self.heads))
        kind = ENCODERS[encoder]
        changed: dict[str, Any] = {}
        if kind.width_option and self.width:
            changed[kind.width_option] = trial.suggest_int(f"{encoder}.{kind.width_option}", *self.width, log=True)
        if self.dropout and "dropout" in kind.Options.model_fields:
            changed["dropout"] = trial.suggest_float(f"{encoder}.dropout", *self.dropout)
        settings = self.settings_for(base, encoder, head, changed)
        if self.learning_rate is None:
            return settings
        bounds = self.learning_rate
        if bounds == "around":
            default = settings.model_copy(update={"learning_rate": None}).resolved().learning_rate
            assert default is not None
            bounds = (default / 10, default * 10)
        rate = trial.suggest_float(f"{encoder}.learning_rate", *bounds, log=True)
        return settings.model_copy(update={"learning_rate": rate, "head_learning_rate": None})

    @staticmethod
    def settings_for(base: TrainConfig, encoder: str, head: str, changed: dict[str, Any]) -> TrainConfig:
        """The base settings with this encoder and head; options that the encoder does not have are dropped."""
        known = ENCODERS[encoder].Options.model_fields
        own = {name: value for name, value in base.encoder_options.items() if encoder == base.encoder or name in known}
        return base.model_copy(update={"encoder": encoder, "head": head, "encoder_options": {**own, **changed}})
