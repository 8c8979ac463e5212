"""Splits by label: properties on random labels."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from arbormax.data.examples import Examples
from arbormax.data.folds import assign_folds, hold_out
from arbormax.errors import OptionError

LABELS = st.lists(st.integers(0, 6), min_size=2, max_size=50).map(np.array)


@given(LABELS, st.integers(2, 6), st.integers(0, 3))
def test_each_shared_label_is_validated_once_and_evenly(nodes, folds, seed):
    counts = np.bincount(nodes)[nodes]
    assume((counts > 1).sum() >= folds)
    fold = assign_folds(nodes, folds, seed)
    assert ((fold == -1) == (counts == 1)).all()
    assert fold.max() < folds
    sizes = np.bincount(fold[fold >= 0], minlength=folds)
    assert sizes.max() - sizes.min() <= 1
    for label in np.unique(nodes):
        per_fold = np.bincount(fold[(nodes == label) & (fold >= 0)], minlength=folds)
        assert per_fold.max() - per_fold.min() <= 1
        # wherever it is validated, it is also trained on
        if (nodes == label).sum() > 1:
            assert (per_fold < (nodes == label).sum()).all()


@given(LABELS, st.integers(2, 4), st.integers(0, 3))
def test_folds_depend_on_the_seed(nodes, folds, seed):
    assume((np.bincount(nodes)[nodes] > 1).sum() >= folds)
    assert (assign_folds(nodes, folds, seed) == assign_folds(nodes.copy(), folds, seed)).all()


def test_another_seed_gives_other_folds():
    nodes = np.arange(60) % 4
    assert (assign_folds(nodes, 5, 0) != assign_folds(nodes, 5, 1)).any()


@pytest.mark.parametrize("folds", [0, 1, 5])
def test_an_invalid_number_of_folds_is_an_error(folds):
    with pytest.raises(OptionError, match=f"folds: expected 2 to 4, the number of examples, found {folds}"):
        assign_folds(np.array([1, 1, 2, 2]), folds)


def test_too_few_shared_labels_are_an_error():
    with pytest.raises(OptionError, match="only 2 examples share their label with another, too few for 3 folds"):
        assign_folds(np.array([1, 1, 2, 3]), 3)


@given(LABELS, st.floats(0.01, 0.99), st.integers(0, 3))
def test_every_label_stays_in_the_training_part(nodes, share, seed):
    spare = len(nodes) - len(np.unique(nodes))
    assume(spare)
    examples = Examples([str(i) for i in range(len(nodes))], nodes)
    train, valid = hold_out(examples, share, seed)
    assert valid is not None
    assert sorted([*train.inputs, *valid.inputs], key=int) == examples.inputs
    assert set(train.nodes) == set(nodes.tolist())
    assert len(valid) == min(spare, max(1, round(share * len(nodes))))
    for part in (train, valid):
        assert [nodes[int(text)] for text in part.inputs] == part.nodes.tolist()


def test_the_share_of_each_label_is_held_out():
    examples = Examples([""] * 1000, np.repeat([1, 2, 3], [700, 200, 100]))
    _, valid = hold_out(examples, 0.2)
    assert valid is not None
    assert np.abs(np.bincount(valid.nodes)[1:] - [140, 40, 20]).max() <= 1


def test_a_share_of_zero_holds_out_nothing():
    examples = Examples(["a"], np.array([1]))
    assert hold_out(examples, 0.0) == (examples, None)


def test_labels_of_one_example_each_cannot_be_held_out():
    with pytest.raises(OptionError, match="try validation=0"):
        hold_out(Examples(["a", "b"], np.array([1, 2])), 0.5)
