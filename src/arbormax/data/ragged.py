"""Rows of unequal length in flat arrays: the form of texts between tokenizer and batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row i is `values[offsets[i]:offsets[i + 1]]`; `weights`, if any, belong to the values."""

    values: np.ndarray  # (T,) integers
    offsets: np.ndarray  # (n + 1,) int64
    weights: np.ndarray | None = None  # (T,) float32

    @classmethod
    def from_lists(cls, rows: Iterable[list[int]]) -> Ragged:
        """The rows, concatenated.

        >>> Ragged.from_lists([[4, 5], [], [6]]).offsets.tolist()
        [0, 2, 2, 3]
        """
        rows = list(rows)
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        return cls.from_lengths(np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum())), lengths)

    @classmethod
    def from_lengths(cls, values: np.ndarray, lengths: np.ndarray) -> Ragged:
        """Consecutive values, split into rows of these lengths."""
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(values, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(n,) the number of values of each row."""
        return np.diff(self.offsets)

    def take(self, items: np.ndarray) -> Ragged:
        """The rows at these positions, in this order.

        >>> Ragged.from_lists([[4, 5], [], [6]]).take(np.array([2, 0])).values.tolist()
        [6, 4, 5]
        """
        lengths = self.offsets[items + 1] - self.offsets[items]  # `self.lengths` would compute those of all rows
        taken = Ragged.from_lengths(self.values, lengths)
        starts = np.repeat(self.offsets[items] - taken.offsets[:-1], lengths)
        places = starts + np.arange(taken.offsets[-1])
        weights = None if self.weights is None else self.weights[places]
        return Ragged(self.values[places], taken.offsets, weights)

    def truncate(self, max_length: int) -> Ragged:
        """The first `max_length` values of each row."""
        lengths = np.minimum(self.lengths, max_length)
        keep = np.arange(len(self.values)) - np.repeat(self.offsets[:-1], self.lengths) < max_length
        weights = None if self.weights is None else self.weights[keep]
        return Ragged(self.values[keep], Ragged.from_lengths(self.values, lengths).offsets, weights)

    def pad(self, value: int, reverse: bool = False) -> np.ndarray:
        """(n, longest row) int64, with `value` after the end of shorter rows; `reverse` reverses each row first.

        There is at least one column, so that an empty row is one padding value.

        >>> Ragged.from_lists([[4, 5], [6]]).pad(0, reverse=True).tolist()
        [[5, 4], [6, 0]]
        """
        lengths = self.lengths
        is_value = np.arange(int(lengths.max(initial=1))) < lengths[:, None]
        table = np.full(is_value.shape, value, dtype=np.int64)
        values = self.values
        if reverse:
            ends = np.repeat(self.offsets[:-1] + self.offsets[1:] - 1, lengths)
            values = values[ends - np.arange(len(values))]
        table[is_value] = values
        return table
