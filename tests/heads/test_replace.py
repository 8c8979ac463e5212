"""Replacing the last layer of a network."""

import pytest
import torch
import torch.nn.functional as F
from many_heads import TREE, C, D, features, targets
from torch import nn

import arbormax as am
from arbormax.errors import InputError, OptionError

LEAF_ROWS = torch.from_numpy(TREE.leaves - 1)
INNER_ROWS = torch.tensor([row for row in range(TREE.num_nodes - 1) if row not in LEAF_ROWS.tolist()])
KINDS = {"hierarchical": am.HierarchicalSoftmax, "flat": am.FlatSoftmax, "shared": am.SharedSoftmax}
every_kind = pytest.mark.parametrize("kind", KINDS)


class LstmClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 5)
        self.lstm = nn.LSTM(5, D, batch_first=True)
        self.fc = nn.Linear(D, C)

    def forward(self, tokens):
        return self.fc(self.lstm(self.embed(tokens))[0][:, -1])


class Branches(nn.Module):
    """A module whose layers are registered in another order than they run."""

    def __init__(self, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)


def test_the_last_layer_of_a_sequential_is_replaced():
    model = nn.Sequential(nn.Linear(D, C), nn.ReLU(), nn.Linear(C, C))
    first = model[0]
    assert am.replace_head(model, TREE) is model
    assert model[0] is first
    assert isinstance(model[2], am.HierarchicalSoftmax)
    assert model(features(3, dtype=torch.float32)).shape == (3, C)


def test_the_last_layer_of_a_nested_sequential_is_replaced():
    model = nn.Sequential(nn.Sequential(nn.Linear(D, D), nn.Sequential(nn.Tanh(), nn.Linear(D, C))), nn.Identity())
    am.replace_head(model, TREE)
    assert isinstance(model[0][1][1], am.HierarchicalSoftmax)


def test_the_classifier_of_an_lstm_is_replaced():
    model = am.replace_head(LstmClassifier(), TREE)
    assert isinstance(model.fc, am.HierarchicalSoftmax)
    logp = model(torch.randint(30, (4, 7)))
    torch.testing.assert_close(logp.exp().sum(-1), torch.ones(4))


def test_for_a_bare_linear_layer_the_head_is_returned():
    linear = nn.Linear(D, C)
    head = am.replace_head(linear, TREE)
    assert isinstance(head, am.HierarchicalSoftmax)
    assert torch.equal(head.weight[LEAF_ROWS], linear.weight)


@pytest.mark.parametrize("depth", ["same module", "two modules"])
def test_a_layer_that_occurs_twice_is_replaced_in_both_places(depth):
    shared = nn.Linear(D, C)
    holder = Branches(first=shared, second=shared) if depth == "same module" else None
    model = holder or Branches(left=nn.Sequential(shared), right=nn.Sequential(nn.ReLU(), shared))
    am.replace_head(model, TREE)
    heads = [module for module in model.modules() if isinstance(module, am.HierarchicalSoftmax)]
    assert len(heads) == 1
    assert not [module for module in model.modules() if isinstance(module, nn.Linear)]


@every_kind
def test_the_head_argument_selects_the_class(kind):
    assert type(am.replace_head(nn.Linear(D, C), TREE, kind)) is KINDS[kind]
    assert type(am.replace_head(nn.Linear(D, C), TREE, head=kind)) is KINDS[kind]


@pytest.mark.parametrize("kind", ["hierarchical", "shared"])
def test_the_rows_of_the_old_layer_become_those_of_the_leaves_in_class_order(kind):
    linear = nn.Linear(D, C)
    head = am.replace_head(linear, TREE, kind)
    for c, leaf in enumerate(TREE.leaves):
        assert torch.equal(head.weight[leaf - 1], linear.weight[c])
        assert head.bias[leaf - 1] == linear.bias[c]
    assert head.weight[INNER_ROWS].count_nonzero() == head.bias[INNER_ROWS].count_nonzero() == 0


@pytest.mark.parametrize("kind", ["flat", "shared"])
def test_a_head_with_one_softmax_keeps_the_outputs_of_the_old_layer(kind):
    linear, h = nn.Linear(D, C), features(5, dtype=torch.float32)
    head = am.replace_head(linear, TREE, kind)
    torch.testing.assert_close(head(h).exp(), linear(h).softmax(-1))


@every_kind
def test_keep_rows_false_discards_the_old_rows(kind):
    linear = nn.Linear(D, C)
    nn.init.constant_(linear.weight, 3.0)
    head = am.replace_head(linear, TREE, kind, keep_rows=False)
    assert head.weight.abs().max() <= 0.1


def test_the_old_layer_keeps_its_own_values():
    linear = nn.Linear(D, C)
    before = linear.weight.clone()
    head = am.replace_head(linear, TREE, "flat")
    with torch.no_grad():
        head.weight.zero_()
    assert torch.equal(linear.weight, before)


@every_kind
def test_options_reach_the_head(kind):
    head = am.replace_head(nn.Linear(D, C), TREE, kind, init="paper", keep_rows=False)
    assert head.init == "paper"
    assert 0 < head.weight.abs().max() <= 0.1


def test_init_applies_to_inner_rows_and_leaves_keep_the_old_rows():
    linear = nn.Linear(D, C)
    head = am.replace_head(linear, TREE, init="paper")
    assert torch.equal(head.weight[LEAF_ROWS], linear.weight)
    assert head.weight[INNER_ROWS].count_nonzero() > 0


@every_kind
def test_a_layer_without_bias_is_replaced_by_a_head_without_bias(kind):
    head = am.replace_head(nn.Linear(D, C, bias=False), TREE, kind)
    assert head.bias is None
    assert head(features(2, dtype=torch.float32)).shape == (2, C)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_precision_is_kept(kind, dtype):
    head = am.replace_head(nn.Linear(D, C, dtype=dtype), TREE, kind)
    assert head.weight.dtype == head.bias.dtype == dtype


@every_kind
def test_the_device_is_kept(kind):
    head = am.replace_head(nn.Linear(D, C, device="meta"), TREE, kind)
    assert {tensor.device.type for tensor in head.state_dict().values()} == {"meta"}


@pytest.mark.parametrize("training", [True, False])
def test_the_training_mode_is_kept(training):
    model = am.replace_head(nn.Sequential(nn.Linear(D, D), nn.Linear(D, C)).train(training), TREE)
    assert model[1].training is training


def test_name_chooses_the_layer():
    model = Branches(main=nn.Linear(D, C), aux=nn.Linear(D, C))
    aux = model.aux
    am.replace_head(model, TREE, name="main")
    assert isinstance(model.main, am.HierarchicalSoftmax)
    assert model.aux is aux


def test_name_may_be_a_path_to_a_nested_module():
    model = Branches(body=nn.Sequential(nn.Linear(D, C), nn.ReLU()), aux=nn.Linear(D, 3))
    am.replace_head(model, TREE, name="body.0")
    assert isinstance(model.body[0], am.HierarchicalSoftmax)


def test_a_model_without_a_linear_layer_is_rejected():
    with pytest.raises(InputError, match=r"Sequential has no nn\.Linear to replace"):
        am.replace_head(nn.Sequential(nn.Conv1d(3, 8, 1)), TREE)


def test_the_error_lists_several_candidates():
    model = Branches(main=nn.Linear(D, C), body=nn.Linear(D, 3), aux=nn.Linear(D, C))
    with pytest.raises(InputError, match=rf"2 linear layers .* {C} classes: 'main', 'aux'; .*name="):
        am.replace_head(model, TREE)
    assert isinstance(model.main, nn.Linear)


def test_a_last_layer_of_another_width_is_rejected_with_the_candidates():
    model = Branches(classifier=nn.Linear(D, C), projection=nn.Linear(D, 3))
    with pytest.raises(InputError, match=r"'projection', has 3 outputs.*'classifier' \(8 outputs\).*name='classifier'"):
        am.replace_head(model, TREE)


@pytest.mark.parametrize("name", [None, "1"])
def test_a_width_that_is_not_the_number_of_classes_is_rejected(name):
    model = nn.Sequential(nn.Linear(D, 4), nn.Linear(4, 5))
    with pytest.raises(InputError, match=f"'1' has 5 outputs, but the taxonomy has {C} classes"):
        am.replace_head(model, TREE, name=name)


def test_an_unknown_name_gets_a_did_you_mean():
    with pytest.raises(InputError, match=r"no nn\.Linear has the name 'clasifier'; did you mean 'classifier'"):
        am.replace_head(Branches(classifier=nn.Linear(D, C)), TREE, name="clasifier")


def test_an_unknown_kind_gets_a_did_you_mean():
    with pytest.raises(OptionError, match="unknown head 'hierarchic'; did you mean 'hierarchical'"):
        am.replace_head(nn.Linear(D, C), TREE, head="hierarchic")


def test_a_wrong_taxonomy_type_is_rejected():
    with pytest.raises(InputError, match=r"expected an arbormax\.Taxonomy, found list"):
        am.replace_head(nn.Linear(D, C), ["x", "y"])


def test_a_lazy_layer_is_rejected_until_it_has_a_size():
    with pytest.raises(InputError, match="'0' is lazy"):
        am.replace_head(nn.Sequential(nn.LazyLinear(C)), TREE)


def test_the_output_projection_of_attention_is_never_replaced():
    attention = nn.MultiheadAttention(C, 2)
    projection = attention.out_proj
    model = Branches(classifier=nn.Linear(C, C), attention=attention)
    am.replace_head(model, TREE)
    assert attention.out_proj is projection
    assert isinstance(model.classifier, am.HierarchicalSoftmax)
    with pytest.raises(InputError, match=r"no nn\.Linear to replace"):
        am.replace_head(nn.MultiheadAttention(C, 2), TREE)


@every_kind
def test_existing_training_code_works_unchanged(kind):
    torch.manual_seed(0)
    model = am.replace_head(nn.Sequential(nn.Linear(D, 16), nn.ReLU(), nn.Linear(16, C)), TREE, kind)
    x, y = features(40, dtype=torch.float32), targets("class", 40)
    criterion, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=0.05)
    start = criterion(model(x), y).item()
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert criterion(model(x), y).item() < 0.3 * start


def test_an_unknown_option_gets_a_did_you_mean():
    with pytest.raises(OptionError, match="no option 'keep_row'; did you mean 'keep_rows'"):
        am.replace_head(nn.Linear(D, C), TREE, keep_row=False)


def test_the_error_says_that_the_model_already_has_a_head():
    model = am.replace_head(nn.Sequential(nn.Linear(D, C)), TREE)
    with pytest.raises(InputError, match="it already has a head of arbormax"):
        am.replace_head(model, TREE)


@pytest.mark.parametrize("head", ["flat", "shared", "blended"])
def test_a_head_with_one_softmax_keeps_the_predictions_of_the_layer(head):
    tax = am.Taxonomy.from_nested({"a": ["x", "y", "u"], "b": {"c": ["z"], "d": ["q", "r"]}})
    layer, h = torch.nn.Linear(8, tax.num_leaves).double(), torch.randn(5, 8, dtype=torch.float64)
    new = am.replace_head(layer, tax, head=head)
    torch.testing.assert_close(new(h), layer(h).log_softmax(1))
