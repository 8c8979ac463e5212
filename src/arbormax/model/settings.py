"""The settings of a training, checked before it starts.

`TrainConfig` is the only list of settings: the options of the command line and the estimators' parameters follow it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from arbormax._registry import Registry
from arbormax.data.columns import InputColumns
from arbormax.encoders import ENCODERS, check_encoder
from arbormax.errors import ArbormaxError, OptionError, did_you_mean
from arbormax.heads import HEADS
from arbormax.model.posterior import UNCERTAINTIES

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from arbormax.encoders import EncoderOptions
    from arbormax.heads import TreeHead
    from arbormax.model.posterior import PosteriorOptions

M = TypeVar("M", bound=BaseModel)

PRESETS: Registry[Mapping[str, Any]] = Registry("preset")
PRESETS.add(
    "paper",
    {
        "encoder": "bilstm",
        "head": "hierarchical",
        "encoder_options": {"hidden": 150, "dropout": 0.5, "tokens": "whitespace"},
        "learning_rate": 1e-3,
        "head_learning_rate": 1e-3,
        "schedule": "constant",
        "batch_size": 10,
        "clip": 5.0,
        "monitor": "macro_f1",
        "refit": False,
    },
    "the settings of the paper",
)

_HEAD = "hierarchical"  # supports all settings but path_weight
MOST_CLASSES = 5_000  # a softmax over more classes is too slow for a default
_MIN_STEPS = 20  # steps of an epoch that a default batch size leaves on small data

_HEAD_SETTINGS = {"sparse_head": "supports_sparse", "adapter": "supports_adapter"}  # what they need of the head
_CONVEX_SETTINGS = ("strength", "convex_loss", "prune", "parent_prior")
ADAM_SETTINGS = (
    *("epochs", "batch_size", "learning_rate", "head_learning_rate", "schedule", "warmup", "adam_epsilon"),
    *("weight_decay", "clip", "patience", "monitor", "precision", "sparse_head", "adapter"),
)

# Used where neither the caller nor the encoder sets a value.
_DEFAULTS: Mapping[str, Any] = {
    "learning_rate": 1e-3,
    "batch_size": 64,
    "epochs": 20,
    "schedule": "linear",
    "warmup": 0.0,
    "adam_epsilon": 1e-8,
}


@dataclass(frozen=True)
class LossOption:
    """Marks a setting that is passed to `head.loss`; `needs`: the class attribute of the heads that support it."""

    needs: Literal["sibling_options", "path_options"] | None = None
    argument: str | None = None  # of the loss; None for the name of the setting

    @property
    def acts_on(self) -> str:
        """What the option acts on, for messages about heads that do not have it."""
        return "sibling groups" if self.needs == "sibling_options" else "sums over leaves"


def _read_shares(value: Any) -> float | tuple[float, ...]:
    """One share of at least 0 and below 1, or a share for each level, also as text: 0.2,0.4."""
    parts = value.split(",") if isinstance(value, str) else value
    try:
        shares = tuple(float(part) for part in parts) if isinstance(parts, (list, tuple)) else (float(parts),)
    except (TypeError, ValueError):
        shares = ()
    if not shares or not all(share >= 0 for share in shares) or not sum(shares) < 1:
        raise ValueError(f"expected one number, or one for each level, with a sum from 0 to below 1, found {value!r}")
    is_single = not isinstance(parts, (list, tuple)) or (isinstance(value, str) and len(parts) == 1)
    return shares[0] if is_single else shares


def _read_strength(value: Any) -> Any:
    """A number greater than 0, also as text, "auto" or None."""
    try:
        number = value if value in ("auto", None) else float(value)
    except (TypeError, ValueError):
        number = 0.0
    if number not in ("auto", None) and not 0 < number < math.inf:
        raise ValueError(f"expected a number greater than 0, or 'auto', found {value!r}")
    return number


HeadName = Annotated[str, AfterValidator(HEADS.check)]
UncertaintyName = Annotated[str, AfterValidator(UNCERTAINTIES.check)]
EncoderName = Annotated[str, AfterValidator(check_encoder)]


class TrainConfig(BaseModel):
    """The settings of a training; None selects the default of the encoder.

    >>> TrainConfig.make(preset="paper", epochs=3).batch_size
    10
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    encoder: EncoderName = Field("tfidf", description="name of a registered encoder")
    encoder_options: dict[str, Any] = Field(default_factory=dict, description="options of the encoder")
    head: HeadName = Field(
        "hierarchical", description="name of a registered head; by default the best one for the encoder"
    )
    solver: Literal["auto", "adam", "convex"] = Field(
        "auto",
        description="how the head is trained: adam, or convex for encoders with fixed features; auto selects convex "
        "where it is possible and no setting of adam is given",
    )
    strength: Annotated[Literal["auto"] | float | None, BeforeValidator(_read_strength)] = Field(
        None,
        description="C of the convex solver, smaller for more regularisation; by default 2 for sparse features and 20 "
        "for dense ones; auto selects it by the held-out loss",
    )
    convex_loss: Literal["squared_hinge", "log"] | None = Field(
        None, description="loss of the convex solver; by default squared_hinge for sparse features, log for dense ones"
    )
    prune: float | None = Field(
        None, ge=0, description="weights of the convex solver up to this size become zero; by default 0.01 if sparse"
    )
    parent_prior: float = Field(
        0.0,
        ge=0,
        description="the convex solver draws a row towards this multiple of the row of its parent: the rows of classes "
        "of a blended head, all rows of a hierarchical one",
    )
    seed: int = Field(0, ge=0, lt=2**32, description="random seed of the weights, the order of the texts and dropout")
    freeze_encoder: bool = Field(
        False, description="where a trained model continues: keep its encoder, and train only its head"
    )
    epochs: int | None = Field(None, ge=1, description="maximum number of epochs")
    batch_size: int | None = Field(None, ge=1, description="texts per step and device")
    learning_rate: float | None = Field(None, gt=0, description="learning rate of the encoder")
    head_learning_rate: float | None = Field(
        None, gt=0, description="learning rate of the head; by default the encoder's"
    )
    schedule: Literal["linear", "constant"] | None = Field(
        None, description="schedule of the learning rate: linear (decay to zero) or constant"
    )
    warmup: float | None = Field(
        None, ge=0, lt=1, description="share of the steps during which the learning rate rises from zero"
    )
    adam_epsilon: float | None = Field(
        None, gt=0, description="epsilon of Adam; larger values are closer to plain gradient descent"
    )
    weight_decay: float = Field(0.0, ge=0, description="weight decay of AdamW, on dense parameters")
    clip: float | None = Field(5.0, gt=0, description="maximum norm of the gradient")
    validation: float = Field(
        0.1, ge=0, lt=1, description="share of the texts held out for early stopping; 0 holds out none"
    )
    monitor: Literal["both", "macro_f1", "accuracy", "loss"] = Field(
        "both",
        description="validation measure that selects the best epoch; both is the highest macro_f1 among the epochs "
        "with nearly the lowest loss",
    )
    patience: int | None = Field(3, ge=1, description="epochs without a better one before training stops")
    refit: bool = Field(
        True, description="after early stopping, train again on all texts for the best number of epochs"
    )
    calibration: str | None = Field(
        None,
        description="how the probabilities are calibrated on the held-out texts: the name of a registered calibration, "
        "or none",
    )
    uncertainty: UncertaintyName | None = Field(
        None, description="how the model estimates its own uncertainty: the name of a registered method"
    )
    uncertainty_options: dict[str, Any] = Field(default_factory=dict, description="options of this method")
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = Field(
        "32-true", description="numerical precision, as Lightning names it"
    )
    class_weight: Literal["balanced"] | dict[str, float] | None = Field(
        None, description="weights of the classes: balanced gives rare classes more weight"
    )
    label_smoothing: Annotated[float, LossOption()] = Field(
        0.0, ge=0, lt=1, description="label smoothing among siblings, or among all classes with another head"
    )
    gamma: Annotated[float, LossOption("sibling_options")] = Field(
        0.0, ge=0, description="gamma of the focal loss at every step; heads with sibling groups only"
    )
    logit_adjustment: Annotated[float, LossOption("sibling_options", argument="tau")] = Field(
        0.0, ge=0, description="strength of the logit adjustment by sibling frequencies; heads with sibling groups only"
    )
    hxe_alpha: Annotated[float | None, LossOption("sibling_options")] = Field(
        None, ge=0, description="alpha of the level weights of Bertinetto et al.; heads with sibling groups only"
    )
    path_weight: Annotated[float | tuple[float, ...], LossOption("path_options"), BeforeValidator(_read_shares)] = (
        Field(
            0.0,
            description="share of the loss on the ancestors of the label, or one share per level, such as 0.2,0.4; "
            "heads with one softmax only",
        )
    )
    adapter: int = Field(
        0, ge=0, description="width of a residual adapter for each level; 0 for none; heads with sibling groups only"
    )
    names: Literal["none", "init", "tied", "only"] | None = Field(
        None,
        description="use of the texts of nodes, or of their names: none, init (rows start from them), tied (rows are a "
        "projection of them plus free rows), only (no training data); default: init with the convex solver, else none",
    )
    sparse_head: bool = Field(
        False,
        description="update only the head's rows on the paths of a batch; heads with sibling groups only",
    )
    columns: InputColumns = Field(InputColumns(), description="columns of a table that make the text")
    separator: str | None = Field(
        None, description="text between the names of a path in the labels, which written predictions repeat"
    )

    @model_validator(mode="before")
    @classmethod
    def _rename_settings(cls, values: Any) -> Any:
        """Accept the former name of `logit_adjustment`, which models of version 0.2 have."""
        if not isinstance(values, Mapping) or "tau" not in values:
            return values
        rest = {name: value for name, value in values.items() if name != "tau"}
        return rest if "logit_adjustment" in rest else {**rest, "logit_adjustment": values["tau"]}

    @model_validator(mode="before")
    @classmethod
    def _without_open_head(cls, values: Any) -> Any:
        is_open = isinstance(values, Mapping) and "head" in values and values["head"] is None
        return {name: value for name, value in values.items() if name != "head"} if is_open else values

    @model_validator(mode="after")
    def _choose_head(self) -> Self:
        """Use the default head of the encoder, or one that supports the settings; it is not in `model_fields_set`."""
        if "head" not in self.model_fields_set:
            head = ENCODERS[self.encoder].default_head
            self.__dict__["head"] = head if supports_settings(HEADS[head], self) else _HEAD
        return self

    @classmethod
    def make(cls, preset: str | None = None, **given: Any) -> Self:
        """The given settings over those of a preset; one error reports all wrong settings."""
        if "tau" in given:
            warnings.warn("the setting tau is now named logit_adjustment", DeprecationWarning, stacklevel=2)
        base = {} if preset is None else dict(PRESETS[preset])
        if given.get("encoder", "") is None:
            del given["encoder"]
        if "encoder_options" in base and given.get("encoder", base.get("encoder")) in (None, base.get("encoder")):
            own = given.get("encoder_options") or {}
            given["encoder_options"] = {**base["encoder_options"], **own} if isinstance(own, Mapping) else own
        else:
            base.pop("encoder_options", None)
        none_is_value = {"clip", "patience"}  # for other settings, None leaves the preset's value
        base |= {n: value for n, value in given.items() if value is not None or n not in base or n in none_is_value}
        return validate(cls, base)

    @property
    def options(self) -> EncoderOptions:
        """The options of the encoder, validated."""
        kind = ENCODERS[self.encoder].Options
        return validate(kind, self.encoder_options, f"encoder {self.encoder!r}", "encoder_options")

    @property
    def posterior_options(self) -> PosteriorOptions:
        """The options of the method of uncertainty, validated."""
        assert self.uncertainty is not None
        kind, owner = UNCERTAINTIES[self.uncertainty].Options, f"uncertainty {self.uncertainty!r}"
        return validate(kind, self.uncertainty_options, owner, "uncertainty_options")

    @property
    def loss_options(self) -> dict[str, Any]:
        """The arguments of the loss for the settings that differ from their default."""
        return {option.argument or name: getattr(self, name) for name, option in _loss_options(self).items()}

    def resolved(self, items: int | None = None, classes: int | None = None) -> Self:
        """These settings with the encoder's defaults for those that are None.

        Given the number of examples, a default batch size is small enough for 20 steps an epoch. Given the number of
        classes, the default head is one whose cost does not grow with very many of them.
        """
        is_large = (classes or 0) > MOST_CLASSES and supports_settings(HEADS[_HEAD], self)
        if is_large and "head" not in self.model_fields_set:
            return self.model_copy(update={"head": _HEAD}).resolved(items)
        self.check()
        solver = self.solver_in_use
        if solver == "convex":
            is_sparse = ENCODERS[self.encoder].has_sparse_features(self.options)
            loss = self.convex_loss or ("squared_hinge" if is_sparse else "log")
            prune = self.prune if self.prune is not None else 0.01 if is_sparse else 0.0
            strength = self.strength if self.strength is not None else 2.0 if is_sparse else 20.0
            names = self.names or ("init" if ENCODERS[self.encoder].takes_texts else "none")
            chosen = {"solver": solver, "convex_loss": loss, "prune": prune, "strength": strength, "names": names}
            return self.model_copy(update=chosen)
        defaults = {**_DEFAULTS, **ENCODERS[self.encoder].training_defaults, "solver": "adam", "names": "none"}
        filled = {name: value for name, value in defaults.items() if getattr(self, name) in (None, "auto")}
        if items is not None and self.batch_size is None:
            filled["batch_size"] = min(filled["batch_size"], max(1, items // _MIN_STEPS))
        settings = self.model_copy(update=filled)
        if settings.head_learning_rate is None:
            settings = settings.model_copy(update={"head_learning_rate": settings.learning_rate})
        return settings

    def check(self) -> None:
        """Raise an error for values that are wrong only in combination."""
        self.options  # noqa: B018 - raises
        head, problems = HEADS[self.head], []
        for name, needs in _HEAD_SETTINGS.items():
            if getattr(self, name) and not getattr(head, needs):
                message = f"not possible with head {self.head!r}"
                problems.append(OptionError(message, argument=name, fix=_heads_with(needs)))
            elif getattr(self, name) and ENCODERS[self.encoder].has_sparse_features(self.options):
                message = f"not possible with encoder {self.encoder!r}, whose features are sparse"
                problems.append(OptionError(message, argument=name))
        problems += self._uncertainty_problems(head)
        if self.uses_names and not ENCODERS[self.encoder].takes_texts:
            message = f"needs an encoder of texts, and encoder {self.encoder!r} takes feature matrices"
            problems.append(OptionError(message, argument="names"))
        if self.names == "tied" and self.sparse_head:
            problems.append(OptionError("cannot be combined with sparse_head", argument="names"))
        for name, option in unsupported_options(self, head).items():
            message = f"acts on {option.acts_on}, which head {self.head!r} does not have"
            problems.append(OptionError(message, argument=name, fix=_heads_with(option.needs or "")))
        if self.parent_prior and self.solver_in_use == "convex":
            problems += self._prior_problems()
        if self.solver == "convex":
            problems += self._convex_problems()
        elif self.solver_in_use == "adam":
            # with a head or an encoder that excludes the convex solver, naming it does not help
            is_possible = all(problem.argument != "solver" for problem in self._convex_problems())
            name_solver: dict[str, Any] = {"solver": "convex"} if is_possible else {}
            message = "a setting of the convex solver, which these settings do not use"
            problems += [OptionError(message, argument=name, fix=name_solver) for name in self.convex_settings]
        if problems:
            raise OptionError(parts=problems)

    def _uncertainty_problems(self, head: type[TreeHead]) -> list[OptionError]:
        if self.uncertainty is None:
            if not self.uncertainty_options:
                return []
            message = "options of a method of uncertainty, and none is chosen"
            return [OptionError(message, argument="uncertainty_options", fix={"uncertainty": UNCERTAINTIES.names})]
        self.posterior_options  # noqa: B018 - raises
        kind = UNCERTAINTIES[self.uncertainty]
        if kind.supports_head(head):
            return kind.problems(self)
        fix = {"head": tuple(name for name in HEADS if kind.supports_head(HEADS[name]))}
        return [
            OptionError(
                f"{self.uncertainty!r} is not possible with head {self.head!r}", argument="uncertainty", fix=fix
            )
        ]

    @property
    def uses_names(self) -> bool:
        """Whether the texts of nodes are used; settings that are not resolved may leave that open."""
        return self.names not in (None, "none")

    @property
    def convex_settings(self) -> list[str]:
        """The settings of the convex solver that differ from their default."""
        return _changed(self, _CONVEX_SETTINGS)

    @property
    def solver_in_use(self) -> Literal["adam", "convex"]:
        """The solver that `"auto"` selects, or the one that is named."""
        if self.solver != "auto":
            return self.solver
        return "adam" if self._convex_problems() else "convex"

    def _convex_problems(self) -> list[OptionError]:
        """Why these settings are not possible with the convex solver."""
        problems, encoder = [], ENCODERS[self.encoder]
        if not encoder.has_fixed_features(self.options):
            message = f"the encoder {self.encoder!r} is trained with the head, which the convex solver cannot do"
            problems.append(OptionError(message, argument="solver", fix={"solver": "adam"}))
        if not HEADS[self.head].supports_convex:
            message = f"cannot train the head {self.head!r}"
            problems.append(OptionError(message, argument="solver", fix=_heads_with("supports_convex")))
        if self.uncertainty is not None and UNCERTAINTIES[self.uncertainty].trains:
            message = f"cannot train for the uncertainty {self.uncertainty!r}"
            problems.append(OptionError(message, argument="solver", fix={"solver": "adam"}))
        message = "not a setting of the convex solver"
        names = [*_changed(self, ADAM_SETTINGS), *_loss_options(self)]
        if self.names in ("tied", "only"):
            names.append("names")
        return problems + [OptionError(message, argument=name, fix={"solver": "adam"}) for name in names]

    def _prior_problems(self) -> list[OptionError]:
        problems = []
        if not HEADS[self.head].has_inner_rows:
            message = f"the head {self.head!r} has no rows of parents"
            problems.append(OptionError(message, argument="parent_prior", fix=_heads_with("has_inner_rows")))
        is_sparse = ENCODERS[self.encoder].has_sparse_features(self.options)
        if self.convex_loss == "log" or (self.convex_loss is None and not is_sparse):
            fix = {"convex_loss": "squared_hinge"}
            problems.append(OptionError("is not possible with convex_loss 'log'", argument="parent_prior", fix=fix))
        return problems


def _changed(config: TrainConfig, names: Iterable[str]) -> list[str]:
    """Those of the settings that differ from their default."""
    return [name for name in names if getattr(config, name) != type(config).model_fields[name].default]


def _heads_with(attribute: str) -> dict[str, object]:
    """The change of settings to a head that has this class attribute."""
    return {"head": tuple(name for name in HEADS if getattr(HEADS[name], attribute))}


def supports_settings(head: type[TreeHead], config: TrainConfig) -> bool:
    """Whether a head has everything that the settings need."""
    needed = [needs for name, needs in _HEAD_SETTINGS.items() if getattr(config, name)]
    is_certain = config.uncertainty is None or UNCERTAINTIES[config.uncertainty].supports_head(head)
    return is_certain and all(getattr(head, needs) for needs in needed) and not unsupported_options(config, head)


def unsupported_options(config: TrainConfig, head: type[TreeHead]) -> dict[str, LossOption]:
    """The options of the loss in use that this head does not support."""
    used = _loss_options(config)
    return {name: used[name] for name in used if used[name].needs and not getattr(head, used[name].needs or "")}


def _loss_options(config: TrainConfig) -> dict[str, LossOption]:
    return {
        name: option
        for name, field in type(config).model_fields.items()
        for option in field.metadata
        if isinstance(option, LossOption) and getattr(config, name) != field.default
    }


# What Pydantic expects, by the type of its error.
_EXPECTED = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    "dict_type": "a dictionary",
    "string_type": "a string",
    "finite_number": "a finite number",
    "greater_than": "a number greater than {gt:.10g}",
    "greater_than_equal": "a number of at least {ge:.10g}",
    "less_than": "a number less than {lt:.10g}",
    "less_than_equal": "a number of at most {le:.10g}",
    "literal_error": "{expected}",
}


def validate(kind: type[M], values: Mapping[str, Any], owner: str = "training", argument: str = "") -> M:
    """The values as a Pydantic model; one error reports every wrong value.

    `owner` is what the message says the options belong to, `argument` the argument that contains the values.
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        problems = [_to_option_error(problem, kind, owner, argument) for problem in error.errors()]
        raise OptionError(parts=problems) from None


def _to_option_error(problem: ErrorDetails, kind: type[BaseModel], owner: str, argument: str) -> OptionError:
    name = ".".join(map(str, problem["loc"]))
    place = ".".join(filter(None, (argument, name)))
    raised = problem.get("ctx", {}).get("error")
    if problem["type"] == "extra_forbidden":
        known = sorted(kind.model_fields)
        hint = did_you_mean(name, known) or f" (available: {', '.join(known)})"
        return OptionError(f"{owner} has no option {name!r}{hint}", argument=argument or None)
    if problem["type"] == "missing":
        about = kind.model_fields[name].description
        needs = f"{owner} needs the option {name!r}"
        return OptionError(f"{needs}: {about}" if about else needs, argument=argument or None)
    if isinstance(raised, ArbormaxError):
        inner = raised.argument if raised.argument != name else None
        place = ".".join(filter(None, (place, inner)))
        return OptionError(raised.message or str(raised), argument=place, fix=raised.fix)
    if problem["type"] == "value_error":
        return OptionError(str(raised), argument=place)
    expected = _EXPECTED.get(problem["type"])
    what = problem["msg"] if expected is None else f"expected {expected.format(**problem.get('ctx', {}))}"
    return OptionError(f"{what[0].lower()}{what[1:]}, found {problem['input']!r}", argument=place)
