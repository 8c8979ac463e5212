import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import oracles_heads as oracle
from arbormax import Taxonomy
from arbormax import functional as AF
from arbormax.errors import InputError, OptionError
from strategies import taxonomies

seeds = st.integers(0, 2**16)
TREE = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", {"c": ["u", "v", "w"]}], "o": ["only"], "early": []})
C, N = TREE.num_leaves, TREE.num_nodes


def draw(tax: Taxonomy, seed: int, batch: int = 4):
    """Logits, node targets, class weights, node weights and priors, all random."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(batch, tax.num_nodes - 1, generator=generator, dtype=torch.float64)
    nodes = torch.randint(tax.num_nodes, (batch,), generator=generator)
    weight = torch.rand(tax.num_leaves, generator=generator, dtype=torch.float64) + 0.1
    node_weights = torch.rand(tax.num_nodes, generator=generator, dtype=torch.float64)
    counts = torch.randint(1, 50, (tax.num_leaves,), generator=generator)
    priors = AF.sibling_log_priors(counts.numpy(), tax).double()
    return logits, nodes, weight, node_weights, priors


def naive(logits, nodes, tax, reduction="mean", **options):
    lists = {key: value.tolist() if isinstance(value, torch.Tensor) else value for key, value in options.items()}
    pairs = [oracle.loss(row, int(node), tax, **lists) for row, node in zip(logits.tolist(), nodes, strict=True)]
    losses = torch.tensor([loss for loss, _ in pairs], dtype=torch.float64)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / sum(weight for _, weight in pairs)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@given(taxonomies(), seeds)
def test_the_loss_of_any_node_equals_a_plain_recursion(reduction, tax, seed):
    logits, nodes, *_ = draw(tax, seed)
    found = AF.hierarchical_cross_entropy(logits, nodes, tax, reduction=reduction, target_kind="node")
    torch.testing.assert_close(found, naive(logits, nodes, tax, reduction))


@pytest.mark.parametrize("option", ["weight", "label_smoothing", "gamma", "small gamma", "node_weights", "priors"])
@given(taxonomies(), seeds)
def test_each_option_follows_its_definition(option, tax, seed):
    logits, nodes, weight, node_weights, priors = draw(tax, seed)
    options = {
        "weight": {"weight": weight},
        "label_smoothing": {"label_smoothing": 0.1},
        "gamma": {"gamma": 2.0},
        "small gamma": {"gamma": 0.5},
        "node_weights": {"node_weights": node_weights},
        "priors": {"log_priors": priors, "tau": 1.5},
    }[option]
    for reduction in ("none", "mean"):
        found = AF.hierarchical_cross_entropy(logits, nodes, tax, reduction=reduction, target_kind="node", **options)
        torch.testing.assert_close(found, naive(logits, nodes, tax, reduction, **options), atol=1e-7, rtol=1e-6)


@given(taxonomies(), seeds)
def test_all_options_together_follow_the_formula(tax, seed):
    logits, nodes, weight, node_weights, priors = draw(tax, seed)
    options = {
        "weight": weight,
        "label_smoothing": 0.2,
        "gamma": 1.5,
        "node_weights": node_weights,
        "log_priors": priors,
        "tau": 0.7,
    }
    for reduction in ("none", "sum", "mean"):
        found = AF.hierarchical_cross_entropy(logits, nodes, tax, reduction=reduction, target_kind="node", **options)
        torch.testing.assert_close(found, naive(logits, nodes, tax, reduction, **options), atol=1e-7, rtol=1e-6)


@given(taxonomies(), seeds)
def test_a_class_target_equals_the_node_target_of_its_leaf(tax, seed):
    logits, *_, weight, node_weights, _ = draw(tax, seed)
    classes = torch.randint(tax.num_leaves, (4,), generator=torch.Generator().manual_seed(seed))
    nodes = torch.from_numpy(tax.leaves[classes.numpy()])
    for options in ({}, {"weight": weight}, {"node_weights": node_weights, "gamma": 1.0}):
        by_class = AF.hierarchical_cross_entropy(logits, classes, tax, **options)
        torch.testing.assert_close(
            by_class, AF.hierarchical_cross_entropy(logits, nodes, tax, target_kind="node", **options)
        )


# With both, torch spreads its class weights over the smoothed target, which has no meaning among siblings.
@pytest.mark.parametrize(("smoothing", "weighted"), [(0.0, False), (0.3, False), (0.0, True)])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_a_tree_of_depth_one_equals_torch_cross_entropy(smoothing, weighted, reduction):
    tax = Taxonomy.from_nested(list("abcdefg"))
    logits = torch.randn(9, 7, dtype=torch.float64)
    target = torch.tensor([0, 1, 2, 3, -100, 5, 6, 0, -100])
    weight = torch.rand(7, dtype=torch.float64) if weighted else None
    expected = F.cross_entropy(logits, target, weight, reduction=reduction, label_smoothing=smoothing)
    found = AF.hierarchical_cross_entropy(
        logits, target, tax, reduction=reduction, weight=weight, label_smoothing=smoothing
    )
    torch.testing.assert_close(found, expected)


def test_class_weights_have_an_effect():
    logits = torch.randn(2, N - 1)
    target = torch.tensor([0, 3])
    losses = AF.hierarchical_cross_entropy(logits, target, TREE, reduction="none")
    weight = torch.ones(C)
    weight[3] = 3.0
    found = AF.hierarchical_cross_entropy(logits, target, TREE, weight=weight)
    torch.testing.assert_close(found, (losses[0] + 3 * losses[1]) / 4)


def test_hxe_weights_give_the_hxe_loss():
    logits, target = torch.randn(5, N - 1, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 4])
    alpha = 0.4
    cond = AF.sibling_log_softmax(logits, TREE)
    expected = []
    for row, leaf in enumerate(TREE.leaves[target.numpy()].tolist()):
        steps = [*TREE.ancestors(leaf).tolist()[1:], leaf]
        expected.append(-sum(torch.exp(torch.tensor(-alpha * TREE.height[n])) * cond[row, n - 1] for n in steps))
    found = AF.hierarchical_cross_entropy(
        logits, target, TREE, reduction="none", node_weights=AF.hxe_weights(TREE, alpha)
    )
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-6, rtol=1e-6)


def test_weights_per_level_and_per_parent_fill_the_node_weights():
    assert AF.level_weights(TREE, [1.0, 2.0, 3.0]).tolist() == [0.0, *TREE.node_depth[1:].astype(float).tolist()]
    found = AF.parent_weights(TREE, {"b": 5.0, "b/c": 7.0}, default=2.0)
    parents = [TREE.names[parent] for parent in TREE.parent[1:]]
    assert found.tolist()[1:] == [{"b": 5.0, "c": 7.0}.get(name, 2.0) for name in parents]
    with pytest.raises(InputError, match="one weight for each of 3 levels"):
        AF.level_weights(TREE, [1.0])
    with pytest.raises(InputError, match="is a leaf"):
        AF.parent_weights(TREE, {"x": 1.0})


def test_priors_are_shares_among_siblings():
    counts = [1, 3, 4, 2, 2, 4, 5, 9]
    priors = AF.sibling_log_priors(counts, TREE).exp()
    for parent in range(N):
        if len(TREE.children(parent)):
            assert priors[TREE.children(parent) - 1].sum().item() == pytest.approx(1.0)
    assert priors[TREE.find("x") - 1].item() == pytest.approx(0.25)
    with pytest.raises(InputError, match=r"class 'y' has no items.*try smoothing=1"):
        AF.sibling_log_priors([1, 0, 1, 1, 1, 1, 1, 1], TREE)
    assert AF.sibling_log_priors([1, 0, 1, 1, 1, 1, 1, 1], TREE, smoothing=1.0).isfinite().all()
    with pytest.raises(InputError, match="8 classes"):
        AF.sibling_log_priors([1, 2], TREE)


@pytest.mark.parametrize("options", [{}, {"gamma": 0.5, "label_smoothing": 0.1}])
def test_gradients_pass_gradcheck(options):
    logits = torch.randn(6, N - 1, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 2, 5, 6, 7, -100])
    weight = torch.rand(C, dtype=torch.float64)

    def loss(x):
        return AF.hierarchical_cross_entropy(x, target, TREE, reduction="none", weight=weight, **options)

    assert torch.autograd.gradcheck(loss, (logits,))
    assert torch.autograd.gradgradcheck(loss, (logits,))


@pytest.mark.parametrize("gamma", [0.3, 1.0, 2.0])
def test_the_focal_gradient_is_finite_where_a_step_is_certain(gamma):
    logits = torch.zeros(3, N - 1)
    logits[:, 0] = 200.0  # p = 1 in float32
    logits.requires_grad_()
    AF.hierarchical_cross_entropy(logits, torch.tensor([0, 1, 6]), TREE, gamma=gamma).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_an_only_child_and_the_groups_off_the_path_receive_no_gradient():
    logits = torch.randn(1, N - 1, requires_grad=True)
    only = TREE.find("only")
    AF.hierarchical_cross_entropy(logits, torch.tensor([only]), TREE, target_kind="node").backward()
    top = [int(node) for node in TREE.children(0)]
    touched = (logits.grad[0].nonzero().flatten() + 1).tolist()
    assert touched == top


def test_the_root_as_target_has_no_loss_and_no_gradient():
    logits = torch.randn(2, N - 1, requires_grad=True)
    loss = AF.hierarchical_cross_entropy(logits, torch.tensor([0, 0]), TREE, target_kind="node")
    loss.backward()
    assert loss.item() == 0.0
    assert logits.grad.count_nonzero() == 0


@pytest.mark.parametrize("kind", ["class", "node"])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}])
def test_ignored_items_have_no_effect(kind, options):
    logits = torch.randn(4, N - 1, requires_grad=True)
    target = torch.tensor([1, -100, 3, -100])
    options = {**options, "target_kind": kind}
    found = AF.hierarchical_cross_entropy(logits, target, TREE, **options)
    found.backward()
    kept = AF.hierarchical_cross_entropy(logits[[0, 2]], target[[0, 2]], TREE, **options)
    torch.testing.assert_close(found, kept)
    assert logits.grad[1].count_nonzero() == 0
    each = AF.hierarchical_cross_entropy(logits, target, TREE, reduction="none", **options)
    assert each[1] == each[3] == 0.0
    again = AF.hierarchical_cross_entropy(logits, target.masked_fill(target < 0, 2), TREE, ignore_index=2, **options)
    torch.testing.assert_close(again, found)


@pytest.mark.parametrize("function", [AF.hierarchical_cross_entropy, AF.flat_cross_entropy])
@pytest.mark.parametrize("kind", ["class", "node"])
def test_an_empty_batch_behaves_as_in_torch(function, kind):
    width = N - 1 if function is AF.hierarchical_cross_entropy else C
    logits, target = torch.zeros(0, width, requires_grad=True), torch.zeros(0, dtype=torch.int64)
    assert function(logits, target, TREE, reduction="none", target_kind=kind).shape == (0,)
    assert function(logits, target, TREE, reduction="sum", target_kind=kind).item() == 0.0
    mean = function(logits, target, TREE, target_kind=kind)
    assert mean.isnan() == F.cross_entropy(torch.zeros(0, 3), target).isnan()
    mean.backward()


@pytest.mark.parametrize("kind", ["class", "node"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_leading_dimensions_are_supported(kind, reduction):
    logits, target = torch.randn(2, 3, N - 1), torch.tensor([[0, 1, 2], [3, -100, 5]])
    found = AF.hierarchical_cross_entropy(logits, target, TREE, reduction=reduction, target_kind=kind)
    rows = AF.hierarchical_cross_entropy(
        logits.flatten(0, 1), target.flatten(), TREE, reduction=reduction, target_kind=kind
    )
    torch.testing.assert_close(found, rows.reshape(2, 3) if reduction == "none" else rows)
    single = AF.hierarchical_cross_entropy(logits[0, 0], target[0, 0], TREE, target_kind=kind)
    torch.testing.assert_close(
        single, AF.hierarchical_cross_entropy(logits[0, :1], target[0, :1], TREE, target_kind=kind)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_reduced_in_float32(dtype):
    logits, target = torch.randn(64, N - 1).to(dtype), torch.randint(C, (64,))
    found = AF.hierarchical_cross_entropy(logits, target, TREE)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, AF.hierarchical_cross_entropy(logits.float(), target, TREE))


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_huge_logits_give_the_exact_loss(scale):
    logits = scale * torch.linspace(-1, 1, N - 1, dtype=torch.float64).unsqueeze(0)
    for node in range(1, N):
        target = torch.tensor([node])
        expected = -AF.node_log_probs(logits, TREE)[:, node].mean()
        torch.testing.assert_close(AF.hierarchical_cross_entropy(logits, target, TREE, target_kind="node"), expected)
        single = AF.hierarchical_cross_entropy(logits.float(), target, TREE, target_kind="node")
        torch.testing.assert_close(single.double(), expected, atol=1e-2, rtol=1e-5)


TWO_LEVELS = Taxonomy.from_nested({"a": ["x", "y", "z"], "b": ["u", "v"], "o": ["only"], "early": []})


def test_the_mean_on_two_levels_is_the_mean_of_its_items_with_the_same_gradient():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(64, TWO_LEVELS.num_nodes - 1, generator=generator, dtype=torch.float64)
    target = torch.randint(TWO_LEVELS.num_leaves, (64,), generator=generator)
    found, expected = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    mean = AF.hierarchical_cross_entropy(found, target, TWO_LEVELS)
    items = AF.hierarchical_cross_entropy(expected, target, TWO_LEVELS, reduction="none").mean()
    torch.testing.assert_close(mean, items)
    torch.testing.assert_close(torch.autograd.grad(mean, found)[0], torch.autograd.grad(items, expected)[0])
    assert torch.autograd.gradcheck(
        lambda x: AF.hierarchical_cross_entropy(x, target[:4], TWO_LEVELS), logits[:4].requires_grad_()
    )


def test_windows_computed_for_large_trees_agree_with_node_log_probs():
    # wide root, deep spine: several slabs, and no table
    parents = [-1, *[0] * 6000, *range(6000, 6300), *[6300] * 3]
    tax = Taxonomy.from_parents(parents)
    logits = torch.randn(5, tax.num_nodes - 1, dtype=torch.float64, requires_grad=True)
    nodes = torch.tensor([1, 6000, 6150, tax.num_nodes - 1, 0])
    expected = -AF.node_log_probs(logits, tax).gather(1, nodes.unsqueeze(1)).squeeze(1)
    for options in ({}, {"node_weights": torch.ones(tax.num_nodes)}):
        found = AF.hierarchical_cross_entropy(logits, nodes, tax, reduction="none", target_kind="node", **options)
        torch.testing.assert_close(found, expected)
    (grad,) = torch.autograd.grad(expected.sum(), logits)
    (found_grad,) = torch.autograd.grad(
        AF.hierarchical_cross_entropy(logits, nodes, tax, reduction="sum", target_kind="node"), logits
    )
    torch.testing.assert_close(found_grad, grad)


@given(taxonomies(), seeds)
def test_the_flat_loss_of_any_node_sums_its_leaves(tax, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, tax.num_leaves, generator=generator, dtype=torch.float64)
    nodes = torch.randint(tax.num_nodes, (4,), generator=generator)
    weight = torch.rand(tax.num_leaves, generator=generator, dtype=torch.float64) + 0.1
    expected = torch.tensor(
        [-oracle.flat_node_log_probs(row, tax)[n] for row, n in zip(logits.tolist(), nodes.tolist(), strict=True)]
    ).double()
    found = AF.flat_cross_entropy(logits, nodes, tax, reduction="none", target_kind="node")
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    item = torch.from_numpy(tax.sum_up(weight.numpy()) / tax.leaf_counts)[nodes]
    mean = AF.flat_cross_entropy(logits, nodes, tax, target_kind="node", weight=weight)
    torch.testing.assert_close(mean, (item * found).sum() / item.sum())


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_the_smoothed_flat_loss_equals_that_of_torch_and_weights_whole_items(reduction):
    logits, target = torch.randn(6, C, dtype=torch.float64), torch.tensor([0, 3, -100, 1, 2, 0])
    given = {"reduction": reduction, "label_smoothing": 0.3}
    expected = F.cross_entropy(logits, target, **given)
    torch.testing.assert_close(AF.flat_cross_entropy(logits, target, TREE, **given), expected)
    nodes = torch.where(target < 0, target, torch.tensor(TREE.leaves)[target.clamp(min=0)])
    torch.testing.assert_close(AF.flat_cross_entropy(logits, nodes, TREE, target_kind="node", **given), expected)
    # with weights, the same item by item
    weight = torch.rand(C, dtype=torch.float64) + 0.1
    each = F.cross_entropy(logits, target, reduction="none", label_smoothing=0.3)
    w = weight[target.clamp(min=0)] * (target >= 0)
    wanted = {"none": w * each, "sum": (w * each).sum(), "mean": (w * each).sum() / w.sum()}[reduction]
    for kind, y in (("class", target), ("node", nodes)):
        found = AF.flat_cross_entropy(logits, y, TREE, target_kind=kind, weight=weight, **given)
        torch.testing.assert_close(found, wanted)


def test_label_smoothing_of_an_inner_target_spreads_over_all_classes():
    logits = torch.randn(2, C, dtype=torch.float64)
    inner = int(TREE.parent[TREE.leaves[0]])
    found = AF.flat_cross_entropy(
        logits, torch.tensor([inner, 0]), TREE, target_kind="node", reduction="none", label_smoothing=0.2
    )
    log_p = logits[0].log_softmax(-1)
    below = torch.tensor([inner in TREE.ancestors(int(leaf)) for leaf in TREE.leaves])
    expected = -0.8 * log_p[below].logsumexp(0) - 0.2 * log_p.mean()
    torch.testing.assert_close(found, torch.stack([expected, torch.zeros_like(expected)]))


@pytest.mark.parametrize("function", [AF.hierarchical_cross_entropy, AF.flat_cross_entropy])
@pytest.mark.parametrize(
    ("target", "kind", "message"),
    [
        ([0, C], "class", f"target {C} at position 1 is not a class id: expected 0 to {C - 1}"),
        ([-1, 0], "class", "target -1 at position 0 is not a class id"),
        ([0, N], "node", "target .* at position 1 is not a node id"),
        ([-1, 0], "node", "target -1 at position 0 is not a node id"),
        ([-100, -1], "class", "target -1 at position 1"),
        ([0], "class", r"shape \(1,\), but the leading dimensions of the input are \(2,\)"),
        ([[0, 1]], "class", "leading dimensions"),
        ([0.0, 1.0], "class", "class ids, integers, as target, found torch.float32"),
        ([True, False], "class", "class ids, integers, as target, found torch.bool"),
    ],
)
def test_an_invalid_target_is_rejected(function, target, kind, message):
    width = N - 1 if function is AF.hierarchical_cross_entropy else C
    with pytest.raises(InputError, match=message):
        function(torch.zeros(2, width), torch.tensor(target), TREE, target_kind=kind)
    with pytest.raises(ValueError, match="target"):
        function(torch.zeros(2, width), torch.tensor(target), TREE, target_kind=kind)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("name", ["weight", "node_weights"])
def test_an_invalid_weight_is_rejected(bad, name):
    values = torch.ones(C if name == "weight" else N)
    values[2] = bad
    with pytest.raises(InputError, match=rf"{name}: expected finite weights of at least 0, found .* at position 2"):
        AF.hierarchical_cross_entropy(torch.zeros(1, N - 1), torch.tensor([0]), TREE, **{name: values})
    with pytest.raises(InputError, match=f"{name}: expected one value for each of"):
        AF.hierarchical_cross_entropy(torch.zeros(1, N - 1), torch.tensor([0]), TREE, **{name: torch.ones(3)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduction": "men"}, "reduction: expected 'none', 'mean' or 'sum', found 'men'; did you mean 'mean'"),
        ({"target_kind": "leaf"}, "target_kind: expected 'class' or 'node'"),
        ({"label_smoothing": 1.5}, "label_smoothing: expected a number from 0 to 1"),
        ({"gamma": -1.0}, "gamma: expected a number of at least 0"),
        ({"gamma": float("nan")}, "gamma: expected a number of at least 0"),
        ({"tau": 1.0}, "tau: log_priors is missing"),
    ],
)
def test_an_invalid_option_is_rejected(options, message):
    with pytest.raises(OptionError, match=message):
        AF.hierarchical_cross_entropy(torch.zeros(1, N - 1), torch.tensor([0]), TREE, **options)
