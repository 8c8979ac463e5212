"""The heads on a GPU.

Plain functions, so that a machine without pytest can run them: PYTHONPATH=src python tests/heads/test_cuda.py
"""

import subprocess
import sys

import torch
import torch.nn.functional as F
from many_heads import HEADS, TREE, C, N, features, fresh_tree, large_tree, make, targets

import arbormax as am

if "pytest" in sys.modules:
    import pytest

    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

ODD_BATCHES = (1, 123, 507)


def pairs(tax: am.Taxonomy, dtype: torch.dtype):
    """Yield each head on the CPU and a copy on the GPU."""
    for kind in HEADS:
        head = make(kind, tax, dtype=dtype)
        yield head, make(kind, tax, dtype=dtype).cuda()


def outputs(head, h, classes, nodes) -> list[torch.Tensor]:
    """Log-probabilities, losses and gradients, detached."""
    head.zero_grad()
    h = h.clone().requires_grad_()
    logp, node_logp = head(h), head.node_log_probs(h)
    losses = [
        head.loss(h, classes),
        head.loss(h, classes, "none"),
        head.loss(h, nodes, target_kind="node"),
        F.cross_entropy(logp, classes),
    ]
    (losses[0] + losses[2]).backward()
    return [value.detach() for value in (logp, node_logp, *losses, h.grad, head.weight.grad, head.bias.grad)]


def check_agreement(tax, dtype, batch, **tolerance) -> None:
    classes, nodes = targets("class", batch, tax=tax), targets("node", batch, tax=tax)
    classes[0] = nodes[-1] = -100 if batch > 1 else 0
    h = features(batch, dtype=dtype)
    for ours, on_gpu in pairs(tax, dtype):
        found = outputs(on_gpu, h.cuda(), classes.cuda(), nodes.cuda())
        assert {value.device.type for value in found} == {"cuda"}
        for value, expected in zip(found, outputs(ours, h, classes, nodes), strict=True):
            torch.testing.assert_close(value.cpu(), expected, **tolerance)


def test_float64_agrees_with_the_cpu():
    for batch in ODD_BATCHES:
        check_agreement(TREE, torch.float64, batch)


def test_float32_agrees_with_the_cpu():
    for batch in ODD_BATCHES:
        check_agreement(TREE, torch.float32, batch, atol=1e-4, rtol=1e-4)


def test_a_large_tree_agrees_with_the_cpu():
    check_agreement(large_tree(), torch.float64, 123)


def test_the_error_in_half_precision_does_not_exceed_that_of_the_reference():
    h, classes = features(507), targets("class", 507)
    for dtype in (torch.bfloat16, torch.float16):
        for kind in HEADS:
            head = make(kind, dtype=dtype).cuda()
            exact = make(kind)
            with torch.no_grad():
                for ours, theirs in zip(exact.parameters(), head.parameters(), strict=True):
                    ours.copy_(theirs)
            small = h.to(dtype)
            expected = exact(small.double())
            # the reference: the same logits rounded to the precision, then everything in float64
            logits = F.linear(small.cuda(), head.weight, head.bias).double().cpu()
            if kind is am.HierarchicalSoftmax:
                reference = am.functional.leaf_log_probs(logits, TREE)
            elif kind is am.BlendedSoftmax:
                reference = exact.leaf_logits_from(logits).log_softmax(-1)
            else:
                logits = am.functional.shared_leaf_logits(logits, TREE) if kind is am.SharedSoftmax else logits
                reference = logits.log_softmax(-1)
            allowed = (reference - expected).abs().max() + 0.05
            found = head(small.cuda())
            assert found.dtype == torch.float32
            assert (found.double().cpu() - expected).abs().max() <= allowed
            loss = head.loss(small.cuda(), classes.cuda())
            assert loss.dtype == torch.float32
            assert (loss.double().cpu() - F.cross_entropy(expected, classes)).abs() <= allowed


def test_predictions_and_decoders_stay_on_the_device_and_agree():
    h = features(123)
    for ours, on_gpu in pairs(TREE, torch.float64):
        found, expected = on_gpu.node_log_probs(h.cuda()), ours.node_log_probs(h)
        for decode in (am.decode.leaf, am.decode.greedy, am.decode.threshold):
            nodes = decode(found, TREE)
            assert nodes.device.type == "cuda"
            assert torch.equal(nodes.cpu(), decode(expected, TREE))
        assert torch.equal(on_gpu.predict(h.cuda()).cpu(), ours.predict(h))
        for value, wanted in zip(on_gpu.topk(h.cuda(), 3), ours.topk(h, 3), strict=True):
            torch.testing.assert_close(value.cpu(), wanted)


def test_all_options_of_the_loss_agree_with_the_cpu():
    h, nodes = features(123), targets("node", 123)
    options = {
        "weight": torch.linspace(0.1, 3.0, C),
        "node_weights": torch.linspace(0.5, 2.0, N),
        "label_smoothing": 0.1,
        "gamma": 1.5,
        "tau": 0.7,
    }
    ours, on_gpu = next(pairs(TREE, torch.float64))
    for head in (ours, on_gpu):
        head.set_priors([3, 1, 4, 1, 5, 9, 2, 6])
    # weights on the CPU are moved to the device of the logits
    found = on_gpu.loss(h.cuda(), nodes.cuda(), target_kind="node", **options)
    torch.testing.assert_close(found.cpu(), ours.loss(h, nodes, target_kind="node", **options))


def test_a_head_created_on_a_device_has_all_tensors_there():
    for kind in HEADS:
        for head in (make(kind, device="cuda"), am.replace_head(torch.nn.Linear(4, C, device="cuda"), TREE)):
            assert {value.device.type for value in head.state_dict().values()} == {"cuda"}


def test_state_dicts_load_across_devices_and_reject_other_taxonomies():
    other = am.Taxonomy.from_nested([str(c) for c in range(C)])
    for kind in HEADS:
        saved, head, h = make(kind), make(kind, seed=5).cuda(), features(3)
        head.load_state_dict(saved.state_dict())
        torch.testing.assert_close(head(h.cuda()).cpu(), saved(h))
        try:
            head.load_state_dict(make(kind, other).state_dict(), strict=False)
        except am.errors.TaxonomyError:
            continue
        raise AssertionError(f"{kind.__name__} took weights of another taxonomy")


def test_autocast_returns_float32_close_to_the_float32_result():
    h, classes = features(123, dtype=torch.float32).cuda(), targets("class", 123).cuda()
    for kind in HEADS:
        for dtype in (torch.bfloat16, torch.float16):
            head = make(kind, dtype=torch.float32).cuda()
            exact, exact_loss = head(h), head.loss(h, classes)
            with torch.autocast("cuda", dtype):
                found, loss, nodes = head(h), head.loss(h, classes), head.node_log_probs(h)
                outside = F.cross_entropy(head(h), classes)
            assert found.dtype == loss.dtype == nodes.dtype == outside.dtype == torch.float32
            assert not torch.equal(found, exact)
            torch.testing.assert_close(found, exact, atol=0.3, rtol=0.02)
            for value in (loss, outside):
                torch.testing.assert_close(value, exact_loss, atol=0.05, rtol=0.02)
            loss.backward()
            assert head.weight.grad.dtype == torch.float32


def test_compiled_heads_without_graph_breaks_equal_eager_ones():
    h, classes, nodes = features(64).cuda(), targets("class", 64).cuda(), targets("node", 64).cuda()
    for kind in HEADS:
        torch._dynamo.reset()
        head, known = make(kind, fresh_tree()).cuda(), make(kind).cuda()

        def run(head, h):
            losses = head.loss(h, classes), head.loss(h, nodes, target_kind="node")
            return head(h), head.node_log_probs(h), head.predict(h), *losses

        x, y = h.clone().requires_grad_(), h.clone().requires_grad_()
        found, expected = torch.compile(run, fullgraph=True)(head, x), run(known, y)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found[-1], x), torch.autograd.grad(expected[-1], y))


WRONG = """
import sys
sys.path[:] = {path!r}
import torch
from many_heads import HEADS, features, make
head = make(HEADS[{kind}]).cuda()
h = features(2).cuda()
print(head.loss(h, torch.tensor([0, 1]).cuda(), target_kind={target_kind!r}).item())
loss = head.loss(h, torch.tensor([0, {wrong}]).cuda(), target_kind={target_kind!r})
try:
    torch.cuda.synchronize()
except Exception as error:  # torch gives a RuntimeError or a child of it
    print("refused", type(error).__name__)
"""


def test_an_invalid_target_triggers_an_assertion_on_the_device():
    cases = [(0, "class", -1), (0, "node", N), (1, "class", C), (2, "node", -1)]
    for (
        kind,
        target_kind,
        wrong,
    ) in cases:  # each in its own process, because the assertion invalidates the CUDA context
        code = WRONG.format(path=sys.path, kind=kind, target_kind=target_kind, wrong=wrong)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
        assert "refused" in done.stdout, (kind, target_kind, wrong, done.stdout, done.stderr[-2000:])


def test_features_that_are_not_finite_have_no_class():
    for tax in (TREE, large_tree()):
        for _, head in pairs(tax, torch.float32):
            h = features(5, dtype=torch.float32).cuda()
            expected = head.predict(h), *head.topk(h, 2), head.predict_nodes(h)
            h[3, 2] = torch.nan
            found = head.predict(h), *head.topk(h, 2), head.predict_nodes(h)
            others = torch.tensor([0, 1, 2, 4])
            for part, correct in zip(found, expected, strict=True):
                torch.testing.assert_close(part.cpu()[others], correct.cpu()[others])
            assert [part[3].tolist() for part in (found[0], found[2], found[3])] == [-1, [-1, -1], -1]
            assert bool(found[1][3].isnan().all())


if __name__ == "__main__":
    import time
    import traceback

    failed = 0
    for name, test in [(name, value) for name, value in globals().items() if name.startswith("test_")]:
        start = time.perf_counter()
        try:
            test()
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAIL {name}", flush=True)
        else:
            print(f"pass {name} ({time.perf_counter() - start:.1f} s)", flush=True)
    print(f"{failed} failed")
    sys.exit(failed > 0)
