"""Features that are not finite give an error or class -1, never a class."""

import pytest
import torch
from many_heads import HEADS, TREE, D, features, large_tree, make, targets

import arbormax as am

every_head = pytest.mark.parametrize("kind", HEADS)
both_trees = pytest.mark.parametrize("tax", [TREE, large_tree()], ids=["small", "large"])
bad_values = pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
CALLS = [lambda head, h: head.predict(h), lambda head, h: head.topk(h, 2), lambda head, h: head.predict_nodes(h)]


@every_head
@both_trees
@bad_values
@pytest.mark.parametrize("call", CALLS, ids=["predict", "topk", "predict_nodes"])
def test_eager_code_raises_and_names_the_item(kind, tax, value, call):
    head, h = make(kind, tax), features(5)
    h[3, 2] = value
    with pytest.raises(am.errors.InputError, match="a value that is not finite in item 3; a prediction needs finite"):
        call(head, h)
    with pytest.raises(am.errors.InputError, match="a value that is not finite; a prediction needs finite"):
        call(head, h[3])
    for sparse in (h.to_sparse(), h.to_sparse_csr()):
        with pytest.raises(am.errors.InputError, match="a value that is not finite"):
            call(head, sparse)


@every_head
@both_trees
@bad_values
@pytest.mark.parametrize("how", ["compile", "vmap"])
def test_compiled_and_transformed_code_marks_the_item(kind, tax, value, how):
    head, h = make(kind, tax), features(5)
    expected = head.predict(h), *head.topk(h, 2), head.predict_nodes(h)
    h[3, 2] = value

    def every(h):
        return head.predict(h), *head.topk(h, 2), head.predict_nodes(h)

    run = torch.func.vmap(every) if how == "vmap" else torch.compile(every, fullgraph=True, backend="eager")
    found = run(h)
    others = torch.tensor([0, 1, 2, 4])
    for part, correct in zip(found, expected, strict=True):
        torch.testing.assert_close(part[others], correct[others])
    assert [part[3].tolist() for part in (found[0], found[2], found[3])] == [-1, [-1, -1], -1]
    assert found[1][3].isnan().all()


@every_head
@both_trees
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_the_loss_is_not_finite(kind, tax, value):
    head, h = make(kind, tax), features(5)
    h[3, :] = value
    target = targets("class", 5, tax=tax)
    each = head.loss(h, target, reduction="none")
    assert not each[3].isfinite()
    assert each[[0, 1, 2, 4]].isfinite().all()
    assert not head.loss(h, target).isfinite()


def test_the_largest_finite_features_are_accepted():
    for kind in HEADS:
        head = make(kind, TREE, dtype=torch.float32)
        head.predict(torch.full((2, D), 1e30))
