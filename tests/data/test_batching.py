"""Batches: every item once, little padding, and an order that depends on seed, epoch and position."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arbormax.data.batching import Batches
from arbormax.data.ragged import Ragged
from arbormax.errors import InputError, OptionError


def course(lengths, size, **options) -> Batches:
    """Batches whose targets are the items' own positions."""
    lengths = np.asarray(lengths, dtype=np.int64)
    rows = Ragged.from_lengths(np.ones(lengths.sum(), dtype=np.int64), lengths)
    return Batches(rows, np.arange(len(lengths)), lambda r: (torch.from_numpy(r.pad(0)),), size, **options)


def targets(batches) -> list[list[int]]:
    return [target.tolist() for _, target in batches]


LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=40)


@given(LENGTHS, st.integers(1, 12), st.booleans(), st.booleans(), st.integers(0, 3))
def test_an_epoch_has_every_item_once_in_batches_of_the_requested_size(lengths, size, shuffle, sort, seed):
    batches = course(lengths, size, shuffle=shuffle, sort=sort, seed=seed)
    found = targets(batches)
    assert sorted(item for batch in found for item in batch) == list(range(len(lengths)))
    assert len(found) == len(batches)
    assert sorted(map(len, found))[1:] == [size] * (len(found) - 1)


@given(LENGTHS, st.integers(1, 5), st.integers(1, 4), st.booleans(), st.integers(0, 2))
def test_ranks_divide_an_epoch_into_the_same_number_of_steps(lengths, size, ranks, sort, epoch):
    one = course(lengths, size, shuffle=True, sort=sort)
    shares = [course(lengths, size, shuffle=True, sort=sort, rank=r, ranks=ranks) for r in range(ranks)]
    plans = [share.plan(epoch) for share in shares]
    whole = {tuple(batch) for batch in one.plan(epoch)}
    assert {tuple(batch) for plan in plans for batch in plan} == whole
    assert {len(plan) for plan in plans} == {len(share) for share in shares} == {-(-len(whole) // ranks)}
    # a batch is repeated only to complete the last round
    assert sum(len(plan) for plan in plans) - len(whole) < ranks


@given(LENGTHS, st.integers(1, 5), st.integers(1, 4))
def test_every_item_is_validated_by_one_rank(lengths, size, ranks):
    shares = [course(lengths, size, sort=True, rank=rank, ranks=ranks) for rank in range(ranks)]
    found = [targets(share) for share in shares]
    assert sorted(item for share in found for batch in share for item in batch) == list(range(len(lengths)))
    assert [len(share) for share in shares] == [len(share) for share in found]


def test_the_order_depends_on_seed_and_epoch():
    lengths = np.arange(50) % 7
    first = course(lengths, 4, shuffle=True, sort=True, seed=3)
    again = course(lengths, 4, shuffle=True, sort=True, seed=3)
    epochs = [targets(first) for _ in range(3)]
    assert epochs == [targets(again) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    assert targets(course(lengths, 4, shuffle=True, sort=True, seed=4)) != epochs[0]
    again.set_epoch(1)
    assert targets(again) == epochs[1]


@pytest.mark.parametrize("taken", [0, 1, 5, 12, 13, 14, 20])
def test_iteration_resumes_from_its_state(taken):
    options = {"shuffle": True, "sort": True, "seed": 1}
    lengths = np.arange(50) % 7
    whole = course(lengths, 4, **options)
    wanted = [*targets(whole), *targets(whole)]
    stopped, found = course(lengths, 4, **options), []
    iterator = iter(stopped)
    for _ in range(taken):
        batch = next(iterator, None)
        if batch is None:
            iterator = iter(stopped)
            batch = next(iterator)
        found.append(batch[1].tolist())
    resumed = course(lengths, 4, **options)
    resumed.load_state_dict(stopped.state_dict())
    while len(found) < len(wanted):
        found += targets(resumed)
    assert found == wanted


def test_sorting_keeps_padding_to_a_few_per_cent():
    lengths = np.clip(np.random.default_rng(0).lognormal(3.0, 0.7, 20_000), 1, 512).astype(int)
    for size in (10, 64):
        batches = course(lengths, size, shuffle=True, sort=True)
        cells = sum(lengths[items].max() * len(items) for items in batches.plan(0))
        unsorted = course(lengths, size, shuffle=True)
        wasted = sum(lengths[items].max() * len(items) for items in unsorted.plan(0))
        assert 1 - lengths.sum() / cells < 0.05
        assert 1 - lengths.sum() / wasted > 0.4


def test_sorted_batches_are_mixed_differently_in_every_epoch():
    batches = course(np.full(500, 5), 5, shuffle=True, sort=True)
    pairs = [{frozenset(items.tolist()) for items in batches.plan(epoch)} for epoch in range(2)]
    assert len(pairs[0] & pairs[1]) < 5


def test_the_longest_texts_are_not_always_last():
    batches = course(np.arange(400), 4, shuffle=True, sort=True)
    firsts = [batches.plan(epoch)[0].max() for epoch in range(20)]
    assert max(firsts) > 200 > min(firsts)


def test_a_batch_larger_than_the_data_contains_all_items():
    assert [len(batch) for batch in targets(course([1, 2, 3], 100, shuffle=True, sort=True))] == [3]


def test_invalid_arguments_are_errors():
    with pytest.raises(OptionError, match="expected at least 1, found 0"):
        course([1, 2], 0)
    with pytest.raises(InputError, match="found 2 rows and 3 targets"):
        Batches(Ragged.from_lists([[1], [2]]), np.arange(3), lambda rows: (), 1)
