import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles_heads as oracle
from arbormax import Taxonomy
from arbormax import functional as AF
from arbormax.errors import InputError
from strategies import taxonomies

seeds = st.integers(0, 2**16)


def random_logits(tax: Taxonomy, seed: int, *batch: int, scale: float = 3.0, columns: int | None = None):
    generator = torch.Generator().manual_seed(seed)
    size = tax.num_nodes - 1 if columns is None else columns
    return scale * torch.randn(*batch, size, generator=generator, dtype=torch.float64)


def chain(length: int) -> Taxonomy:
    return Taxonomy.from_parents(range(-1, length))


@given(taxonomies(), seeds)
def test_node_log_probs_equal_a_plain_recursion(tax, seed):
    logits = random_logits(tax, seed, 3)
    expected = torch.tensor([oracle.node_log_probs(row, tax) for row in logits.tolist()], dtype=torch.float64)
    torch.testing.assert_close(AF.node_log_probs(logits, tax), expected)
    torch.testing.assert_close(AF.leaf_log_probs(logits, tax), expected[:, tax.leaves.copy()])


@given(taxonomies(), seeds)
def test_conditionals_equal_a_plain_recursion(tax, seed):
    logits = random_logits(tax, seed, 2)
    expected = torch.tensor([oracle.conditionals(row, tax)[1:] for row in logits.tolist()], dtype=torch.float64)
    torch.testing.assert_close(AF.sibling_log_softmax(logits, tax), expected)


@given(taxonomies(), seeds)
def test_flat_node_log_probs_sum_the_leaves(tax, seed):
    logits = random_logits(tax, seed, 3, columns=tax.num_leaves)
    expected = torch.tensor([oracle.flat_node_log_probs(row, tax) for row in logits.tolist()], dtype=torch.float64)
    torch.testing.assert_close(AF.flat_node_log_probs(logits, tax), expected, atol=1e-12, rtol=1e-9)


@given(taxonomies(), seeds)
def test_shared_logits_are_sums_along_the_path(tax, seed):
    logits = random_logits(tax, seed, 3)
    expected = torch.tensor([oracle.shared_leaf_logits(row, tax) for row in logits.tolist()], dtype=torch.float64)
    torch.testing.assert_close(AF.shared_leaf_logits(logits, tax), expected)


@given(taxonomies(), seeds)
def test_children_sum_to_their_parent_and_leaves_to_one(tax, seed):
    logp = AF.node_log_probs(random_logits(tax, seed, 2), tax)
    for node in range(tax.num_nodes):
        if len(tax.children(node)):
            torch.testing.assert_close(logp[:, tax.children(node)].logsumexp(-1), logp[:, node])
    leaves = AF.leaf_log_probs(random_logits(tax, seed, 2), tax)
    torch.testing.assert_close(leaves.logsumexp(-1), torch.zeros(2, dtype=torch.float64))


@given(taxonomies(), seeds)
def test_a_shift_of_one_sibling_group_changes_nothing(tax, seed):
    logits = random_logits(tax, seed)
    shift = torch.tensor([float(parent) for parent in tax.parent[1:]], dtype=torch.float64)
    torch.testing.assert_close(AF.node_log_probs(logits + shift, tax), AF.node_log_probs(logits, tax))


@given(taxonomies(shuffle=False), seeds)
def test_another_class_order_only_permutes_the_leaves(tax, seed):
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(tax.num_leaves, generator=generator)
    paths = [tax.path(tax.leaves[c]) for c in order.tolist()]
    other = Taxonomy.from_parents(tax.parent, tax.names, classes=paths)
    logits = random_logits(tax, seed, 2)
    assert torch.equal(AF.leaf_log_probs(logits, other), AF.leaf_log_probs(logits, tax)[:, order])


@pytest.mark.parametrize("scale", [1e4, -1e4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_huge_logits_stay_finite_and_normalised(scale, dtype):
    tax = Taxonomy.from_nested({"a": ["x", "y", "z"], "b": ["only"], "c": {"d": ["u", "v"]}, "e": []})
    logits = (scale * torch.linspace(-1, 1, tax.num_nodes - 1)).to(dtype)
    leaves = AF.leaf_log_probs(logits, tax)
    assert leaves.isfinite().all()
    torch.testing.assert_close(leaves.logsumexp(-1), torch.zeros((), dtype=leaves.dtype), atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("given_dtype", "expected"),
    [(torch.float64, torch.float64), (torch.float32, torch.float32)]
    + [(half, torch.float32) for half in (torch.float16, torch.bfloat16)],
)
def test_log_probabilities_are_float32_or_wider(given_dtype, expected):
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    logits = torch.zeros(2, 5, dtype=given_dtype)
    assert AF.node_log_probs(logits, tax).dtype == expected
    assert AF.leaf_log_probs(logits, tax).dtype == expected
    assert AF.flat_node_log_probs(logits[:, :3], tax).dtype == expected
    assert type(AF.node_log_probs(logits, tax)) is torch.Tensor


@pytest.mark.parametrize("batch", [(), (0,), (2,), (2, 3), (2, 0, 3)])
def test_any_leading_dimensions_work(batch):
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", {"c": ["u", "v", "w"]}]})
    logits = random_logits(tax, 0, *batch)
    logp = AF.node_log_probs(logits, tax)
    assert logp.shape == (*batch, tax.num_nodes)
    assert logp.is_contiguous()
    assert AF.leaf_log_probs(logits, tax).shape == (*batch, tax.num_leaves)
    assert AF.flat_node_log_probs(logits[..., : tax.num_leaves], tax).shape == (*batch, tax.num_nodes)
    assert AF.shared_leaf_logits(logits, tax).shape == (*batch, tax.num_leaves)
    rows = logits.reshape(-1, tax.num_nodes - 1)
    torch.testing.assert_close(logp.reshape(-1, tax.num_nodes), AF.node_log_probs(rows, tax))


def test_a_row_does_not_depend_on_the_other_rows():
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", {"c": ["u", "v", "w"]}]})
    logits = random_logits(tax, 1, 4)
    alone = torch.stack([AF.node_log_probs(row, tax) for row in logits])
    torch.testing.assert_close(AF.node_log_probs(logits, tax), alone)


def test_a_leaf_at_middle_depth_has_its_probability():
    tax = Taxonomy.from_nested({"early": [], "late": ["x", "y"]})
    assert AF.leaf_log_probs(torch.zeros(4), tax).exp().tolist() == [0.5, 0.25, 0.25]


def test_one_class_has_probability_one():
    tax = Taxonomy.from_nested(["only"])
    assert AF.leaf_log_probs(torch.randn(3, 1), tax).tolist() == [[0.0], [0.0], [0.0]]
    assert AF.node_log_probs(torch.randn(1), tax).tolist() == [0.0, 0.0]


def test_deep_trees_work():
    tax = chain(3000)
    logits = torch.randn(2, 3000, requires_grad=True)
    logp = AF.node_log_probs(logits, tax)
    logp.sum().backward()
    assert logp.count_nonzero() == 0
    assert logits.grad is not None
    assert logits.grad.count_nonzero() == 0
    assert AF.flat_node_log_probs(torch.zeros(2, 1), tax).shape == (2, 3001)


@pytest.mark.parametrize("function", [AF.node_log_probs, AF.leaf_log_probs, AF.sibling_log_softmax])
def test_gradients_pass_gradcheck(function):
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", {"c": ["u", "v", "w"]}], "o": ["only"]})
    logits = random_logits(tax, 2, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: function(x, tax), (logits,))
    assert torch.autograd.gradgradcheck(lambda x: function(x, tax), (logits,))


def test_gradients_of_flat_node_log_probs_pass_gradcheck():
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", {"c": ["u", "v", "w"]}], "o": ["only"]})
    logits = random_logits(tax, 2, 2, columns=tax.num_leaves).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: AF.flat_node_log_probs(x, tax), (logits,))


@pytest.mark.parametrize("width", [4, 6, 8])
def test_a_wrong_width_is_rejected(width):
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    with pytest.raises(
        InputError, match=r"last dimension of 5, one column per non-root node, found the shape \(2, \d\)"
    ):
        AF.node_log_probs(torch.zeros(2, width), tax)
    with pytest.raises(InputError, match="floating-point"):
        AF.leaf_log_probs(torch.zeros(2, 5, dtype=torch.int64), tax)


def test_an_index_built_in_inference_mode_can_be_used_for_training():
    tax = Taxonomy.from_nested({"a": ["x", "y", "z"], "b": ["u"]})
    with torch.inference_mode():
        AF.node_log_probs(torch.zeros(6), tax)
    logits = torch.zeros(1, 6, requires_grad=True)
    AF.hierarchical_cross_entropy(logits, torch.tensor([1]), tax).backward()
    AF.leaf_log_probs(logits, tax).sum().backward()
    assert logits.grad is not None
