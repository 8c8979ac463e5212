"""Rows of unequal length compared with lists."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from arbormax.data.ragged import Ragged

ROWS = st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=8)


def lists(ragged: Ragged) -> list[list[int]]:
    return [ragged.values[start:end].tolist() for start, end in pairwise(ragged.offsets)]


@given(ROWS)
def test_rows_are_preserved(rows):
    ragged = Ragged.from_lists(rows)
    assert lists(ragged) == rows
    assert len(ragged) == len(rows)
    assert ragged.lengths.tolist() == [len(row) for row in rows]


@given(ROWS, st.data())
def test_take_selects_rows_by_position_and_order(rows, data):
    items = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10)) if rows else []
    ragged = Ragged.from_lists(rows)
    weighted = Ragged(ragged.values, ragged.offsets, ragged.values.astype(np.float32) / 2)
    taken = weighted.take(np.array(items, dtype=np.int64))
    assert lists(taken) == [rows[i] for i in items]
    assert taken.weights is not None
    assert taken.weights.tolist() == (taken.values / 2).tolist()


@given(ROWS, st.integers(1, 7))
def test_truncate_keeps_the_first_values_and_their_weights(rows, longest):
    ragged = Ragged.from_lists(rows)
    cut = Ragged(ragged.values, ragged.offsets, ragged.values.astype(np.float32)).truncate(longest)
    assert lists(cut) == [row[:longest] for row in rows]
    assert cut.weights is not None
    assert cut.weights.tolist() == cut.values.tolist()


@given(ROWS, st.booleans())
def test_pad_fills_rows_on_the_right_also_when_reversed(rows, reverse):
    table = Ragged.from_lists(rows).pad(-1, reverse)
    width = max([1, *(len(row) for row in rows)])
    turned = [row[::-1] if reverse else row for row in rows]
    assert table.shape == (len(rows), width)
    assert table.dtype == np.int64
    assert table.tolist() == [row + [-1] * (width - len(row)) for row in turned]
