"""The measures of log-probabilities against naive oracles, and at the edges of their options."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles_metrics as oracle
from arbormax import Taxonomy, decode, metrics
from arbormax.errors import InputError, OptionError
from scored import examples, scored_trees

TREE = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
TAUS = [0.0, 0.2, 0.35, 0.5, 0.7, 1.0]


@st.composite
def judged_scores(draw):
    tax, logp = draw(scored_trees())
    return tax, logp, [draw(st.integers(0, tax.num_nodes - 1)) for _ in logp]


@examples
@given(judged_scores())
def test_the_operating_curve_equals_the_naive_oracle(judged):
    tax, logp, true = judged
    correct, specificity, area = metrics.operating_curve(logp, true, tax, TAUS)
    expected = oracle.operating_curve(logp.tolist(), true, tax, TAUS)
    assert correct == pytest.approx(expected[0], abs=1e-8)
    assert specificity == pytest.approx(expected[1], abs=1e-8)
    assert area == pytest.approx(expected[2], abs=1e-8)


@examples
@given(judged_scores(), st.sampled_from([1, 3, 15]))
def test_the_calibration_error_of_each_level_equals_the_naive_oracle(judged, bins):
    tax, logp, true = judged
    expected = oracle.level_calibration_error(logp.tolist(), true, tax, bins)
    assert metrics.level_calibration_error(logp, true, tax, bins) == pytest.approx(expected, abs=1e-8)


@examples
@given(judged_scores())
def test_hierarchical_distance_equals_the_naive_oracle_for_each_k(judged):
    tax, logp, true = judged
    found = metrics.evaluate(true, true, tax, log_probs=logp, ks=(1, 2, 5, 20))
    names = {name for name in found if name.startswith("hierarchical_distance@")}
    assert names == {f"hierarchical_distance@{k}" for k in (1, 2, 5, 20) if k <= tax.num_leaves}
    for k in (k for k in (1, 2, 5, 20) if k <= tax.num_leaves):
        ranked = [oracle.top_classes(row, oracle.Tree(tax), k) for row in logp.tolist()]
        expected = pytest.approx(oracle.hierarchical_distance_at_k(true, ranked, tax), abs=1e-12)
        assert found[f"hierarchical_distance@{k}"] == expected
        assert metrics.hierarchical_distance_at_k(true, np.reshape(ranked, (len(true), k)).astype(int), tax) == expected


@examples
@given(judged_scores(), st.floats(0, 1))
def test_the_curve_decodes_with_the_threshold_rule(judged, tau):
    tax, logp, true = judged
    curve = metrics.operating_curve(logp, true, tax, [tau])
    found = metrics.evaluate(true, decode.threshold(logp, tax, tau), tax)
    if tax.num_leaves > 1:
        assert curve.specificity[0] == pytest.approx(found["information"] / math.log2(tax.num_leaves), abs=1e-8)


def test_evaluate_gives_the_same_as_the_functions():
    logp = torch.randn(40, 3, generator=torch.Generator().manual_seed(1)).log_softmax(-1).double()
    logp = torch.stack([torch.tensor(TREE.sum_up(row)) for row in logp.exp().numpy()]).log()
    true = [3, 4, 5, 1] * 10
    found = metrics.evaluate(true, true, TREE, log_probs=logp, bins=7, thresholds=TAUS)
    assert found["ece"] == metrics.level_calibration_error(logp, true, TREE, bins=7)
    assert found["operating_curve_area"] == metrics.operating_curve(logp, true, TREE, TAUS).area


def test_a_calibrated_model_has_no_error_on_an_uneven_tree():
    tax = Taxonomy.from_nested(["x", {"a": ["y", "z"]}])
    leaf = {"x": 0.5, "y": 0.25, "z": 0.25}
    logp = torch.tensor(tax.sum_up([leaf[name] for name in tax.classes])).log().expand(4, -1)
    true = [tax.find(name) for name in ("x", "x", "y", "z")]
    assert metrics.level_calibration_error(logp, true, tax) == pytest.approx([0.0, 0.0], abs=1e-8)


@examples
@given(judged_scores())
def test_the_brier_score_is_the_squared_distance_from_the_truth(judged):
    tax, logp, true = judged
    leaf = logp.exp()[:, torch.from_numpy(tax.leaves.copy())].tolist()
    classes = tax.class_of[np.array(true, np.int64)].tolist()
    distances = [
        sum((p - (place == label)) ** 2 for place, p in enumerate(row))
        for row, label in zip(leaf, classes, strict=True)
        if label >= 0
    ]
    expected = sum(distances) / len(distances) if distances else 0.0
    assert metrics.evaluate(true, true, tax, log_probs=logp)["brier"] == pytest.approx(expected)


def test_the_debiased_error_of_a_calibrated_model_is_nearer_to_zero():
    tax, draw = Taxonomy.from_nested(["x", "y"]), np.random.default_rng(0)
    found = []
    for _ in range(40):
        p = draw.uniform(0.5, 1, 200)
        logp = torch.from_numpy(np.stack([np.ones(200), p, 1 - p], 1)).log()
        true = np.where(draw.random(200) < p, 1, 2)
        values = metrics.evaluate(true, true, tax, log_probs=logp)
        found.append((values["ece"][0], values["ece_debiased"][0]))
    plain, debiased = np.mean(found, 0)
    assert debiased < 0.7 * plain
    wrong = metrics.evaluate(3 - true, true, tax, log_probs=logp[:, [0, 2, 1]])
    assert wrong["ece_debiased"][0] == pytest.approx(wrong["ece"][0], abs=0.05)


def test_a_confident_model_has_area_one_if_right_and_one_half_if_wrong():
    # wrong from the first level on, correctness falls in one line from the root's end point
    tax = Taxonomy.from_parents([-1, 0, 0])
    sure = torch.tensor([[1.0, 1.0, 0.0]]).log()
    assert metrics.operating_curve(sure, [1], tax).area == 1.0
    assert metrics.operating_curve(sure, [2], tax).area == 0.5


def test_the_range_beyond_the_most_specific_point_adds_nothing():
    logp = torch.tensor([[1.0, 0.6, 0.4, 0.6, 0.0, 0.4]]).log()
    assert metrics.operating_curve(logp, [3], TREE, [0.9]) == ([1.0], [0.0], 0.0)


def test_a_single_class_has_specificity_one():
    tax = Taxonomy.from_parents([-1, 0, 1])
    assert metrics.operating_curve(torch.zeros(2, 3), [2, 2], tax, [0.5, 1.0]) == ([1.0, 1.0], [1.0, 1.0], 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_log_probabilities_are_accepted(dtype):
    logp = torch.tensor([[1.0, 0.5, 0.5, 0.5, 0.0, 0.5]]).log().to(dtype)
    assert metrics.operating_curve(logp, [3], TREE, [0.5]).specificity == [0.0]
    assert metrics.level_calibration_error(logp, [3], TREE) == pytest.approx([0.5, 0.5], abs=1e-2)


@pytest.mark.parametrize("thresholds", [[], [0.5, 1.5], [math.nan], 0.5, ["x"]])
def test_thresholds_outside_zero_to_one_raise_an_error(thresholds):
    with pytest.raises(OptionError, match="from 0 to 1"):
        metrics.operating_curve(torch.zeros(1, 6), [3], TREE, thresholds)


@pytest.mark.parametrize("bins", [0, -1, 2.5, None])
def test_bins_must_be_a_positive_whole_number(bins):
    with pytest.raises(OptionError, match="bins: expected a whole number of at least 1"):
        metrics.level_calibration_error(torch.zeros(1, 6), [3], TREE, bins)


@pytest.mark.parametrize(
    ("true", "topk", "message"),
    [
        ([3, 4], [[0], [3]], "class ids run from 0 to 2, found 3 at position 1"),
        ([3, 4], [[0], [-1]], "class ids run from 0 to 2, found -1"),
        ([3, 4], [[0]], r"topk_classes: expected the shape \(2, 'k'\)"),
        ([3, 4], [0, 1], r"topk_classes: expected the shape \(2, 'k'\)"),
        ([3, 4], [[], []], "k at least 1"),
    ],
)
def test_invalid_ranked_classes_raise_an_error(true, topk, message):
    with pytest.raises(InputError, match=message):
        metrics.hierarchical_distance_at_k(true, topk, TREE)
