"""Cases of the rounding of the Triton kernels of the loss, run by test_paths_triton.py."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from triton_cases import BOUNDS, DEVICE, DTYPES, TREES, assert_close_to, cases

from arbormax.functional.path_ops import path_steps
from arbormax.functional.path_tree import path_tree
from arbormax.functional.paths import path_cross_entropy


@pytest.mark.parametrize("scale", [1e2, 3e3])
@pytest.mark.parametrize("dtype", DTYPES if DEVICE == "cuda" else [torch.float32])  # the interpreter rounds differently
def test_gradients_of_large_logits_are_as_precise_as_others(scale, dtype):
    tax, draw = TREES["even"], torch.Generator().manual_seed(0)
    h, rows = torch.randn(30, 200, generator=draw) * scale, torch.randn(tax.num_nodes - 1, 200, generator=draw) / 14
    given, y = [part.to(dtype) for part in (h, rows)], torch.arange(30, device=DEVICE)
    exact = [part.double().requires_grad_() for part in given]
    path_cross_entropy(*exact, None, y.cpu(), tax, impl="torch", reduction="sum").backward()
    ours = [part.to(DEVICE).requires_grad_() for part in given]
    path_cross_entropy(*ours, None, y, tax, impl="triton", reduction="sum").backward()
    assert_close_to([part.grad.cpu().double() for part in ours], [part.grad for part in exact], BOUNDS[dtype])


FAST_ERRORS = [(dtype, True, 256) for dtype in DTYPES]


@pytest.mark.parametrize(
    ("dtype", "bias", "features"),
    cases(FAST_ERRORS, [case for case in product(DTYPES, (True, False), (256, 768)) if case not in FAST_ERRORS]),
)
def test_the_error_does_not_exceed_that_of_the_reference(dtype, bias, features):
    tax, draw = TREES["even"], torch.Generator().manual_seed(0)
    tree, batch, rows = path_tree(tax, torch.device(DEVICE)), 4096 if DEVICE == "cuda" else 100, tax.num_nodes - 1
    parts = [torch.randn(batch, features, generator=draw), torch.randn(rows, features, generator=draw)]
    parts += [torch.randn(rows, generator=draw)]
    given = [part.to(dtype).to(DEVICE) for part in (parts[0], parts[1] * 2 / features**0.5, parts[2])]
    y = torch.tensor(tax.leaves)[torch.randint(tax.num_leaves, (batch,), generator=draw)].to(DEVICE)

    def steps(impl, operands):
        others = (operands[2] if bias else None, None, y, tree.tensors, tree.sizes, False, impl)
        return [x.double() for x in path_steps(*operands[:2], *others)[:2]]

    exact = steps("torch", [part.double() for part in given])
    for ours, theirs, true in zip(steps("triton", given), steps("torch", given), exact, strict=True):
        # the interpreter sums in another order: on a few items the errors are about as large
        assert (ours - true).norm() <= (theirs - true).norm() * (1.0 if DEVICE == "cuda" else 1.15)


# many items and features: a library would split such a product and might round the parts
SIZES = [(torch.float16, 90, 20), (torch.float16, 4096, 768), (torch.bfloat16, 4096, 768)]


@pytest.mark.parametrize(("dtype", "batch", "features"), SIZES if DEVICE == "cuda" else SIZES[:1])
def test_half_precision_gradients_are_rounded_once(dtype, batch, features):
    tax, draw = TREES["even"], torch.Generator().manual_seed(0)
    parts = [torch.randn(n, features, generator=draw) for n in (batch, tax.num_nodes - 1)]
    halves, y = [part.to(dtype) / 2 for part in parts], torch.randint(16, (batch,), generator=draw)
    exact = [part.double().requires_grad_() for part in halves]
    path_cross_entropy(*exact, None, y, tax, impl="torch", reduction="sum").backward()
    ours = [part.to(DEVICE).requires_grad_() for part in halves]
    path_cross_entropy(*ours, None, y.to(DEVICE), tax, impl="triton", reduction="sum").backward()
    for mine, true in zip(ours, exact, strict=True):
        rounded = float((true.grad.to(dtype).double() - true.grad).norm())
        assert float((mine.grad.cpu().double() - true.grad).norm()) <= 1.05 * rounded
