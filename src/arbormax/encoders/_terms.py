"""What encoders of terms share, which are words and n-grams: options, and gates of terms from the gates of words.

W words of a text, T its terms, O their occurrences.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from arbormax.encoders.base import EncoderOptions


class CharacterOptions(EncoderOptions):
    char_ngrams: int = Field(4, ge=0, le=16, description="longest n-gram of characters within a word; 0 for none")
    min_char_ngrams: int = Field(3, ge=1, le=16, description="shortest n-gram of characters within a word")
    min_char_count: int = Field(2, ge=1, description="minimum number of texts that contain an n-gram of characters")
    max_char_terms: int = Field(50_000, ge=1, description="maximum number of n-grams of characters")
    char_weight: float = Field(0.5, gt=0, lt=1, description="share of the n-grams of characters in the features")

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if 0 < self.char_ngrams < self.min_char_ngrams:
            raise ValueError(
                f"min_char_ngrams: expected at most char_ngrams, {self.char_ngrams}, found {self.min_char_ngrams}"
            )
        return self


def tuned_lengths(options: EncoderOptions) -> dict[str, tuple[int, ...]]:
    """The lengths of n-grams that a short search tries; 0 for no n-grams of characters."""
    assert isinstance(options, CharacterOptions)
    least = options.min_char_ngrams
    return {"ngrams": (1, 2, 3), "char_ngrams": (0, *(length for length in (4, 5, 6) if length >= least))}


def ngram_places(ends_O: np.ndarray, lengths_O: np.ndarray) -> list[tuple[int, int]]:
    """The first and the last word of each occurrence of more than one word."""
    is_long = lengths_O > 1
    return list(zip((ends_O - lengths_O + 1)[is_long].tolist(), ends_O[is_long].tolist(), strict=True))


def term_gates(
    gates_W: Tensor, num_words: int, terms_O: np.ndarray, ends_O: np.ndarray, lengths_O: np.ndarray, num_terms: int
) -> Tensor:
    """(T,) the gate of each term: the mean over its occurrences, and in each of them over its words.

    The contribution of an n-gram is therefore divided equally among its words, unless the gates of the words are
    followed by gates of their own for the occurrences of more than one word.

    >>> gates = torch.tensor([1.0, 2.0, 4.0])
    >>> term_gates(gates, 3, np.array([0, 1, 1]), np.array([2, 1, 2]), np.array([1, 2, 2]), 2)
    tensor([4.0000, 2.2500])
    >>> gates = torch.tensor([1.0, 2.0, 4.0, 7.0, 9.0])
    >>> term_gates(gates, 3, np.array([0, 1, 1]), np.array([2, 1, 2]), np.array([1, 2, 2]), 2)
    tensor([4., 8.])
    """
    is_long = lengths_O > 1
    if len(gates_W) > num_words:
        ends_O = ends_O.copy()
        ends_O[is_long] = num_words + np.arange(is_long.sum())
        lengths_O = np.ones_like(lengths_O)
    starts = np.cumsum(lengths_O) - lengths_O
    words = np.arange(lengths_O.sum()) - np.repeat(starts - (ends_O - lengths_O + 1), lengths_O)
    shares_O = 1.0 / (lengths_O * np.bincount(terms_O, minlength=num_terms)[terms_O])
    device, dtype = gates_W.device, gates_W.dtype
    shares = torch.from_numpy(np.repeat(shares_O, lengths_O)).to(device, dtype)
    members = gates_W[torch.from_numpy(words).to(device)] * shares
    places = torch.from_numpy(np.repeat(terms_O, lengths_O)).to(device)
    return torch.zeros(num_terms, device=device, dtype=dtype).index_add(0, places, members)
