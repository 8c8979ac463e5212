"""Restricted log-probabilities, against brute force over the leaves."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import arbormax as am
import oracles_metrics as oracle
from arbormax import decode
from arbormax.errors import ArbormaxError, InputError, LabelError, OptionError
from scored import examples, scored_trees

TREE = am.Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
LOGP = torch.tensor([[1.0, 0.6, 0.4, 0.2, 0.4, 0.4]], dtype=torch.float64).log()


def naive(row, tree, allowed):
    """P(node | the leaf is allowed), equal for all allowed leaves if none of them is possible."""
    mass = {leaf: math.exp(row[leaf]) for leaf in allowed}
    if not sum(mass.values()):
        mass = dict.fromkeys(allowed, 1.0)
    return [sum(p for leaf, p in mass.items() if leaf in tree.under(n)) / sum(mass.values()) for n in tree.nodes]


@examples
@given(scored_trees(), st.data())
def test_within_and_without_renormalise_over_the_leaves_by_brute_force(scored, data):
    tax, logp = scored
    tree = oracle.Tree(tax)
    nodes = data.draw(st.lists(st.integers(1, tax.num_nodes - 1), min_size=1, max_size=3))
    inside = [leaf for leaf in tree.leaves if any(leaf in tree.under(node) for node in nodes)]
    outside = [leaf for leaf in tree.leaves if leaf not in inside]
    found = decode.within(logp, tax, nodes)
    expected = torch.tensor([naive(row, tree, inside) for row in logp.tolist()]).view(-1, tax.num_nodes)
    torch.testing.assert_close(found.exp().float(), expected, atol=1e-6, rtol=0)
    assert not found.isnan().any()
    assert (found[:, 0] == 0).all()
    mask = torch.tensor([leaf in inside for leaf in tree.leaves])
    for same in (mask, mask.numpy(), [tax.path(node) for node in nodes], np.array(nodes)):
        assert torch.equal(decode.within(logp, tax, same), found)
    if outside:
        expected = torch.tensor([naive(row, tree, outside) for row in logp.tolist()]).view(-1, tax.num_nodes)
        without = decode.without(logp, tax, nodes)
        torch.testing.assert_close(without.exp().float(), expected, atol=1e-6, rtol=0)
        assert torch.equal(decode.within(logp, tax, outside), without)


def test_nodes_are_ids_labels_paths_or_masks():
    expected = [1.0, 1.0, 0.0, 1 / 3, 2 / 3, 0.0]
    of_nodes = torch.tensor([False, True, False, False, False, False])
    for nodes in ("a", 1, np.int64(1), ("a",), ["a"], ["a/x", ("a", "y")], {3, 4}, of_nodes, [3, "y"]):
        assert decode.within(LOGP, TREE, nodes).exp()[0].tolist() == pytest.approx(expected)


def test_each_item_may_have_its_own_restriction():
    logp = LOGP.expand(4, 6)
    found = decode.within(logp, TREE, [["a"], None, ["z", "x"], ["x"]])
    for row, nodes in zip(found, (["a"], [0], ["z", "x"], ["x"]), strict=True):
        assert torch.equal(row, decode.within(LOGP, TREE, nodes)[0])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 1], [1, 0, 0]]).bool()
    assert torch.equal(decode.within(logp, TREE, mask), found)
    assert torch.equal(decode.within(logp.view(2, 2, 6), TREE, mask), found.view(2, 2, 6))


def test_a_restriction_is_applied_to_one_batch_after_the_other():
    restriction = decode.Restriction(TREE, within=[["a"], None, ["a"]], without=["x"])
    first, second = restriction.apply(LOGP.expand(2, 6)), restriction.apply(LOGP, 2)
    restriction.finish(3)
    assert decode.leaf(first, TREE).tolist() == [4, 4]
    assert first.exp()[:, 4].tolist() == pytest.approx([1.0, 0.5])
    assert second.exp()[0, 4] == 1.0


def test_the_restricted_result_keeps_its_type_and_has_no_graph():
    found = decode.within(LOGP.float().requires_grad_(), TREE, ["a"])
    assert found.dtype == torch.float32
    assert not found.requires_grad
    assert decode.within(LOGP[0], TREE, ["a"]).shape == (6,)
    assert decode.within(LOGP[:0], TREE, ["a"]).shape == (0, 6)
    assert decode.within(LOGP.bfloat16(), TREE, ["a"]).dtype == torch.float32


def test_very_improbable_classes_are_restricted_in_log_space():
    logp = torch.tensor([[0.0, -1e4, 0.0, -1e4 + math.log(0.25), -1e4 + math.log(0.75), 0.0]], dtype=torch.float64)
    assert decode.within(logp, TREE, ["a"]).exp()[0].tolist() == pytest.approx([1, 1, 0, 0.25, 0.75, 0])


@pytest.mark.parametrize(
    ("kind", "nodes", "error", "message"),
    [
        ("without", [1, 2], OptionError, "leaves no class: allow at least one of the 3 classes"),
        ("within", np.zeros(3, bool), OptionError, "leaves no class"),
        ("within", [], OptionError, "at least one node"),
        ("within", ["q"], LabelError, "'q'"),
        ("within", [6], LabelError, "from 0 to 5, found 6"),
        ("within", np.zeros(4, bool), InputError, "mask of 3 classes or 6 nodes"),
        ("within", [True, False], OptionError, "a mask is an array of 3 or 6 Booleans"),
        ("within", 1.5, OptionError, "found float"),
        ("within", [["a"], None], InputError, "for each of 1 items, found 2"),
        ("within", [["q"]], InputError, "item 0: .*'q'"),
        ("without", [["a", "b"]], OptionError, "of item 0 leaves no class"),
    ],
)
def test_an_impossible_restriction_is_an_error_that_says_how_to_fix_it(kind, nodes, error, message):
    with pytest.raises(error, match=message) as caught:
        getattr(decode, kind)(LOGP, TREE, nodes)
    assert caught.value.argument == kind


def test_both_sides_together_may_leave_no_class():
    with pytest.raises(ArbormaxError, match="that is not excluded"):
        decode.Restriction(TREE, within=["a"], without=["x", "y"])
    with pytest.raises(InputError, match="found 1 for at least 2 items"):
        decode.Restriction(TREE, within=[["a"]]).apply(LOGP.expand(2, 6))
