"""Numbers for sequences of words. The key of an n-gram is the number of its first n - 1 words and its last word.

T values of all rows.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arbormax._archives import check_archive
from arbormax.data.ragged import Ragged
from arbormax.data.vocabulary import UNKNOWN
from arbormax.errors import InputError

_BROKEN = (ValueError, TypeError, LookupError, MemoryError, OSError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, eq=False)
class NGrams:
    """The known sequences of 2, 3, … words; their numbers follow the numbers of the words."""

    num_words: int
    keys: tuple[np.ndarray, ...]  # for each length from 2: sorted (number of the first words) * num_words + word

    @classmethod
    def learn(cls, rows: Ragged, num_words: int, longest: int = 2, min_count: int = 1) -> NGrams:
        """The n-grams of up to `longest` words that occur `min_count` times in these rows of word numbers."""
        grams = cls(num_words, ())
        words_T = numbers_T = grams._words(rows)
        for _ in range(longest - 1):
            keys_T = grams._keys(numbers_T, words_T, rows)
            keys, counts = np.unique(keys_T[keys_T >= 0], return_counts=True)
            grams = cls(num_words, (*grams.keys, keys[counts >= min_count]))
            numbers_T = grams._lookup(keys_T, len(grams.keys) - 1)
        return grams

    @classmethod
    def of(cls, rows: Ragged, num_words: int) -> tuple[NGrams, np.ndarray]:
        """The n-grams with which rows of known words begin, and the number of each row, which has a word at least."""
        grams = cls(num_words, ())
        numbers = rows.values[rows.offsets[:-1]]
        for length in range(2, int(rows.lengths.max(initial=1)) + 1):
            longer = np.flatnonzero(rows.lengths >= length)
            keys = numbers[longer] * num_words + rows.values[rows.offsets[longer] + length - 1]
            grams = cls(num_words, (*grams.keys, np.unique(keys)))
            numbers[longer] = grams._lookup(keys, length - 2)
        return grams, numbers

    def __len__(self) -> int:
        return sum(len(keys) for keys in self.keys)

    def names(self, words: Sequence[str]) -> list[str]:
        """The words, and the n-grams as words joined by blanks, in the order of their numbers."""
        names = list(words)
        for keys in self.keys:
            first, last = np.divmod(keys, self.num_words)
            names += [f"{names[i]} {words[j]}" for i, j in zip(first.tolist(), last.tolist(), strict=True)]
        return names

    def encode(self, rows: Ragged) -> Ragged:
        """The rows, each followed by the numbers of its known n-grams."""
        if not self.keys:
            return rows
        values, ends, _ = self.places(rows)
        rows_all = np.repeat(np.arange(len(rows)), rows.lengths)[ends]
        order = np.argsort(rows_all, kind="stable")
        return Ragged.from_lengths(values[order], np.bincount(rows_all, minlength=len(rows)))

    def places(self, rows: Ragged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of the words and the known n-grams, the position of the last word of each, and its length."""
        values, ends = [rows.values], [np.arange(len(rows.values))]
        words_T = numbers_T = self._words(rows)
        for step in range(len(self.keys)):
            numbers_T = self._lookup(self._keys(numbers_T, words_T, rows), step)
            known = np.flatnonzero(numbers_T >= 0)
            values.append(numbers_T[known])
            ends.append(known)
        lengths = np.repeat(np.arange(1, len(values) + 1), [len(part) for part in values])
        return np.concatenate(values), np.concatenate(ends), lengths

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            arrays: dict[str, Any] = {f"keys{i}": keys for i, keys in enumerate(self.keys)}
            np.savez_compressed(file, num_words=self.num_words, **arrays)

    @classmethod
    def load(cls, path: Path) -> NGrams:
        try:
            with zipfile.ZipFile(path) as archive:
                check_archive(archive, path, archive.namelist())
            # numpy leaves a broken archive open, so the file is opened here
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                keys = tuple(archive[f"keys{i}"].astype(np.int64) for i in range(len(archive.files) - 1))
                return cls(int(archive["num_words"]), keys)
        except _BROKEN as error:
            raise InputError(f"{path} is not a file of n-grams that arbormax wrote: {error}") from error

    @staticmethod
    def _words(rows: Ragged) -> np.ndarray:
        """(T,) word numbers, -1 for unknown words, which are in no n-gram."""
        return np.where(rows.values == UNKNOWN, -1, rows.values)

    def _keys(self, numbers_T: np.ndarray, words_T: np.ndarray, rows: Ragged) -> np.ndarray:
        """(T,) the key of the n-gram that ends at each position, from those one word shorter; -1 for none."""
        before_T = np.empty_like(numbers_T)
        before_T[1:] = numbers_T[:-1]
        starts = rows.offsets[:-1]
        before_T[starts[starts < len(before_T)]] = -1  # n-grams do not cross rows
        return np.where((before_T < 0) | (words_T < 0), -1, before_T * self.num_words + words_T)

    def _lookup(self, keys_T: np.ndarray, step: int) -> np.ndarray:
        """(T,) the number of each key, -1 for unknown keys."""
        known = self.keys[step]
        first = self.num_words + sum(len(keys) for keys in self.keys[:step])
        if not len(known):
            return np.full(len(keys_T), -1, dtype=np.int64)
        place_T = np.minimum(np.searchsorted(known, keys_T), len(known) - 1)
        return np.where(known[place_T] == keys_T, first + place_T, -1)
