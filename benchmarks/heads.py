"""Forward and backward of the losses of the heads, compared with alternatives.

The contenders of a tree take turns of a few runs in one loop, so that noise affects all of them; the table shows
ratios of medians to `nn.Linear` + cross entropy over the same classes. `flat of the same width` has as many columns as
the tree has non-root nodes. The package hierarchicalsoftmax needs up to a minute for a step on a large tree, so it
runs fewer times there, with a smaller batch that the table states. Rows are appended to benchmarks/results/heads.csv.

    python benchmarks/heads.py                     # all trees, one thread and two
    python benchmarks/heads.py --tree r52 --repeats 2000
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import arbormax as am
import trees
from common import append, circumstances

# tree, repeats, runs in one turn, repeats of the slow peer, its batch
TREES: dict[str, tuple[Callable[[], am.Taxonomy], int, int, int, int]] = {
    "r52": (trees.r52, 2000, 20, 20, 256),
    "22^3": (lambda: trees.balanced(22, 3), 20, 2, 1, 64),
    "icd10cm": (trees.icd10cm, 10, 1, 1, 8),
}
SLOW = "hierarchicalsoftmax"


def contenders(tax: am.Taxonomy, features: int, batch: int, slow_batch: int) -> dict[str, Callable[[], None]]:
    """Return a function per contender that runs forward and backward once on the same random batch."""
    h = torch.randn(batch, features, requires_grad=True)
    y = torch.randint(tax.num_leaves, (batch,))
    wide_y = torch.randint(tax.num_nodes - 1, (batch,))
    flat, wide = nn.Linear(features, tax.num_leaves), nn.Linear(features, tax.num_nodes - 1)
    cutoff = max(1, tax.num_leaves // 10)
    adaptive = nn.AdaptiveLogSoftmaxWithLoss(features, tax.num_leaves, cutoffs=[cutoff])
    heads = {
        "HierarchicalSoftmax": am.HierarchicalSoftmax(features, tax, init="torch"),
        "FlatSoftmax": am.FlatSoftmax(features, tax, init="torch"),
        "SharedSoftmax": am.SharedSoftmax(features, tax, init="torch"),
    }
    peer, peer_loss, peer_y = hierarchicalsoftmax(tax, features, y[:slow_batch])

    def step(module: nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], None]:
        parameters = [h, *module.parameters()]

        def run() -> None:
            for parameter in parameters:
                parameter.grad = None
            loss().backward()

        return run

    return {
        "Linear + cross entropy": step(flat, lambda: F.cross_entropy(flat(h), y)),
        "flat of the same width": step(wide, lambda: F.cross_entropy(wide(h), wide_y)),
        **{name: step(head, lambda head=head: head.loss(h, y)) for name, head in heads.items()},  # type: ignore[misc]
        "AdaptiveLogSoftmaxWithLoss": step(adaptive, lambda: adaptive(h, y).loss),
        SLOW: step(peer, lambda: peer_loss(peer(h[:slow_batch]), peer_y)),
    }


def hierarchicalsoftmax(tax: am.Taxonomy, features: int, y: torch.Tensor) -> tuple[nn.Module, nn.Module, torch.Tensor]:
    from hierarchicalsoftmax import HierarchicalSoftmaxLinear, HierarchicalSoftmaxLoss, SoftmaxNode

    nodes = [SoftmaxNode("root")]
    for node in range(1, tax.num_nodes):
        nodes.append(SoftmaxNode(tax.names[node], parent=nodes[tax.parent[node]]))
    root = nodes[0]
    root.set_indexes()
    linear = HierarchicalSoftmaxLinear(in_features=features, root=root)
    targets = root.get_node_ids_tensor([nodes[tax.leaves[c]] for c in y.tolist()])
    return linear, HierarchicalSoftmaxLoss(root), targets


def measure(runs: dict[str, Callable[[], None]], repeats: int, slow_repeats: int, turn: int) -> dict[str, list[float]]:
    """Return the seconds of every run; the contenders take turns of a few runs."""
    for name, run in runs.items():
        if name != SLOW or slow_repeats > 1:
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    while len(seconds["Linear + cross entropy"]) < repeats:
        for name, run in runs.items():
            for _ in range(turn):
                if name == SLOW and len(seconds[name]) >= slow_repeats:
                    break
                start = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", choices=TREES, action="append", help="only this tree; may be given more than once")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--features", type=int, default=300)
    parser.add_argument("--threads", type=int, action="append", help="default: 1 and 2")
    parser.add_argument("--repeats", type=int, help="repeats, instead of the number of each tree")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "heads.csv")
    args = parser.parse_args()
    rows = []
    for name in args.tree or TREES:
        build, repeats, turn, slow_repeats, slow_batch = TREES[name]
        slow_batch = min(slow_batch, args.batch)
        tax = build()
        torch.manual_seed(0)
        runs = contenders(tax, args.features, args.batch, slow_batch)
        for threads in args.threads or (1, 2):
            torch.set_num_threads(threads)
            print(f"\n{name}: {tax}, B {args.batch}, D {args.features}, {threads} thread{'s' * (threads > 1)}")
            print(f"{'':28}{'median ms':>11}{'p20':>9}{'p80':>9}{'/ flat':>9}{'/ same width':>14}")
            seconds = measure(runs, args.repeats or repeats, slow_repeats, turn)
            medians = {run: statistics.median(times) for run, times in seconds.items()}
            flat, wide = medians["Linear + cross entropy"], medians["flat of the same width"]
            for run, times in seconds.items():
                p20, p80 = np.percentile(times, [20, 80]) * 1e3
                to_flat, to_wide = medians[run] / flat, medians[run] / wide
                print(f"{run:28}{medians[run] * 1e3:11.3f}{p20:9.3f}{p80:9.3f}{to_flat:9.2f}{to_wide:14.2f}")
                rows.append(
                    {
                        "tree": name,
                        "classes": tax.num_leaves,
                        "nodes": tax.num_nodes,
                        "batch": slow_batch if run == SLOW else args.batch,
                        "features": args.features,
                        "threads": threads,
                        "contender": run,
                        "median_ms": round(medians[run] * 1e3, 4),
                        "p20_ms": round(p20, 4),
                        "p80_ms": round(p80, 4),
                        "to_flat": round(to_flat, 3),
                        "to_same_width": round(to_wide, 3),
                        **circumstances("torch", "hierarchicalsoftmax"),
                    }
                )
            times = medians[SLOW] / medians["HierarchicalSoftmax"]
            share = "" if slow_batch == args.batch else f", whose batch was {slow_batch} instead of {args.batch}"
            print(f"HierarchicalSoftmax is {times:.0f} × faster than {SLOW}{share}")
    print(f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")
    append(args.out, rows)


if __name__ == "__main__":
    main()
