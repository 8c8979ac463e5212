"""The state of heads: what is saved, what is rebuilt, and which weights are accepted."""

import io

import pytest
import safetensors.torch
import torch
from many_heads import HEADS, TREE, D, features, fresh_tree, make, targets
from torch import nn

import arbormax as am
from arbormax.errors import TaxonomyError

every_head = pytest.mark.parametrize("kind", HEADS)
OTHER = am.Taxonomy.from_nested({"a": ["x", "q"], "b": ["z", {"c": ["u", "v", "w"]}], "o": ["only"], "early": []})
COUNTS = [3, 1, 4, 1, 5, 9, 2, 6]
foreign = pytest.raises(TaxonomyError, match="these weights belong to another taxonomy")


def through_torch(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def through_safetensors(state):
    return safetensors.torch.load(safetensors.torch.save(dict(state)))


class Model(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.body = nn.Linear(D, D).double()
        self.inner = nn.Sequential(nn.ReLU(), head)


@every_head
def test_the_state_contains_weights_fingerprint_and_priors_but_no_index(kind):
    head = make(kind)
    head(features(2))
    head.loss(features(2), targets("class", 2))
    own = {am.HierarchicalSoftmax: ["log_priors"], am.BlendedSoftmax: ["path_share"]}.get(kind, [])
    assert list(head.state_dict()) == ["weight", "bias", "fingerprint", *own]
    assert [name for name, _ in head.named_buffers()] == ["fingerprint", *own]


@every_head
def test_the_state_of_a_head_without_bias_has_no_bias(kind):
    assert "bias" not in make(kind, bias=False).state_dict()


@every_head
@pytest.mark.parametrize("way", [through_torch, through_safetensors])
@pytest.mark.parametrize("assign", [False, True])
def test_weights_can_be_saved_and_loaded(kind, way, assign):
    head, h = make(kind), features(3)
    twin = kind(D, fresh_tree(), dtype=torch.float64)
    assert not torch.equal(twin(h), head(h))
    twin.load_state_dict(way(head.state_dict()), assign=assign)
    assert torch.equal(twin(h), head(h))
    assert torch.equal(twin.node_log_probs(h), head.node_log_probs(h))


@pytest.mark.parametrize("way", [through_torch, through_safetensors])
def test_priors_can_be_saved_and_loaded(way):
    head, h, y = make(am.HierarchicalSoftmax), features(3), targets("class", 3)
    head.set_priors(COUNTS)
    twin = make(am.HierarchicalSoftmax, seed=5)
    twin.load_state_dict(way(head.state_dict()))
    assert torch.equal(twin.loss(h, y, tau=1.0), head.loss(h, y, tau=1.0))


@every_head
@pytest.mark.parametrize("options", [{}, {"strict": False}, {"assign": True}], ids=["strict", "not strict", "assign"])
def test_weights_of_another_taxonomy_are_rejected_and_nothing_changes(kind, options):
    head, theirs = make(kind), make(kind, OTHER, seed=9)
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    with foreign:
        head.load_state_dict(theirs.state_dict(), **options)
    after = head.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    head(features(2))


@every_head
@pytest.mark.parametrize("options", [{}, {"strict": False}, {"assign": True}], ids=["strict", "not strict", "assign"])
def test_weights_of_another_taxonomy_are_rejected_inside_a_model(kind, options):
    head = make(kind)
    before = head.weight.clone()
    with foreign:
        Model(head).load_state_dict(Model(make(kind, OTHER, seed=9)).state_dict(), **options)
    assert torch.equal(head.weight, before)


def test_the_error_contains_both_fingerprints():
    with pytest.raises(TaxonomyError) as caught:
        make(am.FlatSoftmax).load_state_dict(make(am.FlatSoftmax, OTHER).state_dict())
    assert OTHER.fingerprint[:12] in str(caught.value)
    assert TREE.fingerprint[:12] in str(caught.value)


def test_another_class_order_is_another_taxonomy():
    shuffled = am.Taxonomy.from_parents(TREE.parent, TREE.names, classes=sorted(TREE.classes))
    with foreign:
        make(am.HierarchicalSoftmax).load_state_dict(make(am.HierarchicalSoftmax, shuffled).state_dict())


def by_setattr(head, tensor):
    head.fingerprint = tensor


def by_buffers(head, tensor):
    head._buffers["fingerprint"] = tensor


@every_head
@pytest.mark.parametrize("put", [by_setattr, by_buffers])
@pytest.mark.parametrize("method", ["forward", "node_log_probs", "predict", "loss"])
def test_a_wrong_fingerprint_set_directly_is_rejected_at_the_next_call(kind, put, method):
    head, rest = make(kind), [targets("class", 2)] if method == "loss" else []
    getattr(head, method)(features(2), *rest)
    put(head, make(kind, OTHER).fingerprint)
    for _ in range(2):
        with foreign:
            getattr(head, method)(features(2), *rest)


@every_head
@pytest.mark.parametrize("move", [lambda m: m.to("cpu"), lambda m: m.double(), lambda m: m.to_empty(device="cpu")])
def test_moving_a_head_does_not_hide_a_wrong_fingerprint(kind, move):
    head = make(kind)
    by_setattr(head, make(kind, OTHER).fingerprint)
    with foreign:
        move(Model(head))


@every_head
def test_its_own_fingerprint_set_directly_is_accepted(kind):
    head = make(kind)
    by_setattr(head, make(kind, fresh_tree()).fingerprint.clone())
    assert head(features(2)).isfinite().all()


@every_head
def test_fresh_parameters_belong_to_the_heads_own_taxonomy(kind):
    head = make(kind)
    by_setattr(head, torch.zeros(32, dtype=torch.uint8))  # as a loader leaves it if the key is missing
    head.reset_parameters()
    assert head(features(2)).isfinite().all()


def on_meta(kind, way, tax):
    if way == "context":
        with torch.device("meta"):
            return kind(D, tax, dtype=torch.float64)
    return kind(D, tax, dtype=torch.float64, device="meta")


every_way = pytest.mark.parametrize("way", ["context", "argument"])


@every_head
@every_way
def test_a_head_on_meta_has_no_memory(kind, way):
    head = on_meta(kind, way, fresh_tree())
    assert {tensor.device.type for tensor in head.state_dict().values()} == {"meta"}
    h = torch.empty(2, D, dtype=torch.float64, device="meta")
    assert head(h).shape == (2, TREE.num_leaves)
    assert head.loss(h, torch.empty(2, dtype=torch.int64, device="meta")).shape == ()
    assert head.predict(h).shape == (2,)
    assert head.topk(h, 3)[1].shape == (2, 3)


@every_head
@every_way
def test_a_head_from_meta_takes_weights_by_assignment(kind, way):
    saved, h = make(kind), features(3)
    head = on_meta(kind, way, fresh_tree())
    head.load_state_dict(through_torch(saved.state_dict()), assign=True)
    assert torch.equal(head(h), saved(h))
    assert torch.equal(head.loss(h, targets("class", 3)), saved.loss(h, targets("class", 3)))


@every_head
@every_way
def test_a_head_from_meta_takes_weights_into_empty_memory(kind, way):
    saved, h = make(kind), features(3)
    head = on_meta(kind, way, fresh_tree()).to_empty(device="cpu")
    head.load_state_dict(saved.state_dict())
    assert torch.equal(head(h), saved(h))


@every_head
@every_way
@pytest.mark.parametrize("empty", [True, False])
def test_a_head_from_meta_refuses_weights_of_another_taxonomy(kind, way, empty):
    head = on_meta(kind, way, fresh_tree())
    if empty:
        head = head.to_empty(device="cpu")
    with foreign:
        head.load_state_dict(make(kind, OTHER).state_dict(), assign=not empty)


@every_head
@every_way
def test_a_head_from_meta_filled_tensor_by_tensor_works(kind, way):
    saved, h = make(kind), features(3)
    head = on_meta(kind, way, fresh_tree())
    for name, tensor in saved.state_dict().items():
        setattr(head, name, nn.Parameter(tensor) if name in ("weight", "bias") else tensor)
    assert torch.equal(head(h), saved(h))
    by_setattr(head, make(kind, OTHER).fingerprint)
    with foreign:
        head(h)


@every_head
@every_way
def test_empty_memory_has_the_right_fingerprint(kind, way):
    head = on_meta(kind, way, fresh_tree()).to_empty(device="cpu")
    assert bytes(head.fingerprint.tolist()).hex() == TREE.fingerprint


@every_head
@every_way
def test_empty_memory_is_usable_after_reset_parameters(kind, way):
    head, h = on_meta(kind, way, fresh_tree()).to_empty(device="cpu"), features(3)
    torch.manual_seed(0)
    head.reset_parameters()
    torch.manual_seed(0)
    assert torch.equal(head(h), kind(D, TREE, dtype=torch.float64)(h))
    if kind is am.HierarchicalSoftmax:
        assert head.log_priors.count_nonzero() == 0


@every_head
@pytest.mark.parametrize(
    ("change", "dtype"),
    [
        (nn.Module.half, torch.float16),
        (nn.Module.bfloat16, torch.bfloat16),
        (nn.Module.double, torch.float64),
        (lambda head: head.to(torch.float64), torch.float64),
    ],
)
def test_a_change_of_precision_changes_the_weights_but_not_the_fingerprint(kind, change, dtype):
    head = make(kind, dtype=torch.float32)
    h, expected = features(2, dtype=torch.float32), head(features(2, dtype=torch.float32))
    fingerprint = head.fingerprint.clone()
    assert change(head) is head
    assert head.weight.dtype == head.bias.dtype == dtype
    assert head.fingerprint.dtype == torch.uint8
    assert torch.equal(head.fingerprint, fingerprint)
    torch.testing.assert_close(head(h.to(dtype)).float(), expected, atol=0.3, rtol=0.02)


def test_priors_change_precision_with_the_weights():
    head = make(am.HierarchicalSoftmax, dtype=torch.float32)
    head.set_priors(COUNTS)
    expected = head.log_priors.clone()
    head.half()
    assert head.log_priors.dtype == torch.float16
    torch.testing.assert_close(head.log_priors.float(), expected, atol=1e-2, rtol=1e-2)


@every_head
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_a_fingerprint_of_another_dtype_is_an_error(kind, dtype):
    head = make(kind)
    state = {name: value.to(dtype) if name == "fingerprint" else value for name, value in head.state_dict().items()}
    with pytest.raises(TaxonomyError, match="expected a fingerprint of bytes, found torch"):
        head.load_state_dict(state)
