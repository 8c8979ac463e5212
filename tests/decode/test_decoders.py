"""The decoders against brute force, at the edges of their input, and on trees too large for brute force."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles_metrics as oracle
from arbormax import Taxonomy, decode
from arbormax.errors import InputError, OptionError
from scored import examples, scored_trees

TREE = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
DECODERS = [decode.leaf, decode.greedy, decode.threshold]


def rows(*probabilities):
    return torch.tensor(probabilities, dtype=torch.float64).log()


@examples
@given(scored_trees(), st.sampled_from(DTYPES))
def test_leaf_is_the_most_probable_leaf_by_brute_force(scored, dtype):
    tax, logp = scored[0], scored[1].to(dtype)
    assert decode.leaf(logp, tax).tolist() == [oracle.leaf(row, oracle.Tree(tax)) for row in logp.tolist()]


@examples
@given(scored_trees(), st.sampled_from(DTYPES))
def test_greedy_takes_the_best_child_at_each_step_by_brute_force(scored, dtype):
    tax, logp = scored[0], scored[1].to(dtype)
    assert decode.greedy(logp, tax).tolist() == [oracle.greedy(row, oracle.Tree(tax)) for row in logp.tolist()]


@examples
@given(scored_trees(), st.sampled_from(DTYPES), st.sampled_from([0.0, 0.1, 0.2, 0.25, 1 / 3, 0.5, 2 / 3, 0.75, 1.0]))
def test_threshold_is_the_deepest_node_above_tau_by_brute_force(scored, dtype, tau):
    tax, logp = scored[0], scored[1].to(dtype)
    bar = math.inf if tau == 1 else torch.tensor(tau, dtype=torch.float64).log().to(dtype).item()
    expected = [oracle.threshold(row, oracle.Tree(tax), bar) for row in logp.tolist()]
    assert decode.threshold(logp, tax, tau).tolist() == expected


@examples
@given(scored_trees(max_rows=4), st.sampled_from(DECODERS))
def test_leading_dimensions_are_supported_and_rows_are_independent(scored, decoder):
    tax, logp = scored
    flat = decoder(logp, tax)
    assert flat.dtype == torch.int64
    stacked = decoder(torch.stack([logp, logp.flip(0)])[:, None], tax)
    assert stacked.shape == (2, 1, len(logp))
    assert torch.equal(stacked[:, 0], torch.stack([flat, flat.flip(0)]))
    for row, node in zip(logp, flat, strict=True):
        assert decoder(row, tax).shape == ()
        assert decoder(row, tax) == node


def test_ties_of_leaf_are_resolved_by_class_order():
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]}, classes=["z", "y", "x"])
    assert decode.leaf(rows([1, 0.6, 0.4, 0.2, 0.4, 0.4]), tax).tolist() == [tax.find("z")]


def test_greedy_and_leaf_may_differ():
    logp = rows([1.0, 0.6, 0.4, 0.3, 0.3, 0.4])
    assert decode.greedy(logp, TREE).tolist() == [3]
    assert decode.leaf(logp, TREE).tolist() == [5]


def test_greedy_returns_a_descendant_of_its_choice_if_all_children_have_probability_zero():
    logp = rows([1.0, 0.4, 0.6, 0.2, 0.2, 0.0])
    assert decode.greedy(logp, TREE).tolist() == [5]
    wider = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]})
    assert decode.greedy(rows([1.0, 0.4, 0.6, 0.2, 0.2, 0.0, 0.0]), wider).tolist() == [wider.find("z")]


def test_threshold_is_strict():
    logp = rows([1.0, 0.5, 0.5, 0.5, 0.0, 0.5])
    assert decode.threshold(logp, TREE, 0.5).tolist() == [0]
    assert decode.threshold(logp, TREE, math.nextafter(0.5, 0)).tolist() == [3]
    assert decode.threshold(logp.to(torch.bfloat16), TREE, 0.5).tolist() == [0]


def test_threshold_one_half_is_the_default():
    logp = rows([1.0, 0.6, 0.4, 0.3, 0.3, 0.4])
    assert torch.equal(decode.threshold(logp, TREE), decode.threshold(logp, TREE, 0.5))


def test_no_node_passes_a_threshold_of_one_despite_rounding():
    logp = torch.zeros(1, 3) + 1e-7
    assert decode.threshold(logp, Taxonomy.from_parents([-1, 0, 1]), 1.0).tolist() == [0]


@pytest.mark.parametrize("tau", [-0.1, 1.1, math.nan, "high", None])
def test_a_threshold_outside_0_to_1_is_rejected(tau):
    with pytest.raises(OptionError, match="from 0 to 1"):
        decode.threshold(rows([1.0, 0.6, 0.4, 0.3, 0.3, 0.4]), TREE, tau)


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_error_for_a_wrong_input_says_what_was_expected(decoder):
    with pytest.raises(InputError, match=r"shape \(\.\.\., 6\), found the shape \(2, 7\)"):
        decoder(torch.zeros(2, 7), TREE)
    with pytest.raises(InputError, match=r"3 is the number of classes.*head\.node_log_probs"):
        decoder(torch.zeros(2, 3), TREE)
    with pytest.raises(InputError, match=r"number of logits.*functional\.node_log_probs"):
        decoder(torch.zeros(2, 5), TREE)
    with pytest.raises(InputError, match="int64"):
        decoder(torch.zeros(2, 6, dtype=torch.int64), TREE)
    with pytest.raises(InputError, match="ndarray"):
        decoder(np.zeros((2, 6)), TREE)
    with pytest.raises(InputError, match=r"shape \(\)"):
        decoder(torch.tensor(0.0), TREE)


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_input_is_not_changed_and_the_result_has_no_graph(decoder):
    logp = rows([1.0, 0.6, 0.4, 0.3, 0.3, 0.4]).requires_grad_()
    before = logp.detach().clone()
    assert not decoder(logp, TREE).requires_grad
    assert torch.equal(logp.detach(), before)


@pytest.mark.parametrize("decoder", DECODERS)
def test_nan_probabilities_return_a_valid_node(decoder):
    nodes = decoder(torch.full((2, 6), math.nan), TREE)
    assert ((nodes >= 0) & (nodes < 6)).all()


@pytest.mark.parametrize("decoder", DECODERS)
def test_compiled_decoders_return_the_same_nodes(decoder):
    torch.compiler.reset()
    logp = rows([1.0, 0.6, 0.4, 0.3, 0.3, 0.4], [1.0, 0.2, 0.8, 0.2, 0.0, 0.8])
    compiled = torch.compile(lambda scores: decoder(scores - 0.0, TREE) + 1, backend="eager")
    assert torch.equal(compiled(logp), decoder(logp, TREE) + 1)


def test_a_wide_star_and_a_deep_chain_are_decoded():
    star = Taxonomy.from_parents(np.r_[-1, np.zeros(100_000, np.int64)])
    logp = torch.full((2, star.num_nodes), math.log(1e-6))
    logp[:, 0], logp[0, 777], logp[1, 99_999] = 0.0, math.log(0.9), math.log(0.9)
    for decoder in DECODERS:
        assert decoder(logp, star).tolist() == [777, 99_999]

    # a spine of 1,000 nodes, each with a leaf beside it: odd nodes 1, 3, … are the spine
    spine = Taxonomy.from_parents(np.r_[-1, np.repeat(np.r_[0, np.arange(1, 1999, 2)], 2)])
    assert spine.depth == 1000
    logp = torch.zeros(3, spine.num_nodes)
    logp[:, 2::2] = -10.0
    logp[1, 1001:] = -math.inf
    for decoder in DECODERS[1:]:
        assert decoder(logp, spine)[0] == 1999
    assert decode.threshold(logp, spine)[1] == 999
    assert decode.leaf(logp, spine)[0] == 1999


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("decoder", DECODERS)
def test_nodes_on_a_gpu_are_equal_and_stay_on_the_gpu(decoder):
    tax = Taxonomy.from_parents(np.r_[-1, (np.arange(1, 500) - 1) // 3])
    logits = torch.randn(64, tax.num_leaves, generator=torch.Generator().manual_seed(0)).softmax(-1)
    logp = torch.stack([torch.tensor(tax.sum_up(row)) for row in logits.numpy()]).log()
    nodes = decoder(logp.cuda(), tax)
    assert nodes.is_cuda
    assert torch.equal(nodes.cpu(), decoder(logp, tax))


@pytest.mark.parametrize("decoder", [decode.leaf, decode.greedy, decode.threshold])
def test_probabilities_and_logits_are_rejected(decoder):
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    with pytest.raises(InputError, match="logits and probabilities are not accepted"):
        decoder(torch.tensor([[1.0, 0.6, 0.4, 0.3, 0.3, 0.4]]), tax)
