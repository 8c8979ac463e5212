"""Cases of the Triton kernel that searches for the best leaves, run by test_paths_triton.py."""

from __future__ import annotations

import pytest
import torch
from triton_cases import DEVICE, TREES

import arbormax as am
from arbormax.functional.index import tree_index
from arbormax.heads.base import TreeHead
from arbormax.kernels import search_triton
from arbormax.kernels.path_tree import SearchTree

# The interpreter takes seconds for one item.
SEARCHES = [
    ("even", 1.0, True),
    ("even", 0.0, False),
    ("uneven", 20.0, True),
    ("wide", 1.0, False),
    ("flat", 20.0, True),
]
if DEVICE == "cuda":
    SEARCHES = [(tree, scale, bias) for tree in TREES for scale in (0.0, 1.0, 20.0) for bias in (True, False)]


def search_tree(tax):
    index = tree_index(tax, torch.device(DEVICE))
    nodes = (index.first_child, index.num_children, index.class_of)
    return SearchTree(*nodes, tax.depth, int(tax.num_children.max()), int(tax.num_children[0]))


@pytest.mark.parametrize(("tree", "scale", "bias"), SEARCHES)
def test_the_search_finds_the_best_leaves(tree, scale, bias, monkeypatch):
    tax, items = TREES[tree], 9 if DEVICE == "cuda" else 2
    if bias:
        monkeypatch.setattr(search_triton, "_UNSORTED", 1)  # so that the items are sorted
    torch.manual_seed(3)
    head = am.HierarchicalSoftmax(20, tax, init="torch", bias=bias, device=DEVICE)
    with torch.no_grad():
        head.weight.mul_(scale)
    h = torch.randn(items, 20, device=DEVICE)
    given = (h, head.weight.detach(), None if head.bias is None else head.bias.detach())
    k = min(3, tax.num_leaves)
    logp, classes, is_open = search_triton.best_leaves(*given, search_tree(tax), k, tax.num_nodes)
    assert not is_open.any()
    expected_logp, expected = TreeHead.topk(head, h, k)
    torch.testing.assert_close(logp, expected_logp, rtol=1e-4, atol=1e-4)
    clear = (expected_logp.diff(dim=1).abs() > 1e-4).all(1)
    assert torch.equal(classes[clear], expected[clear])
    if scale == 0.0 and not bias and tree in ("even", "bushy", "flat"):
        assert torch.equal(classes, expected)  # all equal: in class order


def test_a_search_that_expands_too_many_nodes_stays_open():
    tax = TREES["even"]
    h, rows = torch.zeros(2, 16, device=DEVICE), torch.zeros(tax.num_nodes - 1, 16, device=DEVICE)
    *_, is_open = search_triton.best_leaves(h, rows, None, search_tree(tax), 2, 3)
    assert is_open.all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy
def test_a_search_with_nan_stays_open():
    tax = TREES["even"]
    h, rows = torch.randn(3, 16, device=DEVICE), torch.randn(tax.num_nodes - 1, 16, device=DEVICE)
    h[1, 2], h[2, 0] = torch.nan, torch.inf
    *_, is_open = search_triton.best_leaves(h, rows * 9, None, search_tree(tax), 2, 99)
    assert is_open[1:].all()
