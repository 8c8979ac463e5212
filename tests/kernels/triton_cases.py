"""Cases of the Triton kernels of the loss, run by test_paths_triton.py with the interpreter or on a GPU.

With the interpreter some cases are slow and not part of the usual suite. On a GPU without pytest:

    PYTHONPATH=src:tests python tests/without_pytest.py tests/kernels/{triton,precision,search}_cases.py
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from itertools import product

import pytest
import torch

import arbormax as am
from arbormax import Taxonomy
from arbormax.errors import OptionError
from arbormax.functional.path_ops import path_steps
from arbormax.functional.path_tree import path_tree
from arbormax.functional.paths import path_cross_entropy
from arbormax.kernels import backward_triton, plan_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TREES = {
    "even": Taxonomy.from_parents([-1, *(node // 4 for node in range(4 + 16 + 64))]),
    "uneven": Taxonomy.from_nested({"a": ["x", "y", {"z": ["1", "2", "3"]}], "b": ["only"], "c": ["u", "v", "w"]}),
    "wide": Taxonomy.from_parents([-1, 0, *[1] * 40, *[3] * 150, *[50] * 3]),  # an only child on top
    "bushy": Taxonomy.from_parents([-1, *[0] * 40, *(1 + child // 40 for child in range(1600))]),
    "flat": Taxonomy.from_parents([-1, *[0] * 7]),
}
IMPLS = ("triton", "torch")
BOUNDS = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
DTYPES = list(BOUNDS) if DEVICE == "cuda" else [torch.float32, torch.float16]  # the interpreter's bfloat16 dot is wrong


def cases(fast, slow):
    """Return the cases of a test, with those marked that the interpreter is too slow for."""
    marks = [] if DEVICE == "cuda" else [pytest.mark.slow]
    return [*fast, *(pytest.param(*case, marks=marks) for case in slow)]


def found(tax, impl, dtype, *, batch=37, features=20, kind="class", seed=0, bias=True, labels=None, **options):
    draw = torch.Generator().manual_seed(seed)
    batch, rows = batch if labels is None else len(labels), tax.num_nodes - 1
    parts = [torch.randn(batch, features, generator=draw), torch.randn(rows, features, generator=draw) / 2]
    parts += [torch.randn(rows, generator=draw)]
    h, weight, vector = (part.to(dtype).to(DEVICE).requires_grad_() for part in parts)
    y = torch.randint(tax.num_nodes if kind == "node" else tax.num_leaves, (batch,), generator=draw)
    y[::9] = -100
    if labels is not None:
        y = torch.tensor(labels)
    if "log_priors" in options:
        options = {**options, "log_priors": torch.randn(rows, generator=draw).to(DEVICE), "tau": 0.7}
    given = (h, weight, vector if bias else None, y.to(DEVICE), tax)
    loss = path_cross_entropy(*given, impl=impl, target_kind=kind, reduction="sum", **options)
    loss.backward()
    grads = [h.grad, weight.grad, *([vector.grad] if bias else [])]
    return [loss.detach().cpu().double(), *(grad.to_dense().cpu().double() for grad in grads)], weight.grad


def assert_close_to(first, second, bound):
    for one, other in zip(first, second, strict=True):
        assert float((one - other).norm()) <= bound * max(float(other.norm()), 1e-6)


FAST_VALUES = [
    ("even", "class", False, DTYPES[0]),
    ("uneven", "node", True, DTYPES[0]),
    ("wide", "class", True, DTYPES[1]),
    ("bushy", "node", False, DTYPES[1]),
    ("flat", "class", False, DTYPES[0]),
]
ALL_VALUES = product(TREES, ("class", "node"), (False, True), DTYPES)


@pytest.mark.parametrize(
    ("tree", "kind", "sparse", "dtype"),
    cases(FAST_VALUES, [case for case in ALL_VALUES if case not in FAST_VALUES]),
)
def test_values_and_gradients_equal_those_of_torch(tree, kind, sparse, dtype):
    tax = TREES[tree]
    ours, of_rows = found(tax, "triton", dtype, kind=kind, sparse=sparse, label_smoothing=0.1)
    theirs, reference = found(tax, "torch", dtype, kind=kind, sparse=sparse, label_smoothing=0.1)
    assert_close_to(ours, theirs, BOUNDS[dtype])
    assert of_rows.is_sparse is sparse
    if sparse:
        assert torch.equal(of_rows._indices().cpu(), reference._indices().cpu())  # sorted and unique


OPTIONS = [
    {"gamma": 2.0},
    {"log_priors": True},
    {"bias": False},
    {"features": 150, "batch": 3},
    {"batch": 1},
    {"batch": 90},
]


@pytest.mark.parametrize(
    ("options", "sparse"),
    cases(
        [(options, place % 2 == 1) for place, options in enumerate(OPTIONS)],
        [(o, i % 2 == 0) for i, o in enumerate(OPTIONS)],
    ),
)
def test_options_have_the_same_effect_as_with_torch(options, sparse):
    ours, theirs = (found(TREES["uneven"], impl, torch.float32, sparse=sparse, **options)[0] for impl in IMPLS)
    assert_close_to(ours, theirs, 2e-6)


FAST_SUMS = [
    ("class", -100, "mean", False),
    ("class", 2, "sum", True),
    ("node", 0, "mean", True),
    ("node", 7, "sum", False),
]
ALL_SUMS = [
    (kind, ignored, reduction, sparse)
    for kind, ignored in (("class", -100), ("class", 2), ("node", 0), ("node", 7))
    for reduction, sparse in product(("mean", "sum"), (False, True))
]


@pytest.mark.parametrize(
    ("kind", "ignored", "reduction", "sparse"),
    cases(FAST_SUMS, [case for case in ALL_SUMS if case not in FAST_SUMS]),
)
def test_summed_losses_equal_those_of_torch(kind, ignored, reduction, sparse):
    tax, draw = TREES["uneven"], torch.Generator().manual_seed(0)
    parts = [torch.randn(3, 5, 8, generator=draw), torch.randn(tax.num_nodes - 1, 8, generator=draw)]
    y = torch.arange(15).view(3, 5).int() % tax.num_leaves
    y[1, 2] = ignored
    ways = []
    for impl in IMPLS:
        given = [part.to(DEVICE, copy=True).requires_grad_() for part in parts]
        options = {"target_kind": kind, "ignore_index": ignored, "reduction": reduction, "sparse": sparse}
        loss = path_cross_entropy(*given, None, y.to(DEVICE), tax, impl=impl, **options)
        (loss * 3).backward()
        ways.append([loss.detach(), *(part.grad.to_dense() for part in given)])
    assert_close_to(*ways, 2e-6)
    if DEVICE == "cpu":  # a GPU splits a float32 product in three parts, so a sum that cancels has a larger error
        torch.testing.assert_close(*ways, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(  # groups of one tile, and of several
    ("batch", "sparse"), cases([(12, True), (90, False)], [(12, False), (90, True)])
)
def test_an_ignored_item_may_be_nan(batch, sparse, monkeypatch):
    monkeypatch.setattr(plan_triton, "_SEGMENT", 32)
    tax, draw = TREES["uneven"], torch.Generator().manual_seed(0)
    h, rows = (torch.randn(n, 8, generator=draw).to(DEVICE) for n in (batch, tax.num_nodes - 1))
    y = torch.arange(batch, device=DEVICE) % tax.num_leaves
    y[::3] = -100
    spoilt = h.index_fill(0, (y == -100).nonzero().squeeze(1), torch.nan)
    ways = []
    for features in (h, spoilt):
        weight = rows.clone().requires_grad_()
        loss = path_cross_entropy(features, weight, None, y, tax, impl="triton", sparse=sparse)
        loss.backward()
        ways.append([loss.detach(), weight.grad.to_dense()])
    torch.testing.assert_close(*ways, rtol=0.0, atol=0.0)


def test_a_target_may_be_a_column_or_one_number():
    tax, draw = TREES["uneven"], torch.Generator().manual_seed(0)
    h, rows = (torch.randn(n, 8, generator=draw).to(DEVICE) for n in (6, tax.num_nodes - 1))
    table = torch.randint(tax.num_leaves, (12, 2), generator=draw).to(DEVICE)
    table[1::2] = -100
    for y in (table[::2, 0], table[:6, 1], table[2, 1].expand(6)):
        ours, theirs = (path_cross_entropy(h, rows, None, y, tax, impl=impl) for impl in IMPLS)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_part_of_a_wide_group_may_be_at_minus_infinity():
    tax = Taxonomy.from_parents([-1, *[0] * 150])
    h, y = torch.randn(3, 8, device=DEVICE), torch.tensor([130, 140, 149], device=DEVICE)
    bias = torch.zeros(150, device=DEVICE)
    bias[:128] = -torch.inf
    found = []
    for impl in IMPLS:
        rows = torch.linspace(-1, 1, 150 * 8, device=DEVICE).view(150, 8).requires_grad_()
        loss = path_cross_entropy(h, rows, bias, y, tax, impl=impl)
        loss.backward()
        found.append([loss.detach(), rows.grad])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


SHARED = [("bushy", 400), ("even", 300), ("even", 513), ("wide", 1100)]
FAST_SHARED = [("even", 300, False), ("bushy", 400, True), ("wide", 1100, True)]


@pytest.mark.parametrize(
    ("tree", "shared", "sparse"),
    cases(FAST_SHARED, [case for tree in SHARED for s in (False, True) if (case := (*tree, s)) not in FAST_SHARED]),
)
def test_groups_shared_by_much_of_the_batch(tree, shared, sparse, monkeypatch):
    tax = TREES[tree]
    if DEVICE == "cpu":  # the interpreter is slow
        monkeypatch.setattr(plan_triton, "_SEGMENT", 32)
        shared = shared // 8 + shared % 2
    labels = [at * 7 % 3 + 10 for at in range(shared)] + [at % tax.num_leaves for at in range(20)]
    if tree == "bushy":  # a second group, whose first part begins close to the last part of the first group
        labels += [at % 3 + 40 for at in range(shared)]
    for dtype in DTYPES if DEVICE == "cuda" else DTYPES[:1]:
        (ours, at), (theirs, _) = (found(tax, impl, dtype, labels=labels, sparse=sparse) for impl in IMPLS)
        assert_close_to(ours, theirs, BOUNDS[dtype])
        again, _ = found(tax, "triton", dtype, labels=labels, sparse=sparse)
        assert all(torch.equal(one, other) for one, other in zip(ours, again, strict=True))
        assert at.is_sparse is sparse


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16] if DEVICE == "cuda" else [torch.float16])
def test_autocast_does_not_reduce_the_precision_of_backward(dtype):
    tax, draw = TREES["bushy"], torch.Generator().manual_seed(0)
    h, rows = (torch.randn(n, 16, generator=draw).to(dtype) for n in (40, tax.num_nodes - 1))
    y, found = torch.arange(40, device=DEVICE), []
    for other in (torch.float16, torch.bfloat16):
        for is_on in (False, True):
            weight = rows.to(DEVICE, copy=True).requires_grad_()
            with torch.autocast(DEVICE, dtype=other, enabled=is_on):
                path_cross_entropy(h.to(DEVICE), weight, None, y, tax, impl="triton").backward()
            found.append(weight.grad)
    assert all(torch.equal(one, found[0]) for one in found)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU, on which a failed assert ends the process")
@pytest.mark.parametrize("wrong", [16, -1, 2**40])
def test_an_invalid_target_is_rejected(wrong):
    lines = f"""
        import torch
        from arbormax import Taxonomy
        from arbormax.functional.paths import path_cross_entropy
        tax = Taxonomy.from_parents([-1, *(node // 4 for node in range(4 + 16))])
        h, rows = torch.randn(3, 8, device="cuda"), torch.randn(20, 8, device="cuda", requires_grad=True)
        path_cross_entropy(h, rows, None, torch.tensor([0, {wrong}, 3]).cuda(), tax, impl="triton").backward()
        torch.cuda.synchronize()
    """
    call = [sys.executable, "-c", textwrap.dedent(lines)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "a target is not an id of the tree" in done.stderr + done.stdout
    assert "assert" in done.stderr.splitlines()[-1] or "AcceleratorError" in done.stderr


def test_a_small_head_uses_the_kernels_on_request():
    tax = TREES["uneven"]
    chosen, free = (
        am.HierarchicalSoftmax(8, tax, init="torch", impl=impl, device=DEVICE) for impl in ("triton", "auto")
    )
    chosen.load_state_dict(free.state_dict())
    h, y = torch.randn(20, 8, device=DEVICE), torch.arange(20, device=DEVICE) % tax.num_leaves
    losses = [head.loss(h, y) for head in (chosen, free)]
    assert type(losses[0].grad_fn).__name__ != type(losses[1].grad_fn).__name__
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(chosen.weight.grad, free.weight.grad, rtol=1e-4, atol=1e-6)
    grads = [torch.func.grad(lambda h, head=head: head.loss(h, y))(h) for head in (chosen, free)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize(
    ("tree", "sparse", "counted"), cases([("even", True, 9), ("even", True, 1 << 13)], [("bushy", False, 9)])
)
def test_a_batch_may_have_several_blocks_of_the_plan(tree, sparse, counted, monkeypatch):
    monkeypatch.setattr(plan_triton, "_COUNTED", counted)  # items that are sorted by counting
    batch = 270
    if DEVICE == "cpu":  # the interpreter is slow
        monkeypatch.setattr(plan_triton, "_BLOCK", 32)
        batch = 40
    options = {"batch": batch, "features": 8, "sparse": sparse, "kind": "node"}
    ours, of_rows = found(TREES[tree], "triton", torch.float32, **options)
    theirs, reference = found(TREES[tree], "torch", torch.float32, **options)
    assert_close_to(ours, theirs, 4e-6)
    if sparse:
        assert torch.equal(of_rows._indices().cpu(), reference._indices().cpu())


@pytest.mark.parametrize(
    ("tree", "shared"),
    cases(
        [("even", 16), ("even", 17), ("wide", 17)],
        [*(("even", n) for n in (15, 18, 33)), *(("wide", n) for n in (15, 16, 18, 33))],
    ),
)
def test_groups_with_about_as_many_items_as_a_tile(tree, shared):
    tax = TREES[tree]
    alike = [tax.num_leaves - 1] * shared  # and others in different groups
    ours, theirs = (found(tax, impl, torch.float32, labels=[*alike, 0, 5, 9])[0] for impl in IMPLS)
    assert_close_to(ours, theirs, 2e-6)


def test_few_programs_process_all_segments_and_groups(monkeypatch):
    monkeypatch.setattr(backward_triton, "_SEGMENT_PROGRAMS", 1)
    monkeypatch.setattr(backward_triton, "_CLEAR_PROGRAMS", 1)
    several = [group * 40 + item for group in (3, 7, 8) for item in range(18)]
    for labels in (several, [5]):
        ours, theirs = (found(TREES["bushy"], impl, torch.float32, labels=labels)[0] for impl in IMPLS)
        assert_close_to(ours, theirs, 2e-6)


def test_rows_on_no_path_are_cleared():
    options = {"labels": [5, 700], "features": 120}  # groups of 4,800 numbers
    theirs = found(TREES["bushy"], "torch", torch.float32, **options)[0]
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills what is not written with NaN
    try:
        ours = found(TREES["bushy"], "triton", torch.float32, **options)[0]
    finally:
        torch.use_deterministic_algorithms(False)
    assert_close_to(ours, theirs, 2e-6)


def test_more_items_than_one_block_of_counting(monkeypatch):
    batch = 2100
    if DEVICE == "cpu":  # the interpreter is slow
        monkeypatch.setattr(plan_triton, "_COUNT_BLOCK", 16)
        batch = 50
    ours, theirs = (found(TREES["flat"], impl, torch.float32, batch=batch, features=4)[0] for impl in IMPLS)
    assert_close_to(ours, theirs, 4e-6)


@pytest.mark.parametrize("impl", IMPLS)
def test_gradients_of_both_outputs_may_have_any_strides(impl):
    tax, draw = TREES["even"], torch.Generator().manual_seed(0)
    tree = path_tree(tax, torch.device(DEVICE))
    h, rows = (torch.randn(n, 8, generator=draw).to(DEVICE) for n in (10, tax.num_nodes - 1))
    weights = torch.randn(tax.depth, 10, generator=draw).to(DEVICE).t()
    nodes = torch.tensor(tax.leaves[:10].copy(), device=DEVICE)
    grads = []
    for way in (impl, "torch"):
        given = h.clone().requires_grad_(), rows.clone().requires_grad_()
        logp, mean, *_ = path_steps(*given, None, None, nodes, tree.tensors, tree.sizes, False, way)
        (logp.sum() + (mean * weights).sum()).backward()
        grads.append([part.grad for part in given])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("impl", IMPLS)
def test_a_bias_may_be_a_column_or_one_number(impl):
    tax, draw = TREES["even"], torch.Generator().manual_seed(0)
    whole = torch.randn(tax.num_nodes - 1, 9, generator=draw).to(DEVICE)
    h, y = torch.randn(6, 8, generator=draw).to(DEVICE), torch.arange(6, device=DEVICE)
    for bias in (whole[:, 8], whole[0, :1].expand(len(whole))):
        found = path_cross_entropy(h, whole[:, :8], bias, y, tax, impl=impl)
        expected = path_cross_entropy(h, whole[:, :8].clone(), bias.clone(), y, tax, impl="torch")
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tree", ["bushy", "wide"])
def test_no_logits_are_stored(tree):
    tax, kept = TREES[tree], []
    h = torch.randn(64, 8, device=DEVICE, requires_grad=True)
    rows = torch.randn(tax.num_nodes - 1, 8, device=DEVICE, requires_grad=True)
    y = torch.arange(64, device=DEVICE) % tax.num_leaves
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        path_cross_entropy(h, rows, None, y, tax, impl="triton")
    others = [x for x in kept if x.is_floating_point() and x.data_ptr() not in (h.data_ptr(), rows.data_ptr())]
    assert others
    assert sum(x.numel() for x in others) <= 2 * 64 * tax.depth + 2  # two numbers for each step of a path, and the loss


def test_features_and_rows_may_be_of_different_types():
    tax = TREES["even"]
    h, rows = torch.randn(5, 16, device=DEVICE).half(), torch.randn(tax.num_nodes - 1, 16, device=DEVICE)
    y = torch.arange(5, device=DEVICE)
    ways = {}
    for impl in ("triton", "torch"):
        given = h.clone().requires_grad_(), rows.clone().requires_grad_()
        path_cross_entropy(*given, None, y, tax, impl=impl).backward()
        ways[impl] = [part.grad for part in given]
    for ours, theirs in zip(ways["triton"], ways["torch"], strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=1e-4)


def test_the_new_setting_of_tf32_is_read():
    tax, matmul = TREES["uneven"], torch.backends.cuda.matmul
    h, rows = torch.randn(2, 4, device=DEVICE), torch.randn(tax.num_nodes - 1, 4, device=DEVICE)
    y = torch.tensor([0, 1], device=DEVICE)
    former = getattr(matmul, "fp32_precision", None)
    if former is None:
        pytest.skip("an older torch has one name")
    matmul.fp32_precision = "tf32"
    try:
        assert torch.isfinite(path_cross_entropy(h, rows, None, y, tax, impl="triton"))
    finally:
        matmul.fp32_precision = former


def test_empty_batches_and_batches_of_ignored_items():
    tax, rows = TREES["even"], torch.randn(TREES["even"].num_nodes - 1, 16, device=DEVICE, requires_grad=True)
    for sparse in (False, True):
        for y in (torch.zeros(0, dtype=torch.int64), torch.full((3,), -100)):
            h = torch.randn(len(y), 16, device=DEVICE, requires_grad=True)
            loss = path_cross_entropy(h, rows, None, y.to(DEVICE), tax, impl="triton", sparse=sparse, reduction="sum")
            loss.backward()
            assert float(loss.detach()) == 0.0
            assert float(rows.grad.to_dense().abs().sum()) == 0.0
            rows.grad = None


def test_large_logits_stay_finite():
    tax = TREES["even"]
    h = torch.full((4, 16), 100.0, device=DEVICE)
    rows = torch.randn(tax.num_nodes - 1, 16, device=DEVICE) * 50
    y = torch.arange(4, device=DEVICE)
    ours, theirs = (path_cross_entropy(h, rows, None, y, tax, impl=impl) for impl in ("triton", "torch"))
    assert torch.isfinite(ours)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-2)


def test_two_runs_are_bitwise_equal():
    first, second = (found(TREES["wide"], "triton", torch.float32)[0] for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_unsupported_types_and_trees_are_rejected():
    tax, y = TREES["even"], torch.zeros(2, dtype=torch.int64, device=DEVICE)
    h = torch.randn(2, 16, device=DEVICE, dtype=torch.float64)
    rows = torch.randn(tax.num_nodes - 1, 16, device=DEVICE, dtype=torch.float64)
    with pytest.raises(OptionError, match="float32, bfloat16 or float16"):
        path_cross_entropy(h, rows, None, y, tax, impl="triton")
    star = Taxonomy.from_parents([-1, *[0] * 5000])
    with pytest.raises(OptionError, match="4,096 siblings"):
        path_cross_entropy(h.float(), torch.zeros(5000, 16, device=DEVICE), None, y, star, impl="triton")


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by older versions of torch itself
def test_a_head_on_a_gpu_uses_the_kernels_compiled_and_under_autocast():
    tax = Taxonomy.from_parents([-1, *(node // 33 for node in range(33 + 33**2 + 33**3))])
    head = am.HierarchicalSoftmax(64, tax, device="cuda")
    h, y = torch.randn(256, 64, device="cuda"), torch.randint(tax.num_leaves, (256,), device="cuda")
    eager = head.loss(h, y)
    eager.backward()
    expected = head.weight.grad.clone()
    reference = path_cross_entropy(h, head.weight, head.bias, y, tax, impl="torch")
    torch.testing.assert_close(eager, reference, rtol=1e-5, atol=1e-5)
    head.weight.grad = None
    compiled = torch.compile(head.loss, fullgraph=True)(h, y)
    compiled.backward()
    torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(head.weight.grad, expected, rtol=1e-4, atol=1e-6)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        half = head.loss(h.bfloat16(), y)
    torch.testing.assert_close(half, eager, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_loss_compiles_without_graph_breaks(sparse):
    tax = TREES["even"]
    h, rows = torch.randn(5, 16, device=DEVICE), torch.randn(tax.num_nodes - 1, 16, device=DEVICE)
    y = torch.arange(5, device=DEVICE)
    am.HierarchicalSoftmax(16, tax, sparse=True, device=DEVICE)  # older torch cannot make the tree's tensors in a graph

    def loss(h, rows):
        return path_cross_entropy(h, rows, None, y, tax, impl="triton", sparse=sparse)

    found = []
    for way in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        given = h.clone().requires_grad_(), rows.clone().requires_grad_()
        way(*given).backward()
        found.append([part.grad.to_dense() for part in given])
    torch.testing.assert_close(found[0], found[1])
