"""Texts as the numbers of their words, and words and n-grams of words as columns of a matrix of counts.

T words of all texts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from arbormax.data.ngrams import NGrams
from arbormax.data.ragged import Ragged
from arbormax.data.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_FIRST = UNKNOWN + 1  # number of the first word in `NGrams`


@dataclass(frozen=True, eq=False)
class NumberedTexts:
    """Texts as the numbers of their distinct words.

    >>> texts = NumberedTexts.of([["an", "owl"], ["an"]])
    >>> texts.words, texts.rows.values.tolist()
    (['an', 'owl'], [0, 1, 0])
    """

    rows: Ragged
    words: list[str]  # in the order of their numbers

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]]) -> NumberedTexts:
        number: defaultdict[str, int] = defaultdict()
        number.default_factory = number.__len__
        lengths = np.array([len(text) for text in texts], dtype=np.int64)
        values = np.fromiter(map(number.__getitem__, chain.from_iterable(texts)), np.int64, int(lengths.sum()))
        return cls(Ragged.from_lengths(values, lengths), list(number))

    def __len__(self) -> int:
        return len(self.rows)

    def count(self) -> csr_matrix:
        """(texts, words) how often each word occurs in each text."""
        return count_values(self.rows, len(self.words))


def count_values(rows: Ragged, columns: int) -> csr_matrix:
    """(rows, columns) how often each value from 0 occurs in each row."""
    from scipy.sparse import csr_matrix

    ones = np.ones(len(rows.values), dtype=np.float32)
    counts = csr_matrix((ones, rows.values, rows.offsets), shape=(len(rows), columns))
    counts.sum_duplicates()
    return counts


class WordTerms:
    """Words and n-grams of words, joined by blanks.

    >>> terms = WordTerms(["an owl", "owl"])
    >>> terms.count(NumberedTexts.of([["an", "owl", "owl"], ["an"]])).toarray().tolist()
    [[1.0, 2.0], [0.0, 0.0]]
    """

    def __init__(self, terms: Sequence[str]) -> None:
        self._size = len(terms)
        words = NumberedTexts.of([term.split(" ") for term in terms])
        self._number = {word: number for number, word in enumerate(words.words, start=_FIRST)}
        rows = Ragged(words.rows.values + _FIRST, words.rows.offsets)
        self._grams, numbers = NGrams.of(rows, _FIRST + len(words.words))
        self._column = np.full(self._grams.num_words + len(self._grams), -1)  # -1: only within n-grams
        self._column[numbers] = np.arange(self._size)

    @classmethod
    def learn(
        cls, texts: NumberedTexts, longest: int, min_count: int, min_ngram_count: int, max_terms: int
    ) -> tuple[list[str], csr_matrix]:
        """The terms of these texts in sorted order, and (texts, terms) how often each of them occurs in each text.

        A word is in at least `min_count` texts and an n-gram in at least `min_ngram_count`. Of more than `max_terms`,
        the most frequent are used.
        """
        rows = Ragged(texts.rows.values + _FIRST, texts.rows.offsets)
        # an n-gram in n texts occurs at least n times
        grams = NGrams.learn(rows, _FIRST + len(texts.words), longest, min_ngram_count)
        counts = count_values(grams.encode(rows), grams.num_words + len(grams))
        least = np.repeat([min_count, min_ngram_count], [grams.num_words, len(grams)])
        found = np.flatnonzero(np.bincount(counts.indices, minlength=len(least)) >= np.maximum(least, 1))
        names = grams.names([*[""] * _FIRST, *texts.words])
        found = np.array(sorted(found.tolist(), key=names.__getitem__), dtype=np.int64)
        frequency = np.asarray(counts.sum(0)).ravel()[found]
        found = found[np.sort(np.argsort(-frequency, kind="stable")[:max_terms])]
        return [names[number] for number in found.tolist()], counts[:, found]

    def __len__(self) -> int:
        return self._size

    def places(self, texts: NumberedTexts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The column of each known term of the texts, the position of its last word, and its number of words."""
        number = np.array([self._number.get(word, UNKNOWN) for word in texts.words], dtype=np.int64)
        numbers, ends, lengths = self._grams.places(Ragged(number[texts.rows.values], texts.rows.offsets))
        columns = self._column[numbers]
        is_term = columns >= 0
        return columns[is_term], ends[is_term], lengths[is_term]

    def count(self, texts: NumberedTexts) -> csr_matrix:
        """(texts, terms) how often each term occurs in each text."""
        from scipy.sparse import coo_matrix

        columns, ends, _ = self.places(texts)
        texts_T = np.repeat(np.arange(len(texts)), texts.rows.lengths)
        ones = np.ones(len(columns), dtype=np.float32)
        return coo_matrix((ones, (texts_T[ends], columns)), shape=(len(texts), self._size)).tocsr()
