"""Trees with very many classes: a step of the loss, with and without its optimizer, and the five best leaves.

The contenders of a tree take turns, and the table shows medians and how many times as fast as `nn.Linear` + cross
entropy they are. `sparse` heads have row-sparse gradients. A step with its optimizer is Adam for dense gradients,
SparseAdam for sparse ones. `rows` is the mean number of rows on a path, and `peak_gib` the memory of the process at its
peak, so give one tree for a reading of its own. Rows are appended to benchmarks/results/scale.csv.

    python benchmarks/scale.py                     # all trees, two threads
    python benchmarks/scale.py --tree icd10cm --threads 1
    python benchmarks/scale.py --tree inat --ours --cpu-time --features 128    # on a busy machine, with less memory
    python benchmarks/scale.py --crossing          # the size from which paths are faster than one dense product
    python benchmarks/scale.py --device cuda       # the GPU's rows, in scale-gpu.csv; --part steps for some of them
"""

from __future__ import annotations

import argparse
import math
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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

# tree, batch, turns, batch of the slow peer (None: not run; it would take minutes a step)
TREES: dict[str, tuple[Callable[[], am.Taxonomy], int, int, int | None]] = {
    "r52": (trees.r52, 256, 15, 256),
    "icd10cm": (trees.icd10cm, 256, 7, 8),
    "100^3": (lambda: trees.balanced(100, 3), 64, 3, None),
    "inat": (trees.inat, 64, 3, None),
}
COLUMNS = (
    *("tree", "classes", "batch", "features", "threads"),
    *("contender", "median_ms", "faster", "accuracy", "same", "rows", "peak_gib"),
)
GPU_PARTS = ("errors", "steps", "profile", "tune", "small", "crossing", "best", "ten-million", "uneven")
FLAT, OURS, PEER = "Linear + cross entropy", "HierarchicalSoftmax, sparse", "hierarchicalsoftmax"


def contenders(
    tax: am.Taxonomy, features: int, batch: int, peer_batch: int | None, ours: bool
) -> dict[str, Callable[[], None]]:
    """Return a function for each contender that runs forward and backward once; `ours` leaves out all but ours."""
    h = torch.randn(batch, features, requires_grad=True)
    y = torch.randint(tax.num_leaves, (batch,))
    dense, sparse = (am.HierarchicalSoftmax(features, tax, init="torch", sparse=sparse) for sparse in (False, True))
    losses: dict[str, tuple[nn.Module, Callable[[], Tensor]]] = {
        "HierarchicalSoftmax": (dense, lambda: dense.loss(h, y)),
        OURS: (sparse, lambda: sparse.loss(h, y)),
    }
    if not ours:
        flat = nn.Linear(features, tax.num_leaves)
        adaptive = nn.AdaptiveLogSoftmaxWithLoss(features, tax.num_leaves, cutoffs=[max(1, tax.num_leaves // 10)])
        losses[FLAT] = flat, lambda: F.cross_entropy(flat(h), y)
        losses["AdaptiveLogSoftmaxWithLoss"] = adaptive, lambda: adaptive(h, y).loss
    runs = {name: step(h, module, loss) for name, (module, loss) in losses.items()}
    for name, kind in ((FLAT, torch.optim.Adam), (OURS, torch.optim.SparseAdam)):
        if name not in losses:
            continue
        module, loss = losses[name]
        runs[f"{name}, with optimiser"] = step(h, module, loss, kind(list(module.parameters()), lr=1e-3))
    if peer_batch is not None and not ours:
        peer, peer_loss, peer_y = hierarchicalsoftmax(tax, features, y[:peer_batch])
        runs[PEER] = step(h, peer, lambda: peer_loss(peer(h[:peer_batch]), peer_y))
    return runs


def step(
    h: Tensor, module: nn.Module, loss: Callable[[], Tensor], optimiser: torch.optim.Optimizer | None = None
) -> Callable[[], None]:
    """Forward and backward once, and the optimiser's step if there is one."""
    parameters = [h, *module.parameters()]

    def run() -> None:
        for parameter in parameters:
            parameter.grad = None
        loss().backward()
        if optimiser is not None:
            optimiser.step()

    return run


def measure(
    runs: dict[str, Callable[[], None]], turns: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the median seconds of every contender; a turn is a tenth of a second or one run."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(-1, turns):  # the first is not counted
        for name, run in runs.items():
            if name == PEER and sum(seconds[name]) > 1.0:
                continue
            begin = start = clock()
            while True:
                run()
                now = clock()
                if turn >= 0 or name == PEER:
                    seconds[name].append(now - start)
                start = now
                if now - begin > 0.1:
                    break
    return {name: statistics.median(times) for name, times in seconds.items()}


def crossing(features: int) -> None:
    """Print the time of the loss by paths relative to the dense loss, on trees of increasing size."""
    print("rows  on a path  batch  paths / dense  with sparse gradients")
    for branching, depth in ((16, 2), (8, 3), (32, 2), (11, 3), (48, 2), (16, 3), (70, 2), (22, 3)):
        tax = trees.balanced(branching, depth)
        for batch in (32, 256):
            found = measure(_both_ways(tax, features, batch), turns=9)
            paths, sparse = found["paths"] / found["dense"], found["sparse"] / found["dense"]
            print(f"{tax.num_nodes - 1:5} {branching * depth:9} {batch:6} {paths:14.2f} {sparse:14.2f}", flush=True)


def _both_ways(tax: am.Taxonomy, features: int, batch: int) -> dict[str, Callable[[], None]]:
    head = am.HierarchicalSoftmax(features, tax)
    h = torch.randn(batch, features, requires_grad=True)
    y = torch.randint(tax.num_leaves, (batch,))
    parts = head.weight, head.bias
    return {
        "dense": step(h, head, lambda: hierarchical_cross_entropy(F.linear(h, *parts), y, tax)),
        "paths": step(h, head, lambda: path_cross_entropy(h, *parts, y, tax)),
        "sparse": step(h, head, lambda: path_cross_entropy(h, *parts, y, tax, sparse=True)),
    }


class Task:
    """Features that encode their class with noise: a code for each level and place among siblings on its path."""

    def __init__(self, tax: am.Taxonomy, features: int, classes: int) -> None:
        self.tax, self.features = tax, features
        self.codes = torch.randn(tax.depth, int(tax.num_children.max()), features)
        self.classes = torch.randperm(tax.num_leaves)[:classes]

    def draw(self, batch: int) -> tuple[Tensor, Tensor]:
        y = self.classes[torch.randint(len(self.classes), (batch,))]
        h = 1.6 * torch.randn(batch, self.features)
        for level in range(self.tax.depth):
            node = self.tax.ancestor_at(self.tax.leaves[y.numpy()], level + 1)
            place = node - self.tax.child_start[self.tax.parent[node]]
            code = self.codes[level][torch.from_numpy(np.where(node < 0, 0, place))]
            h = h + code * torch.from_numpy(node >= 0)[:, None]
        return h / self.features**0.5, y


def time_topk(
    tax: am.Taxonomy, features: int, batch: int, turns: int, steps: int, clock: Callable[[], float]
) -> list[dict[str, Any]]:
    """Time the five best leaves by search and by scoring all leaves, for an untrained and a trained head."""
    torch.manual_seed(0)
    task = Task(tax, features, classes=20_000)
    head = am.HierarchicalSoftmax(features, tax, sparse=True)
    optimiser = torch.optim.SparseAdam(list(head.parameters()), lr=0.02)
    rows = []
    for name, count in (("untrained", 0), ("trained", steps)):
        for _ in range(count):
            h, y = task.draw(1024)
            optimiser.zero_grad()
            head.loss(h, y).backward()
            optimiser.step()
        h, y = task.draw(batch)
        with torch.no_grad():
            seconds: dict[str, list[float]] = {"search": [], "all leaves": []}
            for _ in range(turns):
                for way, topk in (("search", head.topk), ("all leaves", lambda h, k: TreeHead.topk(head, h, k))):
                    start = clock()
                    logp, classes = topk(h, 5)
                    seconds[way].append(clock() - start)
                    if way == "search":
                        searched = logp, classes
            torch.testing.assert_close(searched[0], logp, rtol=1e-4, atol=1e-4)
            accuracy = float((classes[:, 0] == y).float().mean())
        medians = {way: statistics.median(times) for way, times in seconds.items()}
        times = medians["all leaves"] / medians["search"]
        print(
            f"top 5 of {tax.num_leaves:,}, {name} (accuracy {accuracy:.2f}): {medians['search'] * 1e3:.1f} ms by "
            f"search, {medians['all leaves'] * 1e3:.0f} ms by all leaves: {times:.1f} × faster"
        )
        same = bool((searched[1] == classes).all())
        rows += [
            {"contender": f"top 5 by {way}, {name}", "median_ms": round(s * 1e3, 2), "accuracy": accuracy, "same": same}
            for way, s in medians.items()
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", choices=TREES, action="append", help="only this tree; may be given more than once")
    parser.add_argument("--ours", action="store_true", help="only the hierarchical softmax, with less memory")
    parser.add_argument("--cpu-time", action="store_true", help="processor time, for a busy machine; one thread")
    parser.add_argument("--features", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--crossing", action="store_true", help="only compare losses by paths with dense losses on small trees"
    )
    parser.add_argument("--steps", type=int, default=120, help="training steps before the search for the best leaves")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--part", choices=GPU_PARTS, action="append", help="part of the GPU benchmark; default: all")
    parser.add_argument("--out", type=Path, help="CSV file for the rows")
    args = parser.parse_args()
    results = Path(__file__).parent / "results"
    if args.device == "cuda":
        import scale_gpu

        scale_gpu.run(args.out or results / "scale-gpu.csv", args.part or GPU_PARTS)
        return
    args.out = args.out or results / "scale.csv"
    args.threads = 1 if args.cpu_time else args.threads
    clock = time.process_time if args.cpu_time else time.perf_counter
    torch.set_num_threads(args.threads)
    if args.crossing:
        crossing(args.features)
        return
    rows: list[dict[str, Any]] = []
    for name in args.tree or TREES:
        build, batch, turns, peer_batch = TREES[name]
        tax = build()
        torch.manual_seed(0)
        shared = {"tree": name, "classes": tax.num_leaves, "features": args.features, "threads": args.threads}
        shared["rows"] = round(trees.mean_rows_on_a_path(tax), 1)
        print(f"\n{name}: {tax}, B {batch}, D {args.features}, {args.threads} threads", flush=True)
        print(f"{shared['rows']} rows on a path", flush=True)
        medians = measure(contenders(tax, args.features, batch, peer_batch, args.ours), turns, clock)
        for contender, seconds in medians.items():
            against = f"{FLAT}, with optimiser" if contender.endswith("optimiser") else FLAT
            faster = medians.get(against, math.nan) / seconds
            size = peer_batch if contender == PEER else batch
            print(f"{contender:45} B {size:4} {seconds * 1e3:10.2f} ms {faster:9.2f} × as fast as flat", flush=True)
            rows.append(
                {**shared, "batch": size, "contender": contender, "median_ms": round(seconds * 1e3, 3)}
                | {"faster": "" if math.isnan(faster) else round(faster, 2)}
            )
        if name in ("100^3", "inat"):
            best = time_topk(tax, args.features, batch, turns, args.steps, clock)
            rows += [{**shared, "batch": batch, **row} for row in best]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\npeak memory {peak:.1f} GiB")
    stamp = circumstances("torch", "hierarchicalsoftmax")
    if args.cpu_time:
        rows = [{**row, "contender": f"{row['contender']}, processor time"} for row in rows]
    rows = [{**row, "peak_gib": round(peak, 2) if len(args.tree or TREES) == 1 else ""} for row in rows]
    append(args.out, [{**{column: row.get(column, "") for column in COLUMNS}, **stamp} for row in rows])


if __name__ == "__main__":
    main()
