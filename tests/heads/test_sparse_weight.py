"""Heads whose weight contains few values: equal to dense heads in everything that they compute."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import arbormax as am
from arbormax.errors import InputError, OptionError
from arbormax.heads import HEADS, TreeHead

TREE = am.Taxonomy.from_nested({"a": ["x", "y", "z"], "b": ["u", "v"], "c": ["w"]})
FEATURES = 20


def pair(kind: str, tax: am.Taxonomy = TREE) -> tuple[TreeHead, TreeHead]:
    """A dense head with many zeros and a sparse one with the same weight, in float64."""
    torch.manual_seed(0)
    dense = HEADS[kind](FEATURES, tax).double()
    sparse = HEADS[kind](FEATURES, tax, sparse_weight=True).double()
    with torch.no_grad():
        dense.weight *= torch.rand_like(dense.weight) < 0.3
        assert dense.bias is not None
        assert sparse.bias is not None
        sparse.bias.copy_(dense.bias.normal_())
    rows, columns = dense.weight.detach().numpy().nonzero()
    assert sparse.sparse_weight is not None
    sparse.sparse_weight.set_rows(rows, columns, dense.weight.detach().numpy()[rows, columns])
    return dense, sparse


def features(items: int = 5) -> Tensor:
    torch.manual_seed(1)
    return (torch.randn(items, FEATURES) * (torch.rand(items, FEATURES) < 0.4)).double()


@pytest.mark.parametrize("kind", HEADS.names)
@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense features", "sparse features"])
def test_equals_the_dense_head(kind: str, is_sparse: bool) -> None:
    dense, sparse = pair(kind)
    h, y = features(), torch.tensor([0, 1, 2, 3, 4])
    x = h.to_sparse_coo().coalesce() if is_sparse else h
    assert torch.allclose(sparse.node_log_probs(x), dense.node_log_probs(h))
    assert torch.equal(sparse.topk(x, 3)[1], dense.topk(h, 3)[1])
    assert torch.equal(sparse.predict_nodes(x), dense.predict_nodes(h))
    expected, found = dense.loss(h, y), sparse.loss(x, y)
    assert torch.allclose(found, expected)
    expected.backward()
    found.backward()
    assert sparse.sparse_weight is not None
    weight = sparse.sparse_weight.tensors()
    assert dense.weight.grad is not None
    assert torch.allclose(weight.values.grad, dense.weight.grad[weight.rows.long(), weight.columns])


@pytest.mark.parametrize("kind", HEADS.names)
def test_gives_features_their_gradients(kind: str) -> None:
    dense, sparse = pair(kind)
    y = torch.tensor([0, 1, 2, 3, 4])
    expected = features().requires_grad_()
    dense.loss(expected, y).backward()
    found = features().requires_grad_()
    sparse.loss(found, y).backward()
    assert expected.grad is not None
    assert found.grad is not None
    assert torch.allclose(found.grad, expected.grad)
    stored = features().to_sparse_coo().coalesce()
    values = stored.values().clone().requires_grad_()
    sparse.loss(torch.sparse_coo_tensor(stored.indices(), values, stored.shape, is_coalesced=True), y).backward()
    assert values.grad is not None
    assert torch.allclose(values.grad, expected.grad[tuple(stored.indices())])


@pytest.mark.parametrize("share", [0.0, 2.0], ids=["all features in the table", "none"])
def test_frequent_features_and_others_give_the_same(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arbormax.functional.sparse._SHARE", share)
    dense, sparse = pair("hierarchical")
    x = features().to_sparse_coo().coalesce()
    with torch.no_grad():
        assert torch.allclose(sparse.node_log_probs(x), dense.node_log_probs(features()))
        assert sparse.sparse_weight is not None
        sparse.sparse_weight.values.mul_(2)
        dense.weight.mul_(2)
        assert torch.allclose(sparse.node_log_probs(x), dense.node_log_probs(features()))


def test_takes_empty_batches_and_weights_without_values() -> None:
    _, sparse = pair("hierarchical")
    assert sparse(torch.zeros(0, FEATURES).double()).shape == (0, 6)
    empty = am.FlatSoftmax(FEATURES, TREE, sparse_weight=True)
    assert torch.allclose(empty(torch.randn(2, FEATURES)).exp(), torch.full((2, 6), 1 / 6))


def test_is_saved_and_loaded(tmp_path: Path) -> None:
    _, sparse = pair("shared")
    save_file(sparse.state_dict(), tmp_path / "head.safetensors")
    loaded = am.SharedSoftmax(FEATURES, TREE, sparse_weight=True).double()
    loaded.load_state_dict(load_file(tmp_path / "head.safetensors"))
    assert torch.equal(loaded(features()), sparse(features()))


@pytest.mark.parametrize("damage", ["row", "start", "order"])
def test_rejects_damaged_indices(damage: str) -> None:
    _, sparse = pair("flat")
    state = sparse.state_dict()
    if damage == "row":
        state["sparse_weight.rows"][0] = 99
    elif damage == "start":
        state["sparse_weight.starts"][3] = 10_000
    else:
        state["sparse_weight.rows"] = state["sparse_weight.rows"].flip(0)
    with pytest.raises(InputError, match="sparse weight"):
        am.FlatSoftmax(FEATURES, TREE, sparse_weight=True).double().load_state_dict(state)


@pytest.mark.parametrize("kind", HEADS.names)
def test_edits_equal_those_of_the_dense_head(kind: str) -> None:
    dense, sparse = (
        am.edit(head).add("new", under="a").remove("u").split("x", ["x1", "x2"]).done().head for head in pair(kind)
    )
    assert sparse is not None
    assert sparse.sparse_weight is not None
    assert torch.allclose(sparse(features()), dense(features()))


@pytest.mark.parametrize("kind", HEADS.names)
def test_moves_equal_those_of_the_dense_head(kind: str) -> None:
    # so many items of the moved class that none are imitated, which sparse and dense heads do differently
    typical = torch.zeros(1, FEATURES, dtype=torch.float64, requires_grad=True)
    ascent, head = torch.optim.SGD([typical], lr=10, maximize=True), pair(kind)[0]
    for _ in range(200):
        ascent.zero_grad()
        head(typical)[0, TREE.classes.index("z")].backward()
        ascent.step()
    many = torch.cat([features(200), 0.1 * features(200) + typical.detach()])
    assert float(head(many)[200:, TREE.classes.index("z")].detach().exp().min()) > 0.5
    dense, sparse = (am.edit(head).move("z", under="b").done(features=many).head for head in pair(kind))
    assert sparse.sparse_weight is not None
    is_exact = kind in ("flat", "shared")  # the rows of others are fitted, in float32
    assert torch.allclose(sparse(features()), dense(features()), atol=1e-8 if is_exact else 1e-3)


def test_a_move_of_a_sparse_head_takes_few_dense_features() -> None:
    dense, sparse = pair("hierarchical")
    edited = [am.edit(head).move("z", under="b").done(features=features()).head for head in (dense, sparse)]
    assert all(bool(head(features()).isfinite().all()) for head in edited)


def test_is_exported() -> None:
    _, sparse = pair("hierarchical")
    sparse.float()
    h = features().float()
    exported = torch.export.export(sparse, (h,))
    assert torch.allclose(exported.module()(h), sparse(h), atol=1e-6)


def test_refuses_sparse_gradients() -> None:
    with pytest.raises(OptionError, match="dense weight"):
        am.HierarchicalSoftmax(FEATURES, TREE, sparse=True, sparse_weight=True)
