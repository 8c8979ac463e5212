"""The measures of nodes: against a naive oracle, scikit-learn and hiclass, and at the edges of their input."""

import json
import math

import hiclass.metrics
import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, log_loss, precision_recall_fscore_support

import oracles_metrics as oracle
from arbormax import Taxonomy, metrics
from arbormax.errors import InputError, LabelError
from scored import examples, judged_trees
from strategies import taxonomies

TREE = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-12), name


@examples
@given(judged_trees())
def test_every_measure_equals_the_naive_oracle(judged):
    tax, true, pred = judged
    assert_same(metrics.evaluate(true, pred, tax), oracle.evaluate(true, pred, tax))


@examples
@given(taxonomies(max_nodes=12), st.data())
def test_accuracy_and_macro_measures_equal_scikit_learn_on_leaves(tax, data):
    classes = st.lists(st.integers(0, tax.num_leaves - 1), min_size=8, max_size=8)
    true, pred = data.draw(classes), data.draw(classes)
    found = metrics.evaluate(tax.leaves[true], tax.leaves[pred], tax)
    precision, recall, f1, _ = precision_recall_fscore_support(true, pred, average="macro", zero_division=0)
    assert found["accuracy"] == pytest.approx(accuracy_score(true, pred), abs=1e-12)
    assert found["macro_precision"] == pytest.approx(precision, abs=1e-12)
    assert found["macro_recall"] == pytest.approx(recall, abs=1e-12)
    assert found["macro_f1"] == pytest.approx(f1, abs=1e-12)


@examples
@given(judged_trees())
def test_hierarchical_measures_equal_hiclass_micro(judged):
    tax, true, pred = judged
    assume(any(true) and any(pred))  # hiclass divides by zero where all stand at the root
    # numbers for names, as hiclass takes equal names in different places for one node
    chains = [[str(step) for step in (*tax.ancestors(node), node) if step] for node in range(tax.num_nodes)]
    paths = [chain + [""] * (tax.depth - len(chain)) for chain in chains]
    y_true, y_pred = np.array([paths[node] for node in true]), np.array([paths[node] for node in pred])
    found = metrics.evaluate(true, pred, tax)
    assert found["hp"] == pytest.approx(hiclass.metrics.precision(y_true, y_pred, average="micro"), abs=1e-12)
    assert found["hr"] == pytest.approx(hiclass.metrics.recall(y_true, y_pred, average="micro"), abs=1e-12)
    if found["hf"]:  # hiclass has 0 / 0 where nothing is shared
        assert found["hf"] == pytest.approx(hiclass.metrics.f1(y_true, y_pred, average="micro"), abs=1e-12)


def test_an_inner_prediction_is_a_miss_and_no_false_positive():
    found = metrics.evaluate([3, 4], [3, 1], TREE)
    assert found["macro_precision"] == 0.5  # x: 1, y: never predicted
    assert found["macro_recall"] == 0.5
    assert found["accuracy"] == 0.5


def test_an_inner_truth_counts_in_all_measures_except_the_macro_ones():
    found = metrics.evaluate([3, 1], [3, 4], TREE)
    assert found["macro_f1"] == 1.0
    assert found["leaf_count"] == 1
    assert (found["accuracy"], found["errors"], found["count"]) == (0.5, 1, 2)
    assert found["mistake_severity"] == 1.0


def test_no_error_has_no_severity():
    found = metrics.evaluate([3, 4], [3, 4], TREE)
    assert (found["mistake_severity"], found["errors"], found["tree_distance"]) == (0.0, 0, 0.0)


def test_thirteen_of_twenty_two_is_not_truncated():
    assert metrics.evaluate([3] * 22, [3] * 13 + [4] * 9, TREE)["accuracy"] == 13 / 22


def test_a_level_that_no_truth_reaches_is_none():
    assert metrics.evaluate([1, 2], [3, 2], TREE)["level_accuracy"] == [1.0, None]


def test_no_items_give_zeros_and_a_count_of_zero():
    found = metrics.evaluate([], [], TREE, log_probs=torch.zeros(0, 6))
    lists = {name: found.pop(name) for name in ("level_accuracy", "ece", "ece_debiased")}
    assert set(map(tuple, lists.values())) == {(None, None)}
    assert set(found.values()) == {0}


def test_the_values_are_plain_and_ready_for_json():
    found = metrics.evaluate(np.array([3, 4]), np.array([3, 1]), TREE, log_probs=np.log(np.full((2, 6), 0.25)))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    flat = [item for value in found.values() for item in (value if isinstance(value, list) else [value])]
    assert {type(item) for item in flat} <= {float, int}


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        np.array,
        torch.tensor,
        lambda ids: np.array(ids, np.uint8),
        lambda ids: np.array(ids, np.uint64),
        lambda ids: torch.tensor(ids, dtype=torch.int16),
        lambda ids: torch.tensor(ids, dtype=torch.uint8).reshape(2, 2),
        lambda ids: np.array([ids])[:, ::-1],
    ],
)
def test_any_container_and_integer_type_is_accepted(make):
    expected = metrics.evaluate([3, 4, 5, 1], [3, 3, 2, 4], TREE)
    assert metrics.evaluate(make([3, 4, 5, 1]), make([3, 3, 2, 4]), TREE) == expected


@examples
@given(judged_trees())
def test_labels_and_paths_give_the_same_as_node_ids(judged):
    tax, true, pred = judged
    assume(true)
    expected = metrics.evaluate(true, pred, tax)
    paths = [[tax.path(node) for node in nodes] for nodes in (true, pred)]
    assume(all(path for path in paths[0]))  # the root has no name
    assert metrics.evaluate(*paths, tax) == expected
    assert metrics.evaluate([list(path) for path in paths[0]], pred, tax) == expected
    leaves = [tax.leaves[node % tax.num_leaves] for node in true]
    labels = [tax.classes[node % tax.num_leaves] for node in true]
    assert metrics.evaluate(labels, np.array(labels), tax) == metrics.evaluate(leaves, leaves, tax)


def test_paths_may_be_padded_with_empty_names():
    rows = np.array([["a", "x"], ["b", ""]])
    assert metrics.evaluate(rows, [["a", "x"], ["b", None]], TREE) == metrics.evaluate([3, 2], [3, 2], TREE)


def test_labels_equal_scikit_learn():
    true, pred = ["x", "y", "z", "z", "y"], ["x", "x", "z", "y", "y"]
    found = metrics.evaluate(true, pred, TREE)
    assert found["accuracy"] == accuracy_score(true, pred)
    assert found["macro_f1"] == pytest.approx(f1_score(true, pred, average="macro"))


def test_the_negative_log_likelihood_equals_the_mean_over_the_true_nodes():
    leaf = np.random.default_rng(0).dirichlet(np.ones(3), size=4)
    logp = np.log([TREE.sum_up(row) for row in leaf])
    found = metrics.evaluate(["x", "z", "a", "y"], ["x", "x", "x", "x"], TREE, log_probs=logp)
    expected = -np.mean([logp[0, 3], logp[1, 5], logp[2, 1], logp[3, 4]])
    assert found["nll"] == pytest.approx(expected, abs=1e-12)
    classes = ["x", "z", "y", "y"]
    found = metrics.evaluate(classes, classes, TREE, log_probs=logp)
    assert found["nll"] == pytest.approx(log_loss(classes, leaf, labels=["x", "y", "z"]), abs=1e-9)


def test_read_only_arrays_are_accepted():
    true, logp = np.array([3, 4]), np.log(np.full((2, 6), 0.25))
    true.flags.writeable = logp.flags.writeable = False
    assert metrics.evaluate(true, true, TREE, log_probs=logp)["count"] == 2


@pytest.mark.parametrize(
    ("true", "pred", "message"),
    [
        ([3, 4], [3], r"pred_nodes: expected the shape of true_nodes, \(2,\); found \(1,\)"),
        ([3, -1], [3, 4], r"true_nodes: node ids run from 0 to 5, found -1 at position 1 \(1 of 2"),
        ([3, 4], [3, 6], r"pred_nodes: node ids run from 0 to 5, found 6 at position 1"),
        ([3, 4], torch.tensor([-100, 4]), "found -100 at position 0"),
        ([3.0, 4.0], [3, 4], "true_nodes: node ids are whole numbers, found float64"),
        ([3, 4], torch.tensor([3.0, 4.0], dtype=torch.bfloat16), "found torch.bfloat16"),
        ([True, False], [3, 4], "whole numbers, found bool"),
        (["x", "q"], [3, 4], "(?s)true_nodes: .*no node 'q'"),
        ([3, 4], [("a", "x"), ("a", "z")], "(?s)pred_nodes: .*'a' has no child 'z'"),
        ([None, None], [3, 4], "true_nodes: node ids are whole numbers"),
        ([[3], [4, 5]], [3, 4], "unequal length"),
        ([3, 4], np.array([3, 2**63], np.uint64), "found 9223372036854775808 at position 1"),
    ],
)
def test_invalid_ids_and_labels_raise_an_error(true, pred, message):
    with pytest.raises((InputError, LabelError), match=message):
        metrics.evaluate(true, pred, TREE)


@pytest.mark.parametrize(
    ("log_probs", "message"),
    [
        (torch.zeros(3, 6), r"log_probs: expected the shape \(2, 6\)"),
        (torch.zeros(2, 3), r"number of classes.*node_log_probs"),
        (torch.full((2, 6), 0.2), "logits and probabilities are not accepted"),
        (torch.tensor([[0.0, 0.2, -1, -1, -1, -1]] * 2), "at most 0; found 0.2"),
        (torch.full((2, 6), math.nan), "found nan"),
        (torch.zeros(2, 6, dtype=torch.int64), "floating-point"),
        ([["a"] * 6] * 2, "expected numbers"),
    ],
)
def test_invalid_log_probabilities_raise_an_error(log_probs, message):
    with pytest.raises(InputError, match=message):
        metrics.evaluate([3, 4], [3, 4], TREE, log_probs=log_probs)
