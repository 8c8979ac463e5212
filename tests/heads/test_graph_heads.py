"""Heads on graphs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import arbormax as am
import oracles_graph as oracle
from arbormax.errors import OptionError, TaxonomyError

EDGES = [("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("b", "y"), ("a", "z"), ("x", "z"), ("x", "w")]
GRAPH = am.Graph.from_edges(EDGES, classes=["w", "z", "y"])
HEADS = [am.HierarchicalSoftmax, am.FlatSoftmax, am.SharedSoftmax]


def make(kind, tax=GRAPH):
    torch.manual_seed(0)
    return kind(5, tax, init="torch", dtype=torch.float64)


@pytest.mark.parametrize("kind", HEADS)
def test_the_interface_of_a_head(kind):
    head, h = make(kind), torch.randn(4, 5, dtype=torch.float64)
    leaves = head(h)
    torch.testing.assert_close(leaves.exp().sum(-1), torch.ones(4, dtype=torch.float64))
    nodes = head.node_log_probs(h)
    torch.testing.assert_close(nodes[:, GRAPH.leaves.copy()], leaves)
    target = torch.tensor([0, 2, 1, 1])
    torch.testing.assert_close(head.loss(h, target), F.cross_entropy(leaves, target))
    inner = torch.tensor([1, 2, 3, 0])
    torch.testing.assert_close(head.loss(h, inner, "none", target_kind="node"), -nodes[torch.arange(4), inner])
    assert torch.equal(head.predict(h), leaves.argmax(-1))
    values, classes = head.topk(h, 2)
    torch.testing.assert_close(values, leaves.gather(-1, classes))
    for tau in (0.3, 0.7):
        assert torch.equal(head.predict_nodes(h, tau), am.decode.threshold(nodes, GRAPH, tau))
    target = torch.tensor(GRAPH.find("z")).repeat(4)
    steps = head.path_log_probs(h, target)
    on_path = [GRAPH.find(name) for name in GRAPH.path(int(target[0]))]
    torch.testing.assert_close(steps[:, : len(on_path)], nodes[:, on_path])


def test_row_j_belongs_to_edge_j():
    head, h = make(am.HierarchicalSoftmax), torch.randn(4, 5, dtype=torch.float64)
    assert head.weight.shape == (GRAPH.num_edges, 5)
    assert head.row_nodes().tolist() == GRAPH.edges[:, 1].tolist()
    expected = oracle.node_probabilities(GRAPH, F.linear(h, head.weight, head.bias).detach())
    torch.testing.assert_close(head.node_log_probs(h).exp().detach(), expected)


def test_training_finds_the_class():
    torch.manual_seed(0)
    head, h, target = am.HierarchicalSoftmax(8, GRAPH), torch.randn(60, 8), torch.arange(60) % 3
    optimizer = torch.optim.Adam(head.parameters(), 0.1)
    for _ in range(300):
        optimizer.zero_grad()
        loss = head.loss(h, target)
        loss.backward()
        optimizer.step()
    assert loss < F.cross_entropy(torch.zeros(60, 3), target) / 2


def test_weights_are_saved_with_the_fingerprint_of_the_graph():
    head = make(am.HierarchicalSoftmax)
    make(am.HierarchicalSoftmax).load_state_dict(head.state_dict())
    other = am.Graph.from_edges(EDGES, classes=["y", "z", "w"])
    with pytest.raises(TaxonomyError, match="these weights belong to another taxonomy"):
        make(am.HierarchicalSoftmax, other).load_state_dict(head.state_dict())


def test_a_compiled_head_gives_the_same():
    head, h = make(am.HierarchicalSoftmax), torch.randn(4, 5, dtype=torch.float64)
    torch.testing.assert_close(torch.compile(head, backend="eager", fullgraph=True)(h), head(h))


@pytest.mark.parametrize(
    ("make_head", "error", "message"),
    [
        (lambda: am.BlendedSoftmax(5, GRAPH), TaxonomyError, "BlendedSoftmax needs a tree, and this taxonomy is a gra"),
        (lambda: am.HierarchicalSoftmax(5, GRAPH, sparse=True), OptionError, "sparse: needs a tree"),
        (lambda: am.HierarchicalSoftmax(5, GRAPH, adapter=2), OptionError, "adapter: needs a tree"),
        (lambda: am.HierarchicalSoftmax(5, GRAPH, impl="triton"), OptionError, "impl: needs a tree"),
        (lambda: make(am.HierarchicalSoftmax).set_priors([1, 1, 1]), TaxonomyError, "this needs a tree"),
        (lambda: am.edit(make(am.HierarchicalSoftmax)).remove("w").done(), TaxonomyError, "needs a tree"),
        (lambda: am.replace_head(torch.nn.Sequential(torch.nn.Linear(5, 3)), GRAPH), TaxonomyError, "needs a tree"),
    ],
)
def test_what_needs_a_tree_says_so(make_head, error, message):
    with pytest.raises(error, match=message):
        make_head()
