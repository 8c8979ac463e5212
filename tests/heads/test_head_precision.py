"""Precision: reductions run in float32 or wider for all input types."""

import pytest
import torch
import torch.nn.functional as F
from many_heads import HEADS, C, D, features, make, targets

every_head = pytest.mark.parametrize("kind", HEADS)
halves = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


@pytest.fixture(autouse=True)
def _without_onednn(monkeypatch):
    """Disable oneDNN: on some virtual machines its AMX instructions crash in bfloat16 products."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)


@every_head
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_log_probabilities_are_float32_or_wider(kind, dtype):
    head, h = make(kind, dtype=dtype), features(3, dtype=dtype)
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    assert head(h).dtype == head.node_log_probs(h).dtype == head.topk(h, 2)[0].dtype == expected
    assert type(head(h)) is torch.Tensor
    for target_kind in ("class", "node"):
        for reduction in ("none", "mean", "sum"):
            y = targets(target_kind, 3)
            assert head.loss(h, y, reduction, target_kind=target_kind).dtype == expected


@every_head
@halves
def test_the_error_of_a_half_precision_head_is_the_rounding_of_its_logits(kind, dtype):
    head, h, y = make(kind, dtype=dtype), features(64, dtype=dtype), targets("class", 64)
    exact = make(kind)
    with torch.no_grad():
        for ours, theirs in zip(exact.parameters(), head.parameters(), strict=True):
            ours.copy_(theirs)
    expected = exact(h.double())
    # a logit of size 8 is rounded to within 8 * eps; a path has three of them, each against its siblings
    bound = 8 * 6 * torch.finfo(dtype).eps
    assert (head(h).double() - expected).abs().max() < bound
    assert (head.loss(h, y).double() - F.cross_entropy(expected, y)).abs() < bound
    torch.testing.assert_close(head(h).exp().sum(-1), torch.ones(64))


@every_head
@halves
def test_a_half_precision_head_trains(kind, dtype):
    head, h, y = make(kind, dtype=dtype), features(8, dtype=dtype).requires_grad_(), targets("class", 8)
    head.loss(h, y).backward()
    for grad in (h.grad, head.weight.grad, head.bias.grad):
        assert grad.dtype == dtype
        assert grad.isfinite().all()
        assert grad.count_nonzero() > 0


@every_head
def test_autocast_returns_float32_close_to_the_float32_result(kind):
    head, h, y = make(kind, dtype=torch.float32), features(32, dtype=torch.float32), targets("class", 32)
    exact, exact_nodes, exact_loss = head(h), head.node_log_probs(h), head.loss(h, y)
    with torch.autocast("cpu", torch.bfloat16):
        found, nodes, loss = head(h), head.node_log_probs(h), head.loss(h, y)
        node_loss = head.loss(h, torch.from_numpy(head.taxonomy.leaves.copy())[y], target_kind="node")
        outside = F.cross_entropy(head(h), y)
    assert found.dtype == nodes.dtype == loss.dtype == node_loss.dtype == outside.dtype == torch.float32
    assert not torch.equal(found, exact)  # the product did run in bfloat16
    torch.testing.assert_close(found, exact, atol=0.3, rtol=0.02)
    torch.testing.assert_close(nodes, exact_nodes, atol=0.3, rtol=0.02)
    for close in (loss, node_loss, outside):
        torch.testing.assert_close(close, exact_loss, atol=0.05, rtol=0.02)


@every_head
def test_autocast_trains_float32_weights(kind):
    head, h, y = make(kind, dtype=torch.float32), features(8, dtype=torch.float32), targets("class", 8)
    with torch.autocast("cpu", torch.bfloat16):
        loss = head.loss(h, y)
    loss.backward()
    assert head.weight.grad.dtype == torch.float32
    assert head.weight.grad.count_nonzero() > 0


@every_head
@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_huge_logits_stay_finite(kind, scale):
    head = make(kind, dtype=torch.float32, bias=False)
    h = torch.zeros(1, D)
    h[0, 0] = scale
    h.requires_grad_()
    logp = head(h)
    assert logp.isfinite().all()
    torch.testing.assert_close(logp.logsumexp(-1), torch.zeros(1), atol=5e-3, rtol=0)
    for c in range(C):
        y = torch.tensor([c])
        torch.testing.assert_close(head.loss(h, y), -logp[0, c], rtol=1e-5, atol=5e-2)
    head.loss(h, torch.tensor([0])).backward()
    assert head.weight.grad.isfinite().all()


@every_head
def test_features_of_another_precision_raise_the_error_of_torch(kind):
    with pytest.raises(RuntimeError, match="dtype"):
        make(kind, dtype=torch.float32)(features(2, dtype=torch.float64))
