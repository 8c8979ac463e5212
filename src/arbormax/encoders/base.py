"""The interface of an encoder: how a text becomes numbers, and the network that turns them into features.

B batch, D features, W words of a text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from arbormax.data.batching import Inputs
from arbormax.data.ragged import Ragged
from arbormax.data.tokens import Span, spans
from arbormax.errors import MissingDependencyError

try:
    from pydantic import BaseModel, ConfigDict
except ModuleNotFoundError as error:
    raise MissingDependencyError("an encoder", "pydantic", "train") from error


class EncoderOptions(BaseModel):
    """The options of an encoder; an unknown option is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Encoder(nn.Module, ABC):
    """Texts to features. To add an encoder, subclass this, set `name` and `Options`, and `register` the class.

    `fit` learns the vocabulary or the like from the training texts and builds the network. `encode` turns texts into
    rows of numbers once, before training. `collate` builds the tensors of one batch, and the call returns (B, D)
    features.
    """

    name: ClassVar[str]
    Options: ClassVar[type[EncoderOptions]] = EncoderOptions
    sorts_by_length: ClassVar[bool] = True  # whether batches of similar lengths save work
    takes_texts: ClassVar[bool] = True  # False: it takes the rows of a feature matrix
    training_defaults: ClassVar[Mapping[str, object]] = {}  # training settings such as learning_rate and batch_size
    default_head: ClassVar[str] = "hierarchical"  # the head of a training for which none is named
    searched: ClassVar[bool] = False  # whether a search for settings tries this encoder by default
    width_option: ClassVar[str | None] = None  # the option that a search varies to change the number of features
    bayesian_parts: ClassVar[tuple[str, ...] | None] = None  # modules whose weights Bayes by Backprop draws, if it can
    starts_random: ClassVar[bool] = False  # whether its features mean nothing before training

    options: EncoderOptions
    out_features: int

    @classmethod
    def tuned_options(cls, options: EncoderOptions) -> Mapping[str, tuple[Any, ...]]:
        """The options that a short search tries beside the settings of the solver, and the values to try."""
        del options
        return {}

    @classmethod
    def has_fixed_features(cls, options: EncoderOptions) -> bool:
        """Whether the features have no parameters, so that a convex solver can train the head."""
        del options
        return False

    @classmethod
    def has_sparse_features(cls, options: EncoderOptions) -> bool:
        """Whether the features are a sparse tensor."""
        del options
        return False

    @classmethod
    @abstractmethod
    def fit(cls, texts: Sequence[str], options: EncoderOptions) -> Self:
        """A new encoder for these training texts."""

    @classmethod
    def fit_encode(cls, texts: Sequence[str], options: EncoderOptions) -> tuple[Self, Ragged | None]:
        """`fit`, and the rows of `encode` for the same texts if they are known from it."""
        return cls.fit(texts, options), None

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Ragged:
        """Each text as a row of numbers."""

    @abstractmethod
    def collate(self, rows: Ragged) -> Inputs:
        """The tensors of one batch, as `forward` takes them."""

    @abstractmethod
    def forward(self, *inputs: Tensor) -> Tensor:
        """(B, D) features."""

    def save(self, folder: Path) -> None:
        """Write what neither the weights nor the options contain, such as the vocabulary."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, options: EncoderOptions) -> Self:
        """An encoder from the files that `save` wrote; its weights are loaded afterwards."""

    def spans(self, text: str) -> list[Span]:
        """The start and end of each word, as this encoder splits the text; by default at whitespace."""
        return spans(text, "whitespace")

    def ngram_places(self, text: str) -> list[tuple[int, int]]:  # noqa: ARG002 - used by subclasses
        """The first and the last word of each known n-gram of two or more words in a text."""
        return []

    def gated_features(self, text: str, gates_W: Tensor) -> Tensor | None:  # noqa: ARG002 - used by subclasses
        """(1, D) features of a text with the input of each word in `spans` multiplied by a gate; None if unsupported.

        The gates of the words may be followed by one gate for each of `ngram_places`; otherwise the input of an n-gram
        is multiplied by the mean of the gates of its words.

        With all gates at one, these are the features of the text, and the gradient with respect to a gate is
        gradient × input of that word. Without this method, an explanation leaves out one word after the other.
        """
        return None

    def feature_shares(self) -> Tensor | None:
        """(D,) the share of the training inputs in which each feature is not zero, if the encoder knows it."""
        return None

    def sparse_parameters(self) -> list[nn.Parameter]:
        """The parameters whose gradients are sparse."""
        return []
