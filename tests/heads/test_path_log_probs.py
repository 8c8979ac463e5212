"""The log-probabilities along one path, against those of all nodes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from many_heads import HEADS, TREE, D, features, large_tree, make, targets

import arbormax as am
from arbormax.errors import InputError
from arbormax.functional.paths import path_log_probs
from strategies import taxonomies

LARGE = large_tree()
every_head = pytest.mark.parametrize("kind", HEADS)
both_trees = pytest.mark.parametrize("tax", [TREE, LARGE], ids=["small", "large"])


def expected(logp_N: torch.Tensor, node: int, tax: am.Taxonomy) -> list[float]:
    path = [int(above) for above in (*tax.ancestors(node), node) if above != 0]
    path = sorted(path)  # a node's id is larger than its parent's
    return logp_N.detach()[path].tolist() + [0.0] * (tax.depth - len(path))


@given(tax=taxonomies(), seed=st.integers(0, 99))
@pytest.mark.parametrize("kind", HEADS)
def test_path_log_probs_equal_the_node_log_probs_on_the_path(kind, tax, seed):
    head, h, nodes = make(kind, tax, seed), features(5), targets("node", 5, tax=tax, seed=seed)
    rows = [expected(logp, node, tax) for logp, node in zip(head.node_log_probs(h), nodes.tolist(), strict=True)]
    torch.testing.assert_close(head.path_log_probs(h, nodes), torch.tensor(rows, dtype=torch.float64))


@given(tax=taxonomies(), seed=st.integers(0, 99))
def test_the_path_kernels_compute_the_same_values(tax, seed):
    head, h, nodes = make(am.HierarchicalSoftmax, tax, seed), features(5), targets("node", 5, tax=tax, seed=seed)
    found = path_log_probs(h, head.weight, head.bias, nodes, tax)
    torch.testing.assert_close(found, head.path_log_probs(h, nodes))


@every_head
@both_trees
@pytest.mark.parametrize("batch", [(), (0,), (3,), (2, 3)])
def test_leading_dimensions_are_supported(kind, tax, batch):
    head, h, nodes = make(kind, tax), features(*batch), targets("node", *batch, tax=tax)
    found = head.path_log_probs(h, nodes)
    assert found.shape == (*batch, tax.depth)
    flat = head.path_log_probs(h.reshape(-1, D), nodes.reshape(-1))
    torch.testing.assert_close(found.reshape(-1, tax.depth), flat)


def test_a_large_tree_is_not_scored_as_a_whole(monkeypatch):
    head, h, nodes = make(am.HierarchicalSoftmax, LARGE), features(4), targets("node", 4, tax=LARGE)
    exact = torch.stack([head.node_log_probs(h)[i, node] for i, node in enumerate(nodes.tolist())])
    monkeypatch.setattr(am.HierarchicalSoftmax, "node_log_probs", None)
    found = head.path_log_probs(h, nodes)
    depth = torch.from_numpy(LARGE.node_depth[nodes.numpy()]).unsqueeze(1)
    torch.testing.assert_close(found.gather(1, (depth - 1).clamp(min=0)).squeeze(1), exact)


@every_head
@both_trees
def test_an_unknown_node_is_rejected(kind, tax):
    with pytest.raises(InputError, match=f"{tax.num_nodes} at position 1"):
        make(kind, tax).path_log_probs(features(2), torch.tensor([0, tax.num_nodes]))


@both_trees
def test_path_log_probs_have_gradients(tax):
    head, h, nodes = make(am.HierarchicalSoftmax, tax), features(3).requires_grad_(), targets("node", 3, tax=tax)
    assert torch.autograd.gradcheck(lambda h: head.path_log_probs(h, nodes), h, check_undefined_grad=False)
