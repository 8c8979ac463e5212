"""Decoders that are optimal for a measure, against brute force over all nodes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import arbormax as am
import oracles_metrics as oracle
from arbormax import decode
from arbormax.errors import InputError, LabelError, OptionError
from scored import examples, scored_trees

TREE = am.Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
LOGP = torch.tensor([[1.0, 0.6, 0.4, 0.3, 0.3, 0.4]], dtype=torch.float64).log()
METRICS = ["hf", "tree_distance", "risk", "information"]


def check_best(nodes, logp, tax, value, candidates=None, sign=1):
    """Each node reaches the best expectation of value(true, predicted) among the candidates."""
    tree = oracle.Tree(tax)
    for row, node in zip(logp.tolist(), nodes.tolist(), strict=True):
        scores = {n: sign * oracle.expected(row, tree, n, value(tree)) for n in candidates or tree.nodes}
        assert scores[node] == pytest.approx(max(scores.values()), abs=1e-6)


@examples
@given(scored_trees(), st.sampled_from([torch.float64, torch.float32]), st.sampled_from([0.25, 0.5, 1.0, 2.0]))
def test_hf_has_the_largest_expected_f_by_brute_force(scored, dtype, beta):
    tax, logp = scored
    nodes = decode.optimal(logp.to(dtype), tax, "hf", beta=beta)
    check_best(nodes, logp, tax, lambda tree: lambda t, p: oracle.item_hf(tree, t, p, beta))


@examples
@given(scored_trees())
def test_tree_distance_has_the_smallest_expected_distance_by_brute_force(scored):
    tax, logp = scored
    nodes = decode.optimal(logp, tax, "tree_distance")
    check_best(nodes, logp, tax, lambda tree: lambda t, p: oracle.distance(tree, t, p), sign=-1)


@examples
@given(scored_trees(), st.sampled_from([0.0, 0.5, 3.0, 1e6]))
def test_information_has_the_largest_expected_reward_by_brute_force(scored, lam):
    tax, logp = scored
    nodes = decode.optimal(logp, tax, "information", lam=lam)
    check_best(nodes, logp, tax, lambda tree: lambda t, p: oracle.reward(tree, t, p, lam) / max(1.0, lam))


@examples
@given(
    st.integers(2, 200), st.sampled_from([0.0, 0.5, 2.0]), st.sampled_from([torch.float32, torch.bfloat16]), st.data()
)
def test_information_is_right_for_any_number_of_classes(classes, lam, dtype, data):
    width = data.draw(st.integers(1, 9))
    tax = am.Taxonomy.from_paths([f"{c % width}/c{c}" for c in range(classes)])
    weights = np.random.default_rng(data.draw(st.integers(0, 9))).random(classes) ** 4
    logp = torch.from_numpy(tax.sum_up(weights / weights.sum())).clamp(max=1).log()[None].to(dtype)
    rewards = np.exp(logp[0].double().numpy()) * (np.log2(classes / tax.leaf_counts) + lam)
    node = decode.optimal(logp, tax, "information", lam=lam).item()
    assert rewards[node] == pytest.approx(rewards.max(), rel=1e-5)


def test_information_does_not_stop_at_the_root_for_any_number_of_classes():
    for classes in range(2, 201):
        tax = am.Taxonomy.from_paths([f"{c % 3}/c{c}" for c in range(classes)])
        share = torch.full((classes,), 0.1 / classes)
        share[0] += 0.9
        logp = torch.from_numpy(tax.sum_up(share.numpy())).clamp(max=1).log()
        assert decode.optimal(logp, tax, "information").item() == tax.leaves[0], classes


@pytest.mark.parametrize("lam", [0.0, 2.0])
def test_information_prefers_an_only_child_to_its_parent(lam):
    tax = am.Taxonomy.from_nested({"a": {"b": {"c": ["x"]}}, "d": ["y", "z"]})
    logp = torch.from_numpy(tax.sum_up([0.9, 0.05, 0.05])).log()
    assert tax.names[decode.optimal(logp, tax, "information", lam=lam).item()] == "x"


@examples
@given(scored_trees())
def test_risk_without_costs_is_the_leaf_nearest_to_the_others_by_brute_force(scored):
    tax, logp = scored
    nodes = decode.optimal(logp, tax, "risk")
    leaves = tax.leaves.tolist()
    check_best(nodes, logp, tax, lambda tree: lambda t, p: oracle.distance(tree, t, p), leaves, sign=-1)


@examples
@given(scored_trees(), st.sampled_from(["classes", "nodes", "square"]), st.integers(0, 5))
def test_risk_has_the_smallest_expected_cost_by_brute_force(scored, kind, seed):
    tax, logp = scored
    n, c = tax.num_nodes, tax.num_leaves
    rows, columns = {"classes": (c, c), "nodes": (n, c), "square": (n, n)}[kind]
    costs = np.random.default_rng(seed).random((rows, columns))
    row_of = tax.class_of if kind == "classes" else np.arange(n)
    column_of = np.arange(n) if kind == "square" else tax.class_of

    def value(_tree):
        return lambda t, p: costs[row_of[p], column_of[t]]

    candidates = tax.leaves.tolist() if kind == "classes" else None
    for given_costs in (costs, costs.tolist(), torch.from_numpy(costs)):
        nodes = decode.optimal(logp, tax, "risk", costs=given_costs)
        check_best(nodes, logp, tax, value, candidates, sign=-1)


@examples
@given(scored_trees())
def test_a_cost_function_equals_its_matrix(scored):
    tax, logp = scored
    nodes = decode.optimal(logp, tax, "risk", costs=tax.distance)
    matrix = tax.distance(np.arange(tax.num_nodes)[:, None], tax.leaves[None])
    assert torch.equal(nodes, decode.optimal(logp, tax, "risk", costs=matrix))
    check_best(nodes, logp, tax, lambda tree: lambda t, p: oracle.distance(tree, t, p), sign=-1)


def test_a_cost_function_is_called_for_parts_of_a_wide_tree():
    star = am.Taxonomy.from_parents(np.r_[-1, np.zeros(3000, np.int64)])
    calls = []

    def costs(predicted, true):
        calls.append(len(predicted))
        return np.where(predicted == true, 0.0, np.where(predicted == 0, 0.9, 1.0))

    logp = torch.full((2, 3001), math.log(1e-4))
    logp[:, 0], logp[0, 2900], logp[1, 7] = 0.0, math.log(0.7), math.log(0.02)
    assert decode.optimal(logp, star, "risk", costs=costs).tolist() == [2900, 0]
    assert len(calls) > 1


@examples
@given(scored_trees(), st.integers(1, 6))
def test_beam_returns_the_most_probable_leaves_by_brute_force(scored, k):
    tax, logp = scored
    tree = oracle.Tree(tax)
    expected = [[tree.leaves[c] for c in oracle.top_classes(row, tree, k)] for row in logp.tolist()]
    found = decode.beam(logp, tax, k)
    assert found.shape == (len(logp), min(k, tax.num_leaves))
    assert found.tolist() == expected


@pytest.mark.parametrize("metric", METRICS)
def test_leading_dimensions_empty_batches_and_half_precision_are_supported(metric):
    assert decode.optimal(LOGP[0], TREE, metric).shape == ()
    assert decode.optimal(LOGP.expand(2, 3, 6), TREE, metric).shape == (2, 3)
    assert decode.optimal(LOGP[:0], TREE, metric).shape == (0,)
    assert decode.optimal(LOGP.bfloat16(), TREE, metric).dtype == torch.int64


@pytest.mark.parametrize("metric", METRICS)
def test_nan_and_impossible_nodes_give_a_valid_node(metric):
    logp = torch.full((3, 6), math.nan)
    logp[1] = torch.tensor([0.0, -math.inf, 0.0, -math.inf, -math.inf, 0.0])
    logp[2] = -math.inf
    nodes = decode.optimal(logp, TREE, metric)
    assert ((nodes >= 0) & (nodes < 6)).all()
    assert nodes[1] in (2, 5)


@pytest.mark.parametrize("metric", METRICS)
def test_the_result_has_no_graph_and_compiles(metric):
    torch.compiler.reset()
    logp = LOGP.clone().requires_grad_()
    assert not decode.optimal(logp, TREE, metric).requires_grad
    compiled = torch.compile(lambda scores: decode.optimal(scores - 0.0, TREE, metric) + 1, backend="eager")
    assert torch.equal(compiled(LOGP), decode.optimal(LOGP, TREE, metric) + 1)


@pytest.mark.parametrize("metric", METRICS)
def test_a_wide_star_and_a_deep_spine_are_decoded(metric):
    star = am.Taxonomy.from_parents(np.r_[-1, np.zeros(100_000, np.int64)])
    logp = torch.full((2, star.num_nodes), math.log(1e-6))
    logp[:, 0], logp[0, 777], logp[1, 99_999] = 0.0, math.log(0.9), math.log(0.9)
    assert decode.optimal(logp, star, metric).tolist() == [777, 99_999]
    spine = am.Taxonomy.from_parents(np.r_[-1, np.repeat(np.r_[0, np.arange(1, 1999, 2)], 2)])
    logp = torch.full((1, spine.num_nodes), -50.0)
    logp[:, 0] = logp[:, 1::2] = 0.0
    assert decode.optimal(logp, spine, metric).tolist() == [1999]


def test_a_larger_lambda_gives_less_specific_predictions():
    nodes = [decode.optimal(LOGP, TREE, "information", lam=lam).item() for lam in (0, 100)]
    assert nodes == [5, 0]


def test_a_larger_beta_gives_more_specific_predictions():
    nodes = [decode.optimal(LOGP, TREE, "hf", beta=beta).item() for beta in (0.2, 1.0)]
    assert nodes == [1, 3]


@pytest.mark.parametrize(
    ("options", "argument", "message"),
    [
        ({"metric": "hF"}, "metric", "did you mean 'hf'"),
        ({"metric": "hf", "lam": 1.0}, "lam", "'hf' does not have this option; it is an option of the metric 'infor"),
        ({"metric": "hf", "beta": 0}, "beta", "above 0"),
        ({"metric": "hf", "beta": math.inf}, "beta", "finite"),
        ({"metric": "information", "lam": -1}, "lam", "at least 0"),
        ({"metric": "information", "lam": "much"}, "lam", "at least 0"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(options, argument, message):
    with pytest.raises(OptionError, match=message) as caught:
        decode.optimal(LOGP, TREE, **options)
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (np.zeros((3, 2)), r"\(3, 3\) for classes, \(6, 3\) for nodes and classes.*found the shape \(3, 2\)"),
        ([[0, 1], [1]], "found list"),
        ([1, 2, 3], r"found the shape \(3,\)"),
        ("distance", "found str"),
        (np.full((3, 3), np.inf), "finite"),
        (lambda _p, _t: 1.0, r"np.vectorize"),
        (lambda p, t: np.where(p == t, 0, np.nan), "finite"),
    ],
)
def test_costs_of_another_shape_are_an_error_that_says_what_is_expected(costs, message):
    with pytest.raises(InputError, match=message) as caught:
        decode.optimal(LOGP, TREE, "risk", costs=costs)
    assert caught.value.argument == "costs"


def test_a_cost_function_on_a_very_large_tree_is_an_error():
    star = am.Taxonomy.from_parents(np.r_[-1, np.zeros(40_000, np.int64)])
    with pytest.raises(InputError, match="40,001 nodes × 40,000 classes"):
        decode.optimal(torch.zeros(1, 40_001), star, "risk", costs=star.distance)


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3"])
def test_a_wrong_number_of_paths_is_an_error(k):
    with pytest.raises(OptionError, match="at least 1"):
        decode.beam(LOGP, TREE, k)


@pytest.mark.parametrize("costs", [-np.eye(3), lambda predicted, true: np.where(predicted == true, -1.0, 0.0)])
def test_negative_costs_are_an_error(costs):
    with pytest.raises(InputError, match="costs: expected costs of at least 0, found -1"):
        decode.optimal(LOGP, TREE, "risk", costs=costs)


@examples
@given(scored_trees(), st.randoms(use_true_random=False))
def test_costs_by_labels_in_any_order_equal_their_matrix(scored, random):
    tax, logp = scored
    costs = np.array([[random.randrange(9) for _ in tax.classes] for _ in tax.classes], dtype=float)
    rows, columns = (random.sample(range(tax.num_leaves), tax.num_leaves) for _ in range(2))
    named = {tax.classes[row]: {tax.classes[column]: costs[row, column] for column in columns} for row in rows}
    assert torch.equal(decode.cost_matrix(named, tax), torch.from_numpy(costs))
    assert torch.equal(decode.optimal(logp, tax, "risk", costs=named), decode.optimal(logp, tax, "risk", costs=costs))


ROW = {"x": 0, "y": 1, "z": 1}


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({}, "each of the 3 classes is needed once: missing: 'x', 'y', 'z'"),
        ({"x": ROW, "y": ROW}, "the rows are 2 labels, .* missing: 'z'"),
        ({"x": ROW, "y": ROW, "a": ROW}, "'a' is no class"),
        ({"x": ROW, "y": ROW, "q": ROW}, "no node 'q'"),
        ({key: {"x": 0, "y": 1} for key in "xyz"}, "the columns are 2 labels, .* missing: 'z'"),
        ({"x": ROW, "y": ROW, "z": {"x": 0, "y": 1}}, "the row of 'z' has other columns"),
        (dict.fromkeys("xyz", 1.0), "the columns are 0 labels"),
        ({key: {**ROW, "z": "much"} for key in "xyz"}, "expected numbers in the row of 'x'"),
        ({key: {**ROW, "z": math.inf} for key in "xyz"}, "expected finite costs"),
    ],
)
def test_wrong_costs_by_labels_are_an_error(costs, message):
    with pytest.raises((InputError, LabelError), match=message) as raised:
        decode.optimal(LOGP, TREE, "risk", costs=costs)
    assert raised.value.argument == "costs"
