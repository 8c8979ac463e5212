"""The paper's encoders: the last hidden state of an LSTM, or of two LSTMs, one in each direction.

B batch, T tokens, E size of a word vector, H hidden size.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from arbormax.data.batching import Inputs
from arbormax.data.ragged import Ragged
from arbormax.data.tokens import Span, Tokeniser, spans, tokeniser
from arbormax.data.vectors import WordVectors
from arbormax.data.vocabulary import PADDING, Vocabulary
from arbormax.encoders.base import Encoder, EncoderOptions

_FILE = "vocabulary.txt"


class WordTable(nn.Module):
    """Vectors of the `trained` first words, followed by fixed vectors of words that are only in the vectors file.

    A word outside the training texts keeps its pretrained vector and has no optimizer state.
    """

    kept: Tensor  # (words - trained, E)

    def __init__(self, words: int, size: int, trained: int | None = None) -> None:
        super().__init__()
        self.trained = words if trained is None else trained
        self.weight = nn.Parameter(0.1 * torch.randn(self.trained, size))
        self.register_buffer("kept", torch.zeros(words - self.trained, size))
        with torch.no_grad():
            self.weight[PADDING] = 0.0

    def fill(self, vocabulary: Vocabulary, vectors: WordVectors) -> None:
        """Copy the vectors of the words that have one; the others keep random vectors with the same spread."""
        table = torch.cat([self.weight.detach(), self.kept])
        spread = float(vectors.matrix.std())
        table *= spread / 0.1
        found = [(i, vectors.number[word]) for i, word in enumerate(vocabulary.words) if word in vectors.number]
        if found:
            mine, theirs = torch.tensor(found).T
            table[mine] = torch.from_numpy(vectors.matrix[theirs.numpy()])
        with torch.no_grad():
            self.weight.copy_(table[: self.trained])
            self.kept.copy_(table[self.trained :])

    def forward(self, ids_BT: Tensor) -> Tensor:
        if not len(self.kept):
            return F.embedding(ids_BT, self.weight, padding_idx=PADDING)
        # also in training: words that are too rare for a trained vector may have a fixed one
        own = F.embedding(ids_BT.clamp(max=self.trained - 1), self.weight, padding_idx=PADDING)
        kept = F.embedding((ids_BT - self.trained).clamp(min=0), self.kept)
        return torch.where((ids_BT < self.trained).unsqueeze(-1), own, kept)


class LSTMOptions(EncoderOptions):
    hidden: int = Field(150, ge=1, le=65_536, description="size of the hidden state, per direction")
    dim: int = Field(100, ge=1, le=65_536, description="size of a word vector; a vectors file determines it")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout rate of the features")
    vectors: str | None = Field(None, description="file, folder or installed package with pretrained word vectors")
    kept_words: int = Field(100_000, ge=0, description="number of words to add from the vectors file")
    tokens: Tokeniser = Field("words", description="tokenizer: words, or whitespace as in the paper")
    min_count: int = Field(1, ge=1, description="minimum count of a word with its own vector")
    max_words: int = Field(200_000, ge=1, description="maximum number of words; the most frequent are used")
    max_length: int = Field(512, ge=1, description="maximum number of words of a text")
    trained_words: int | None = Field(None, ge=2, description="set by training: number of words with trained vectors")


class LSTMEncoder(Encoder):
    """The last hidden state of an LSTM over word vectors."""

    name: ClassVar[str] = "lstm"
    default_head: ClassVar[str] = "shared"
    Options: ClassVar[type[EncoderOptions]] = LSTMOptions
    training_defaults: ClassVar[Mapping[str, object]] = {"learning_rate": 3e-3}
    starts_random: ClassVar[bool] = True
    bayesian_parts: ClassVar[tuple[str, ...] | None] = ("forwards", "backwards")
    width_option: ClassVar[str | None] = "hidden"
    bidirectional: ClassVar[bool] = False

    def __init__(self, vocabulary: Vocabulary, options: LSTMOptions) -> None:
        super().__init__()
        self.vocabulary, self.options = vocabulary, options
        self.words = WordTable(len(vocabulary), options.dim, options.trained_words)
        self.forwards = nn.LSTM(options.dim, options.hidden, batch_first=True)
        # a second network reads each text reversed, so that rows of different lengths need no packing
        self.backwards = nn.LSTM(options.dim, options.hidden, batch_first=True) if self.bidirectional else None
        self.dropout = nn.Dropout(options.dropout)
        self.out_features = options.hidden * (2 if self.bidirectional else 1)

    @classmethod
    def fit(cls, texts: Sequence[str], options: EncoderOptions) -> Self:
        assert isinstance(options, LSTMOptions)
        vocabulary = Vocabulary.learn(texts, options.tokens, options.min_count, options.max_words)
        settings = {"trained_words": len(vocabulary)}
        if options.vectors is None:
            return cls(vocabulary, options.model_copy(update=settings))
        dim = options.dim if "dim" in options.model_fields_set else None
        vectors = WordVectors.load(options.vectors, dim, vocabulary.words)
        counts = Counter(chain.from_iterable(map(tokeniser(options.tokens), texts)))
        logging.getLogger("arbormax").info("vectors, %s", vectors.coverage(counts))
        unseen = [word for word in vectors.words if word not in vocabulary][: options.kept_words]
        vocabulary = vocabulary.extend_with(unseen)
        encoder = cls(vocabulary, options.model_copy(update={**settings, "dim": vectors.matrix.shape[1]}))
        encoder.words.fill(vocabulary, vectors)
        return encoder

    def encode(self, texts: Sequence[str]) -> Ragged:
        assert isinstance(self.options, LSTMOptions)
        return self.vocabulary.encode(texts).truncate(self.options.max_length)

    def collate(self, rows: Ragged) -> Inputs:
        last_B = torch.from_numpy(np.maximum(rows.lengths, 1) - 1)
        directions = (False, True)[: 1 + self.bidirectional]
        return last_B, *(torch.from_numpy(rows.pad(PADDING, reverse)) for reverse in directions)

    def forward(self, *inputs: Tensor) -> Tensor:
        last_B, *ids = inputs
        is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        if not (last_B.is_cuda or is_traced or torch.is_grad_enabled()):
            ids = [_round_shape(ids_BT) for ids_BT in ids]
        return self._run_networks(last_B, [self.words(ids_BT) for ids_BT in ids])

    def spans(self, text: str) -> list[Span]:
        return spans(text, self.vocabulary.tokens)

    def gated_features(self, text: str, gates_W: Tensor) -> Tensor:
        last_B, *ids = (tensor.to(gates_W.device) for tensor in self.collate(self.encode([text])))
        # an empty text is one padding token
        gates_T = gates_W[: ids[0].shape[1]] if len(gates_W) else gates_W.new_ones(1)
        gates = (gates_T, gates_T.flip(0))[: len(ids)]
        words = [self.words(ids_BT) * gate_T[:, None] for ids_BT, gate_T in zip(ids, gates, strict=True)]
        return self._run_networks(last_B, words)

    def _run_networks(self, last_B: Tensor, words: list[Tensor]) -> Tensor:
        networks = [self.forwards] if self.backwards is None else [self.forwards, self.backwards]
        states = [_last_state(network, x_BTE, last_B) for network, x_BTE in zip(networks, words, strict=True)]
        features: Tensor = self.dropout(torch.cat(states, -1) if len(states) > 1 else states[0])
        return features

    def save(self, folder: Path) -> None:
        self.vocabulary.save(folder / _FILE)

    @classmethod
    def load(cls, folder: Path, options: EncoderOptions) -> Self:
        assert isinstance(options, LSTMOptions)
        return cls(Vocabulary.load(folder / _FILE, options.tokens), options)


class BiLSTMEncoder(LSTMEncoder):
    """The last hidden states of two LSTMs, one in each direction."""

    name: ClassVar[str] = "bilstm"
    searched: ClassVar[bool] = True
    bidirectional: ClassVar[bool] = True


def _last_state(network: nn.LSTM, x_BTE: Tensor, last_B: Tensor) -> Tensor:
    """Return the (B, H) hidden states after the last word of each text."""
    states_BTH: Tensor = network(x_BTE)[0]
    places_B1H = last_B.view(-1, 1, 1).expand(-1, 1, states_BTH.shape[-1])
    return states_BTH.gather(1, places_B1H).squeeze(1)


def _round_shape(ids_BT: Tensor) -> Tensor:
    """The batch, padded to one of a few shapes.

    On a CPU, oneDNN compiles a kernel for each batch shape and caches a thousand of them. Without rounding, the memory
    of a service grows with every new shape.
    """
    batch, length = ids_BT.shape
    return F.pad(ids_BT, (0, _round_up(length) - length, 0, _round_up(batch) - batch), value=PADDING)


def _round_up(size: int) -> int:
    """The next size at or above this one; there are four sizes between two powers of two."""
    step = 1 << max(0, (size - 1).bit_length() - 3)
    return -(-size // step) * step
