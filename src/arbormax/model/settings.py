"""All settings of a training run in one place, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from arbormax.encoders import EncoderOptions, encoder_kind
from arbormax.errors import OptionError, did_you_mean
from arbormax.heads import HEADS

M = TypeVar("M", bound=BaseModel)

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "encoder": "bilstm",
        "encoder_options": {"hidden": 150, "dropout": 0.5, "tokens": "whitespace"},
        "learning_rate": 1e-3,
        "head_learning_rate": 1e-3,
        "schedule": "constant",
        "batch_size": 10,
        "clip": 5.0,
    },
}

_STEPS = 20  # an epoch has at least so many, where the data allow it and the batch size was left open

# What an encoder does not set otherwise.
_USUAL: Mapping[str, Any] = {
    "learning_rate": 1e-3,
    "batch_size": 64,
    "epochs": 20,
    "schedule": "linear",
    "warmup": 0.0,
    "adam_epsilon": 1e-8,
}


class TrainConfig(BaseModel):
    """The settings of a run; None stands for what the encoder does best with.

    >>> TrainConfig.make(preset="paper", epochs=3).batch_size
    10
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    encoder: str = Field("bag", description="name of a registered encoder")
    encoder_options: dict[str, Any] = Field(default_factory=dict, description="the encoder's own settings")
    head: Annotated[str, AfterValidator(HEADS.check)] = Field("hierarchical", description=", ".join(HEADS.names))
    seed: int = Field(0, ge=0, lt=2**32, description="of weights, order and dropout")
    epochs: int | None = Field(None, ge=1, description="passes over the training texts, at most")
    batch_size: int | None = Field(None, ge=1, description="texts per step and device")
    learning_rate: float | None = Field(None, gt=0, description="of the encoder")
    head_learning_rate: float | None = Field(None, gt=0, description="of the head; None: the encoder's")
    schedule: Literal["linear", "constant"] | None = Field(None, description="linear falls to zero over the epochs")
    warmup: float | None = Field(None, ge=0, lt=1, description="share of the steps in which the rate rises")
    adam_epsilon: float | None = Field(None, gt=0, description="of Adam; larger is nearer to plain gradient descent")
    weight_decay: float = Field(0.0, ge=0, description="of AdamW, on dense parameters")
    clip: float | None = Field(5.0, gt=0, description="largest norm of the gradient; None: any")
    validation: float = Field(0.1, ge=0, lt=1, description="share of the texts held out to stop early; 0: none")
    patience: int | None = Field(3, ge=1, description="epochs without a better macro-F1 before stopping; None: never")
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = Field("32-true", description="of Lightning")
    class_weight: Literal["balanced"] | dict[str, float] | None = Field(None, description="weights of the classes")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="among siblings; among all classes with one softmax")
    gamma: float = Field(0.0, ge=0, description="focal loss at every step; hierarchical head only")
    tau: float = Field(0.0, ge=0, description="logit adjustment by sibling frequencies; hierarchical head only")
    hxe_alpha: float | None = Field(None, ge=0, description="Bertinetto's level weights; hierarchical head only")
    sparse_head: bool = Field(
        False, description="a step touches the head's rows on the paths only, for very many classes; hierarchical only"
    )

    @classmethod
    def make(cls, preset: str | None = None, **given: Any) -> Self:
        """The settings with a preset under those given; one error tells all that is wrong."""
        if preset is not None and preset not in PRESETS:
            near = did_you_mean(str(preset), PRESETS)
            raise OptionError(f"preset is one of {', '.join(PRESETS)}; found {preset!r}{near}")
        base = dict(PRESETS[preset]) if preset else {}
        if given.get("encoder", "") is None:
            del given["encoder"]
        if "encoder_options" in base and given.get("encoder", base.get("encoder")) in (None, base.get("encoder")):
            own = given.get("encoder_options") or {}
            given["encoder_options"] = {**base["encoder_options"], **own} if isinstance(own, Mapping) else own
        else:
            base.pop("encoder_options", None)
        none_says = {"clip", "patience"}  # where None is a setting; elsewhere it leaves the preset's alone
        base.update({n: value for n, value in given.items() if value is not None or n not in base or n in none_says})
        return checked(cls, base)

    @property
    def options(self) -> EncoderOptions:
        """The encoder's own settings, checked."""
        return checked(encoder_kind(self.encoder).Options, self.encoder_options, f"encoder {self.encoder!r}")

    def resolved(self, items: int | None = None) -> Self:
        """These settings with every None filled in that the encoder has an opinion on.

        Batches made for large data would leave a hundred texts with one step an epoch: given the number of texts to
        train on, a batch that was not chosen is a twentieth of them at most.
        """
        self.check()
        kind = encoder_kind(self.encoder)
        defaults = {**_USUAL, **kind.training_defaults}
        filled = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        if items is not None and self.batch_size is None:
            filled["batch_size"] = min(filled["batch_size"], max(1, items // _STEPS))
        settings = self.model_copy(update=filled)
        if settings.head_learning_rate is None:
            settings = settings.model_copy(update={"head_learning_rate": settings.learning_rate})
        return settings

    def check(self) -> None:
        """Raise for what no single field can tell."""
        self.options  # noqa: B018 - raises
        head = HEADS[self.head]
        if self.sparse_head and (not head.supports_sparse or encoder_kind(self.encoder).gives_sparse):
            found = (
                f"encoder={self.encoder!r}, whose features are sparse"
                if head.supports_sparse
                else f"head={self.head!r}"
            )
            raise OptionError(f"sparse_head needs head='hierarchical' and dense features; found {found}")
        if not head.sibling_options and (spoken := sibling_options(self)):
            speak, need = ("speaks", "needs") if len(spoken) == 1 else ("speak", "need")
            raise OptionError(f"{', '.join(spoken)} {speak} of siblings and {need} head='hierarchical'")


def sibling_options(config: TrainConfig) -> list[str]:
    """The options in use that only a softmax per group of siblings can follow."""
    used = [name for name in ("gamma", "tau") if getattr(config, name)]
    return used + (["hxe_alpha"] if config.hxe_alpha is not None else [])


def checked(kind: type[M], values: Mapping[str, Any], what: str = "training") -> M:
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise OptionError(_told(error, kind, what)) from None


def _told(error: ValidationError, kind: type[BaseModel], what: str) -> str:
    lines = []
    for problem in error.errors():
        name, owner = ".".join(map(str, problem["loc"])), _owner(kind, problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = sorted(owner.model_fields)
            near = did_you_mean(str(problem["loc"][-1]), known) or f"; it knows {', '.join(known)}"
            lines.append(f"{what} has no option {name!r}{near}")
        elif problem["type"] == "missing":
            about = owner.model_fields[str(problem["loc"][-1])].description
            lines.append(f"{what} needs the option {name!r}" + (f": {about}" if about else ""))
        elif problem["type"] == "value_error" and isinstance(problem["input"], Mapping):  # of a whole model
            lines.append(": ".join(filter(None, (name, str(problem["ctx"]["error"])))))
        elif isinstance(raised := problem.get("ctx", {}).get("error"), OptionError):
            lines.append(f"{name}: {raised.message}")
        else:
            lines.append(f"{name}: {problem['msg'][0].lower()}{problem['msg'][1:]}, found {problem['input']!r}")
    return "\n".join(lines)


def _owner(kind: type[BaseModel], place: Sequence[str | int]) -> type[BaseModel]:
    """The model, of those inside each other, that a place lies in."""
    for part in place[:-1]:
        field = kind.model_fields.get(str(part))
        inner = get_args(field.annotation) if field else ()
        kind = next((one for one in inner if isinstance(one, type) and issubclass(one, BaseModel)), kind)
    return kind
