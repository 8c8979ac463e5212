"""Probabilities and losses on graphs, against the enumeration of all paths."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import arbormax as am
import oracles_graph as oracle
from arbormax.errors import InputError, OptionError
from arbormax.functional import (
    flat_cross_entropy,
    flat_node_log_probs,
    hierarchical_cross_entropy,
    leaf_log_probs,
    node_log_probs,
    shared_leaf_logits,
)
from strategies import graphs, taxonomies

DIAMOND = am.Graph.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("b", "y"), ("a", "z"), ("x", "z")])


def draw_logits(columns, seed, batch=3, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(batch, columns, generator=generator, dtype=torch.float64)


@given(graphs(), st.integers(0, 99))
def test_probabilities_are_sums_over_all_paths(graph, seed):
    logits = draw_logits(graph.num_edges, seed)
    expected = oracle.node_probabilities(graph, logits)
    found = node_log_probs(logits, graph).exp()
    torch.testing.assert_close(found, expected)
    leaves = leaf_log_probs(logits, graph).exp()
    torch.testing.assert_close(leaves, expected[:, graph.leaves.copy()])
    torch.testing.assert_close(leaves.sum(-1), torch.ones(3, dtype=torch.float64))


@given(graphs(), st.integers(0, 99))
def test_the_loss_is_the_cross_entropy_of_the_marginal(graph, seed):
    logits = draw_logits(graph.num_edges, seed)
    p = oracle.node_probabilities(graph, logits)
    nodes = torch.arange(3) * 7 % graph.num_nodes
    loss = hierarchical_cross_entropy(logits, nodes, graph, target_kind="node", reduction="none")
    torch.testing.assert_close(loss, -p[torch.arange(3), nodes].log())
    classes = torch.arange(3) % graph.num_leaves
    loss = hierarchical_cross_entropy(logits, classes, graph)
    torch.testing.assert_close(loss, F.cross_entropy(leaf_log_probs(logits, graph), classes))


@given(graphs(), st.integers(0, 99))
def test_a_flat_softmax_sums_the_different_classes_below_a_node(graph, seed):
    logits = draw_logits(graph.num_leaves, seed)
    expected = oracle.class_sums(graph, logits.softmax(-1))
    torch.testing.assert_close(flat_node_log_probs(logits, graph).exp(), expected)
    nodes = torch.arange(3) * 5 % graph.num_nodes
    loss = flat_cross_entropy(logits, nodes, graph, target_kind="node", reduction="none")
    torch.testing.assert_close(loss, -expected[torch.arange(3), nodes].log())


@given(graphs(max_nodes=8), st.integers(0, 99))
def test_a_shared_softmax_is_one_softmax_over_all_paths(graph, seed):
    logits = draw_logits(graph.num_edges, seed)
    edge = {tuple(pair): place for place, pair in enumerate(graph.edges.tolist())}
    columns = []
    for leaf in graph.leaves.tolist():
        paths = [[edge[pair] for pair in pairwise(path)] for path in oracle.paths_to(graph, leaf)]
        columns.append(sum(logits[:, path].sum(1).exp() for path in paths).log())
    torch.testing.assert_close(shared_leaf_logits(logits, graph), torch.stack(columns, 1))


@given(taxonomies(shuffle=False), st.integers(0, 99))
def test_a_graph_that_is_a_tree_has_the_probabilities_of_the_tree_to_the_last_bit(tax, seed):
    names = [f"n{node}" for node in range(tax.num_nodes)]
    tree, graph = am.Taxonomy.from_parents(tax.parent, names), am.Graph.from_parents(tax.parent, names)
    mine, its = (draw_logits(tree.num_edges, seed).requires_grad_() for _ in range(2))
    assert torch.equal(node_log_probs(mine, graph), node_log_probs(its, tree))
    node_log_probs(mine, graph).sum().backward()
    node_log_probs(its, tree).sum().backward()
    torch.testing.assert_close(mine.grad, its.grad)


@given(graphs(max_nodes=8), st.integers(0, 99))
def test_gradients_are_right(graph, seed):
    logits = draw_logits(graph.num_edges, seed, batch=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: node_log_probs(x, graph), logits)
    leaves = draw_logits(graph.num_leaves, seed, batch=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: flat_node_log_probs(x, graph), leaves)


def test_extreme_logits_give_finite_losses_and_gradients():
    logits = draw_logits(DIAMOND.num_edges, 0, scale=1e4).float().requires_grad_()
    logp = node_log_probs(logits, DIAMOND)
    assert torch.isfinite(logp).all()
    hierarchical_cross_entropy(logits, torch.tensor([0, 1, 0]), DIAMOND).backward()
    assert torch.isfinite(logits.grad).all()


def test_impossible_edges_leave_the_other_paths():
    logits = torch.zeros(1, DIAMOND.num_edges)
    edge = DIAMOND.edges.tolist().index([DIAMOND.find("b"), DIAMOND.find("x")])
    logits[0, edge] = -torch.inf
    p = node_log_probs(logits, DIAMOND).exp()[0]
    torch.testing.assert_close(p[DIAMOND.find("x")], torch.tensor(0.25))  # by a alone
    torch.testing.assert_close(p[DIAMOND.find("y")], torch.tensor(0.5))


def test_weights_of_classes_are_means_over_the_different_classes_below():
    weight = torch.tensor([1.0, 3.0], dtype=torch.float64)  # y, z
    logits = draw_logits(DIAMOND.num_edges, 1)
    nodes = torch.tensor([DIAMOND.find(name) for name in ("a", "b", "y")])
    options = {"target_kind": "node", "reduction": "none"}
    plain = hierarchical_cross_entropy(logits, nodes, DIAMOND, **options)
    weighted = hierarchical_cross_entropy(logits, nodes, DIAMOND, weight=weight, **options)
    torch.testing.assert_close(weighted, plain * torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64))


def test_shapes_and_ignored_items():
    logits = draw_logits(DIAMOND.num_edges, 2, batch=4).view(2, 2, -1)
    assert node_log_probs(logits, DIAMOND).shape == (2, 2, DIAMOND.num_nodes)
    assert node_log_probs(logits[:0], DIAMOND).shape == (0, 2, DIAMOND.num_nodes)
    target = torch.tensor([[0, -100], [1, -100]])
    loss = hierarchical_cross_entropy(logits, target, DIAMOND)
    torch.testing.assert_close(loss, hierarchical_cross_entropy(logits[:, 0], target[:, 0], DIAMOND))
    half = node_log_probs(logits.to(torch.bfloat16), DIAMOND)
    assert half.dtype == torch.float32


def test_errors_name_the_edges_and_the_options():
    with pytest.raises(InputError, match="a last dimension of 7, one column per edge, found the shape"):
        node_log_probs(torch.zeros(3, 5), DIAMOND)
    with pytest.raises(OptionError, match="gamma, tau: acts on the steps of a path"):
        hierarchical_cross_entropy(torch.zeros(1, 7), torch.tensor([0]), DIAMOND, gamma=1.0, tau=0.5)
    with pytest.raises(OptionError, match="path_weight: acts on the steps"):
        flat_cross_entropy(torch.zeros(1, 2), torch.tensor([0]), DIAMOND, path_weight=0.5)


def test_a_ladder_of_exponentially_many_paths_is_exact():
    edges = [("r", "a0"), ("r", "b0")]
    for level in range(100):
        edges += [(f"{x}{level}", f"{y}{level + 1}") for x in "ab" for y in "ab"]
    graph = am.Graph.from_edges(edges)
    logp = leaf_log_probs(torch.zeros(1, graph.num_edges, dtype=torch.float64), graph)
    torch.testing.assert_close(logp.exp(), torch.full((1, 2), 0.5, dtype=torch.float64))
