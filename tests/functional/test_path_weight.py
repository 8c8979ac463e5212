"""The share of the flat loss that falls on the ancestors."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import oracles_heads as oracle
from arbormax import Taxonomy
from arbormax import functional as AF
from arbormax.errors import OptionError
from strategies import taxonomies

seeds = st.integers(0, 2**16)
TREE = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", {"c": ["u", "v", "w"]}], "o": ["only"], "early": []})
C, N = TREE.num_leaves, TREE.num_nodes


def draw(tax: Taxonomy, seed: int):
    """Logits, node targets of which one is ignored, class weights, and one share per level."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(6, tax.num_leaves, generator=generator, dtype=torch.float64)
    nodes = torch.randint(tax.num_nodes, (6,), generator=generator)
    nodes[3] = -100
    weight = torch.rand(tax.num_leaves, generator=generator, dtype=torch.float64) + 0.1
    levels = torch.rand(tax.depth - 1, generator=generator, dtype=torch.float64)
    levels = levels.where(levels > 0.3, 0.0)  # some levels have no share
    return logits, nodes, weight, (0.8 * levels / max(float(levels.sum()), 1e-9)).tolist()


def naive(logits, nodes, tax, reduction, **options):
    items = [
        (0.0, 0.0) if node < 0 else oracle.flat_loss(row, node, tax, **options)
        for row, node in zip(logits.tolist(), nodes.tolist(), strict=True)
    ]
    losses = torch.tensor([loss for loss, _ in items], dtype=torch.float64)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / sum(weight for _, weight in items)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("by_level", [False, True])
@given(taxonomies(), seeds)
def test_the_path_loss_equals_a_plain_recursion(by_level, weighted, label_smoothing, tax, seed):
    logits, nodes, weight, levels = draw(tax, seed)
    options = {"path_weight": levels if by_level else 0.6, "label_smoothing": label_smoothing}
    for reduction in ("none", "sum", "mean"):
        expected = naive(logits, nodes, tax, reduction, weight=weight.tolist() if weighted else None, **options)
        found = AF.flat_cross_entropy(
            logits,
            nodes,
            tax,
            reduction=reduction,
            target_kind="node",
            weight=weight if weighted else None,
            **options,
        )
        torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-6)


@given(taxonomies(), seeds)
def test_a_class_target_equals_the_node_target_of_its_leaf(tax, seed):
    logits, _, weight, levels = draw(tax, seed)
    classes = torch.randint(tax.num_leaves, (6,), generator=torch.Generator().manual_seed(seed))
    nodes = torch.from_numpy(tax.leaves[classes.numpy()])
    for options in ({"path_weight": 0.5}, {"path_weight": levels, "weight": weight, "label_smoothing": 0.1}):
        by_class = AF.flat_cross_entropy(logits, classes, tax, **options)
        torch.testing.assert_close(by_class, AF.flat_cross_entropy(logits, nodes, tax, target_kind="node", **options))


def test_the_published_formula():
    """-0.4 log P(leaf) - 0.6 mean log P(ancestors)."""
    logits, leaf = torch.randn(1, C, dtype=torch.float64), TREE.find("u")
    logp = AF.flat_node_log_probs(logits, TREE)[0]
    expected = -0.4 * logp[leaf] - 0.6 * (logp[TREE.find("b")] + logp[TREE.find("c")]) / 2
    found = AF.flat_cross_entropy(logits, torch.tensor([leaf]), TREE, target_kind="node", path_weight=0.6)
    torch.testing.assert_close(found, expected)
    by_level = AF.flat_cross_entropy(logits, torch.tensor([leaf]), TREE, target_kind="node", path_weight=[0.3, 0.3])
    torch.testing.assert_close(by_level, expected)


def test_a_leaf_of_depth_one_keeps_the_whole_loss():
    logits, target = torch.randn(3, C, dtype=torch.float64), torch.tensor([TREE.class_of[TREE.find("early")]] * 3)
    for path_weight in (0.6, [0.2, 0.5]):
        found = AF.flat_cross_entropy(logits, target, TREE, path_weight=path_weight)
        torch.testing.assert_close(found, F.cross_entropy(logits, target))


def test_a_path_without_a_weighted_level_keeps_the_whole_loss():
    logits, target = torch.randn(3, C, dtype=torch.float64), torch.tensor([TREE.class_of[TREE.find("x")]] * 3)
    found = AF.flat_cross_entropy(logits, target, TREE, path_weight=[0.0, 0.5])  # 'x' has one ancestor, on level 1
    torch.testing.assert_close(found, F.cross_entropy(logits, target))


def test_a_tree_of_depth_one_has_no_ancestors():
    tax = Taxonomy.from_nested(list("abc"))
    logits, target = torch.randn(3, 3), torch.tensor([0, 1, 2])
    for path_weight in (0.6, ()):
        found = AF.flat_cross_entropy(logits, target, tax, path_weight=path_weight)
        torch.testing.assert_close(found, F.cross_entropy(logits, target))


@pytest.mark.parametrize("path_weight", [0.6, [0.1, 0.5], 1.0])
def test_gradients_pass_gradcheck(path_weight):
    logits = torch.randn(6, C, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 2, 5, 6, 7, -100])
    options = {"weight": torch.rand(C, dtype=torch.float64), "label_smoothing": 0.1, "path_weight": path_weight}

    def loss(x):
        return AF.flat_cross_entropy(x, target, TREE, reduction="none", **options)

    assert torch.autograd.gradcheck(loss, (logits,))
    assert torch.autograd.gradgradcheck(loss, (logits,))


def test_a_class_of_probability_zero_costs_nothing_with_a_share_of_zero():
    logits = torch.zeros(1, C)
    leaf = TREE.find("x")
    logits[0, TREE.class_of[leaf]] = -torch.inf
    target = torch.tensor([TREE.class_of[leaf]])
    assert AF.flat_cross_entropy(logits, target, TREE, path_weight=1.0).isfinite()
    assert AF.flat_cross_entropy(logits, target, TREE, path_weight=0.9).isinf()


def test_leading_dimensions_and_an_empty_batch_are_supported():
    logits, target = torch.randn(2, 3, C), torch.tensor([[0, 1, 2], [3, -100, 5]])
    found = AF.flat_cross_entropy(logits, target, TREE, reduction="none", path_weight=0.6)
    rows = AF.flat_cross_entropy(logits.flatten(0, 1), target.flatten(), TREE, reduction="none", path_weight=0.6)
    torch.testing.assert_close(found, rows.view(2, 3))
    empty = AF.flat_cross_entropy(logits[:0], target[:0], TREE, reduction="sum", path_weight=0.6)
    assert empty.item() == 0.0


def test_half_precision_is_reduced_in_float32():
    logits, target = torch.randn(64, C).bfloat16(), torch.randint(C, (64,))
    found = AF.flat_cross_entropy(logits, target, TREE, path_weight=0.6)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, AF.flat_cross_entropy(logits.float(), target, TREE, path_weight=0.6))


@pytest.mark.parametrize(
    ("path_weight", "message"),
    [
        (1.5, "path_weight: expected a number from 0 to 1, found 1.5"),
        (-0.1, "path_weight: expected a number from 0 to 1"),
        (float("nan"), "path_weight: expected a number from 0 to 1"),
        ([0.5], "path_weight: expected one share for each of 2 levels with inner nodes, found 1"),
        ([0.1, 0.2, 0.3], "path_weight: expected one share for each of 2 levels"),
        ([0.6, 0.6], "path_weight: expected shares of at least 0 whose sum is at most 1"),
        ([-0.1, 0.2], "path_weight: expected shares of at least 0"),
        ("half", "path_weight: expected a number from 0 to 1 or a list of numbers, found 'half'"),
        (None, "path_weight: expected a number from 0 to 1 or a list of numbers, found None"),
    ],
)
def test_a_wrong_path_weight_is_rejected(path_weight, message):
    with pytest.raises(OptionError, match=message):
        AF.flat_cross_entropy(torch.zeros(1, C), torch.tensor([0]), TREE, path_weight=path_weight)
