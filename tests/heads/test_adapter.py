"""Residual adapters for each level of the hierarchical head."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from many_heads import TREE, C, D, N, features, large_tree, make, targets

import arbormax as am
from arbormax import functional as AF
from arbormax.errors import InputError, OptionError
from strategies import taxonomies

OPTIONS = [
    {},
    {"label_smoothing": 0.1, "gamma": 1.5},
    {"tau": 0.7},
    {"node_weights": "random", "weight": "random", "reduction": "none"},
]


def with_adapter(tax=TREE, width=3, **options):
    head = make(am.HierarchicalSoftmax, tax, adapter=width, **options)
    head.set_priors(torch.arange(1, tax.num_leaves + 1))
    return head


def naive_logits(head, h):
    """Every row with the features of its own level, one node at a time."""
    tax, parts = head.taxonomy, head.adapters
    columns = []
    for node in range(1, tax.num_nodes):
        level = int(tax.node_depth[node]) - 1
        hidden = F.gelu(h @ parts.down[level].T + parts.shift[level])
        bias = 0.0 if head.bias is None else head.bias[node - 1]
        columns.append((h + hidden @ parts.up[level].T) @ head.weight[node - 1] + bias)
    return torch.stack(columns, -1)


def filled(options, tax):
    sizes = {"node_weights": tax.num_nodes, "weight": tax.num_leaves}
    generator = torch.Generator().manual_seed(5)
    return {
        name: torch.rand(sizes[name], generator=generator, dtype=torch.float64) if value == "random" else value
        for name, value in options.items()
    }


def test_a_new_head_with_adapters_equals_one_without():
    torch.manual_seed(0)
    plain = am.HierarchicalSoftmax(D, TREE)
    torch.manual_seed(0)
    head = am.HierarchicalSoftmax(D, TREE, adapter=4)
    h = features(5, dtype=torch.float32)
    assert torch.equal(plain.weight, head.weight)
    torch.testing.assert_close(head.node_log_probs(h), plain.node_log_probs(h))
    assert "adapter=4" in repr(head)
    assert sum(p.numel() for p in head.adapters.parameters()) == TREE.depth * (2 * D * 4 + 4)


@given(taxonomies(), st.integers(0, 2**16), st.booleans())
def test_the_rows_of_a_level_meet_the_features_of_that_level(tax, seed, bias):
    head, h = with_adapter(tax, seed=seed, bias=bias), features(2, 3, seed=seed)
    logits = naive_logits(head, h)
    torch.testing.assert_close(head.node_log_probs(h), AF.node_log_probs(logits, tax))
    torch.testing.assert_close(head(h), AF.leaf_log_probs(logits, tax))
    nodes = targets("node", 2, 3, tax=tax, seed=seed)
    torch.testing.assert_close(
        head.loss(h, nodes, target_kind="node"), AF.hierarchical_cross_entropy(logits, nodes, tax, target_kind="node")
    )


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_the_loss_by_paths_equals_the_dense_loss_with_its_gradients(options):
    options = filled(options, TREE)
    dense, by_paths = with_adapter(), with_adapter(sparse=True)
    h, y = features(7), targets("node", 7)
    y[2] = -100
    found, expected = (head.loss(h, y, target_kind="node", **options).sum() for head in (by_paths, dense))
    torch.testing.assert_close(found, expected)
    found.backward()
    expected.backward()
    for (name, left), right in zip(by_paths.named_parameters(), dense.parameters(), strict=True):
        assert left.grad.is_sparse == (name in ("weight", "bias"))
        torch.testing.assert_close(left.grad.to_dense() if left.grad.is_sparse else left.grad, right.grad)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_on_a_large_tree_the_loss_uses_paths(options, monkeypatch):
    tax = large_tree()
    head, h, y = with_adapter(tax), features(5), targets("class", 5, tax=tax)
    options = filled(options, tax)
    logits = head._logits(h)
    given = {name: value for name, value in options.items() if name != "tau"}
    if "tau" in options:
        given |= {"tau": options["tau"], "log_priors": head.log_priors}
    expected = AF.hierarchical_cross_entropy(logits, y, tax, **given)
    monkeypatch.setattr(type(head), "_logits", None)  # the path-only loss never builds all logits
    torch.testing.assert_close(head.loss(h, y, **options), expected)


def test_gradients_pass_gradcheck():
    head, y = with_adapter(), targets("class", 4)
    h = features(4).requires_grad_()
    names = [name for name, _ in head.named_parameters()]

    def loss(h, *values):
        return torch.func.functional_call(head, dict(zip(names, values, strict=True)), (h,)).gather(1, y[:, None])

    assert torch.autograd.gradcheck(loss, (h, *head.parameters()))


def test_the_search_on_a_large_tree_finds_what_scoring_all_nodes_finds():
    tax = large_tree()
    head, h = with_adapter(tax), features(40)
    assert head.searches
    logp, nodes = head(h), head.node_log_probs(h)
    for k in (1, 5):
        best, classes = head.topk(h, k)
        torch.testing.assert_close(best, logp.topk(k).values)
        assert torch.equal(classes, logp.topk(k).indices)
    assert torch.equal(head.predict(h), logp.argmax(1))
    for tau in (0.3, 0.5, 0.9):
        assert torch.equal(head.predict_nodes(h, tau), am.decode.threshold(nodes, tax, tau))
    leaves = torch.tensor(tax.leaves)[head.predict(h)]
    torch.testing.assert_close(head.path_log_probs(h, leaves)[:, -1], logp.amax(1))


def test_the_search_shares_its_order_between_levels():
    """Nodes of different levels compete in one round: a leaf of depth one beside deep branches."""
    parents = [-1, *[0] * 300, *(1 + node // 30 for node in range(9000))]
    tax = am.Taxonomy.from_parents(parents)
    head, h = with_adapter(tax), features(30)
    assert head.searches
    assert torch.equal(head.topk(h, 20)[1], head(h).topk(20).indices)


def test_a_state_dict_is_loaded_and_needs_the_same_width():
    head, other = with_adapter(), am.HierarchicalSoftmax(D, TREE, adapter=3, dtype=torch.float64)
    other.load_state_dict(head.state_dict())
    torch.testing.assert_close(other(features(2)), head(features(2)))
    with pytest.raises(RuntimeError, match=r"adapters\.down"):
        am.HierarchicalSoftmax(D, TREE, adapter=4).load_state_dict(head.state_dict())
    with pytest.raises(RuntimeError, match=r"Unexpected key.*adapters"):
        am.HierarchicalSoftmax(D, TREE).load_state_dict(head.state_dict())


def test_reset_parameters_makes_adapters_the_identity_again():
    head = with_adapter()
    head.reset_parameters()
    torch.testing.assert_close(head.adapters(features(2)), features(2).unsqueeze(1).expand(2, TREE.depth, D))


def test_a_head_with_adapters_compiles_and_exports():
    torch._dynamo.reset()
    head, h, y = with_adapter(), features(3), targets("class", 3)
    compiled = torch.compile(head.loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(h, y), head.loss(h, y))
    exported = torch.export.export(head, (h,)).module()
    torch.testing.assert_close(exported(h), head(h))
    torch._dynamo.reset()


def test_low_precision_gives_float32_log_probabilities():
    head = with_adapter(dtype=torch.bfloat16)
    assert head(features(2, dtype=torch.bfloat16)).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        single = with_adapter(dtype=torch.float32)
        assert single.loss(features(2, dtype=torch.float32), targets("class", 2)).dtype == torch.float32


def test_edits_keep_the_rows_and_the_adapters_of_their_levels():
    head, h = with_adapter(), features(4)
    edited = am.edit(head).add("new", under="a").remove("z").rename("x", "ex").done()
    new = edited.head
    assert new.adapter == 3
    assert torch.equal(new.adapters.up, head.adapters.up)
    before, after = head.node_log_probs(h), new.node_log_probs(h)
    c, parent = TREE.find("b/c"), new.taxonomy.find("b/c")
    for name in ("u", "v", "w"):  # probabilities within an unchanged group
        old_step = before[:, TREE.find(name)] - before[:, c]
        torch.testing.assert_close(after[:, new.taxonomy.find(name)] - after[:, parent], old_step)


def test_a_split_adds_a_level_whose_adapter_is_the_identity():
    head, h = with_adapter(), features(4)
    edited = am.edit(head).split("u", ["u1", "u2"]).done()
    new = edited.head
    assert new.adapters.up.shape[0] == TREE.depth + 1
    assert new.adapters.up[-1].count_nonzero() == 0
    after = new.node_log_probs(h)
    torch.testing.assert_close(after[:, new.taxonomy.find("u")], head.node_log_probs(h)[:, TREE.find("u")])
    expected = after[:, new.taxonomy.find("u")] - math.log(2)
    torch.testing.assert_close(after[:, new.taxonomy.find("u1")], expected)


def test_edits_that_move_rows_to_another_level_are_refused():
    with pytest.raises(InputError, match=r"these edits change the level of .*u.*adapters of this head differ by level"):
        am.edit(with_adapter()).move("b", under="a").done()


def test_a_point_for_new_rows_is_refused():
    with pytest.raises(InputError, match="at: a head with adapters has no single point"):
        am.edit(with_adapter()).add("new", under="a").done(at=torch.zeros(D))


def test_the_last_layer_is_replaced_by_a_head_with_adapters():
    layer = torch.nn.Linear(D, C)
    head = am.replace_head(layer, TREE, adapter=5)
    assert head.adapter == 5
    assert torch.equal(head.weight[torch.from_numpy(TREE.leaves - 1)], layer.weight)
    with pytest.raises(OptionError, match="adapter: FlatSoftmax does not take this argument"):
        am.replace_head(torch.nn.Linear(D, C), TREE, "flat", adapter=5)


@pytest.mark.parametrize("width", [-1, 2.5, True, "wide", None])
def test_a_wrong_width_is_rejected(width):
    with pytest.raises(OptionError, match="adapter: expected a width of at least 0, found"):
        am.HierarchicalSoftmax(D, TREE, adapter=width)


def test_triton_sparse_weights_and_sparse_features_are_refused():
    with pytest.raises(OptionError, match="impl: the Triton kernels do not support adapters; try impl='auto'"):
        am.HierarchicalSoftmax(D, TREE, adapter=2, impl="triton")
    with pytest.raises(OptionError, match="adapter: adapters need a dense weight"):
        am.HierarchicalSoftmax(D, TREE, adapter=2, sparse_weight=True)
    with pytest.raises(OptionError, match="adapter: adapters need dense features, found a sparse tensor"):
        with_adapter()(features(2).to_sparse())
    assert with_adapter().node_log_probs(features(2)).shape == (2, N)
