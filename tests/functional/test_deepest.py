"""The search for the deepest nodes above a threshold, which scores a small part of the tree."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import arbormax as am
from arbormax import Taxonomy
from arbormax.functional import best
from arbormax.functional.best import deepest_nodes
from arbormax.functional.threshold import level_best
from strategies import taxonomies

TAUS = (0.0, 1e-6, 0.1, 0.3, 0.5, 0.9, 1.0)


def balanced(branching: int) -> Taxonomy:
    return Taxonomy.from_parents([-1, *(node // branching for node in range(sum(branching**d for d in (1, 2, 3))))])


@pytest.fixture(scope="module")
def large() -> Taxonomy:
    return balanced(17)


def confident(tax: Taxonomy, width: int = 8, seed: int = 0) -> am.HierarchicalSoftmax:
    """Return a head with large weights, which is as confident as a trained one."""
    torch.manual_seed(seed)
    head = am.HierarchicalSoftmax(width, tax, init="torch")
    with torch.no_grad():
        head.weight.mul_(20)
    return head


def dense(head: am.HierarchicalSoftmax, h: torch.Tensor, tau: float) -> torch.Tensor:
    return am.decode.threshold(head.node_log_probs(h), head.taxonomy, tau)


def clear(head: am.HierarchicalSoftmax, h: torch.Tensor, tau: float, margin: float) -> torch.Tensor:
    """Return the items whose result does not depend on rounding: no node is near tau, and no level has a tie."""
    logp = head.node_log_probs(h)
    near = ((logp.exp() - tau).abs() < margin * tau)[:, 1:].any(1)
    tops, _ = level_best(logp, head.taxonomy)
    starts = head.taxonomy.level_start.tolist()
    seconds = torch.stack(
        [
            logp[:, a:b].topk(min(2, b - a)).values[:, -1] if b - a > 1 else torch.full_like(tops[:, 0], -torch.inf)
            for a, b in pairwise(starts)
        ],
        1,
    )
    return ~near & (tops - seconds > margin).all(1)


@given(
    tax=taxonomies(max_nodes=40),
    seed=st.integers(0, 2**16),
    scale=st.sampled_from([0.0, 1.0, 20.0]),
    tau=st.sampled_from(TAUS),
    bias=st.booleans(),
)
def test_the_nodes_are_those_of_the_threshold_decoder(tax, seed, scale, tau, bias):
    torch.manual_seed(seed)
    head = am.HierarchicalSoftmax(3, tax, bias=bias, init="torch").double()
    with torch.no_grad():
        head.weight.mul_(scale)
    h = torch.randn(4, 3, dtype=torch.float64)
    expected, sure = dense(head, h, tau), clear(head, h, tau, 1e-9)
    assert torch.equal(head.predict_nodes(h, tau), expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best, "_SHARE", float("inf"))
        for cells in (best._CELLS, 1):  # all items together, and one at a time
            patch.setattr(best, "_CELLS", cells)
            found, is_open = deepest_nodes(h, head.weight, head.bias, tax, tau)
            assert not is_open.any()
            # the search and the dense product sum in different orders, so near ties may differ
            assert torch.equal(found[sure], expected[sure])


@pytest.mark.parametrize("tau", TAUS)
def test_ties_go_to_the_lower_node_and_a_probability_of_tau_does_not_pass(tau):
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]}, classes=["z", "w", "x", "y"])
    head = am.HierarchicalSoftmax(3, tax, init="zeros")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best, "_SHARE", float("inf"))
        found, _ = deepest_nodes(torch.ones(2, 3), head.weight, head.bias, tax, tau)
    assert torch.equal(found, dense(head, torch.ones(2, 3), tau))
    assert found[0] == (tax.find("x") if tau < 0.25 else tax.find("a") if tau < 0.5 else 0)


def test_a_node_of_probability_zero_does_not_pass():
    tax = Taxonomy.from_nested({"a": {"b": ["x", "y"]}, "c": []})
    head = am.HierarchicalSoftmax(1, tax, init="zeros")
    with torch.no_grad():
        head.bias[tax.find("a") - 1] = -torch.inf
    h = torch.ones(1, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best, "_SHARE", float("inf"))
        assert deepest_nodes(h, head.weight, head.bias, tax, 0.0)[0] == dense(head, h, 0.0) == tax.find("c")


@pytest.mark.parametrize("tau", [0.01, 0.2, 0.5, 0.9])
def test_a_large_tree_is_searched_without_scoring_all_nodes(large, tau, monkeypatch):
    head, h = confident(large), torch.randn(300, 8)
    expected, sure = dense(head, h, tau), clear(head, h, tau, 1e-4)
    assert sure.sum() > 250
    assert tau < 0.1 or len(set(large.node_depth[expected].tolist())) > 1
    monkeypatch.setattr(type(head), "node_log_probs", None)
    found = head.predict_nodes(h, tau)
    assert torch.equal(found[sure], expected[sure])


@pytest.mark.parametrize("tau", [0.0, 1e-9, 5e-324])
def test_all_nodes_are_scored_if_nearly_all_pass(large, tau):
    head, h = am.HierarchicalSoftmax(8, large), torch.randn(5, 8)
    assert deepest_nodes(h, head.weight, head.bias, large, tau)[1].all()
    assert torch.equal(head.predict_nodes(h, tau), dense(head, h, tau))


def test_a_failed_search_ends_before_it_scores_too_much(large, monkeypatch):
    head, scores = am.HierarchicalSoftmax(8, large), []
    scored = best.path_torch.group_log_probs
    monkeypatch.setattr(
        best.path_torch, "group_log_probs", lambda *given: scores.append(int(given[-1].sum())) or scored(*given)
    )
    assert deepest_nodes(torch.randn(3, 8), head.weight, head.bias, large, 1e-9)[1].all()
    assert 0 < sum(scores) <= best._SHARE * 3 * large.num_nodes
    scores.clear()
    assert head.predict_nodes(torch.randn(3, 8), 0.5).tolist() == [0, 0, 0]  # no node of a uniform head passes
    assert sum(scores) == 3 * 17


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_nan_features_do_not_affect_other_items(large, value):
    head, h = confident(large), torch.randn(6, 8)
    expected = dense(head, h, 0.3)
    h[2, 3] = value
    nodes, is_open = deepest_nodes(h, head.weight, head.bias, large, 0.3)
    assert not is_open.any()
    expected[2] = 0
    assert torch.equal(nodes, expected)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_nan_weights_give_the_result_of_the_decoder(large, value):
    head, h = confident(large), torch.randn(3, 8)
    with torch.no_grad():
        head.bias[3] = value
    assert torch.equal(head.predict_nodes(h, 0.3), dense(head, h, 0.3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions(large, dtype, monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)  # its bfloat16 products do not run on every CPU
    head, h = confident(large).to(dtype), torch.randn(100, 8).to(dtype)
    sure = clear(head, h, 0.5, 0.1)
    assert sure.sum() > 20
    assert torch.equal(head.predict_nodes(h, 0.5)[sure], dense(head, h, 0.5)[sure])


class Largest(TorchDispatchMode):
    """Records the size of the largest new tensor, except views of the given parameters."""

    def __init__(self, *parameters):
        super().__init__()
        self.known = {parameter.untyped_storage().data_ptr() for parameter in parameters}
        self.size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        for tensor in results if isinstance(results, tuple | list) else [results]:
            if not isinstance(tensor, torch.Tensor):
                continue
            if tensor.layout is torch.sparse_csr:
                self.size = max(self.size, tensor._nnz())
            elif tensor.untyped_storage().data_ptr() not in self.known:
                self.size = max(self.size, tensor.numel())
        return results


def test_a_search_in_a_million_classes_creates_no_tensor_of_the_size_of_the_tree():
    tax = balanced(100)
    head, h = confident(tax, width=8), torch.randn(64, 8)
    for tau in (0.5, 0.1):
        with Largest(head.weight) as largest:
            nodes = head.predict_nodes(h, tau)
        assert largest.size < tax.num_nodes
        assert torch.equal(nodes[:4], dense(head, h[:4], tau))
    with Largest(head.weight) as largest:
        classes = head.predict(h)
    assert largest.size < tax.num_nodes
    assert torch.equal(classes[:4], head(h[:4]).argmax(-1))
    with Largest(head.weight) as largest:
        dense(head, h[:2], 0.5)
    assert largest.size >= 2 * tax.num_nodes  # the dense computation does create one
