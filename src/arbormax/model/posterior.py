"""The uncertainty of a model: the registry of methods, and the interface of a method.

S draws, B batch, N nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from arbormax._registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from arbormax.data.examples import Examples
    from arbormax.errors import OptionError
    from arbormax.heads import TreeHead
    from arbormax.model.network import Model
    from arbormax.model.settings import TrainConfig

UNCERTAINTIES: Registry[type[Posterior]] = Registry("uncertainty")
UNCERTAINTIES.add(
    "laplace", "arbormax.uncertainty.laplace:Laplace", "a Gaussian over the rows of the head, after the training"
)
UNCERTAINTIES.add(
    "bbb", "arbormax.uncertainty.bbb:BayesByBackprop", "a Gaussian over the weights of head and LSTM, which is trained"
)
UNCERTAINTIES.add("dropout", "arbormax.uncertainty.dropout:Dropout", "dropout also when predicting (Monte Carlo)")
UNCERTAINTIES.add("ensemble", "arbormax.uncertainty.ensemble:Ensemble", "several trained networks, or snapshots of one")


class PosteriorOptions(BaseModel):
    """The options of a method; an unknown option is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DrawsOptions(PosteriorOptions):
    draws: int = Field(30, ge=2, le=10_000, description="number of draws for each prediction")


@dataclass(frozen=True, eq=False)
class Trained:
    """What a method starts from: a trained model, and how to train it again."""

    model: Model
    examples: Examples  # that the model was trained on
    again: Callable[..., Model] | None = None  # (seed, *, start=model, epochs=n); not after a convex solver
    prepared: Any = None  # what `Posterior.prepare` returned


class Posterior(ABC):
    """A distribution over networks: what a model with uncertainty has besides its weights.

    To add a method, subclass this in a new file of `arbormax.uncertainty` and add a line to `UNCERTAINTIES`.
    """

    Options: ClassVar[type[PosteriorOptions]] = DrawsOptions
    trains: ClassVar[bool] = False  # whether the network must be trained with Adam
    needs_logits: ClassVar[bool] = False  # whether the head must have `from_logits`

    def __init__(self, options: PosteriorOptions) -> None:
        self.options = options

    @classmethod
    def problems(cls, config: TrainConfig) -> list[OptionError]:
        """Why the method is not possible with these settings."""
        del config
        return []

    @classmethod
    def supports_head(cls, head: type[TreeHead]) -> bool:
        """Whether the method is possible with this head."""
        return head.has_logits or not cls.needs_logits

    @classmethod
    def prepare(cls, model: Model, options: Any, items: int) -> Any:
        """What takes part in the training of a new model on this number of items: see `bbb.Variational`; or None."""
        del model, options, items

    @classmethod
    def choose(cls, trained: Trained, held_out: Examples | None, options: Any) -> Any:
        """The options with values that held-out examples select, for a model that was trained without these."""
        del trained, held_out
        return options

    @classmethod
    @abstractmethod
    def fit(cls, trained: Trained, options: Any) -> Self:
        """The posterior of a trained model."""

    @property
    @abstractmethod
    def draws(self) -> int:
        """S, the number of draws."""

    @abstractmethod
    def draw(self, model: Model, rows: Any, batch_size: int) -> Iterator[Tensor]:
        """(S, B, N) node log-probabilities of encoded rows, a batch at a time, in their order.

        A calibration of the model is applied to them afterwards. The same rows have the same draws.
        """

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """The tensors to save; the weights of the model are saved with the model."""

    @classmethod
    @abstractmethod
    def restore(cls, model: Model, options: Any, state: dict[str, Tensor]) -> Self:
        """The posterior that `state` described."""

    def describe(self) -> dict[str, Any]:
        """Plain values that are saved beside the options, such as what the fit has chosen."""
        return {}
