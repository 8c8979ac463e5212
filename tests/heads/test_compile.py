"""torch.compile without graph breaks: the same results, gradients and errors."""

import functools
import shutil
from functools import partial

import pytest
import torch
from many_heads import HEADS, TREE, C, N, features, fresh_tree, large_tree, make, targets

import arbormax as am
from arbormax import functional as AF
from arbormax.functional.index import TreeIndex, tree_index

every_head = pytest.mark.parametrize("kind", HEADS)
WEIGHT = torch.linspace(0.1, 3.0, C, dtype=torch.float64)
OPTIONS = {
    "label_smoothing": 0.1,
    "gamma": 1.5,
    "node_weights": torch.linspace(0.5, 2.0, N, dtype=torch.float64),
    "tau": 0.7,
}


@pytest.fixture(autouse=True)
def _reset_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function, backend="aot_eager", **options):
    return torch.compile(function, fullgraph=True, backend=backend, **options)


def with_priors(head):
    if isinstance(head, am.HierarchicalSoftmax):
        head.set_priors([3, 1, 4, 1, 5, 9, 2, 6])
    return head


def gradients(head, h, function):
    """Return the result of a function of the features, and its gradients for the features and the parameters."""
    h = h.clone().requires_grad_()
    value = function(h)
    scale = torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    return value, torch.autograd.grad((value * scale).sum(), (h, *head.parameters()))


@every_head
@pytest.mark.parametrize("method", ["forward", "node_log_probs"])
def test_compiled_log_probabilities_and_gradients_equal_eager_ones(kind, method):
    head = make(kind)
    run = compiled(getattr(head, method))
    for batch in (4, 7):  # the second size makes the batch dimension symbolic
        h = features(batch)
        torch.testing.assert_close(gradients(head, h, run), gradients(head, h, getattr(head, method)))


@every_head
@pytest.mark.parametrize("target_kind", ["class", "node"])
def test_the_compiled_loss_and_its_gradients_equal_eager_ones(kind, target_kind):
    head = make(kind)

    def loss(h, y):
        return head.loss(h, y, target_kind=target_kind)

    run = compiled(loss)
    for batch in (4, 7):
        h, y = features(batch), targets(target_kind, batch)
        y[1] = -100
        torch.testing.assert_close(
            gradients(head, h, functools.partial(run, y=y)), gradients(head, h, functools.partial(loss, y=y))
        )


@every_head
@pytest.mark.parametrize("target_kind", ["class", "node"])
def test_the_compiled_loss_with_all_options_equals_the_eager_one(kind, target_kind):
    head, y = with_priors(make(kind)), targets(target_kind, 5)
    y[2] = 1
    options = {"reduction": "none", "ignore_index": 1, "weight": WEIGHT, "target_kind": target_kind}
    if kind is am.HierarchicalSoftmax:
        options |= OPTIONS

    def loss(h):
        return head.loss(h, y, **options)

    torch.testing.assert_close(gradients(head, features(5), compiled(loss)), gradients(head, features(5), loss))


@every_head
def test_compiled_predictions_equal_eager_ones(kind):
    head, h = make(kind), features(9)

    def predict(h):
        return head.predict(h), head.topk(h, 3)

    torch.testing.assert_close(compiled(predict)(h), predict(h))


def test_compiled_decoders_equal_eager_ones():
    head, h = make(am.HierarchicalSoftmax), features(9)

    def decode(h):
        logp = head.node_log_probs(h)
        return am.decode.leaf(logp, TREE), am.decode.greedy(logp, TREE), am.decode.threshold(logp, TREE, 0.5)

    torch.testing.assert_close(compiled(decode)(h), decode(h))


@every_head
@pytest.mark.parametrize("target_kind", ["class", "node"])
def test_batches_of_all_sizes_share_one_graph(kind, target_kind):
    head, graphs = make(kind), []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def run(h, y):
        return head(h), head.node_log_probs(h), head.loss(h, y, target_kind=target_kind)

    graph = compiled(run, backend, dynamic=True)
    for batch in (3, 5, 8):  # 3 and 8 are also sizes of the tree
        h, y = features(batch), targets(target_kind, batch)
        torch.testing.assert_close(graph(h, y), run(h, y))
    assert len(graphs) == 1


@every_head
def test_one_function_compiles_for_one_taxonomy_after_another(kind):
    def run(head, h, y):
        return head(h), head.node_log_probs(h), head.loss(h, y), head.topk(h, 2)

    graph = compiled(run, "eager")
    for nested in ({"a": ["b", "c"], "d": ["e"]}, ["f", "g", "h", "i"], {"j": ["k", "l"], "m": {"n": ["o", "p"]}}):
        tax = am.Taxonomy.from_nested(nested)
        arguments = make(kind, tax), features(3), targets("class", 3, tax=tax)
        torch.testing.assert_close(graph(*arguments), run(*arguments))


def test_the_functions_take_the_taxonomy_as_an_argument():
    tax = fresh_tree()
    logits, leaf_logits = features(3, width=N - 1), features(3, width=C)
    y = targets("class", 3)
    for function, arguments in (
        (AF.node_log_probs, (logits, tax)),
        (AF.leaf_log_probs, (logits, tax)),
        (AF.sibling_log_softmax, (logits, tax)),
        (AF.shared_leaf_logits, (logits, tax)),
        (AF.flat_node_log_probs, (leaf_logits, tax)),
        (AF.hierarchical_cross_entropy, (logits, y, tax)),
        (AF.flat_cross_entropy, (leaf_logits, y, tax)),
        (partial(AF.flat_cross_entropy, path_weight=0.6), (leaf_logits, y, tax)),
        (partial(AF.flat_cross_entropy, path_weight=(0.2, 0.3)), (leaf_logits, y, tax)),
    ):
        torch.testing.assert_close(compiled(function)(*arguments), function(*arguments))


def index_tensors(tax):
    def walk(value):
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            for part in value:
                yield from walk(part)
        elif hasattr(value, "__dataclass_fields__"):
            yield from walk([getattr(value, name) for name in value.__dataclass_fields__])

    index = tax.scratch["tree_index", torch.device("cpu")]
    assert isinstance(index, TreeIndex)
    return list(walk(index))


@every_head
@pytest.mark.parametrize("method", ["node_log_probs", "loss"])
def test_compiled_code_may_be_the_first_use_of_a_taxonomy(kind, method):
    tax = fresh_tree()
    head, known, h, y = make(kind, tax), make(kind), features(3), targets("node", 3)

    def run(head, h):
        return head.loss(h, y, target_kind="node") if method == "loss" else head.node_log_probs(h)

    torch.testing.assert_close(compiled(run)(head, h), run(known, h))
    assert {type(tensor) for tensor in index_tensors(tax)} == {torch.Tensor}
    torch.testing.assert_close(gradients(head, h, lambda h: run(head, h)), gradients(known, h, lambda h: run(known, h)))


@every_head
@pytest.mark.parametrize("target_kind", ["class", "node"])
@pytest.mark.parametrize("wrong", [-1, N])
def test_an_invalid_target_raises_in_compiled_code(kind, target_kind, wrong):
    head = make(kind)
    run = compiled(lambda h, y: head.loss(h, y, target_kind=target_kind))
    assert run(features(2), torch.tensor([0, 1])).isfinite()
    with pytest.raises(RuntimeError, match=f"a target is not a {target_kind} id below"):
        run(features(2), torch.tensor([0, wrong]))


@pytest.mark.parametrize("name", ["weight", "node_weights"])
def test_a_nan_in_a_weight_vector_raises_in_compiled_code(name):
    head, y = make(am.HierarchicalSoftmax), targets("class", 2)
    run = compiled(lambda h, values: head.loss(h, y, **{name: values}))
    values = torch.ones(C if name == "weight" else N, dtype=torch.float64)
    assert run(features(2), values).isfinite()
    values[3] = torch.nan
    with pytest.raises(RuntimeError, match=f"{name} contains a value that is negative or not finite"):
        run(features(2), values)


@every_head
def test_a_large_tree_compiles(kind):
    tax = large_tree()
    assert tree_index(tax, torch.device("cpu")).node_table is None
    head, h, y = make(kind, tax), features(3), targets("class", 3, tax=tax)
    torch.testing.assert_close(compiled(head)(h), head(h))
    for target_kind, target in (("class", y), ("node", targets("node", 3, tax=tax))):

        def loss(h, target=target, target_kind=target_kind):
            return head.loss(h, target, target_kind=target_kind)

        torch.testing.assert_close(gradients(head, h, compiled(loss)), gradients(head, h, loss))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # raised by the imports of inductor
@pytest.mark.skipif(shutil.which("g++") is None, reason="the default backend needs a C++ compiler")
def test_the_default_backend_computes_the_eager_loss_and_gradients():
    head, y = make(am.HierarchicalSoftmax), targets("node", 5)

    def loss(h):
        return head.loss(h, y, target_kind="node")

    torch.testing.assert_close(
        gradients(head, features(5), compiled(loss, "inductor")), gradients(head, features(5), loss)
    )
