"""N-grams compared with a simple loop over the rows."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbormax.data.ngrams import NGrams
from arbormax.data.ragged import Ragged
from arbormax.data.vocabulary import UNKNOWN
from arbormax.errors import InputError

WORDS = 6
ROWS = st.lists(st.lists(st.integers(UNKNOWN, WORDS - 1), max_size=7), max_size=6)


def windows(row: list[int], length: int) -> list[tuple[int, ...]]:
    found = [tuple(row[i : i + length]) for i in range(len(row) - length + 1)]
    return [gram for gram in found if UNKNOWN not in gram]


def naive_numbers(rows, longest, min_count):
    """The number of each frequent n-gram: shorter ones first, then sorted by first words and last word."""
    number = {(word,): word for word in range(WORDS)}
    following = WORDS
    for length in range(2, longest + 1):
        counts = Counter(gram for row in rows for gram in windows(row, length))
        frequent = [gram for gram, count in counts.items() if count >= min_count and gram[:-1] in number]
        for gram in sorted(frequent, key=lambda gram: (number[gram[:-1]], gram[-1])):
            number[gram] = following
            following += 1
    return number


@given(ROWS, ROWS, st.integers(1, 4), st.integers(1, 3))
def test_numbers_equal_those_of_a_simple_loop(learnt, others, longest, min_count):
    grams = NGrams.learn(Ragged.from_lists(learnt), WORDS, longest, min_count)
    number = naive_numbers(learnt, longest, min_count)
    assert len(grams) == len(number) - WORDS
    for rows in (learnt, others):
        encoded = grams.encode(Ragged.from_lists(rows))
        assert len(encoded) == len(rows)
        for i, row in enumerate(rows):
            found = encoded.values[encoded.offsets[i] : encoded.offsets[i + 1]].tolist()
            known = [number[g] for length in range(2, longest + 1) for g in windows(row, length) if g in number]
            assert found[: len(row)] == row
            assert sorted(found[len(row) :]) == sorted(known)


@given(ROWS, st.integers(1, 3))
def test_saved_ngrams_encode_as_before(tmp_path_factory, rows, longest):
    path = tmp_path_factory.mktemp("grams") / "ngrams.npz"
    ragged = Ragged.from_lists(rows)
    grams = NGrams.learn(ragged, WORDS, longest)
    grams.save(path)
    assert NGrams.load(path).encode(ragged).values.tolist() == grams.encode(ragged).values.tolist()


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "ngrams.npz"
    NGrams.learn(Ragged.from_lists([[2, 3, 4, 2, 3]]), WORDS, 3).save(path)
    return path


@pytest.mark.parametrize("keep", [0, 1, 30, 200, -1])
def test_the_error_about_an_incomplete_file_names_its_path(saved, keep):
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"ngrams\.npz is not a file of n-grams"):
        NGrams.load(saved)


def test_a_file_with_other_content_is_an_error(saved):
    for arrays in ({"other": np.zeros(3)}, {"num_words": np.zeros(3), "keys0": np.zeros(1)}):
        np.savez(saved, **arrays)
        with pytest.raises(InputError, match="is not a file of n-grams"):
            NGrams.load(saved)
    with saved.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(InputError, match="is not a file of n-grams"):
        NGrams.load(saved)


def test_a_pickle_is_never_loaded(saved):
    with saved.open("wb") as file:
        np.savez(file, num_words=np.array(5), keys0=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="is not a file of n-grams"):
        NGrams.load(saved)
