"""torch.export: one graph for any batch, and no traced tensors in the cache of the taxonomy."""

import io

import pytest
import torch
from many_heads import HEADS, D, features, fresh_tree, make, targets
from torch import nn

every_head = pytest.mark.parametrize("kind", HEADS)
strictly = pytest.mark.parametrize("strict", [False, True], ids=["not strict", "strict"])


class Model(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.body, self.head = nn.Linear(D, D).double(), head

    def forward(self, x):
        h = self.body(x)
        return self.head(h), self.head.node_log_probs(h), self.head.predict(h)


class Loss(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, h, y):
        return self.head.loss(h, y), self.head.loss(h, y, "none", target_kind="node")


def exported(model, arguments, strict):
    batch = torch.export.Dim("batch", min=1, max=1024)
    return torch.export.export(model, arguments, dynamic_shapes=[{0: batch}] * len(arguments), strict=strict)


@every_head
@strictly
def test_an_exported_model_equals_the_eager_one_for_any_batch(kind, strict):
    model = Model(make(kind, fresh_tree()))
    program = exported(model, (features(4),), strict).module()
    for batch in (1, 4, 9):
        torch.testing.assert_close(program(features(batch)), model(features(batch)))


@pytest.mark.parametrize("kind", HEADS[1:])
def test_an_export_leaves_the_taxonomy_usable(kind):
    check_that_an_export_leaves_the_taxonomy_usable(kind, strict=False)


@strictly
def test_an_export_of_the_hierarchical_head_leaves_the_taxonomy_usable(strict):
    check_that_an_export_leaves_the_taxonomy_usable(HEADS[0], strict)


def check_that_an_export_leaves_the_taxonomy_usable(kind, strict):
    tax = fresh_tree()
    exported(Model(make(kind, tax)), (features(4),), strict)
    head, known, h, y = make(kind, tax), make(kind), features(3), targets("class", 3)
    head.loss(h, y).backward()
    known.loss(h, y).backward()
    torch.testing.assert_close(head.weight.grad, known.weight.grad)
    torch.testing.assert_close(head(h), known(h))


@every_head
@strictly
def test_the_exported_loss_rejects_an_invalid_target(kind, strict):
    model, y = Loss(make(kind, fresh_tree())), targets("class", 4)
    program = exported(model, (features(4), y), strict).module()
    for batch in (2, 6):
        arguments = features(batch), targets("class", batch)
        torch.testing.assert_close(program(*arguments), model(*arguments))
    with pytest.raises(RuntimeError, match="a target is not a class id"):
        program(features(2), torch.tensor([0, -1]))


@every_head
def test_an_exported_model_can_be_saved_and_loaded(kind):
    model, file = Model(make(kind, fresh_tree())), io.BytesIO()
    torch.export.save(exported(model, (features(4),), strict=False), file)
    file.seek(0)
    program = torch.export.load(file).module()
    torch.testing.assert_close(program(features(7)), model(features(7)))
