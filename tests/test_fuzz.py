"""A short run of the fuzzing suite; `make fuzz` runs a million cases."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbormax.data.tables._source import FORMATS as TABLES
from arbormax.taxonomy.formats import FORMATS
from fuzz_targets import check, make_targets, mutate


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    return {target.name: target for target in make_targets(tmp_path_factory.mktemp("fuzz"))}


def test_every_format_is_a_target(targets):
    assert {f"taxonomy {name}" for name in FORMATS} <= targets.keys()
    assert {f"table {name}" for name in TABLES} <= targets.keys()


def test_the_seeds_are_valid(targets):
    wrong = [target.name for target in targets.values() for seed in target.seeds if not check(target, seed)]
    assert wrong == []


def test_changed_inputs_give_a_result_or_an_error_of_arbormax(targets):
    draw = random.Random(0)
    for target in targets.values():
        for _ in range(5 + target.weight):
            data = mutate(draw, target.seeds)
            try:
                check(target, data)
            except BaseException as error:
                raise AssertionError(f"{target.name}: {data!r}") from error


@given(st.binary(max_size=200))
@settings(max_examples=30, deadline=None)
def test_any_bytes_give_a_result_or_an_error_of_arbormax(targets, data):
    for target in targets.values():
        if target.weight >= 50:
            check(target, data)
