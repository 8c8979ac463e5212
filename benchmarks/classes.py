"""Time of a training step against the number of classes: the path loss with sparse gradients, and a flat softmax.

Forward and backward of the head's loss on balanced trees of three levels, from a thousand to ten million classes. Rows
are appended to benchmarks/results/classes.csv, and the figure shows the latest row of each device.

    python benchmarks/classes.py                   # this CPU, two threads
    python benchmarks/classes.py --device cuda
    python benchmarks/classes.py --draw            # only the figure
"""

from __future__ import annotations

import argparse
import csv
import gc
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import arbormax as am
import trees
from common import append, circumstances

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "tools"))
from line_plot import Curve, curves_svg

RESULTS = Path(__file__).parent / "results" / "classes.csv"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "classes.svg"
BRANCHES = (10, 22, 46, 100, 216)
OURS, FLAT = "HierarchicalSoftmax, sparse", "Linear + cross entropy"


def seconds(run: Callable[[], None], device: str, budget: float = 2.0) -> float:
    """The median time of the runs within the budget, at least three."""
    run()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < budget and len(times) < 200):
        start = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def step(device: str, features: int, batch: int, classes: int, tax: am.Taxonomy | None) -> Callable[[], None]:
    """A function that runs forward and backward once; without a taxonomy, of the flat softmax."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    h = torch.randn(batch, features, device=device, dtype=dtype, requires_grad=True)
    y = torch.randint(classes, (batch,), device=device)
    head: nn.Module
    if tax is None:
        head = nn.Linear(features, classes, device=device, dtype=dtype)
    else:
        head = am.HierarchicalSoftmax(features, tax, sparse=True, device=device, dtype=dtype)

    def run() -> None:
        for parameter in (h, *head.parameters()):
            parameter.grad = None
        loss = F.cross_entropy(head(h), y) if tax is None else head.loss(h, y)  # type: ignore[operator]
        loss.backward()

    return run


def measure(device: str, features: int, batch: int, threads: int) -> None:
    torch.set_num_threads(threads)
    named = {"threads": threads if device == "cpu" else "", "batch": batch, "features": features}
    where = {} if device == "cpu" else {"device": torch.cuda.get_device_name()}
    rows = []
    for branching in BRANCHES:
        classes = branching**3
        for contender in (OURS, FLAT):
            torch.manual_seed(0)
            tax = trees.balanced(branching, 3) if contender == OURS else None
            try:
                elapsed = seconds(step(device, features, batch, classes, tax), device)
            except (RuntimeError, MemoryError) as error:  # out of memory: the curve ends here
                print(f"{classes:>10,} {contender:30} {type(error).__name__}: {str(error)[:80]}", flush=True)
                continue
            print(f"{classes:>10,} {contender:30} {elapsed * 1e3:10.3f} ms", flush=True)
            rows.append(
                {"contender": contender, "classes": classes, "median_ms": round(elapsed * 1e3, 4), **named}
                | {**circumstances("torch"), **where}
            )
            gc.collect()
    append(RESULTS, rows)


def draw() -> None:
    """One curve for each contender and device, with the latest row of each point."""
    with RESULTS.open() as file:
        latest = {(row["device"], row["contender"], int(row["classes"])): row for row in csv.DictReader(file)}
    curves: dict[str, list[tuple[int, float]]] = {}
    for (device, contender, classes), row in sorted(latest.items()):
        where = "CPU" if "cores" in device else device.removeprefix("NVIDIA ")
        size = f"batch {row['batch']}, {row['features']} features"
        curves.setdefault(f"{contender} ({where}, {size})", []).append((classes, float(row["median_ms"])))
    series = {name: Curve(*zip(*sorted(points), strict=True)) for name, points in curves.items()}
    title = "A training step of the head against the number of classes"
    FIGURE.write_text(curves_svg(series, title, x="classes", y="milliseconds", log=True) + "\n")
    print(f"written: {FIGURE.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--draw", action="store_true", help="only draw the figure from the existing rows")
    args = parser.parse_args()
    if not args.draw:
        measure(args.device, args.features, args.batch, args.threads)
    draw()


if __name__ == "__main__":
    main()
