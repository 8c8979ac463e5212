"""The registry of measures, and a measure that is added to it."""

import numpy as np
import pytest

import arbormax as am
from arbormax.errors import OptionError
from arbormax.metrics import MEASURES, Measure, NodeMetric, evaluate
from arbormax.metrics.bootstrap import bootstrap
from arbormax.metrics.registry import compared_measures, shown_measures

TREE = am.Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
TRUE, PRED = np.array([3, 4, 5, 5, 3]), np.array([3, 3, 5, 4, 5])


def same_top_branch(true, pred, tax):
    return tax.ancestor_at(true, 1) == tax.ancestor_at(pred, 1)


@pytest.fixture
def toy():
    measure = Measure("top_branch", "top-branch accuracy", "share", "higher", per_item=same_top_branch)
    MEASURES.add("top_branch", measure, "share of items in the right top branch")
    yield measure
    MEASURES.remove("top_branch")


def test_every_measure_of_evaluate_is_registered():
    logp = np.log(np.array([TREE.sum_up([0.5, 0.3, 0.2])] * 5))
    names = {name.partition("@")[0] for name in evaluate(TRUE, PRED, TREE, log_probs=logp)}
    assert names == set(MEASURES.names)
    for name in MEASURES:
        assert MEASURES[name].name == name
        assert MEASURES[name].title
        assert MEASURES.summary(name)


def test_listings_grow_from_headline_to_detail():
    assert shown_measures("headline") == ("accuracy", "macro_f1", "hf", "mistake_severity")
    assert set(shown_measures("headline")) < set(shown_measures("main")) < set(shown_measures("table"))
    assert shown_measures("detail") == MEASURES.names


def test_a_registered_measure_is_evaluated_and_accumulated(toy):
    assert evaluate(TRUE, PRED, TREE)["top_branch"] == pytest.approx(3 / 5, abs=1e-9)
    metric = NodeMetric(TREE, "top_branch")
    metric.update(TRUE[:2], PRED[:2])
    metric.update(TRUE[2:], PRED[2:])
    assert metric.compute().item() == pytest.approx(3 / 5, abs=1e-6)


def test_a_registered_measure_is_bootstrapped(toy):
    assert "top_branch" in compared_measures()
    found = bootstrap(TRUE, {"flat": PRED, "tree": TRUE}, TREE, resamples=50)
    assert found.differences["tree"]["top_branch"].mean == pytest.approx(2 / 5, abs=1e-9)
    assert found.own["flat"]["top_branch"].mean == pytest.approx(3 / 5, abs=1e-9)


def test_a_measure_needs_exactly_one_way_to_compute_it():
    with pytest.raises(OptionError, match="value or per_item"):
        Measure("empty", "empty", "share", "higher")


def test_own_intervals_contain_the_measured_value():
    rng = np.random.default_rng(1)
    true = rng.choice(TREE.leaves, 100)
    pred = np.where(rng.random(100) < 0.7, true, rng.choice(TREE.leaves, 100))
    own = bootstrap(true, {"flat": pred}, TREE, resamples=300).own["flat"]
    expected = evaluate(true, pred, TREE)
    for name, interval in own.items():
        assert interval.mean == pytest.approx(expected[name], abs=1e-12)
        assert interval.low < interval.mean < interval.high


@pytest.mark.parametrize(
    ("unit", "value", "shown"),
    [("share", 0.5, "50.0 %"), ("levels", 1.234, "1.23"), ("count", 12345, "12,345"), ("share", None, "–")],
)
def test_values_are_formatted_by_unit(unit, value, shown):
    assert Measure("m", "m", unit, "higher", value=lambda sums: 0.0).format(value) == shown
