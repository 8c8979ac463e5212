"""The equations of Schuurmans & Frasincar (2020), and another implementation of them."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hierarchicalsoftmax import HierarchicalSoftmaxLoss, SoftmaxNode, inference
from hypothesis import given, settings
from hypothesis import strategies as st
from many_heads import D, features, make, targets
from torch import nn

import arbormax as am
from oracles import ancestors_of, children_of
from strategies import taxonomies

seeds = st.integers(0, 2**16)


def conditional(head, h, parent: int) -> dict[int, torch.Tensor]:
    """Return P(j | parent) of each child j, computed from the definition."""
    below = children_of(head.taxonomy, parent)
    scores = torch.stack([head.weight[j - 1] @ h + head.bias[j - 1] for j in below]).exp()
    return dict(zip(below, scores / scores.sum(), strict=True))


def one_item(tax, seed):
    head, h = make(am.HierarchicalSoftmax, tax, seed), features(seed=seed)
    leaf = int(tax.leaves[seed % tax.num_leaves])
    return head, h, torch.tensor(seed % tax.num_leaves), [*ancestors_of(tax, leaf), leaf]


@settings(max_examples=40)
@given(taxonomies(), seeds)
def test_the_gradient_of_a_weight_equals_the_equation_of_the_paper(tax, seed):
    head, h, y, path = one_item(tax, seed)
    head.loss(h, y).backward()
    for parent in range(tax.num_nodes):
        if not children_of(tax, parent):
            continue
        for j, p in conditional(head, h, parent).items():
            delta = 1.0 if j in path else 0.0
            expected = (p - delta) * h if parent in path else torch.zeros_like(h)
            torch.testing.assert_close(head.weight.grad[j - 1], expected.detach(), atol=1e-10, rtol=1e-7)


@settings(max_examples=40)
@given(taxonomies(), seeds)
def test_the_gradient_of_the_features_equals_the_equation_of_the_paper(tax, seed):
    head, h, y, path = one_item(tax, seed)
    h.requires_grad_()
    head.loss(h, y).backward()
    expected = torch.zeros(D, dtype=torch.float64)
    for parent in path[:-1]:
        for j, p in conditional(head, h.detach(), parent).items():
            expected += (p - (1.0 if j in path else 0.0)).detach() * head.weight[j - 1].detach()
    torch.testing.assert_close(h.grad, expected, atol=1e-10, rtol=1e-7)


@settings(max_examples=40)
@given(taxonomies(), seeds)
def test_the_probability_of_a_leaf_is_the_product_along_its_path(tax, seed):
    head, h, y, path = one_item(tax, seed)
    expected = torch.ones((), dtype=torch.float64)
    for parent, child in pairwise(path):
        expected = expected * conditional(head, h, parent)[child]
    torch.testing.assert_close(head(h)[y].exp(), expected)
    torch.testing.assert_close(head.loss(h, y), -expected.log(), atol=1e-10, rtol=1e-7)


@given(taxonomies(), st.integers(1, 20))
def test_the_number_of_parameters_equals_the_formula_of_the_paper(tax, d):
    inner = len({int(parent) for parent in tax.parent[1:]})
    head = am.HierarchicalSoftmax(d, tax)
    assert sum(parameter.numel() for parameter in head.parameters()) == (tax.num_leaves + inner - 1) * (d + 1)


def test_a_tree_of_depth_one_equals_a_linear_layer_with_cross_entropy():
    tax = am.Taxonomy.from_nested(list("abcdefg"))
    linear, head = nn.Linear(D, 7).double(), am.HierarchicalSoftmax(D, tax, dtype=torch.float64)
    with torch.no_grad():
        head.weight.copy_(linear.weight)
        head.bias.copy_(linear.bias)
    y = targets("class", 9, tax=tax)
    h, twin = features(9).requires_grad_(), features(9).requires_grad_()
    loss, expected = head.loss(h, y), F.cross_entropy(linear(twin), y)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(h.grad, twin.grad)
    torch.testing.assert_close(head.weight.grad, linear.weight.grad)
    torch.testing.assert_close(head.bias.grad, linear.bias.grad)


def test_an_only_child_has_probability_one_and_no_gradient():
    tax = am.Taxonomy.from_nested({"misc": ["forsale"], "sci": ["med", "space"]})
    head, h, forsale = make(am.HierarchicalSoftmax, tax), features(3), tax.find("forsale")
    logp = head.node_log_probs(h)
    assert torch.equal(logp[:, forsale], logp[:, tax.find("misc")])
    head.loss(h, torch.zeros(3, dtype=torch.int64)).backward()
    assert head.weight.grad[forsale - 1].count_nonzero() == 0
    assert head.weight.grad[tax.find("misc") - 1].count_nonzero() > 0


def test_predict_returns_the_best_leaf_and_not_the_greedy_one():
    tax = am.Taxonomy.from_nested({"wide": ["p", "q", "r"], "narrow": ["s"]})
    head = am.HierarchicalSoftmax(D, tax)
    with torch.no_grad():
        head.bias[tax.find("wide") - 1] = 0.2  # P(wide) = 0.55, each of its leaves 0.18; P(s) = 0.45
    h = torch.zeros(1, D)
    greedy = am.decode.greedy(head.node_log_probs(h), tax)
    assert tax.path(int(greedy)) == ("wide", "p")
    assert tax.classes[head.predict(h)] == "s"


@settings(max_examples=60)
@given(taxonomies(), seeds)
def test_the_prediction_is_at_least_as_probable_as_the_greedy_leaf(tax, seed):
    head, h = make(am.HierarchicalSoftmax, tax), features(4, seed=seed)
    logp = head.node_log_probs(h)
    greedy = logp.gather(1, am.decode.greedy(logp, tax).unsqueeze(1))
    best = head(h).gather(1, head.predict(h).unsqueeze(1))
    assert (best >= greedy).all()


class Outside:
    """The same tree in `hierarchicalsoftmax`, which orders logits its own way and gives only children none."""

    def __init__(self, tax: am.Taxonomy) -> None:
        self.tax = tax
        self.nodes = [SoftmaxNode("0")]
        for node in range(1, tax.num_nodes):
            self.nodes.append(SoftmaxNode(str(node), parent=self.nodes[tax.parent[node]]))
        self.root = self.nodes[0]
        self.root.set_indexes()
        self.with_logit = [n for n in range(1, tax.num_nodes) if self.nodes[n].index_in_softmax_layer is not None]
        self.column = [self.nodes[n].index_in_softmax_layer for n in self.with_logit]

    def logits(self, ours: torch.Tensor) -> torch.Tensor:
        theirs = torch.empty(len(ours), self.root.layer_size)
        theirs[:, self.column] = ours[:, [n - 1 for n in self.with_logit]]
        return theirs

    def ids(self, nodes: torch.Tensor) -> torch.Tensor:
        return self.root.get_node_ids_tensor([self.nodes[n] for n in nodes.tolist()])


NOT_ONLY = {"a": ["x", "y", "z"], "b": {"c": ["u", "v"], "d": ["w", "s", "t", "r"]}, "early": []}
ONLY = {"o": ["only"], "p": {"q": ["r", {"s": ["t"]}]}, "m": {"n": {"k": ["i", "j"]}}}


@pytest.mark.parametrize("nested", [NOT_ONLY, ONLY], ids=["no only child", "only children"])
def test_hierarchicalsoftmax_gives_the_same_on_a_tree(nested):
    check_against_hierarchicalsoftmax(am.Taxonomy.from_nested(nested), seed=0)


# a tree with one class has no logit at all over there
@settings(max_examples=40)
@given(taxonomies().filter(lambda tax: tax.num_leaves > 1), seeds)
def test_hierarchicalsoftmax_gives_the_same_on_random_trees(tax, seed):
    check_against_hierarchicalsoftmax(tax, seed)


def check_against_hierarchicalsoftmax(tax, seed):
    outside = Outside(tax)
    head, h = make(am.HierarchicalSoftmax, tax, seed, dtype=torch.float32), features(5, seed=seed, dtype=torch.float32)
    logits = outside.logits(F.linear(h, head.weight, head.bias)).detach()
    theirs = inference.node_probabilities(logits, outside.root)[:, outside.column]
    torch.testing.assert_close(head.node_log_probs(h).exp()[:, outside.with_logit], theirs, atol=1e-6, rtol=1e-5)
    leaves = inference.leaf_probabilities(logits, outside.root)
    order = [int(tax.class_of[int(leaf.name)]) for leaf in outside.root.leaves]
    torch.testing.assert_close(head(h).exp()[:, order], leaves, atol=1e-6, rtol=1e-5)
    nodes = targets("node", 5, tax=tax, seed=seed).clamp(min=1)  # the root is no target over there
    loss = torch.as_tensor(HierarchicalSoftmaxLoss(outside.root)(logits, outside.ids(nodes)))
    torch.testing.assert_close(head.loss(h, nodes, target_kind="node"), loss.float(), atol=1e-5, rtol=1e-5)
