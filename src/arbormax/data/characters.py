"""N-grams of the characters of words.

The n-grams of a word depend on nothing else, so they are found once for each distinct word, and the counts of texts are
the product of two sparse matrices: (texts, words) times (words, n-grams).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from arbormax.data.ragged import Ragged
from arbormax.data.terms import NumberedTexts, count_values
from arbormax.data.tokens import FIELD

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

MARK = "\t"  # before an n-gram of characters in a list of terms; words contain no tabs


def character_ngrams(word: str, shortest: int, longest: int) -> list[str]:
    """The n-grams of a word with a blank before and after it; a shorter word is one n-gram.

    >>> character_ngrams("owl", 3, 4)
    [' ow', 'owl', 'wl ', ' owl', 'owl ']
    >>> character_ngrams("a", 4, 5)
    [' a ']
    """
    if word.startswith(FIELD):
        return []  # a category has no parts
    padded = f" {word} "
    lengths = range(min(shortest, len(padded)), min(longest, len(padded)) + 1)
    return [padded[i : i + n] for n in lengths for i in range(len(padded) - n + 1)]


@dataclass(frozen=True, eq=False)
class CharacterNGrams:
    """Numbered n-grams of the characters of words."""

    grams: tuple[str, ...]
    shortest: int
    longest: int

    @classmethod
    def learn(
        cls,
        texts: NumberedTexts,
        shortest: int,
        longest: int,
        min_count: int = 1,
        max_grams: int | None = None,
        max_count: int | None = None,
    ) -> tuple[CharacterNGrams, csr_matrix]:
        """The n-grams in `min_count` to `max_count` of these texts, and (texts, n-grams) how often each occurs in each.

        Of more than `max_grams`, the most frequent are used.
        """
        counts = texts.count()
        number: dict[str, int] = {}
        rows = (
            [number.setdefault(gram, len(number)) for gram in character_ngrams(word, shortest, longest)]
            for word in texts.words
        )
        table = count_values(Ragged.from_lists(rows), len(number))
        frequency = table.T @ np.asarray(counts.sum(0)).ravel()
        names = list(number)
        # n-grams of n texts occur at least n times, so the others need no further count
        candidates = np.array(sorted(np.flatnonzero(frequency >= min_count), key=names.__getitem__), dtype=np.int64)
        table, frequency = table[:, candidates], frequency[candidates]
        found = counts @ table
        num_texts = np.bincount(found.indices, minlength=len(candidates))
        order = np.argsort(-frequency, kind="stable")
        is_used = (num_texts >= min_count) & (num_texts <= (len(texts) if max_count is None else max_count))
        selected = np.sort(order[is_used[order]][:max_grams])
        grams = tuple(names[column] for column in candidates[selected])
        return cls(grams, shortest, longest), found[:, selected]

    def __len__(self) -> int:
        return len(self.grams)

    @cached_property
    def number(self) -> dict[str, int]:
        """The number of each n-gram."""
        return {gram: number for number, gram in enumerate(self.grams)}

    def encode(self, words: Sequence[str]) -> Ragged:
        """The numbers of the known n-grams of each word."""
        number = self.number
        rows = (character_ngrams(word, self.shortest, self.longest) for word in words)
        return Ragged.from_lists([number[gram] for gram in row if gram in number] for row in rows)

    def encode_texts(self, texts: NumberedTexts) -> Ragged:
        """The numbers of the known n-grams of each text."""
        rows = self.encode(texts.words).take(texts.rows.values)
        texts_T = np.repeat(np.arange(len(texts)), texts.rows.lengths)
        lengths = np.bincount(texts_T, weights=rows.lengths, minlength=len(texts))
        return Ragged.from_lengths(rows.values, lengths.astype(np.int64))

    def count(self, texts: NumberedTexts) -> csr_matrix:
        """(texts, n-grams) how often each n-gram occurs in each text."""
        return texts.count() @ count_values(self.encode(texts.words), len(self))
