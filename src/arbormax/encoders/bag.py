"""The mean of word and n-gram vectors: the fastest encoder on a CPU.

B batch, T tokens of the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from arbormax.data.batching import Inputs
from arbormax.data.ngrams import NGrams
from arbormax.data.ragged import Ragged
from arbormax.data.tokens import Span, Tokeniser, spans
from arbormax.data.vocabulary import Vocabulary
from arbormax.encoders._gates import term_gates
from arbormax.encoders.base import Encoder, EncoderOptions

_FILE, _NGRAMS = "vocabulary.txt", "ngrams.npz"


class BagOptions(EncoderOptions):
    dim: int = Field(128, ge=1, le=65_536, description="size of a vector, and of the features")
    ngrams: int = Field(2, ge=1, le=8, description="longest n-gram with its own vector, in words")
    dropout: float = Field(0.2, ge=0, lt=1, description="dropout rate of the features")
    tokens: Tokeniser = Field("words", description="tokenizer: words, or whitespace as in the paper")
    min_count: int = Field(1, ge=1, description="minimum count of a word with its own vector")
    min_ngram_count: int = Field(2, ge=1, description="minimum count of an n-gram with its own vector")
    max_words: int = Field(500_000, ge=1, description="maximum number of words; the most frequent are used")


class BagEncoder(Encoder):
    """The mean of the vectors of the words and n-grams of a text."""

    name: ClassVar[str] = "bag"
    Options: ClassVar[type[EncoderOptions]] = BagOptions
    sorts_by_length: ClassVar[bool] = False
    starts_random: ClassVar[bool] = True
    training_defaults: ClassVar[Mapping[str, object]] = {"learning_rate": 3e-2, "batch_size": 256, "epochs": 8}
    searched: ClassVar[bool] = True
    width_option: ClassVar[str | None] = "dim"

    def __init__(self, vocabulary: Vocabulary, grams: NGrams, options: BagOptions) -> None:
        super().__init__()
        self.vocabulary, self.grams, self.options = vocabulary, grams, options
        self.weight = nn.Parameter(torch.empty(len(vocabulary) + len(grams), options.dim))
        nn.init.uniform_(self.weight, -1.0 / options.dim, 1.0 / options.dim)
        self.dropout = nn.Dropout(options.dropout)
        self.out_features = options.dim

    @classmethod
    def fit(cls, texts: Sequence[str], options: EncoderOptions) -> Self:
        assert isinstance(options, BagOptions)
        vocabulary = Vocabulary.learn(texts, options.tokens, options.min_count, options.max_words)
        grams = NGrams.learn(vocabulary.encode(texts), len(vocabulary), options.ngrams, options.min_ngram_count)
        return cls(vocabulary, grams, options)

    def encode(self, texts: Sequence[str]) -> Ragged:
        return self.grams.encode(self.vocabulary.encode(texts))

    def collate(self, rows: Ragged) -> Inputs:
        return torch.from_numpy(rows.values), torch.from_numpy(rows.offsets[:-1])

    def forward(self, *inputs: Tensor) -> Tensor:
        ids_T, starts_B = inputs
        bags = F.embedding_bag(ids_T, self.weight, starts_B, mode="mean", sparse=True)
        features: Tensor = self.dropout(bags)
        return features

    def spans(self, text: str) -> list[Span]:
        return spans(text, self.vocabulary.tokens)

    def gated_features(self, text: str, gates_W: Tensor) -> Tensor:
        ids, ends, lengths = self.grams.places(self.vocabulary.encode([text]))
        ids_T = torch.from_numpy(ids).to(gates_W.device)
        gates_T = term_gates(gates_W, np.arange(len(ids)), ends, lengths, len(ids))
        start = torch.zeros(1, dtype=torch.int64, device=ids_T.device)
        shares_T = gates_T / max(len(ids), 1)
        features: Tensor = self.dropout(
            F.embedding_bag(ids_T, self.weight, start, mode="sum", per_sample_weights=shares_T)
        )
        return features

    def sparse_parameters(self) -> list[nn.Parameter]:
        return [self.weight]

    def save(self, folder: Path) -> None:
        self.vocabulary.save(folder / _FILE)
        self.grams.save(folder / _NGRAMS)

    @classmethod
    def load(cls, folder: Path, options: EncoderOptions) -> Self:
        assert isinstance(options, BagOptions)
        return cls(Vocabulary.load(folder / _FILE, options.tokens), NGrams.load(folder / _NGRAMS), options)
