"""Time to build, save, load and query large taxonomies. Appends to benchmarks/results/taxonomy.csv.

python benchmarks/taxonomy.py
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import trees
from arbormax import Taxonomy
from common import append, circumstances


def seconds(call: Callable[[], object], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def shuffled(parents: np.ndarray, seed: int = 0) -> np.ndarray:
    """The same tree with random node numbers."""
    number = np.random.default_rng(seed).permutation(len(parents))
    mixed = np.empty_like(parents)
    mixed[number] = np.where(parents < 0, -1, number[parents])
    return mixed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "taxonomy.csv")
    args = parser.parse_args()
    n = args.nodes
    regular = np.append(-1, (np.arange(1, n) - 1) // 10)
    chain, star = np.arange(-1, n // 10 - 1), np.append(-1, np.zeros(n, np.int64))
    mixed = shuffled(regular)
    tax, line, wide, icd = (Taxonomy.from_parents(p) for p in (mixed, chain, star, trees.icd10cm().parent))
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, n, (2, n))
    folder = Path(tempfile.mkdtemp())
    for name, tree in (("tree", tax), ("chain", line), ("star", wide), ("icd", icd)):
        tree.save(folder / f"{name}.json")

    jobs: dict[str, tuple[Callable[[], object], float | None]] = {  # the call, and the seconds allowed
        f"{n:,} nodes from parents, breadth-first": (lambda: Taxonomy.from_parents(regular), 2.0),
        f"{n:,} nodes from parents, shuffled": (lambda: Taxonomy.from_parents(mixed), 2.0),
        f"{n:,} nodes saved as JSON": (lambda: tax.save(folder / "again.json"), None),
        f"{n:,} nodes loaded from JSON": (lambda: Taxonomy.load(folder / "tree.json"), 15.0),
        f"chain of {len(chain):,} from parents": (lambda: Taxonomy.from_parents(chain), None),
        f"chain of {len(chain):,} loaded from JSON": (lambda: Taxonomy.load(folder / "chain.json"), None),
        f"star of {n:,} from parents": (lambda: Taxonomy.from_parents(star), None),
        f"star of {n:,} loaded from JSON": (lambda: Taxonomy.load(folder / "star.json"), None),
        "ICD-10-CM (98,506 nodes) loaded from JSON": (lambda: Taxonomy.load(folder / "icd.json"), 1.0),
        f"{n:,} lowest common ancestors": (lambda: tax.lca(a, b), None),
        "first look-up by name": (lambda: Taxonomy.from_parents(regular).find(str(n - 1)), None),
        "heights, leaf counts, fingerprint": (
            lambda: [(t.height, t.leaf_counts, t.fingerprint) for t in [Taxonomy.from_parents(regular)]],
            None,
        ),
        "render": (lambda: tax.render(), None),
    }
    rows = []
    print(f"{'':50}{'median s':>10}{'allowed':>10}")
    for name, (call, allowed) in jobs.items():
        median = statistics.median(seconds(call, args.repeats))
        print(f"{name:50}{median:10.3f}{'' if allowed is None else f'{allowed:.0f}':>10}")
        rows.append(
            {
                "job": name,
                "median_s": round(median, 4),
                "allowed_s": allowed,
                "repeats": args.repeats,
                **circumstances("numpy"),
            }
        )
    append(args.out, rows)


if __name__ == "__main__":
    main()
