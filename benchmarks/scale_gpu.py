"""The GPU part of scale.py: a step of the loss on large trees, compared with alternatives.

Each contender is built, warmed up, timed with device events and freed; memory is the peak of its step, including
weights and gradients. `python benchmarks/scale.py --device cuda` runs all parts.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import arbormax as am
import trees
from arbormax.functional import hierarchical_cross_entropy
from arbormax.functional.paths import path_cross_entropy
from arbormax.heads.base import TreeHead
from common import append, circumstances
from heads import hierarchicalsoftmax
from scale import Task, step

BATCH, FEATURES = 4096, 768
TREES = {"22^3": (22, 3), "46^3": (46, 3), "100^3": (100, 3)}
FLAT = "Linear + cross entropy"
Build = Callable[[am.Taxonomy, Tensor, Tensor], tuple[nn.Module, Callable[[], Tensor]]]


def median_ms(run: Callable[[], None], budget_ms: float = 400.0) -> float:
    """Return the median of as many runs as the budget allows, at least five."""
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


def _ours(sparse: bool, mode: str | None = None) -> Build:
    def build(tax: am.Taxonomy, h: Tensor, y: Tensor) -> tuple[nn.Module, Callable[[], Tensor]]:
        head = am.HierarchicalSoftmax(h.shape[1], tax, sparse=sparse, init="torch", device="cuda", dtype=h.dtype)
        loss = head.loss if mode is None else torch.compile(head.loss, dynamic=False, mode=mode)
        return head, lambda: loss(h, y)

    return build


CONTENDERS: dict[str, Build] = {
    "HierarchicalSoftmax": _ours(False),
    "HierarchicalSoftmax, sparse": _ours(True),
    "HierarchicalSoftmax, reduce-overhead": _ours(False, mode="reduce-overhead"),
    FLAT: _flat,
    f"{FLAT}, compiled": _compiled("default"),
    f"{FLAT}, reduce-overhead": _compiled("reduce-overhead"),
    "cut-cross-entropy": _cut,
    "Liger": _liger,
    "AdaptiveLogSoftmaxWithLoss": _adaptive,
}
CAPTURED = ("HierarchicalSoftmax", FLAT)  # forward and backward as one CUDA graph, which excludes the time of the host
OPTIMISERS = {
    FLAT: lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "HierarchicalSoftmax": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "HierarchicalSoftmax, sparse": lambda parameters: torch.optim.SparseAdam(parameters),
}
_NEEDS = {"cut-cross-entropy": "cut_cross_entropy", "Liger": "liger_kernel"}


def captured(run: Callable[[], None], parameters: list[Tensor]) -> Callable[[], None]:
    """Return a function that replays the step as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    for parameter in parameters:
        parameter.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def measure_contenders(tree: str, tax: am.Taxonomy, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of all contenders: plain, with the optimiser, as a CUDA graph, and with a shared group."""
    rows = []
    torch.manual_seed(0)
    for name in names:
        package = _NEEDS.get(name)
        if package is not None and find_spec(package) is None:
            print(f"{name}: not installed")
            continue
        rows += _measure_contender(tree, tax, name)
        torch.compiler.reset()  # free the memory of a compiled step before the next measurement
        gc.collect()
        torch.cuda.empty_cache()
    return rows


def _measure_contender(tree: str, tax: am.Taxonomy, name: str) -> list[dict[str, Any]]:
    h = torch.randn(BATCH, FEATURES, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    y = torch.randint(tax.num_leaves, (BATCH,), device="cuda")
    rows: list[dict[str, Any]] = []

    def add(contender: str, run: Callable[[], None]) -> None:
        torch.cuda.reset_peak_memory_stats()
        milliseconds = median_ms(run)
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(f"{tree:8}{contender:45}{milliseconds:9.3f} ms {peak:8.2f} GiB", flush=True)
        rows.append({"contender": contender, "median_ms": round(milliseconds, 4), "peak_gib": round(peak, 3)})

    try:
        module, loss = CONTENDERS[name](tax, h, y)
        run = step(h, module, loss)
        add(name, run)
        if name in CAPTURED:
            add(f"{name}, captured", captured(run, [h, *module.parameters()]))
        if name in OPTIMISERS:
            optimiser = OPTIMISERS[name](list(module.parameters()))
            add(f"{name}, with optimiser", step(h, module, loss, optimiser))
        if name == "HierarchicalSoftmax":
            y[: BATCH * 3 // 5] %= tax.num_leaves // int(tax.num_children[0])
            add(f"{name}, captured, 60 % in one chapter", captured(run, [h, *module.parameters()]))
    except Exception as error:  # an alternative that fails gets a row with its error
        print(f"{tree:8}{name:45}{type(error).__name__}: {str(error)[:200]}", flush=True)
        rows.append({"contender": name, "median_ms": "", "peak_gib": "", "note": type(error).__name__})
    return [{"tree": tree, "classes": tax.num_leaves, **row} for row in rows]


def errors(tax: am.Taxonomy, dtype: torch.dtype, seeds: int = 9) -> dict[str, list[float]]:
    """‖found − exact‖ / ‖exact‖ of the items' losses, and of the gradients of features, rows and bias: median draws."""
    draws = [_draw_errors(tax, dtype, seed) for seed in range(seeds)]
    return {
        impl: [statistics.median(found) for found in zip(*(draw[impl] for draw in draws), strict=True)]
        for impl in ("torch", "triton")
    }


def _draw_errors(
    tax: am.Taxonomy, dtype: torch.dtype, seed: int, batch: int = 512, features: int = FEATURES
) -> dict[str, list[float]]:
    torch.manual_seed(seed)
    rows, scale = tax.num_nodes - 1, 2 / features**0.5
    parts = [torch.randn(batch, features), torch.randn(rows, features) * scale, torch.randn(rows)]
    y = torch.randint(tax.num_leaves, (batch,))
    found = {}
    for impl, kind, device in (("torch", torch.float64, "cpu"), ("torch", dtype, "cuda"), ("triton", dtype, "cuda")):
        given = [part.to(dtype).to(device, kind).requires_grad_() for part in parts]
        losses = path_cross_entropy(*given, y.to(device), tax, impl=impl, label_smoothing=0.05, reduction="none")
        losses.mean().backward()
        found[impl, kind] = [x.detach().double().cpu() for x in (losses, *(part.grad for part in given))]
    exact = found["torch", torch.float64]
    return {
        impl: [float((x - e).norm() / e.norm()) for x, e in zip(found[impl, dtype], exact, strict=True)]
        for impl in ("torch", "triton")
    }


def profile(tax: am.Taxonomy, sparse: bool = False) -> None:
    """Print the time of each kernel in a step."""
    h = torch.randn(BATCH, FEATURES, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    y = torch.randint(tax.num_leaves, (BATCH,), device="cuda")
    print_profile(step(h, *_ours(sparse)(tax, h, y)))


def print_profile(run: Callable[[], None], lines: int = 12) -> None:
    for _ in range(3):
        run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(5):
            run()
        torch.cuda.synchronize()
    events = sorted(found.key_averages(), key=lambda e: -e.device_time_total)[:lines]
    for event in events:
        print(f"    {event.key[:70]:70} {event.device_time_total / 5:8.1f} us  × {event.count // 5}")


def tune(tax: am.Taxonomy) -> None:
    """Time a captured step with other warps, stages and widths of the kernels."""
    from arbormax.kernels import path_triton as kernels

    h = torch.randn(BATCH, FEATURES, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    y = torch.randint(tax.num_leaves, (BATCH,), device="cuda")
    module, loss = _ours(False)(tax, h, y)
    for width in (64, 128):
        for warps in (4, 8):
            for stages in (2, 3, 4):
                kernels.FORWARD = kernels.FEATURES = (width, warps, stages)
                try:
                    run = step(h, module, loss)
                    whole = median_ms(captured(run, [h, *module.parameters()]), 100.0)
                    print(f"{width:4} columns, {warps} warps, {stages} stages: {whole:.3f} ms", flush=True)
                    print_profile(run, 2)
                except Exception as error:
                    print(f"{width:4} columns, {warps} warps, {stages} stages: {type(error).__name__}", flush=True)


def crossing() -> None:
    """Print the time of the loss by paths relative to the dense loss, on trees of increasing size."""
    print("rows  on a path  batch  dense ms  paths / dense  with sparse gradients  captured: dense ms  paths / dense")
    for branching, depth in ((8, 2), (8, 3), (32, 2), (11, 3), (16, 3), (70, 2), (20, 3), (22, 3), (32, 3), (46, 3)):
        tax = trees.balanced(branching, depth)
        for batch in (64, 4096):
            parts, runs = _both_ways(tax, batch)
            dense, paths, sparse = (median_ms(run, 60.0) for run in runs)
            dense_graph, paths_graph = (median_ms(captured(run, parts), 30.0) for run in runs[:2])
            print(
                f"{tax.num_nodes - 1:5} {branching * depth:9} {batch:6} {dense:9.3f} {paths / dense:14.2f} "
                f"{sparse / dense:14.2f} {dense_graph:29.3f} {paths_graph / dense_graph:14.2f}",
                flush=True,
            )


def _both_ways(tax: am.Taxonomy, batch: int) -> tuple[list[Tensor], list[Callable[[], None]]]:
    h = torch.randn(batch, FEATURES, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    y = torch.randint(tax.num_leaves, (batch,), device="cuda")
    head = am.HierarchicalSoftmax(FEATURES, tax, device="cuda", dtype=h.dtype)
    parts = head.weight, head.bias
    return [h, *parts], [
        step(h, head, lambda: hierarchical_cross_entropy(F.linear(h, *parts), y, tax)),
        step(h, head, lambda: path_cross_entropy(h, *parts, y, tax)),
        step(h, head, lambda: path_cross_entropy(h, *parts, y, tax, sparse=True)),
    ]


def time_best_leaves(
    tax: am.Taxonomy, head: am.HierarchicalSoftmax, h: Tensor, y: Tensor, name: str
) -> list[dict[str, Any]]:
    """Time the five best leaves by search and by scoring all leaves."""
    with torch.no_grad():
        searched, scored = head.topk(h, 5), TreeHead.topk(head, h, 5)
        torch.testing.assert_close(searched[0], scored[0], rtol=1e-3, atol=1e-3)
        accuracy = float((scored[1][:, 0] == y).float().mean())
        same = float((searched[1] == scored[1]).float().mean())
        ways = (lambda: head.topk(h, 5) and None, lambda: TreeHead.topk(head, h, 5) and None)
        turns = [[median_ms(way, 100.0) for way in ways] for _ in range(5)]  # after training the first is slow
        search, every = map(statistics.median, zip(*turns, strict=True))
    print(
        f"top 5 of {tax.num_leaves:,}, B {len(h)}, {name} (accuracy {accuracy:.2f}): {search:.2f} ms by search, "
        f"{every:.2f} ms by all leaves: {every / search:.1f} × faster; same classes {same:.4f}",
        flush=True,
    )
    shared = {"accuracy": round(accuracy, 3), "same": same == 1.0}
    return [
        {"contender": f"top 5 by {way}, {name}", "batch": len(h), "median_ms": round(ms, 3), **shared}
        for way, ms in (("search", search), ("all leaves", every))
    ]


def trained(tax: am.Taxonomy, features: int, steps: int) -> list[dict[str, Any]]:
    """Time the five best leaves of an untrained and a trained head."""
    torch.manual_seed(0)
    task = Task(tax, features, classes=20_000)
    head = am.HierarchicalSoftmax(features, tax, sparse=True, device="cuda")
    optimiser = torch.optim.SparseAdam(list(head.parameters()), lr=0.02)
    rows = []
    for name, count in (("untrained", 0), ("trained", steps)):
        for _ in range(count):
            h, y = (part.to("cuda") for part in task.draw(1024))
            optimiser.zero_grad()
            head.loss(h, y).backward()
            optimiser.step()
        h, y = (part.to("cuda") for part in task.draw(256))
        rows += time_best_leaves(tax, head, h, y, name)
    return rows


def ten_million() -> list[dict[str, Any]]:
    """Time a step with a sparse optimiser on a tree of ten million classes."""
    tax = trees.balanced(216, 3)
    h = torch.randn(BATCH, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    y = torch.randint(tax.num_leaves, (BATCH,), device="cuda")
    head = am.HierarchicalSoftmax(256, tax, sparse=True, device="cuda", dtype=torch.bfloat16)
    rows = []
    for name, optimiser in (("SGD", torch.optim.SGD), ("SparseAdam", torch.optim.SparseAdam)):
        run = step(h, head, lambda: head.loss(h, y), optimiser(list(head.parameters()), lr=0.01))
        torch.cuda.reset_peak_memory_stats()
        milliseconds, peak = median_ms(run), torch.cuda.max_memory_allocated() / 2**30
        print(f"216^3, D 256, sparse, with {name}: {milliseconds:.2f} ms, {peak:.1f} GiB", flush=True)
        rows.append(
            {"tree": "216^3", "classes": tax.num_leaves, "contender": f"HierarchicalSoftmax, sparse, with {name}"}
            | {"features": 256, "median_ms": round(milliseconds, 3), "peak_gib": round(peak, 2)}
        )
    return rows


def uneven(out: Path, circumstance: dict[str, Any]) -> None:
    """The steps and the best leaves on the iNaturalist taxonomy, whose groups have 1 to 3,807 rows."""
    tax = trees.inat()
    print(f"\n{tax}: {trees.mean_rows_on_a_path(tax):.1f} rows on a path", flush=True)
    _write(out, measure_contenders("inat", tax, list(CONTENDERS)), circumstance)
    shared = {"tree": "inat", "classes": tax.num_leaves, "features": 300}
    _write(out, [{**shared, **row} for row in trained(tax, 300, 120)], {**circumstance, "dtype": "float32"})


def small(tax: am.Taxonomy, batch: int = 256, features: int = 300) -> list[dict[str, Any]]:
    """Time a step on the tree of Reuters-52, where the launches of the host dominate."""
    torch.manual_seed(0)
    h = torch.randn(batch, features, device="cuda", requires_grad=True)
    y = torch.randint(tax.num_leaves, (batch,), device="cuda")
    head = am.HierarchicalSoftmax(features, tax, init="torch", device="cuda")
    flat = nn.Linear(features, tax.num_leaves, device="cuda")
    losses: dict[str, tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]] = {
        "HierarchicalSoftmax": (head, head.loss),
        FLAT: (flat, lambda h, y: F.cross_entropy(flat(h), y)),
    }
    runs: dict[str, Callable[[], None]] = {}
    for name, (module, loss) in losses.items():
        compiled = torch.compile(loss, dynamic=False, fullgraph=True)
        runs[name] = step(h, module, lambda loss=loss: loss(h, y))
        runs[f"{name}, compiled"] = step(h, module, lambda compiled=compiled: compiled(h, y))
        runs[f"{name}, captured"] = captured(step(h, module, lambda loss=loss: loss(h, y)), [h, *module.parameters()])
    if find_spec("hierarchicalsoftmax") is not None:
        peer, peer_loss, peer_y = hierarchicalsoftmax(tax, features, y)
        peer, peer_loss, peer_y = peer.cuda(), peer_loss.cuda(), peer_y.cuda()
        runs["hierarchicalsoftmax"] = step(h, peer, lambda: peer_loss(peer(h), peer_y))
    rows = []
    for name, run_ in runs.items():
        milliseconds = median_ms(run_)
        print(f"r52     {name:45}{milliseconds:9.4f} ms", flush=True)
        rows.append({"contender": name, "median_ms": round(milliseconds, 4)})
    shared = {"tree": "r52", "classes": tax.num_leaves, "batch": batch, "features": features, "dtype": "float32"}
    return [{**shared, **row} for row in rows]


def run(out: Path, parts: Sequence[str]) -> None:
    """Run the given parts; rows are written after each part."""
    circumstance = {
        **circumstances("torch", "triton"),
        "device": torch.cuda.get_device_name(),
        "batch": BATCH,
        "dtype": "bfloat16",
    }
    for name, (branching, depth) in TREES.items():
        if not {"steps", "errors", "profile", "tune", "best"} & set(parts):
            break
        tax = trees.balanced(branching, depth)
        if "errors" in parts and name == "22^3":
            for dtype in (torch.bfloat16, torch.float16, torch.float32):
                for impl, found in errors(tax, dtype).items():
                    print(f"{dtype} {impl:7}" + "".join(f"{error:10.1e}" for error in found))
        if "steps" in parts:
            _write(out, measure_contenders(name, tax, list(CONTENDERS)), circumstance)
        if "profile" in parts:
            profile(tax)
        if "tune" in parts and name == "100^3":
            tune(tax)
        if "best" in parts and name == "100^3":
            shared = {"tree": name, "classes": tax.num_leaves, "features": 300}
            _write(out, [{**shared, **row} for row in trained(tax, 300, 120)], {**circumstance, "dtype": "float32"})
    if "small" in parts:
        _write(out, small(trees.r52()), circumstance)
    if "crossing" in parts:
        crossing()
    if "uneven" in parts:
        uneven(out, circumstance)
    if "ten-million" in parts:
        _write(out, ten_million(), circumstance)


COLUMNS = (
    *(
        "tree",
        "classes",
        "batch",
        "features",
        "dtype",
        "contender",
        "median_ms",
        "peak_gib",
        "accuracy",
        "same",
        "note",
    ),
    *("date", "device", "python", "arbormax", "torch", "triton"),
)


def _write(out: Path, rows: list[dict[str, Any]], circumstance: dict[str, Any]) -> None:
    whole = [{"features": FEATURES, **circumstance, **row} for row in rows]
    append(out, [{column: row.get(column, "") for column in COLUMNS} for row in whole])
