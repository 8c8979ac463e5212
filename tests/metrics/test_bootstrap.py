"""Intervals of measures where classes are rare, and verdicts about intervals that touch zero."""

import numpy as np
import pytest

import arbormax as am
from arbormax.metrics import MEASURES, evaluate
from arbormax.metrics.bootstrap import bootstrap, bootstrap_means

CLASSES, ITEMS = 150, 300
TAX = am.Taxonomy.from_nested({f"group {g}": [f"class {g}.{c}" for c in range(15)] for g in range(10)})
FREQUENCY = 1 / np.arange(1, CLASSES + 1)  # so that about half of the classes of a sample have one item
FREQUENCY /= FREQUENCY.sum()
RECALL = np.random.default_rng(0).beta(2, 2, (2, CLASSES))


def draw(rng):
    """The truth of a sample, and the predictions of two models: mistakes go to frequent classes."""
    true = rng.choice(CLASSES, ITEMS, p=FREQUENCY)
    wrong = rng.choice(CLASSES, (2, ITEMS), p=FREQUENCY)
    return TAX.leaves[true], TAX.leaves[np.where(rng.random((2, ITEMS)) < RECALL[:, true], true, wrong)]


def expected_values(measure, samples=1500):
    """The mean over samples of the measure of the first model, and of its difference from the second."""
    rng = np.random.default_rng(1)
    found = np.empty((samples, 2))
    for row in found:
        true, models = draw(rng)
        row[:] = [evaluate(true, model, TAX)[measure] for model in models]
    return found[:, 0].mean(), (found[:, 0] - found[:, 1]).mean()


@pytest.mark.parametrize("measure", ["macro_f1", "macro_recall", "mistake_severity"])
def test_intervals_cover_the_expected_value_although_classes_are_rare(measure):
    rng = np.random.default_rng(2)
    own_truth, difference_truth = expected_values(measure)
    repetitions = 300
    covered = np.zeros(2)
    for _ in range(repetitions):
        true, (first, second) = draw(rng)
        sets = {"first": first, "second": second}
        found = bootstrap(true, sets, TAX, baseline="second", measures=[measure], resamples=400)
        own, difference = found.own["first"][measure], found.differences["first"][measure]
        covered += own.low <= own_truth <= own.high, difference.low <= difference_truth <= difference.high
    # 95 % intervals; drawing items with replacement covers macro-F1 and macro-recall in 85 % of the samples
    assert (covered / repetitions >= 0.905).all(), covered / repetitions
    assert (covered / repetitions <= 0.985).all(), covered / repetitions


def test_an_interval_is_centred_on_its_estimate_although_resamples_lack_classes():
    rng = np.random.default_rng(3)
    for _ in range(10):
        true, (model, _) = draw(rng)
        found = bootstrap(true, {"model": model}, TAX, resamples=500).own["model"]
        for name in ("macro_f1", "macro_precision", "macro_recall"):
            mean, low, high = found[name]
            assert 0.35 < (mean - low) / (high - low) < 0.65, name


def test_intervals_of_a_difference_of_means_cover_it_as_often_as_they_claim():
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        flat = rng.exponential(1.0, 60)
        tree = flat + rng.normal(0.3, 1.0, 60)
        _, low, high = bootstrap_means({"flat": flat, "tree": tree}, resamples=200, seed=seed)["tree"]
        covered += low <= 0.3 <= high
    assert 0.9 <= covered / 200 <= 0.99


def test_bounds_of_shares_are_shares():
    tax = am.Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    rng = np.random.default_rng(4)
    for size in (1, 2, 3, 9, 40):
        true = rng.choice(tax.leaves, size)
        nearly = np.where(np.arange(size) == 0, tax.leaves[0], true)
        found = bootstrap(true, {"right": true, "nearly": nearly}, tax, resamples=100)
        assert found.own["right"]["accuracy"] == (1.0, 1.0, 1.0)
        for name, interval in found.own["nearly"].items():
            if MEASURES[name].unit == "share":
                assert 0 <= interval.low <= interval.mean <= interval.high <= 1


@pytest.mark.parametrize(
    ("measure", "low", "high", "verdict"),
    [
        ("accuracy", 0.001, 0.02, "better"),
        ("accuracy", 0.0004, 0.02, "no clear difference"),  # shown as [0.0, +2.0]
        ("accuracy", -0.02, -0.0004, "no clear difference"),
        ("accuracy", 0.0, 0.02, "no clear difference"),
        ("mistake_severity", -0.02, -0.006, "better"),
        ("mistake_severity", -0.02, -0.004, "no clear difference"),
        ("tree_distance", 0.011, 0.02, "worse"),
    ],
)
def test_an_interval_that_touches_zero_as_shown_is_no_clear_difference(measure, low, high, verdict):
    assert MEASURES[measure].verdict(low, high) == verdict
