"""What an encoder is: how a text becomes numbers, and the network that turns them into features.

B batch, D features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from arbormax.data.batching import Inputs
from arbormax.data.ragged import Ragged
from arbormax.data.tokens import Span, spans
from arbormax.errors import OptionError, did_you_mean


class EncoderOptions(BaseModel):
    """An encoder's own settings; an unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Encoder(nn.Module, ABC):
    """Texts to features. To add one, subclass this, set `name` and `Options`, and `register` it.

    `fit` learns what it needs from the training texts and makes the network; `encode` turns texts into rows of numbers
    once, before training; `collate` makes the tensors of one batch; calling it gives (B, D) features.
    """

    name: ClassVar[str]
    Options: ClassVar[type[EncoderOptions]] = EncoderOptions
    sorts_by_length: ClassVar[bool] = True  # whether a batch of like lengths saves work
    training_defaults: ClassVar[Mapping[str, object]] = {}  # learning_rate, batch_size, … where it wants others

    options: EncoderOptions
    out_features: int

    @classmethod
    @abstractmethod
    def fit(cls, texts: Sequence[str], options: EncoderOptions) -> Self:
        """A new encoder for these training texts."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Ragged:
        """The rows of numbers that stand for these texts."""

    @abstractmethod
    def collate(self, rows: Ragged) -> Inputs:
        """The tensors of one batch, which the call takes."""

    @abstractmethod
    def forward(self, *inputs: Tensor) -> Tensor:
        """(B, D) features."""

    def save(self, folder: Path) -> None:
        """Write what the weights and the options do not hold, such as the vocabulary."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, options: EncoderOptions) -> Self:
        """An encoder with the files that `save` wrote, its weights still to be loaded."""

    def spans(self, text: str) -> list[Span]:
        """Where in the text each word stands, as this encoder sees words; pieces between blanks unless it says more."""
        return spans(text, "whitespace")

    def gated(self, text: str, gates_W: Tensor) -> Tensor | None:  # noqa: ARG002 - for those that can
        """(1, D) features of a text with the input of each of its `spans` multiplied by a gate; None: not possible.

        Where all gates are one these are the text's features, and their gradient in a gate is gradient × input of a
        word, which tells how much the word mattered. Without it words are left out one by one.
        """
        return None

    def sparse_parameters(self) -> list[nn.Parameter]:
        """Those of its parameters that get gradients on a few rows only."""
        return []


E = TypeVar("E", bound=Encoder)

_REGISTRY: dict[str, type[Encoder]] = {}


def register(kind: type[E]) -> type[E]:
    """Make an encoder known by its `name`; also a decorator."""
    _REGISTRY[kind.name] = kind
    return kind


def encoder_kind(name: str) -> type[Encoder]:
    """The registered encoder of this name."""
    if name not in _REGISTRY:
        raise OptionError(
            f"encoder is one of {', '.join(sorted(_REGISTRY))}; found {name!r}{did_you_mean(name, _REGISTRY)}"
        )
    return _REGISTRY[name]
