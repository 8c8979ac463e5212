"""The common interface of all heads."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from many_heads import HEADS, TREE, C, D, N, features, make, targets
from torch import nn

import arbormax as am
import oracles_heads as oracle

LEAVES = torch.from_numpy(TREE.leaves.copy())
every_head = pytest.mark.parametrize("kind", HEADS)


def expected_node_log_probs(head, h) -> torch.Tensor:
    """Return the result of a plain recursion over the tree, from weight and bias."""
    rows = (h @ head.weight.T + (0 if head.bias is None else head.bias)).tolist()
    if isinstance(head, am.HierarchicalSoftmax):
        found = [oracle.node_log_probs(row, head.taxonomy) for row in rows]
    else:
        if isinstance(head, am.SharedSoftmax):
            rows = [oracle.shared_leaf_logits(row, head.taxonomy) for row in rows]
        if isinstance(head, am.BlendedSoftmax):
            rows = [_blended_leaf_logits(row, head.taxonomy, float(head.path_share)) for row in rows]
        found = [oracle.flat_node_log_probs(row, head.taxonomy) for row in rows]
    return torch.tensor(found, dtype=torch.float64)


def _blended_leaf_logits(row: list[float], tax: am.Taxonomy, share: float) -> list[float]:
    steps, own = row[: tax.num_nodes - 1], row[tax.num_nodes - 1 :]
    on_path = oracle.node_log_probs(steps, tax)
    return [share * on_path[leaf] + score for leaf, score in zip(tax.leaves.tolist(), own, strict=True)]


@every_head
@pytest.mark.parametrize("bias", [True, False])
def test_node_log_probs_equal_a_plain_recursion(kind, bias):
    head, h = make(kind, bias=bias), features(4)
    torch.testing.assert_close(head.node_log_probs(h), expected_node_log_probs(head, h))


@pytest.mark.parametrize("share", [0.0, 0.5, 2.0])
def test_the_path_has_its_share_in_a_blended_head(share):
    head, h = make(am.BlendedSoftmax), features(4)
    head.path_share.fill_(share)
    torch.testing.assert_close(head.node_log_probs(h), expected_node_log_probs(head, h))


def test_a_blended_head_without_rows_of_classes_is_a_hierarchical_one():
    head, h = make(am.BlendedSoftmax), features(4)
    plain = am.HierarchicalSoftmax(D, TREE, dtype=torch.float64)
    with torch.no_grad():
        for own, other in ((head.weight, plain.weight), (head.bias, plain.bias)):
            own[N - 1 :] = 0.0
            other.copy_(own[: N - 1])
    torch.testing.assert_close(head.node_log_probs(h), plain.node_log_probs(h))


@every_head
def test_forward_equals_the_leaves_of_node_log_probs(kind):
    head, h = make(kind), features(5)
    torch.testing.assert_close(head.node_log_probs(h)[:, LEAVES], head(h))


@every_head
def test_leaf_probabilities_sum_to_one(kind):
    torch.testing.assert_close(make(kind)(features(5)).exp().sum(-1), torch.ones(5, dtype=torch.float64))


@every_head
@pytest.mark.parametrize("batch", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_leading_dimensions_are_supported(kind, batch):
    head, h, y = make(kind), features(*batch), targets("class", *batch)
    assert head(h).shape == (*batch, C)
    assert head(h).is_contiguous()
    assert head.node_log_probs(h).shape == (*batch, N)
    assert head.predict(h).shape == batch
    assert [part.shape for part in head.topk(h, 2)] == [(*batch, 2)] * 2
    losses = head.loss(h, y, reduction="none")
    assert losses.shape == batch
    rows = h.reshape(-1, D)
    torch.testing.assert_close(head(h).reshape(-1, C), head(rows))
    torch.testing.assert_close(losses.reshape(-1), head.loss(rows, y.reshape(-1), reduction="none"))


@every_head
def test_non_contiguous_features_are_supported(kind):
    head, h, y = make(kind), features(D, width=5), targets("class", 5)
    torch.testing.assert_close(head(h.T), head(h.T.contiguous()))
    torch.testing.assert_close(head.loss(h.T, y), head.loss(h.T.contiguous(), y))


@every_head
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_equals_cross_entropy_of_the_output(kind, reduction, weighted):
    head, h = make(kind), features(7)
    weight = torch.rand(C, dtype=torch.float64) + 0.1 if weighted else None
    for y, ignored in ((targets("class", 7), -100), (torch.tensor([0, 1, -100, 7, 4, -100, 2]), -100)):
        expected = F.cross_entropy(head(h), y, weight, reduction=reduction, ignore_index=ignored)
        torch.testing.assert_close(head.loss(h, y, reduction, ignored, weight=weight), expected)


@every_head
def test_a_class_can_be_the_ignored_index(kind):
    head, h, y = make(kind), features(4), torch.tensor([3, 0, 3, 5])
    expected = F.cross_entropy(head(h), y, ignore_index=3)
    torch.testing.assert_close(head.loss(h, y, ignore_index=3), expected)


@every_head
def test_the_loss_and_cross_entropy_have_the_same_gradients(kind):
    head, h, y = make(kind), features(5).requires_grad_(), targets("class", 5)
    wanted = (h, head.weight, head.bias)
    expected = torch.autograd.grad(F.cross_entropy(head(h), y), wanted)
    torch.testing.assert_close(torch.autograd.grad(head.loss(h, y), wanted), expected)


@every_head
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_loss_of_any_node_is_its_negative_log_probability(kind, reduction):
    head, h, nodes = make(kind), features(N), torch.arange(N)
    picked = -head.node_log_probs(h).gather(1, nodes.unsqueeze(1)).squeeze(1)
    expected = {"none": picked, "mean": picked.mean(), "sum": picked.sum()}[reduction]
    torch.testing.assert_close(head.loss(h, nodes, reduction, target_kind="node"), expected)


@every_head
@pytest.mark.parametrize("k", [1, 3, C])
def test_topk_equals_a_sort_of_all_leaves(kind, k):
    head, h = make(kind), features(6)
    logp, classes = head.topk(h, k)
    for row, row_logp, row_classes in zip(head(h).tolist(), logp.tolist(), classes.tolist(), strict=True):
        order = sorted(range(C), key=lambda c: (-row[c], c))[:k]
        assert row_classes == order
        assert row_logp == [row[c] for c in order]


@every_head
def test_ties_are_in_class_order(kind):
    tax = am.Taxonomy.from_nested({"a": ["p", "q"], "b": ["r", "s"]}, classes=["s", "q", "p", "r"])
    head = kind(D, tax, init="zeros")
    assert head.topk(features(2, dtype=torch.float32), 4)[1].tolist() == [[0, 1, 2, 3]] * 2
    assert head.predict(features(2, dtype=torch.float32)).tolist() == [0, 0]


@every_head
@pytest.mark.parametrize("k", [0, -1, C + 1])
def test_an_invalid_k_is_rejected(kind, k):
    with pytest.raises(am.errors.OptionError, match=f"k: expected 1 to {C}, the number of classes, found {k}"):
        make(kind).topk(features(2), k)


@every_head
def test_predict_returns_the_class_of_the_most_probable_leaf(kind):
    head, h = make(kind), features(50)
    assert torch.equal(head.predict(h), head(h).argmax(-1))
    leaf = am.decode.leaf(head.node_log_probs(h), TREE)
    assert torch.equal(LEAVES[head.predict(h)], leaf)


@every_head
@pytest.mark.parametrize("kind_of_target", ["class", "node"])
def test_the_loss_passes_gradcheck(kind, kind_of_target):
    head, h, y = make(kind), features(3), targets(kind_of_target, 3)

    def loss(h, weight, bias):
        tensors = {"weight": weight, "bias": bias}
        call = Losses(head, kind_of_target)
        return torch.func.functional_call(call, {f"head.{name}": t for name, t in tensors.items()}, (h, y))

    inputs = (h, head.weight.detach(), head.bias.detach())
    assert torch.autograd.gradcheck(loss, tuple(tensor.clone().requires_grad_() for tensor in inputs))


class Losses(nn.Module):
    def __init__(self, head, target_kind):
        super().__init__()
        self.head, self.target_kind = head, target_kind

    def forward(self, h, y):
        return self.head.loss(h, y, reduction="none", target_kind=self.target_kind)


@every_head
def test_forward_and_node_log_probs_pass_gradcheck(kind):
    head, h = make(kind), features(2).requires_grad_()
    assert torch.autograd.gradcheck(head, (h,))
    assert torch.autograd.gradcheck(head.node_log_probs, (h,))


@every_head
def test_a_deep_copy_is_equal_and_independent(kind):
    head, h = make(kind), features(3)
    twin = copy.deepcopy(head)
    assert torch.equal(twin(h), head(h))
    before = head(h)
    with torch.no_grad():
        twin.weight.add_(torch.randn_like(twin.weight))
    assert torch.equal(head(h), before)
    assert not torch.equal(twin(h), before)


@every_head
def test_a_head_can_be_pickled(kind):
    head, h = make(kind), features(3)
    twin = pickle.loads(pickle.dumps(head))
    assert torch.equal(twin(h), head(h))
    assert twin.taxonomy.fingerprint == head.taxonomy.fingerprint


@every_head
def test_a_small_network_learns(kind):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(C).repeat(12)
    x = 3 * torch.eye(C)[y] + 0.3 * torch.randn(len(y), C, generator=generator)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(C, 16), nn.ReLU(), kind(16, TREE))
    body, head = model[:2], model[2]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    start = head.loss(body(x), y).item()
    for _ in range(40):
        optimizer.zero_grad()
        head.loss(body(x), y).backward()
        optimizer.step()
    assert head.loss(body(x), y).item() < 0.1 * start
    assert (head.predict(body(x)) == y).double().mean() > 0.99


@pytest.mark.parametrize("bias", [True, False])
def test_the_shared_head_works_on_a_very_deep_tree(bias):
    depth = 150  # a spine with a leaf at every step
    tax = am.Taxonomy.from_parents([-1, *[node for step in range(depth) for node in (2 * step, 2 * step)]])
    head, h = make(am.SharedSoftmax, tax, bias=bias), features(2)
    logits = (h @ head.weight.T + (head.bias if bias else 0)).tolist()
    expected = torch.tensor([oracle.log_softmax(oracle.shared_leaf_logits(row, tax)) for row in logits]).double()
    torch.testing.assert_close(head(h), expected, atol=1e-4, rtol=1e-4)
    y = targets("class", 2, tax=tax)
    torch.testing.assert_close(head.loss(h, y), F.cross_entropy(head(h), y))
