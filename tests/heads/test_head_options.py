"""The options of the constructor and of the loss."""

import numpy as np
import pytest
import torch
from many_heads import HEADS, TREE, C, D, N, features, make, targets

import arbormax as am
from arbormax import functional as AF
from arbormax.errors import InputError, OptionError

every_head = pytest.mark.parametrize("kind", HEADS)
over_leaves = pytest.mark.parametrize("kind", [am.FlatSoftmax, am.SharedSoftmax])
NODE_WEIGHTS = torch.linspace(0.5, 2.0, N, dtype=torch.float64)
WEIGHT = torch.linspace(0.1, 3.0, C, dtype=torch.float64)
COUNTS = [3, 1, 4, 1, 5, 9, 2, 6]


@every_head
def test_the_default_initialisation_is_paper(kind):
    torch.manual_seed(0)
    head = kind(D, TREE)
    torch.manual_seed(0)
    assert torch.equal(head.weight, kind(D, TREE, init="paper").weight)


@every_head
def test_init_zeros_sets_all_parameters_to_zero(kind):
    head = kind(D, TREE, init="zeros")
    assert head.weight.count_nonzero() == head.bias.count_nonzero() == 0


@every_head
def test_init_paper_is_uniform_with_a_bias_of_zero(kind):
    head = kind(4000, TREE, init="paper")
    assert 0.099 < head.weight.max() <= 0.1
    assert -0.1 <= head.weight.min() < -0.099
    assert head.bias.count_nonzero() == 0


@every_head
def test_init_torch_equals_that_of_a_linear_layer(kind):
    torch.manual_seed(0)
    head = kind(100, TREE, init="torch")
    torch.manual_seed(0)
    linear = torch.nn.Linear(100, head.weight.shape[0])
    torch.testing.assert_close(head.weight, linear.weight)
    torch.testing.assert_close(head.bias, linear.bias)


@every_head
def test_reset_parameters_initialises_again(kind):
    head = kind(D, TREE, init="zeros")
    torch.nn.init.ones_(head.weight)
    torch.nn.init.ones_(head.bias)
    head.reset_parameters()
    assert head.weight.count_nonzero() == head.bias.count_nonzero() == 0


@every_head
def test_a_head_without_bias_has_no_bias_parameter(kind):
    head = make(kind, bias=False)
    assert head.bias is None
    assert [name for name, _ in head.named_parameters()] == ["weight"]
    zero = torch.zeros(1, D, dtype=torch.float64)
    start = kind(D, TREE, dtype=torch.float64)
    torch.testing.assert_close(head(zero), start(zero))


@every_head
def test_a_head_has_the_size_attributes_of_a_linear_layer(kind):
    head = kind(D, TREE)
    assert (head.in_features, head.out_features) == (D, C)
    assert f"in_features={D}" in repr(head)


@every_head
def test_an_unknown_initialisation_is_rejected(kind):
    with pytest.raises(
        OptionError, match="init: expected 'zeros', 'paper' or 'torch', found 'zero'; did you mean 'zeros'"
    ):
        kind(D, TREE, init="zero")


@every_head
@pytest.mark.parametrize("bias", ["no", torch.zeros(C), 1])
def test_a_bias_must_be_true_or_false(kind, bias):
    with pytest.raises(OptionError, match="bias: expected True or False"):
        kind(D, TREE, bias=bias)


@every_head
def test_a_wrong_taxonomy_type_is_rejected(kind):
    with pytest.raises(InputError, match=r"expected an arbormax\.Taxonomy, found dict"):
        kind(D, {"a": ["x", "y"]})


@every_head
def test_a_head_without_features_is_rejected(kind):
    with pytest.raises(InputError, match="in_features: expected at least 1 feature, found 0"):
        kind(0, TREE)


@every_head
@pytest.mark.parametrize("method", ["forward", "node_log_probs", "predict", "loss"])
def test_features_of_another_width_are_rejected(kind, method):
    head = make(kind)
    rest = [targets("class", 2)] if method == "loss" else []
    with pytest.raises(
        InputError, match=rf"last dimension of {D}, the in_features of this head, found the shape \(2, {D + 1}\)"
    ):
        getattr(head, method)(features(2, width=D + 1), *rest)


@every_head
def test_integer_features_are_rejected(kind):
    with pytest.raises(InputError, match=r"floating-point values, found torch\.int64"):
        make(kind)(torch.zeros(2, D, dtype=torch.int64))


@every_head
@pytest.mark.parametrize("target_kind", ["class", "node"])
@pytest.mark.parametrize("wrong", [-1, N])
def test_a_target_out_of_range_is_rejected(kind, target_kind, wrong):
    with pytest.raises(InputError, match=f"target {wrong} at position 1 is not a {target_kind} id"):
        make(kind).loss(features(2), torch.tensor([0, wrong]), target_kind=target_kind)


@every_head
@pytest.mark.parametrize(
    ("options", "message"),
    [({"reduction": "men"}, "did you mean 'mean'"), ({"target_kind": "leaf"}, "target_kind: expected")],
)
def test_an_unknown_value_of_a_loss_option_is_rejected(kind, options, message):
    with pytest.raises(OptionError, match=message):
        make(kind).loss(features(2), targets("class", 2), **options)


@every_head
def test_an_unknown_keyword_is_a_type_error(kind):
    with pytest.raises(TypeError, match="unexpected keyword argument 'smoothing'"):
        make(kind).loss(features(2), targets("class", 2), smoothing=0.1)


@over_leaves
@pytest.mark.parametrize(
    "options",
    [{"gamma": 2.0}, {"tau": 1}, {"node_weights": NODE_WEIGHTS}],
    ids=lambda options: next(iter(options)),
)
def test_options_that_act_on_sibling_groups_need_sibling_groups(kind, options):
    with pytest.raises(
        OptionError,
        match=f"{next(iter(options))}: this option acts on sibling groups, which {kind.__name__} does not have",
    ):
        make(kind).loss(features(2), targets("class", 2), **options)


@over_leaves
@pytest.mark.parametrize("target_kind", ["class", "node"])
def test_the_path_weight_moves_a_share_of_the_loss_to_the_ancestors(kind, target_kind):
    head, h, y = make(kind), features(5), targets(target_kind, 5)
    options = {"target_kind": target_kind, "weight": WEIGHT, "label_smoothing": 0.1, "path_weight": [0.2, 0.3]}
    expected = AF.flat_cross_entropy(head.leaf_logits(h), y, TREE, **options)
    torch.testing.assert_close(head.loss(h, y, **options), expected)
    assert not torch.isclose(expected, head.loss(h, y, **{**options, "path_weight": 0.0}))


@pytest.mark.parametrize("path_weight", [0.6, [0.2, 0.3], (0.0, 0.0)])
def test_the_hierarchical_head_refuses_a_path_weight(path_weight):
    with pytest.raises(
        OptionError, match=r"path_weight: acts on sums over leaves, which .*level_weights\(tax, weights\)"
    ):
        make(am.HierarchicalSoftmax).loss(features(2), targets("class", 2), path_weight=path_weight)


@over_leaves
def test_neutral_values_of_sibling_options_are_accepted(kind):
    head, h, y = make(kind), features(3), targets("class", 3)
    neutral = {"label_smoothing": 0.0, "gamma": 0, "node_weights": None, "tau": 0.0}
    assert torch.equal(head.loss(h, y, **neutral), head.loss(h, y))


@pytest.mark.parametrize("target_kind", ["class", "node"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight": WEIGHT},
        {"label_smoothing": 0.2},
        {"gamma": 1.5},
        {"node_weights": NODE_WEIGHTS},
        {"weight": WEIGHT, "label_smoothing": 0.1, "gamma": 2.0, "node_weights": NODE_WEIGHTS},
    ],
    ids=lambda options: "+".join(options) or "none",
)
def test_every_option_reaches_the_function(target_kind, reduction, options):
    head, h = make(am.HierarchicalSoftmax), features(6)
    y = targets(target_kind, 6).index_fill(0, torch.tensor([2]), 77)
    logits = h @ head.weight.T + head.bias
    options = {**options, "reduction": reduction, "target_kind": target_kind, "ignore_index": 77}
    expected = AF.hierarchical_cross_entropy(logits, y, TREE, **options)
    torch.testing.assert_close(head.loss(h, y, **options), expected)


@over_leaves
@pytest.mark.parametrize("target_kind", ["class", "node"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_weights_and_smoothing_reach_the_flat_function(kind, target_kind, reduction):
    head, h = make(kind), features(6)
    y = targets(target_kind, 6).index_fill(0, torch.tensor([2]), 77)
    options = {"weight": WEIGHT, "reduction": reduction, "target_kind": target_kind, "ignore_index": 77}
    options["label_smoothing"] = 0.2
    expected = AF.flat_cross_entropy(head.leaf_logits(h), y, TREE, **options)
    torch.testing.assert_close(head.loss(h, y, **options), expected)


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_tau_adjusts_the_logits_by_the_stored_priors(smoothing):
    head, h, y = make(am.HierarchicalSoftmax), features(6), targets("class", 6)
    head.set_priors(COUNTS, smoothing)
    priors = AF.sibling_log_priors(COUNTS, TREE, smoothing)
    logits = h @ head.weight.T + head.bias
    expected = AF.hierarchical_cross_entropy(logits, y, TREE, log_priors=priors, tau=0.7)
    torch.testing.assert_close(head.loss(h, y, tau=0.7), expected)


def test_priors_have_no_effect_without_tau():
    head, h, y = make(am.HierarchicalSoftmax), features(6), targets("class", 6)
    before = head.loss(h, y)
    head.set_priors(COUNTS)
    assert torch.equal(head.loss(h, y), before)


def test_tau_without_priors_is_rejected():
    with pytest.raises(OptionError, match=r"call head\.set_priors"):
        make(am.HierarchicalSoftmax).loss(features(2), targets("class", 2), tau=1.0)


def test_tau_needs_no_priors_where_no_group_has_siblings():
    head = am.HierarchicalSoftmax(D, am.Taxonomy.from_nested({"a": ["only"]}), dtype=torch.float64)
    head.set_priors([5])
    assert head.loss(features(2), torch.tensor([0, 0]), tau=1.0).item() == 0.0


def test_priors_of_another_number_of_classes_are_rejected():
    with pytest.raises(InputError, match=f"each of {C} classes"):
        make(am.HierarchicalSoftmax).set_priors([1, 2, 3])


@pytest.mark.parametrize("make_counts", [list, np.array, torch.tensor, lambda counts: torch.tensor(counts).bfloat16()])
def test_priors_are_set_from_lists_arrays_and_tensors(make_counts):
    head, other = make(am.HierarchicalSoftmax), make(am.HierarchicalSoftmax)
    head.set_priors(make_counts(COUNTS))
    other.set_priors(COUNTS)
    assert torch.equal(head.log_priors, other.log_priors)


@over_leaves
def test_heads_without_sibling_groups_refuse_priors(kind):
    with pytest.raises(OptionError, match=f"{kind.__name__} has no sibling priors"):
        make(kind).set_priors(COUNTS)


@over_leaves
def test_an_unknown_argument_names_the_head_and_the_argument(kind):
    with pytest.raises(OptionError, match=f"sparse: {kind.__name__} does not take this argument"):
        kind(D, TREE, sparse=True)


def test_reset_parameters_clears_the_priors():
    head = make(am.HierarchicalSoftmax)
    head.set_priors(COUNTS)
    head.reset_parameters()
    assert head.log_priors.count_nonzero() == 0
