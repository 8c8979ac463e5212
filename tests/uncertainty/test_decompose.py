"""The decomposition of uncertainty against plain loops."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import arbormax as am
from arbormax.model.draws import decompose
from strategies import taxonomies


def entropy(p):
    return -sum(x * np.log(x) for x in p if x > 0)


@given(taxonomies(), st.integers(0, 1000))
def test_the_parts_are_those_of_plain_loops_and_sum_to_the_information_about_the_class(tax, seed):
    torch.manual_seed(seed)
    logits = 3 * torch.randn(4, 2, tax.num_nodes - 1, dtype=torch.float64)
    logp = am.functional.node_log_probs(logits, tax)
    found = {name: value.numpy() for name, value in decompose(logp, tax).items()}
    p = logp.exp().numpy()
    for item in range(2):
        mean = p[:, item].mean(0)
        np.testing.assert_allclose(found["probability"][item], mean)
        np.testing.assert_allclose(found["std"][item], p[:, item].std(0), atol=1e-12)
        for node in range(tax.num_nodes):
            total = entropy([mean[node], 1 - mean[node]])
            inside = np.mean([entropy([q[node], 1 - q[node]]) for q in p[:, item]])
            np.testing.assert_allclose(found["total"][item, node], total, atol=1e-9)
            np.testing.assert_allclose(found["aleatoric"][item, node], inside, atol=1e-9)
            np.testing.assert_allclose(found["epistemic"][item, node], total - inside, atol=1e-9)
            children = tax.children(node)
            total = entropy(mean[children] / mean[node])
            inside = np.average([entropy(q[children] / q[node]) for q in p[:, item]], weights=p[:, item, node])
            np.testing.assert_allclose(found["children_total"][item, node], total, atol=1e-9)
            np.testing.assert_allclose(found["children_aleatoric"][item, node], inside, atol=1e-9)
        leaves = p[:, item][:, tax.leaves]
        information = entropy(leaves.mean(0)) - np.mean([entropy(row) for row in leaves])
        in_parts = found["probability"][item] @ found["children_epistemic"][item]
        np.testing.assert_allclose(in_parts, information, atol=1e-9)


def test_equal_draws_are_all_aleatoric_and_sure_ones_that_differ_all_epistemic():
    tax = am.Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    same = am.functional.node_log_probs(torch.randn(1, 1, 5).expand(3, 1, 5), tax)
    assert decompose(same, tax)["epistemic"].abs().max() < 1e-6
    sure = torch.full((2, 1, 6), -torch.inf)
    sure[:, :, 0] = 0
    sure[0, 0, [1, 3]] = 0  # a, x
    sure[1, 0, [2, 5]] = 0  # b, z
    found = decompose(sure, tax)
    assert found["aleatoric"].abs().max() == 0
    torch.testing.assert_close(found["epistemic"][0, 1:3], torch.full((2,), np.log(2.0), dtype=torch.float64))
    assert found["children_epistemic"][0, 1] == 0  # given a, all draws say x


def test_a_certain_node_has_an_entropy_of_zero_and_not_of_minus_zero():
    tax = am.Taxonomy.from_nested({"a": ["x", "y"]})
    logp = torch.tensor([[[0.0, 0.0, 0.0, -torch.inf]]])
    assert not any(values.signbit().any() for values in decompose(logp, tax).values())
