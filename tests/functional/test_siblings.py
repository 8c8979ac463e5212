"""Scaling of probabilities within sibling groups."""

import math

import torch
from hypothesis import given

from arbormax import Taxonomy
from arbormax import functional as AF
from scored import examples, scored_trees


@examples
@given(scored_trees())
def test_conditionals_are_quotients_of_a_node_and_its_parent(scored):
    tax, logp = scored
    found = AF.conditional_log_probs(logp, tax)
    for row, given_parent in zip(logp.exp().tolist(), found.exp().tolist(), strict=True):
        for node in range(1, tax.num_nodes):
            above = row[tax.parent[node]]
            assert math.isclose(given_parent[node - 1], row[node] / above if above else 1.0, abs_tol=1e-12)


@examples
@given(scored_trees())
def test_a_scale_of_one_changes_nothing_where_the_parent_is_possible(scored):
    tax, logp = scored
    ones = torch.ones(tax.num_nodes - 1)
    found = AF.scale_siblings(logp, ones, torch.zeros_like(ones), tax)
    torch.testing.assert_close(found.exp(), logp.exp())


@examples
@given(scored_trees())
def test_scaled_children_sum_to_their_parent(scored):
    tax, logp = scored
    generator = torch.Generator().manual_seed(tax.num_nodes)
    scale = torch.rand(tax.num_nodes - 1, generator=generator) + 0.5
    shift = torch.randn(tax.num_nodes - 1, generator=generator)
    p = AF.scale_siblings(logp, scale, shift, tax).exp()
    assert not p.isnan().any()
    for node in range(tax.num_nodes):
        children = tax.children(node)
        if len(children):
            torch.testing.assert_close(p[:, torch.from_numpy(children)].sum(1), p[:, node])


def test_a_tree_of_depth_one_gets_plain_temperature_scaling():
    tax = Taxonomy.from_nested(["a", "b", "c"])
    logits = torch.tensor([[2.0, 0.0, -1.0]], dtype=torch.float64)
    scaled = AF.scale_siblings(AF.node_log_probs(logits, tax), torch.full((3,), 0.4), torch.zeros(3), tax)
    torch.testing.assert_close(scaled[:, 1:], (0.4 * logits).log_softmax(-1), atol=1e-7, rtol=1e-6)
