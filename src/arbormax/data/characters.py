"""N-grams of the characters of words.

The n-grams of a word depend on nothing else, so they are found once for each distinct word, and the counts of texts are
the product of two sparse matrices: (texts, words) times (words, n-grams).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from arbormax.data.ragged import Ragged

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

MARK = "\t"  # before an n-gram of characters in a list of terms; words contain no tabs
_CHUNK = 20_000_000  # counts of n-grams in memory at once


def character_ngrams(word: str, shortest: int, longest: int) -> list[str]:
    """The n-grams of a word with a blank before and after it; a shorter word is one n-gram.

    >>> character_ngrams("owl", 3, 4)
    [' ow', 'owl', 'wl ', ' owl', 'owl ']
    >>> character_ngrams("a", 4, 5)
    [' a ']
    """
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
        texts: Sequence[Sequence[str]],
        shortest: int,
        longest: int,
        min_count: int = 1,
        max_grams: int | None = None,
    ) -> tuple[CharacterNGrams, np.ndarray]:
        """The n-grams in at least `min_count` of these texts, given as words, and in how many texts each of them is.

        Of more than `max_grams`, the most frequent are used.
        """
        counts, words = count_words(texts)
        number: dict[str, int] = {}
        rows = (
            [number.setdefault(gram, len(number)) for gram in character_ngrams(word, shortest, longest)]
            for word in words
        )
        table = _matrix(Ragged.from_lists(rows), len(number))
        frequency = table.T @ np.asarray(counts.sum(0)).ravel()
        names = list(number)
        # n-grams of n texts occur at least n times, so the others need no further count
        candidates = np.array(sorted(np.flatnonzero(frequency >= min_count), key=names.__getitem__), dtype=np.int64)
        table, frequency = table[:, candidates], frequency[candidates]
        num_texts = np.zeros(len(candidates), dtype=np.int64)
        for part in _parts(counts, table):
            num_texts += np.bincount((part @ table).indices, minlength=len(candidates))
        order = np.argsort(-frequency, kind="stable")
        selected = np.sort(order[num_texts[order] >= min_count][:max_grams])
        grams = tuple(names[column] for column in candidates[selected])
        return cls(grams, shortest, longest), num_texts[selected]

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

    def encode_texts(self, texts: Sequence[Sequence[str]]) -> Ragged:
        """The numbers of the known n-grams of each text, given as words."""
        values, words = _number_words(texts)
        rows = self.encode(words).take(values)
        texts_T = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        lengths = np.bincount(texts_T, weights=rows.lengths, minlength=len(texts))
        return Ragged.from_lengths(rows.values, lengths.astype(np.int64))

    def count(self, texts: Sequence[Sequence[str]]) -> csr_matrix:
        """(texts, n-grams) how often each n-gram occurs in each text, given as words."""
        counts, words = count_words(texts)
        return counts @ _matrix(self.encode(words), len(self))


def count_words(texts: Sequence[Sequence[str]]) -> tuple[csr_matrix, list[str]]:
    """(texts, words) how often each word occurs in each text, and the distinct words in their order of appearance."""
    values, words = _number_words(texts)
    rows = Ragged.from_lengths(values, np.array([len(text) for text in texts], dtype=np.int64))
    return _matrix(rows, len(words)), words


def _number_words(texts: Sequence[Sequence[str]]) -> tuple[np.ndarray, list[str]]:
    """The number of each word of the texts, and the distinct words in the order of their numbers."""
    number: dict[str, int] = {}
    add = number.setdefault
    return np.array([add(word, len(number)) for text in texts for word in text], dtype=np.int64), list(number)


def _matrix(rows: Ragged, columns: int) -> csr_matrix:
    """(rows, columns) how often each number occurs in each row."""
    from scipy.sparse import csr_matrix

    ones = np.ones(len(rows.values), dtype=np.float32)
    counts = csr_matrix((ones, rows.values, rows.offsets), shape=(len(rows), columns))
    counts.sum_duplicates()
    return counts


def _parts(counts: csr_matrix, table: csr_matrix) -> Iterator[csr_matrix]:
    """Consecutive texts whose products with the table fit in memory."""
    sizes = counts @ np.diff(table.indptr)
    part = np.cumsum(sizes) // _CHUNK
    starts = np.flatnonzero(np.diff(part, prepend=-1))
    for start, end in zip(starts, [*starts[1:], counts.shape[0]], strict=True):
        yield counts[start:end]
