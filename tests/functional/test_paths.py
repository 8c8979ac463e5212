import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import library
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode

import arbormax as am
from arbormax import Taxonomy
from arbormax import functional as AF
from arbormax.errors import InputError, OptionError
from arbormax.functional.index import tree_index
from arbormax.functional.path_tree import path_tree
from arbormax.functional.paths import path_cross_entropy, prefers_paths
from strategies import taxonomies

seeds = st.integers(0, 2**16)
TREE = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", {"c": ["u", "v", "w"]}], "o": ["only"], "early": []})
D = 3


def large() -> Taxonomy:
    """Return a tree of 5,219 nodes below the root; a path has 51 siblings."""
    return Taxonomy.from_parents([-1, *(node // 17 for node in range(17 + 17**2 + 17**3))])


def draw(tax, seed, batch=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(tax.num_nodes - 1, D, generator=generator).to(dtype).requires_grad_()
    bias = torch.randn(tax.num_nodes - 1, generator=generator).to(dtype).requires_grad_()
    h = torch.randn(batch, D, generator=generator).to(dtype).requires_grad_()
    nodes = torch.randint(tax.num_nodes, (batch,), generator=generator)
    options = {
        "weight": torch.rand(tax.num_leaves, generator=generator) + 0.1,
        "node_weights": torch.rand(tax.num_nodes, generator=generator),
        "log_priors": AF.sibling_log_priors(torch.randint(1, 50, (tax.num_leaves,), generator=generator).numpy(), tax),
    }
    return (h, rows, bias), nodes, options


def by_paths(parts, target, tax, **options):
    return path_cross_entropy(*parts, target, tax, **options)


def dense(parts, target, tax, sparse=False, **options):
    h, rows, bias = parts
    logits = torch.nn.functional.linear(h, rows, bias)
    return AF.hierarchical_cross_entropy(logits, target, tax, **options)


def with_gradients(loss, parts, *given, **options):
    for part in parts:
        part.grad = None
    value = loss(parts, *given, **options)
    value.sum().backward()
    return [value.detach(), *(part.grad.to_dense() for part in parts)]


OPTIONS = {
    "none": {},
    "weight": {"weight": ...},
    "smoothing": {"label_smoothing": 0.2},
    "focus": {"gamma": 2.0},
    "small focus": {"gamma": 0.5},
    "node weights": {"node_weights": ...},
    "priors": {"log_priors": ..., "tau": 1.5},
    "all": {"weight": ..., "label_smoothing": 0.1, "gamma": 1.5, "node_weights": ..., "log_priors": ..., "tau": 0.5},
}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("option", OPTIONS)
@settings(max_examples=40)
@given(tax=taxonomies(), seed=seeds)
def test_values_and_gradients_equal_those_of_the_dense_loss(option, sparse, tax, seed):
    parts, nodes, drawn = draw(tax, seed)
    options = {name: drawn[name] if value is ... else value for name, value in OPTIONS[option].items()}
    for kind, target in (("node", nodes), ("class", nodes % tax.num_leaves)):
        for reduction in ("none", "sum", "mean"):
            how = {"target_kind": kind, "reduction": reduction, **options}
            expected = with_gradients(dense, parts, target, tax, **how)
            torch.testing.assert_close(with_gradients(by_paths, parts, target, tax, sparse=sparse, **how), expected)


@pytest.mark.parametrize("sparse", [False, True])
def test_ignored_items_have_no_effect(sparse):
    parts, _, _ = draw(TREE, 0, batch=3)
    target = torch.tensor([1, -100, 4])
    expected = with_gradients(dense, parts, target, TREE)
    torch.testing.assert_close(with_gradients(by_paths, parts, target, TREE, sparse=sparse), expected)
    every = torch.full((3,), -100)
    value, *gradients = with_gradients(by_paths, parts, every, TREE, sparse=sparse, reduction="sum")
    assert value == 0
    assert not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("tax", [TREE, Taxonomy.from_nested({"a": [{"b": ["c"]}]}), Taxonomy.from_nested(["x", "y"])])
def test_empty_batches_leading_dimensions_and_missing_bias(tax):
    (h, rows, _), _, _ = draw(tax, 1, batch=6)
    target = torch.arange(6).view(2, 3) % tax.num_leaves
    found = path_cross_entropy(h.view(2, 3, D), rows, None, target, tax, reduction="none")
    torch.testing.assert_close(
        found, AF.hierarchical_cross_entropy((h @ rows.T).view(2, 3, -1), target, tax, reduction="none")
    )
    empty = path_cross_entropy(h[:0], rows, None, target.flatten()[:0], tax, reduction="sum", sparse=True)
    empty.backward()
    assert empty == 0


@pytest.mark.parametrize("tax", [TREE, large()])
def test_large_logits_have_the_gradients_of_the_dense_loss(tax):
    (h, rows, _), _, _ = draw(tax, 7, dtype=torch.float32)
    for size in (1e4, 1e8):
        parts, target = (h, rows, torch.full_like(rows[:, 0], size).detach().requires_grad_()), torch.arange(5)
        expected = with_gradients(dense, parts, target, tax, label_smoothing=0.1)
        torch.testing.assert_close(with_gradients(by_paths, parts, target, tax, label_smoothing=0.1), expected)


def test_a_sparse_gradient_contains_only_the_rows_on_the_paths():
    tax = large()
    (h, rows, bias), _, _ = draw(tax, 2, batch=2)
    path_cross_entropy(h, rows, bias, torch.tensor([0, 5]), tax, sparse=True).backward()
    assert rows.grad.is_sparse
    assert rows.grad._nnz() == rows.grad.coalesce()._nnz() == 51
    node, siblings = int(tax.leaves[0]), set()
    while node:
        node = int(tax.parent[node])
        siblings |= {int(child) - 1 for child in tax.children(node)}
    assert set(rows.grad.coalesce().indices()[0].tolist()) == siblings
    assert torch.equal(bias.grad.coalesce().indices(), rows.grad.coalesce().indices())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_error_in_half_precision_does_not_exceed_that_of_the_dense_loss(dtype, monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)  # its bfloat16 products do not run on every CPU
    tax = large()
    parts, nodes, _ = draw(tax, 3, batch=64, dtype=dtype)
    exact = [part.detach().double().requires_grad_() for part in parts]
    truth = with_gradients(dense, exact, nodes, tax, target_kind="node")
    theirs = with_gradients(dense, parts, nodes, tax, target_kind="node")
    ours = with_gradients(by_paths, parts, nodes, tax, target_kind="node")
    assert ours[0].dtype is torch.float32
    for own, other, right in zip(ours, theirs, truth, strict=True):
        slack = 1e-6 * right.abs().max()
        assert (own.double() - right).abs().max() <= 1.01 * (other.double() - right).abs().max() + slack


@pytest.mark.parametrize("sparse", [False, True])
def test_the_loss_compiles_to_one_graph(sparse):
    tax = large()
    parts, nodes, _ = draw(tax, 4)
    compiled = torch.compile(by_paths, fullgraph=True, backend="aot_eager")
    how = {"target_kind": "node", "sparse": sparse, "label_smoothing": 0.1}
    expected = with_gradients(by_paths, parts, nodes, tax, **how)
    torch.testing.assert_close(with_gradients(compiled, parts, nodes, tax, **how), expected)
    assert parts[1].grad.is_sparse is sparse


def test_the_operators_pass_opcheck():
    parts, nodes, _ = draw(TREE, 5)
    tree = path_tree(TREE, torch.device("cpu"))
    how = (tree.tensors, tree.sizes, False, "torch")
    library.opcheck(torch.ops.arbormax.path_steps, (*parts, None, nodes, *how))
    h, *others = (part.detach() for part in parts)
    logp, _, kept, plan = torch.ops.arbormax.path_steps(h, *others, None, nodes, *how)
    grad = torch.ones_like(logp)
    for features in (h, h.t().contiguous().t()):  # with any strides
        given_ = (torch.stack([grad, grad]), features, *others, None, kept, plan, *how)
        library.opcheck(torch.ops.arbormax.path_gradients, given_)


class Seen(TorchDispatchMode):
    """Records the names of the operators that are called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_dispatch_mode_sees_the_operators_and_does_not_change_the_results(sparse):
    tax = large()
    parts, nodes, _ = draw(tax, 7)
    how = {"target_kind": "node", "sparse": sparse, "gamma": 1.0}
    expected = with_gradients(by_paths, parts, nodes, tax, **how)
    with Seen() as seen:
        found = with_gradients(by_paths, parts, nodes, tax, **how)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0)
    assert {"arbormax.path_steps.default", "arbormax.path_gradients.default"} <= seen.names


def test_a_dispatch_mode_sees_the_backward_operator():
    parts, nodes, _ = draw(large(), 9)
    loss = by_paths(parts, nodes, large(), target_kind="node")
    with Seen() as seen:
        loss.backward()
    assert "arbormax.path_gradients.default" in seen.names


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_operators_support_fake_and_meta_tensors(place):
    tax = large()
    parts, nodes, _ = draw(tax, 10)
    expected = with_gradients(by_paths, parts, nodes, tax, target_kind="node")
    kinds = [TwoTensor(part.detach(), part.detach()) if at == place else part for at, part in enumerate(parts)]
    found = path_cross_entropy(*kinds, nodes, tax, target_kind="node")
    torch.testing.assert_close(getattr(found, "a", found).detach(), expected[0])


def test_a_second_derivative_is_rejected():
    parts, nodes, _ = draw(large(), 8)
    (grad,) = torch.autograd.grad(by_paths(parts, nodes, large(), target_kind="node"), parts[:1], create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivatives"):
        grad.sum().backward()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tau": 1.0}, OptionError, "tau: log_priors is missing"),
        ({"gamma": -1.0}, OptionError, "gamma: expected a number of at least 0"),
        ({"label_smoothing": 2.0}, OptionError, "from 0 to 1"),
        ({"reduction": "avg"}, OptionError, "reduction: expected"),
        ({"weight": torch.ones(3)}, InputError, "weight: expected one value"),
    ],
)
def test_wrong_arguments_are_rejected(options, error, message):
    parts, _, _ = draw(TREE, 6)
    with pytest.raises(error, match=message):
        by_paths(parts, torch.zeros(5, dtype=torch.int64), TREE, **options)
    with pytest.raises(InputError, match="target 99 at position 0"):
        by_paths(parts, torch.full((5,), 99), TREE)
    with pytest.raises(InputError, match="one row per non-root node, 12 rows, found 11"):
        path_cross_entropy(parts[0], parts[1][:-1], None, torch.zeros(5, dtype=torch.int64), TREE)
    with pytest.raises(InputError, match=r"as features have, found \(12, \d\)"):
        path_cross_entropy(parts[0], parts[1][:, :-1], None, torch.zeros(5, dtype=torch.int64), TREE)
    with pytest.raises(InputError, match=r"bias: expected the shape \(12,\), one value per row, found \(11,\)"):
        path_cross_entropy(*parts[:2], parts[1][:-1, 0], torch.zeros(5, dtype=torch.int64), TREE)
    with pytest.raises(InputError, match="the target is on meta, but the features are on cpu"):
        by_paths(parts, torch.zeros(5, dtype=torch.int64, device="meta"), TREE)


def test_requesting_kernels_that_cannot_run_raises():
    head = am.HierarchicalSoftmax(D, TREE, impl="triton")
    with pytest.raises(OptionError, match="impl: 'triton' needs tensors on a GPU, found cpu"):
        head.loss(torch.randn(2, D), torch.tensor([0, 1]))


def test_a_head_uses_paths_on_a_large_tree(monkeypatch):
    tax = large()
    assert prefers_paths(tree_index(tax, torch.device("cpu")))
    assert not prefers_paths(tree_index(TREE, torch.device("cpu")))
    star = Taxonomy.from_parents([-1, *[0] * 5000])
    assert not prefers_paths(tree_index(star, torch.device("cpu")))
    larger = Taxonomy.from_parents([-1, *(node // 33 for node in range(33 + 33**2 + 33**3))])
    assert not prefers_paths(tree_index(larger, torch.device("meta")))  # no sparse products there
    head, h, y = am.HierarchicalSoftmax(D, tax), torch.randn(4, D), torch.arange(4)
    expected = -head(h).gather(1, y.unsqueeze(1)).mean()
    monkeypatch.setattr("arbormax.functional.paths.linear", None)  # no product with all rows
    torch.testing.assert_close(head.loss(h, y), expected)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # raised by torch itself in jvp
@pytest.mark.parametrize("sparse", [False, True])
def test_torch_func_differentiates_a_large_head(sparse):
    tax, h, y = large(), torch.randn(4, D, dtype=torch.float64), torch.arange(4)
    head = am.HierarchicalSoftmax(D, tax, sparse=sparse).double()
    h.requires_grad_()
    (expected,) = torch.autograd.grad(head.loss(h, y), h)
    torch.testing.assert_close(torch.func.grad(head.loss)(h, y), expected)
    _, slope = torch.func.jvp(lambda features: head.loss(features, y), (h,), (torch.ones_like(h),))
    torch.testing.assert_close(slope, expected.sum())
    assert torch.equal(torch.vmap(head.predict)(h), head.predict(h))
    assert torch.equal(torch.vmap(lambda item: head.topk(item, 2)[1])(h), head.topk(h, 2)[1])


@pytest.mark.parametrize("sparse", [False, True])
def test_priors_have_gradients(sparse):
    parts, nodes, options = draw(TREE, 8)
    found = []
    for loss in (dense, by_paths):
        priors = options["log_priors"].double().clone().requires_grad_()
        loss(parts, nodes, TREE, target_kind="node", log_priors=priors, tau=0.5, sparse=sparse).backward()
        found.append(priors.grad.to_dense())
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_default_device_has_no_effect(sparse):
    head = am.HierarchicalSoftmax(D, large(), sparse=sparse)
    h, y = torch.randn(4, D), torch.arange(4)
    with torch.device("meta"):
        head.loss(h, y).backward()
        classes = head.predict(h)
    assert {tensor.device.type for tensor in (head.weight.grad, head.bias.grad, classes)} == {"cpu"}


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.SparseAdam])
def test_a_sparse_head_trains_with_optimizers_for_sparse_gradients(make):
    tax = large()
    head = am.HierarchicalSoftmax(D, tax, sparse=True)
    before = head.weight.detach().clone()
    optimiser = make(list(head.parameters()), lr=0.1)
    h, y = torch.randn(8, D), torch.zeros(8, dtype=torch.int64)
    losses = []
    for _ in range(5):
        optimiser.zero_grad()
        loss = head.loss(h, y)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    touched = (head.weight.detach() != before).any(1)
    assert touched.sum() == 51  # the siblings on one path


def test_sparse_and_dense_gradients_give_the_same_optimizer_step():
    tax = large()
    torch.manual_seed(0)
    one, other = am.HierarchicalSoftmax(D, tax, sparse=True), am.HierarchicalSoftmax(D, tax)
    other.load_state_dict(one.state_dict())
    h, y = torch.randn(8, D), torch.arange(8)
    for head in (one, other):
        head.loss(h, y, label_smoothing=0.1).backward()
        torch.optim.SGD(head.parameters(), lr=0.5).step()
    torch.testing.assert_close(one.weight, other.weight)
    torch.testing.assert_close(one.bias, other.bias)
