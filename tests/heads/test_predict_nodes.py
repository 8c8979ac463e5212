"""`predict_nodes` of all heads, on small and large trees."""

import pytest
import torch
from many_heads import HEADS, TREE, D, features, large_tree, make

import arbormax as am

LARGE = large_tree()
every_head = pytest.mark.parametrize("kind", HEADS)
both_trees = pytest.mark.parametrize("tax", [TREE, LARGE], ids=["small", "large"])


@every_head
@both_trees
@pytest.mark.parametrize("tau", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_predict_nodes_equals_the_threshold_decoder(kind, tax, tau):
    head, h = make(kind, tax), features(9)
    assert torch.equal(head.predict_nodes(h, tau), am.decode.threshold(head.node_log_probs(h), tax, tau))


@every_head
@both_trees
@pytest.mark.parametrize("batch", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_leading_dimensions_are_supported(kind, tax, batch):
    head, h = make(kind, tax), features(*batch)
    nodes = head.predict_nodes(h)
    assert nodes.shape == batch
    assert nodes.dtype == torch.int64
    assert torch.equal(nodes.reshape(-1), head.predict_nodes(h.reshape(-1, D)))


@every_head
@both_trees
@pytest.mark.parametrize("tau", [-0.1, 1.1, float("nan"), "much", None])
def test_a_tau_outside_0_to_1_is_rejected(kind, tax, tau):
    with pytest.raises(am.errors.OptionError, match="tau: expected a probability"):
        make(kind, tax).predict_nodes(features(2), tau)


@every_head
@both_trees
def test_wrong_features_are_rejected(kind, tax):
    with pytest.raises(am.errors.InputError, match="expected a tensor, found list"):
        make(kind, tax).predict_nodes([0.0])
    with pytest.raises(am.errors.InputError, match=f"a last dimension of {D}"):
        make(kind, tax).predict_nodes(torch.zeros(2, D + 1))


@every_head
@both_trees
def test_features_with_gradients_and_sparse_features_are_accepted(kind, tax):
    head, h = make(kind, tax), features(4)
    expected = head.predict_nodes(h)
    assert torch.equal(head.predict_nodes(h.clone().requires_grad_()), expected)
    assert torch.equal(head.predict_nodes(h.to_sparse()), expected)


@both_trees
def test_torch_func_uses_all_logits(tax):
    head, h = make(am.HierarchicalSoftmax, tax), features(4)
    assert torch.equal(torch.func.vmap(head.predict_nodes)(h), head.predict_nodes(h))


@every_head
@both_trees
def test_compiled_predict_nodes_equals_the_eager_one(kind, tax):
    head, h = make(kind, tax), features(4)
    compiled = torch.compile(lambda h: head.predict_nodes(h, 0.3), fullgraph=True, backend="eager")
    assert torch.equal(compiled(h), head.predict_nodes(h, 0.3))


def test_only_a_hierarchical_head_on_a_large_tree_searches():
    searching = [(tax, kind) for tax in (TREE, LARGE) for kind in HEADS if make(kind, tax).searches]
    assert searching == [(LARGE, am.HierarchicalSoftmax)]
