"""The GPU's part of scale.py: a step of the loss on large trees against what people use instead.

Each contender is built, warmed up, timed with device events and freed; memory is the peak of its step, its weights and
gradients included. `python benchmarks/scale.py --device cuda` runs all of it.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import arbormax as am
import trees
from arbormax.functional import hierarchical_cross_entropy
from arbormax.functional.paths import path_cross_entropy
from arbormax.heads.base import TreeHead

BATCH, FEATURES = 4096, 768
TREES = {"22^3": (22, 3), "46^3": (46, 3), "100^3": (100, 3)}
FLAT = "Linear + cross entropy"
Build = Callable[[am.Taxonomy, Tensor, Tensor], tuple[nn.Module, Callable[[], Tensor]]]


def median_ms(run: Callable[[], None], budget_ms: float = 400.0) -> float:
    """The median of as many runs as the budget allows, five at least."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    times: list[float] = []
    while len(times) < 5 or (sum(times) < budget_ms and len(times) < 200):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def step(h: Tensor, module: nn.Module, loss: Callable[[], Tensor], optimiser: Any = None) -> Callable[[], None]:
    parameters = [h, *module.parameters()]

    def run() -> None:
        for parameter in parameters:
            parameter.grad = None
        loss().backward()
        if optimiser is not None:
            optimiser.step()

    return run


def _flat(tax: am.Taxonomy, h: Tensor, y: Tensor) -> tuple[nn.Module, Callable[[], Tensor]]:
    flat = nn.Linear(h.shape[1], tax.num_leaves, device="cuda", dtype=h.dtype)
    return flat, lambda: F.cross_entropy(flat(h), y)


def _compiled(mode: str) -> Build:
    def build(tax: am.Taxonomy, h: Tensor, y: Tensor) -> tuple[nn.Module, Callable[[], Tensor]]:
        flat, _ = _flat(tax, h, y)
        loss = torch.compile(lambda h, y: F.cross_entropy(flat(h), y), dynamic=False, mode=mode)
        return flat, lambda: loss(h, y)

    return build


def _cut(tax: am.Taxonomy, h: Tensor, y: Tensor) -> tuple[nn.Module, Callable[[], Tensor]]:
    from cut_cross_entropy import linear_cross_entropy

    flat = nn.Linear(h.shape[1], tax.num_leaves, bias=False, device="cuda", dtype=h.dtype)
    return flat, lambda: linear_cross_entropy(h, flat.weight, y)


def _liger(tax: am.Taxonomy, h: Tensor, y: Tensor) -> tuple[nn.Module, Callable[[], Tensor]]:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    flat = nn.Linear(h.shape[1], tax.num_leaves, bias=False, device="cuda", dtype=h.dtype)
    loss = LigerFusedLinearCrossEntropyLoss()
    return flat, lambda: loss(flat.weight, h, y)


def _adaptive(tax: am.Taxonomy, h: Tensor, y: Tensor) -> tuple[nn.Module, Callable[[], Tensor]]:
    cutoffs = [max(1, tax.num_leaves // 100), max(2, tax.num_leaves // 10)]
    adaptive = nn.AdaptiveLogSoftmaxWithLoss(h.shape[1], tax.num_leaves, cutoffs, device="cuda", dtype=h.dtype)
    return adaptive, lambda: adaptive(h, y).loss


def _ours(sparse: bool, impl: str = "auto", mode: str | None = None) -> Build:
    def build(tax: am.Taxonomy, h: Tensor, y: Tensor) -> tuple[nn.Module, Callable[[], Tensor]]:
        head = am.HierarchicalSoftmax(h.shape[1], tax, sparse=True, init="torch", device="cuda", dtype=h.dtype)

        def loss(h: Tensor, y: Tensor) -> Tensor:
            return path_cross_entropy(h, head.weight, head.bias, y, tax, sparse=sparse, impl=impl)

        if mode is not None:
            loss = torch.compile(loss, dynamic=False, mode=mode)
        return head, lambda: loss(h, y)

    return build


# `graph`: compiled with torch's mode "reduce-overhead", which replays a CUDA graph, so that the host costs nothing
OURS: dict[str, Build] = {
    "HierarchicalSoftmax": _ours(False),
    "HierarchicalSoftmax, sparse": _ours(True),
    "HierarchicalSoftmax, graph": _ours(False, mode="reduce-overhead"),
}
PEERS: dict[str, Build] = {
    FLAT: _flat,
    f"{FLAT}, compiled": _compiled("default"),
    f"{FLAT}, graph": _compiled("reduce-overhead"),
    "cut-cross-entropy": _cut,
    "Liger": _liger,
    "AdaptiveLogSoftmaxWithLoss": _adaptive,
}
OPTIMISERS = {
    FLAT: lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "HierarchicalSoftmax": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "HierarchicalSoftmax, graph": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "HierarchicalSoftmax, sparse": lambda parameters: torch.optim.SparseAdam(parameters),
}
_NEEDS = {"cut-cross-entropy": "cut_cross_entropy", "Liger": "liger_kernel"}


def rows_of(name: str, tax: am.Taxonomy, contenders: dict[str, Build], optimisers: bool = True) -> list[dict[str, Any]]:
    """A row for each contender, and one more with its optimiser's step."""
    rows = []
    torch.manual_seed(0)
    for contender, build in contenders.items():
        package = _NEEDS.get(contender)
        if package is not None and find_spec(package) is None:
            print(f"{contender}: not installed")
            continue
        h = torch.randn(BATCH, FEATURES, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        y = torch.randint(tax.num_leaves, (BATCH,), device="cuda")
        try:
            module, loss = build(tax, h, y)
            for optimiser in (None, OPTIMISERS.get(contender) if optimisers else None):
                if optimiser is None and rows and rows[-1]["contender"] == contender:
                    continue
                run = step(h, module, loss, optimiser and optimiser(list(module.parameters())))
                torch.cuda.reset_peak_memory_stats()
                milliseconds = median_ms(run)
                peak = torch.cuda.max_memory_allocated() / 2**30
                named = contender if optimiser is None else f"{contender}, with optimiser"
                print(f"{name:8}{named:45}{milliseconds:9.3f} ms {peak:8.2f} GiB", flush=True)
                rows.append({"contender": named, "median_ms": round(milliseconds, 4), "peak_gib": round(peak, 3)})
        except Exception as error:  # a peer that cannot is a row that says so
            print(f"{name:8}{contender:45}{type(error).__name__}: {str(error)[:200]}", flush=True)
            rows.append({"contender": contender, "median_ms": "", "peak_gib": "", "note": type(error).__name__})
        h = y = module = loss = run = None  # type: ignore[assignment]
        gc.collect()
        torch.cuda.empty_cache()
    return rows


def errors(tax: am.Taxonomy, dtype: torch.dtype, batch: int = 512, features: int = 256) -> dict[str, list[float]]:
    """‖found − exact‖ / ‖exact‖ of loss, features', rows' and bias's gradients, for each implementation."""
    torch.manual_seed(0)
    parts = [torch.randn(batch, features), torch.randn(tax.num_nodes - 1, features) / 8, torch.randn(tax.num_nodes - 1)]
    y = torch.randint(tax.num_leaves, (batch,))
    found = {}
    for impl, kind, device in (("torch", torch.float64, "cpu"), ("torch", dtype, "cuda"), ("triton", dtype, "cuda")):
        given = [part.to(dtype).to(device, kind).requires_grad_() for part in parts]
        loss = path_cross_entropy(*given, y.to(device), tax, impl=impl, label_smoothing=0.05)
        loss.backward()
        found[impl, kind] = [x.detach().double().cpu() for x in (loss, *(part.grad for part in given))]
    exact = found["torch", torch.float64]
    return {
        impl: [float((x - e).norm() / e.norm()) for x, e in zip(found[impl, dtype], exact, strict=True)]
        for impl in ("torch", "triton")
    }


def profile(tax: am.Taxonomy, sparse: bool = False) -> None:
    """Where the device's time goes in a step."""
    h = torch.randn(BATCH, FEATURES, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    y = torch.randint(tax.num_leaves, (BATCH,), device="cuda")
    run = step(h, *_ours(sparse)(tax, h, y))
    for _ in range(3):
        run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(5):
            run()
        torch.cuda.synchronize()
    events = sorted(found.key_averages(), key=lambda e: -e.device_time_total)[:12]
    for event in events:
        print(f"    {event.key[:70]:70} {event.device_time_total / 5:8.1f} us  × {event.count // 5}")


def crossing() -> None:
    """Time of the loss by paths over that of the dense loss, on trees of growing size."""
    print("rows  on a path  batch  dense ms  paths / dense  with sparse gradients")
    for branching, depth in ((8, 2), (16, 2), (8, 3), (32, 2), (11, 3), (16, 3), (70, 2), (22, 3)):
        tax = trees.balanced(branching, depth)
        for batch in (64, 4096):
            dense, paths, sparse = (median_ms(run, 60.0) for run in _both_ways(tax, batch))
            print(
                f"{tax.num_nodes - 1:5} {branching * depth:9} {batch:6} {dense:9.3f} {paths / dense:14.2f} "
                f"{sparse / dense:14.2f}",
                flush=True,
            )


def _both_ways(tax: am.Taxonomy, batch: int) -> list[Callable[[], None]]:
    h = torch.randn(batch, FEATURES, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    y = torch.randint(tax.num_leaves, (batch,), device="cuda")
    head = am.HierarchicalSoftmax(FEATURES, tax, device="cuda", dtype=h.dtype)
    parts = head.weight, head.bias
    return [
        step(h, head, lambda: hierarchical_cross_entropy(F.linear(h, *parts), y, tax)),
        step(h, head, lambda: path_cross_entropy(h, *parts, y, tax)),
        step(h, head, lambda: path_cross_entropy(h, *parts, y, tax, sparse=True)),
    ]


def best_of(tax: am.Taxonomy, head: am.HierarchicalSoftmax, h: Tensor, y: Tensor, name: str) -> list[dict[str, Any]]:
    """Five best leaves by search and by scoring all leaves."""
    with torch.no_grad():
        searched, scored = head.topk(h, 5), TreeHead.topk(head, h, 5)
        torch.testing.assert_close(searched[0], scored[0], rtol=1e-3, atol=1e-3)
        accuracy = float((scored[1][:, 0] == y).float().mean())
        same = float((searched[1] == scored[1]).float().mean())
        search = median_ms(lambda: head.topk(h, 5) and None)
        every = median_ms(lambda: TreeHead.topk(head, h, 5) and None)
    print(
        f"top 5 of {tax.num_leaves:,}, B {len(h)}, {name} (accuracy {accuracy:.2f}): {search:.2f} ms by search, "
        f"{every:.2f} ms by all leaves: {every / search:.1f} × faster; same classes {same:.4f}",
        flush=True,
    )
    shared = {"accuracy": round(accuracy, 3), "same": same == 1.0}
    return [
        {"contender": f"top 5 by {way}, {name}", "median_ms": round(ms, 3), **shared}
        for way, ms in (("search", search), ("all leaves", every))
    ]
