"""The mean of the vectors of words, n-grams of words and n-grams of characters: the fastest encoder on a CPU.

B batch, T tokens of the whole batch.
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
from arbormax.data.characters import CharacterNGrams
from arbormax.data.ngrams import NGrams
from arbormax.data.ragged import Ragged
from arbormax.data.terms import NumberedTexts
from arbormax.data.tokens import Span, Tokeniser, spans, tokeniser
from arbormax.data.vectors import WordVectors
from arbormax.data.vocabulary import Vocabulary, load_words, save_words
from arbormax.encoders._terms import CharacterOptions, ngram_places, term_gates, tuned_lengths
from arbormax.encoders.base import Encoder, EncoderOptions

_FILE, _NGRAMS, _CHARACTERS = "vocabulary.txt", "ngrams.npz", "characters.txt"
_VECTOR_LENGTH = 16.0  # of pretrained vectors: training changes long vectors less


class BagOptions(CharacterOptions):
    dim: int = Field(
        128, ge=1, le=65_536, description="size of a vector, and of the features; pretrained vectors determine it"
    )
    ngrams: int = Field(2, ge=1, le=8, description="longest n-gram with its own vector, in words")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout rate of the features")
    tokens: Tokeniser = Field("words", description="tokenizer: words, or whitespace as in the paper")
    min_count: int = Field(1, ge=1, description="minimum count of a word with its own vector")
    min_ngram_count: int = Field(2, ge=1, description="minimum count of an n-gram with its own vector")
    max_words: int = Field(500_000, ge=1, description="maximum number of words; the most frequent are used")
    vectors: str | None = Field(None, description="file, folder or installed package with pretrained word vectors")
    kept_words: int = Field(100_000, ge=0, description="number of words to add from the pretrained vectors")


class BagEncoder(Encoder):
    """The mean of the vectors of the words and n-grams of a text.

    The features are a weighted sum of two means: of words and n-grams of words, and of n-grams of characters.
    """

    name: ClassVar[str] = "bag"
    default_head: ClassVar[str] = "shared"
    Options: ClassVar[type[EncoderOptions]] = BagOptions
    sorts_by_length: ClassVar[bool] = False
    bayesian_parts: ClassVar[tuple[str, ...] | None] = ()
    starts_random: ClassVar[bool] = True
    training_defaults: ClassVar[Mapping[str, object]] = {"learning_rate": 3e-2, "batch_size": 256, "epochs": 8}
    searched: ClassVar[bool] = True
    width_option: ClassVar[str | None] = "dim"

    def __init__(
        self, vocabulary: Vocabulary, grams: NGrams, options: BagOptions, characters: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.vocabulary, self.grams, self.options = vocabulary, grams, options
        self.characters = CharacterNGrams(tuple(characters), options.min_char_ngrams, options.char_ngrams)
        self.num_words = len(vocabulary) + len(grams)  # the rows before those of the n-grams of characters
        self.weight = nn.Parameter(torch.empty(self.num_words + len(self.characters), options.dim))
        nn.init.uniform_(self.weight, -1.0 / options.dim, 1.0 / options.dim)
        self.dropout = nn.Dropout(options.dropout)
        self.out_features = options.dim

    @classmethod
    def tuned_options(cls, options: EncoderOptions) -> Mapping[str, tuple[int, ...]]:
        return tuned_lengths(options)

    @classmethod
    def fit(cls, texts: Sequence[str], options: EncoderOptions) -> Self:
        assert isinstance(options, BagOptions)
        vocabulary = Vocabulary.learn(texts, options.tokens, options.min_count, options.max_words)
        vectors = None
        if options.vectors is not None:
            dim = options.dim if "dim" in options.model_fields_set else None
            vectors = WordVectors.load(options.vectors, dim, vocabulary.words)
            options = options.model_copy(update={"dim": vectors.matrix.shape[1]})
            unseen = [word for word in vectors.words if word not in vocabulary]
            vocabulary = vocabulary.extend_with(unseen[: options.kept_words])
        rows = list(map(tokeniser(options.tokens), texts))
        words = vocabulary.encode_words(rows)
        grams = NGrams.learn(words, len(vocabulary), options.ngrams, options.min_ngram_count)
        characters: tuple[str, ...] = ()
        if options.char_ngrams:
            lengths = options.min_char_ngrams, options.char_ngrams
            limits = options.min_char_count, options.max_char_terms
            characters = CharacterNGrams.learn(NumberedTexts.of(rows), *lengths, *limits)[0].grams
        encoder = cls(vocabulary, grams, options, characters)
        if vectors is not None:
            logging.getLogger("arbormax").info("vectors, %s", vectors.coverage(Counter(chain.from_iterable(rows))))
            encoder._fill(vectors)
        return encoder

    def _fill(self, vectors: WordVectors) -> None:
        """Start words from pretrained vectors, scaled to the mean length `_VECTOR_LENGTH`, and all others from zero."""
        found = [(i, vectors.number[word]) for i, word in enumerate(self.vocabulary.words) if word in vectors.number]
        mine, theirs = np.array(found, dtype=np.int64).reshape(-1, 2).T
        matrix = vectors.matrix[theirs]
        length = float(np.linalg.norm(matrix, axis=1).mean()) if len(matrix) else 0.0
        with torch.no_grad():
            self.weight.zero_()
            if length > 0:
                self.weight[torch.from_numpy(mine)] = torch.from_numpy(_VECTOR_LENGTH / length * matrix).to(self.weight)

    def encode(self, texts: Sequence[str]) -> Ragged:
        rows = list(map(tokeniser(self.vocabulary.tokens), texts))
        words = self.grams.encode(self.vocabulary.encode_words(rows))
        characters = self.characters.encode_texts(NumberedTexts.of(rows))
        values = np.concatenate([words.values, self.num_words + characters.values])
        numbers = np.arange(len(texts))
        texts_T = np.concatenate([np.repeat(numbers, words.lengths), np.repeat(numbers, characters.lengths)])
        return Ragged.from_lengths(values[np.argsort(texts_T, kind="stable")], words.lengths + characters.lengths)

    def collate(self, rows: Ragged) -> Inputs:
        ids_T, starts_B = torch.from_numpy(rows.values), torch.from_numpy(rows.offsets[:-1])
        return (ids_T, starts_B, torch.from_numpy(self._shares(rows))) if len(self.characters) else (ids_T, starts_B)

    def _shares(self, rows: Ragged) -> np.ndarray:
        """(T,) the share of each vector in the features of its text."""
        assert isinstance(self.options, BagOptions)
        is_word_T = rows.values < self.num_words
        texts_T = np.repeat(np.arange(len(rows)), rows.lengths)
        words_B = np.bincount(texts_T, weights=is_word_T, minlength=len(rows))
        characters_B = rows.lengths - words_B
        weight_B = np.where(characters_B > 0, self.options.char_weight, 0.0)
        word_share_B = (1 - weight_B) / np.maximum(words_B, 1)
        character_share_B = weight_B / np.maximum(characters_B, 1)
        return np.where(is_word_T, word_share_B[texts_T], character_share_B[texts_T]).astype(np.float32)

    def forward(self, *inputs: Tensor) -> Tensor:
        ids_T, starts_B, *shares = inputs
        features: Tensor
        if shares:
            (shares_T,) = shares
            shares_T = shares_T.to(self.weight.dtype)
            features = F.embedding_bag(
                ids_T, self.weight, starts_B, mode="sum", sparse=True, per_sample_weights=shares_T
            )
        else:
            features = F.embedding_bag(ids_T, self.weight, starts_B, mode="mean", sparse=True)
        features = self.dropout(features)
        return features

    def spans(self, text: str) -> list[Span]:
        return spans(text, self.vocabulary.tokens)

    def ngram_places(self, text: str) -> list[tuple[int, int]]:
        words = tokeniser(self.vocabulary.tokens)(text)
        _, ends, lengths = self.grams.places(self.vocabulary.encode_words([words]))
        return ngram_places(ends, lengths)

    def gated_features(self, text: str, gates_W: Tensor) -> Tensor:
        words = tokeniser(self.vocabulary.tokens)(text)
        ids, ends, lengths = self.grams.places(self.vocabulary.encode_words([words]))
        characters = self.characters.encode(words)
        owners = np.repeat(np.arange(len(words)), characters.lengths)
        ids = np.concatenate([ids, self.num_words + characters.values])
        ends, lengths = np.concatenate([ends, owners]), np.concatenate([lengths, np.ones_like(owners)])
        ids_T = torch.from_numpy(ids).to(gates_W.device)
        gates_T = term_gates(gates_W, len(words), np.arange(len(ids)), ends, lengths, len(ids))
        shares_T = torch.from_numpy(self._shares(Ragged.from_lists([ids.tolist()]))).to(gates_T)
        start = torch.zeros(1, dtype=torch.int64, device=ids_T.device)
        features: Tensor = self.dropout(
            F.embedding_bag(ids_T, self.weight, start, mode="sum", per_sample_weights=gates_T * shares_T)
        )
        return features

    def sparse_parameters(self) -> list[nn.Parameter]:
        return [self.weight]

    def save(self, folder: Path) -> None:
        self.vocabulary.save(folder / _FILE)
        self.grams.save(folder / _NGRAMS)
        if len(self.characters):
            save_words(folder / _CHARACTERS, self.characters.grams)

    @classmethod
    def load(cls, folder: Path, options: EncoderOptions) -> Self:
        assert isinstance(options, BagOptions)
        characters = load_words(path) if (path := folder / _CHARACTERS).exists() else ()
        vocabulary = Vocabulary.load(folder / _FILE, options.tokens)
        return cls(vocabulary, NGrams.load(folder / _NGRAMS), options, characters)
