"""TF-IDF of words, n-grams of words and n-grams of characters as sparse features: with a head, a linear classifier.

B batch, D terms, T terms of the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from arbormax.data.batching import Inputs
from arbormax.data.characters import MARK, CharacterNGrams
from arbormax.data.ragged import Ragged
from arbormax.data.terms import NumberedTexts, WordTerms
from arbormax.data.tokens import Span, Tokeniser, spans, tokeniser
from arbormax.data.vocabulary import load_words, save_words
from arbormax.encoders._terms import CharacterOptions, ngram_places, term_gates, tuned_lengths
from arbormax.encoders.base import Encoder, EncoderOptions
from arbormax.errors import InputError, import_extra
from arbormax.functional.linear import sparse_rows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_FILE = "vocabulary.txt"
_FEW_TEXTS = 100  # n-grams of characters in so few texts are used whatever their share is
_LONG = 50  # words of a text on average; the features of shorter texts are few, and common n-grams help


class TfidfOptions(CharacterOptions):
    ngrams: int = Field(2, ge=1, le=8, description="longest n-gram that is a term, in words")
    tokens: Tokeniser = Field("words", description="tokenizer: words, or whitespace as in the paper")
    min_count: int = Field(1, ge=1, description="minimum number of texts that contain a word")
    min_ngram_count: int = Field(2, ge=1, description="minimum number of texts that contain an n-gram")
    max_terms: int = Field(
        200_000, ge=1, description="maximum number of words and n-grams of words; the most frequent are used"
    )
    max_char_share: float = Field(
        0.2, gt=0, le=1, description="n-grams of characters in more than this share of long texts are not used"
    )


class TfidfEncoder(Encoder):
    """The TF-IDF weights of the terms of a text, normalised to length one.

    The terms are words and n-grams of words, followed by n-grams of characters within words, which have a fixed share
    of the squared length. The features are a sparse (B, D) tensor. The encoder has no parameters, so the
    head is a linear classifier.
    """

    name: ClassVar[str] = "tfidf"
    default_head: ClassVar[str] = "blended"
    Options: ClassVar[type[EncoderOptions]] = TfidfOptions
    sorts_by_length: ClassVar[bool] = False
    training_defaults: ClassVar[Mapping[str, object]] = {
        "learning_rate": 0.5,
        "adam_epsilon": 1e-3,
        "batch_size": 64,
        "epochs": 8,
    }
    searched: ClassVar[bool] = True

    # counts instead of weights, since a change of precision does not change integers
    text_counts: Tensor  # (D,) number of training texts that contain each term
    num_texts: Tensor  # () number of training texts

    def __init__(self, terms: Sequence[str], options: TfidfOptions) -> None:
        super().__init__()
        import_extra("scipy", "the TF-IDF encoder", "scipy", "text")
        self.terms, self.options = tuple(terms), options  # n-grams of characters are last and begin with a tab
        words = [term for term in self.terms if not term.startswith(MARK)]
        self.num_words = len(words)
        self.characters = CharacterNGrams(
            tuple(term.removeprefix(MARK) for term in self.terms[self.num_words :]),
            options.min_char_ngrams,
            options.char_ngrams,
        )
        self.out_features = len(self.terms)
        self.register_buffer("text_counts", torch.zeros(len(self.terms), dtype=torch.int64))
        self.register_buffer("num_texts", torch.zeros((), dtype=torch.int64))
        self.words = WordTerms(words)

    @classmethod
    def has_fixed_features(cls, options: EncoderOptions) -> bool:
        del options
        return True

    @classmethod
    def has_sparse_features(cls, options: EncoderOptions) -> bool:
        del options
        return True

    @classmethod
    def tuned_options(cls, options: EncoderOptions) -> Mapping[str, tuple[int, ...]]:
        return tuned_lengths(options)

    @classmethod
    def fit(cls, texts: Sequence[str], options: EncoderOptions) -> Self:
        assert isinstance(options, TfidfOptions)
        return cls._learn(texts, options)[0]

    @classmethod
    def fit_encode(cls, texts: Sequence[str], options: EncoderOptions) -> tuple[Self, Ragged]:
        assert isinstance(options, TfidfOptions)
        encoder, words, characters = cls._learn(texts, options)
        return encoder, encoder._weigh(words, characters)  # noqa: SLF001 - its own class

    @classmethod
    def _learn(cls, texts: Sequence[str], options: TfidfOptions) -> tuple[Self, csr_matrix, csr_matrix]:
        """An encoder for these texts, and the counts of its words and their n-grams, and of characters, in them."""
        numbered = _split(texts, options)
        if not numbered.words:
            raise InputError(f"the {len(texts):,} training texts contain no words")
        limits = options.min_count, options.min_ngram_count, options.max_terms
        names, words = WordTerms.learn(numbered, options.ngrams, *limits)
        if not names:
            message = f"no word occurs in at least {options.min_count} of the {len(texts):,} training texts"
            raise InputError(message, argument="encoder_options.min_count")
        characters = words[:, :0]
        if options.char_ngrams:
            lengths = options.min_char_ngrams, options.char_ngrams
            is_long = len(numbered.rows.values) > _LONG * len(texts)
            most = max(int(options.max_char_share * len(texts)), _FEW_TEXTS) if is_long else None
            grams, characters = CharacterNGrams.learn(
                numbered, *lengths, options.min_char_count, options.max_char_terms, most
            )
            names += [MARK + gram for gram in grams.grams]
        encoder = cls(names, options)
        text_counts = [np.bincount(part.indices, minlength=part.shape[1]) for part in (words, characters)]
        encoder.text_counts.copy_(torch.from_numpy(np.concatenate(text_counts)))
        encoder.num_texts.fill_(len(texts))
        return encoder, words, characters

    def encode(self, texts: Sequence[str]) -> Ragged:
        if not len(texts):  # scikit-learn rejects no rows
            return Ragged(np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.float32))
        return self._weigh(*self.count(texts))

    def count(self, texts: Sequence[str]) -> tuple[csr_matrix, csr_matrix]:
        """How often each text contains each term: words and their n-grams, and n-grams of characters."""
        assert isinstance(self.options, TfidfOptions)
        numbered = _split(texts, self.options)
        return self.words.count(numbered), self.characters.count(numbered)

    def _weigh(self, words: csr_matrix, characters: csr_matrix) -> Ragged:
        """The TF-IDF weights of texts with these counts."""
        counts_D = self.text_counts.cpu().numpy().astype(np.float64)
        idf_D = np.log((1 + float(self.num_texts)) / (1 + counts_D)) + 1
        rows = _weigh(words, idf_D[: self.num_words])
        if len(self.characters):
            rows = self._concatenate(rows, _weigh(characters, idf_D[self.num_words :]))
        rows.sort_indices()
        return Ragged(rows.indices.astype(np.int64), rows.indptr.astype(np.int64), rows.data.astype(np.float32))

    def _concatenate(self, words: csr_matrix, characters: csr_matrix) -> csr_matrix:
        """Both blocks, each with its share of the squared length; a text with only one of them has length one too."""
        from scipy.sparse import hstack

        assert isinstance(self.options, TfidfOptions)
        share = np.float32(self.options.char_weight)
        words.data *= np.sqrt(1 - share)
        characters.data *= np.sqrt(share)
        return _normalize(hstack([words, characters], format="csr"))

    def collate(self, rows: Ragged) -> Inputs:
        assert rows.weights is not None
        return tuple(torch.from_numpy(array) for array in (rows.lengths, rows.values, rows.weights))

    def forward(self, *inputs: Tensor) -> Tensor:
        lengths_B, columns_T, weights_T = inputs
        return sparse_rows(lengths_B, columns_T, weights_T, self.out_features)

    def spans(self, text: str) -> list[Span]:
        assert isinstance(self.options, TfidfOptions)
        return spans(text, self.options.tokens)

    def ngram_places(self, text: str) -> list[tuple[int, int]]:
        assert isinstance(self.options, TfidfOptions)
        _, ends, lengths = self.words.places(NumberedTexts.of([tokeniser(self.options.tokens)(text)]))
        return ngram_places(ends, lengths)

    def gated_features(self, text: str, gates_W: Tensor) -> Tensor:
        assert isinstance(self.options, TfidfOptions)
        rows = self.encode([text])
        words = tokeniser(self.options.tokens)(text)
        columns, ends, lengths = self.words.places(NumberedTexts.of([words]))
        grams = self.characters.encode(words)
        columns_O = np.concatenate([columns, self.num_words + grams.values])
        terms_O = np.searchsorted(rows.values, columns_O)  # the columns of a row are sorted
        ends_O = np.concatenate([ends, np.repeat(np.arange(len(words)), grams.lengths)])
        lengths_O = np.concatenate([lengths, np.ones_like(grams.values)])
        lengths_B, columns_T, weights_T = (tensor.to(gates_W.device) for tensor in self.collate(rows))
        gates_T = term_gates(gates_W, len(words), terms_O, ends_O, lengths_O, len(rows.values))
        return self.forward(lengths_B, columns_T, weights_T * gates_T)

    def feature_shares(self) -> Tensor:
        return self.text_counts / self.num_texts.clamp(min=1)

    def save(self, folder: Path) -> None:
        save_words(folder / _FILE, self.terms)

    @classmethod
    def load(cls, folder: Path, options: EncoderOptions) -> Self:
        assert isinstance(options, TfidfOptions)
        terms = load_words(folder / _FILE)
        marked = [term.startswith(MARK) for term in terms]
        if marked != sorted(marked):
            raise InputError(f"{folder / _FILE}: expected all n-grams of characters after the words")
        return cls(terms, options)


def _split(texts: Sequence[str], options: TfidfOptions) -> NumberedTexts:
    """The texts as words."""
    tokenise = tokeniser(options.tokens)
    return NumberedTexts.of([tokenise(text) for text in texts])


def _weigh(counts: csr_matrix, idf_D: np.ndarray) -> csr_matrix:
    """The TF-IDF weights of counts, each row normalised to length one; as scikit-learn's, whose import takes longer
    than that of torch."""
    counts.data = (np.log(counts.data) + 1).astype(np.float32) * idf_D[counts.indices].astype(np.float32)
    return _normalize(counts)


def _normalize(rows: csr_matrix) -> csr_matrix:
    """The rows with length one; rows of zeros stay."""
    row_T = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    squares_B = np.bincount(row_T, weights=rows.data.astype(np.float64) ** 2, minlength=rows.shape[0])
    rows.data = (rows.data / np.sqrt(squares_B)[row_T]).astype(np.float32)
    return rows
