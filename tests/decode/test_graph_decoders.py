"""Decoders and measures on graphs, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import arbormax as am
import oracles_graph as oracle
from arbormax.errors import TaxonomyError
from arbormax.functional import flat_node_log_probs, node_log_probs
from strategies import graphs


def scores(graph, seed, columns, function):
    generator = torch.Generator().manual_seed(seed)
    return function(torch.randn(2, columns, generator=generator, dtype=torch.float64), graph)


@given(graphs(), st.integers(0, 99))
def test_leaves_and_children_are_chosen_by_their_probability(graph, seed):
    logp = scores(graph, seed, graph.num_edges, node_log_probs)
    leaves = graph.leaves.tolist()
    for row, leaf, walked in zip(logp, am.decode.leaf(logp, graph), am.decode.greedy(logp, graph), strict=True):
        assert int(leaf) == max(leaves, key=lambda node: float(row[node]))
        node = 0
        while len(children := graph.children(node).tolist()):
            node = max(children, key=lambda child: float(row[child]))
        assert int(walked) == node
    ranked = am.decode.beam(logp, graph, k=2)
    assert torch.equal(ranked[:, 0], am.decode.leaf(logp, graph))


@given(graphs(), st.integers(0, 99), st.sampled_from([0.2, 0.5, 0.8]))
def test_thresholds(graph, seed, tau):
    logp = scores(graph, seed, graph.num_leaves, flat_node_log_probs)
    found = am.decode.threshold(logp, graph, tau), am.decode.climb(logp, graph, tau), am.decode.leaf(logp, graph)
    for row, deepest, lowest, leaf in zip(logp.exp().tolist(), *map(torch.Tensor.tolist, found), strict=True):
        passing = [node for node in range(graph.num_nodes) if row[node] > tau] or [0]
        assert deepest == max(passing, key=lambda node: (graph.node_depth[node], row[node], -node))
        assert lowest == max((node for node in passing if node in oracle.above(graph, leaf)), default=0)


@given(graphs(), st.integers(0, 99), st.sampled_from([0.5, 1.0, 2.0]))
def test_the_best_node_for_hf(graph, seed, beta):
    logp = scores(graph, seed, graph.num_leaves, flat_node_log_probs)
    sets = [oracle.above(graph, node) for node in range(graph.num_nodes)]

    def expected(row, node):
        total = 0.0
        for leaf in graph.leaves.tolist():
            weight = beta**2 * len(sets[leaf]) + len(sets[node])
            total += float(row[leaf].exp()) * (1 + beta**2) * len(sets[node] & sets[leaf]) / weight
        return total

    for row, node in zip(logp, am.decode.optimal(logp, graph, "hf", beta=beta).tolist(), strict=True):
        best = max(expected(row, other) for other in range(1, graph.num_nodes))
        assert expected(row, node) == pytest.approx(best)


@given(graphs(), st.integers(0, 99), st.sampled_from(["tree_distance", "risk"]))
def test_the_nearest_node(graph, seed, metric):
    logp = scores(graph, seed, graph.num_leaves, flat_node_log_probs)
    leaves = graph.leaves.tolist()

    def expected(row, node):
        return sum(float(row[leaf].exp()) * oracle.distance(graph, node, leaf) for leaf in leaves)

    possible = leaves if metric == "risk" else range(graph.num_nodes)
    for row, node in zip(logp, am.decode.optimal(logp, graph, metric).tolist(), strict=True):
        assert node in possible
        assert expected(row, node) == pytest.approx(min(expected(row, other) for other in possible))


def test_decoders_that_need_a_tree_say_so():
    graph = am.Graph.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("b", "y")])
    logp = flat_node_log_probs(torch.zeros(1, 2), graph)
    assert am.decode.optimal(logp, graph, "risk", costs=[[0, 1], [9, 0]]).tolist() == [graph.find("x")]
    for use in (
        lambda: am.decode.within(logp, graph, ["a"]),
        lambda: am.functional.conditional_log_probs(logp, graph),
    ):
        with pytest.raises(TaxonomyError, match="needs a tree"):
            use()


@given(graphs(), st.integers(0, 99))
def test_measures_compare_sets_of_ancestors(graph, seed):
    rng = np.random.default_rng(seed)
    true, pred = rng.integers(0, graph.num_nodes, (2, 6))
    sets = [oracle.above(graph, node) for node in range(graph.num_nodes)]
    values = am.metrics.evaluate(true, pred, graph)
    shared = sum(len(sets[a] & sets[b]) for a, b in zip(true, pred, strict=True))
    in_pred, in_true = sum(len(sets[node]) for node in pred), sum(len(sets[node]) for node in true)
    assert values["hp"] == pytest.approx(shared / in_pred if in_pred else 0.0)
    assert values["hr"] == pytest.approx(shared / in_true if in_true else 0.0)
    assert values["accuracy"] == pytest.approx((true == pred).mean())
    distances = [oracle.distance(graph, a, b) for a, b in zip(true.tolist(), pred.tolist(), strict=True)]
    assert values["tree_distance"] == pytest.approx(np.mean(distances))
    wrong = np.flatnonzero(true != pred)
    deepest = [max(sets[true[i]] & sets[pred[i]], default=0) for i in wrong]
    assert values["mistake_severity"] == pytest.approx(np.mean(graph.height[deepest]) if len(wrong) else 0.0)


@given(graphs(), st.integers(0, 99))
def test_measures_of_probabilities_are_finite(graph, seed):
    logp = scores(graph, seed, graph.num_edges, node_log_probs)
    true = np.random.default_rng(seed).choice(graph.leaves, 2)
    values = am.metrics.evaluate(true, am.decode.leaf(logp, graph), graph, logp)
    assert values["nll"] == pytest.approx(-float(logp[[0, 1], true].mean()))
    assert all(np.isfinite(values[name]) for name in ("brier", "operating_curve_area", "hierarchical_distance@1"))
