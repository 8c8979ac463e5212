"""Time and memory to induce a tree over many classes. Appends to benchmarks/results/induce.csv.

    python benchmarks/induce.py --classes 10000 74731 --method kmeans
    python benchmarks/induce.py --classes 10000 74731 --data features

The texts are the titles of the codes of ICD-10-CM, each a class of its own with one text. The features are 64 random
numbers for each class. Every size has a process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import arbormax as am
from common import append, circumstances

OUT = Path(__file__).parent / "results" / "induce.csv"


def titles() -> list[str]:
    """The titles of all leaf codes of ICD-10-CM, which differ."""
    import simple_icd_10_cm as icd

    codes = [code for code in icd.get_all_codes(True) if icd.is_leaf(code) and not icd.is_chapter_or_block(code)]
    return list(dict.fromkeys(f"{icd.get_description(code)}" for code in codes))


def measure(classes: int, method: str, data: str) -> dict[str, object]:
    """The time, the memory beyond that of the data, and the tree."""
    if data == "features":
        labels = [f"class {number}" for number in range(classes)]
        X: object = np.random.default_rng(0).normal(size=(classes, 64))
    else:
        labels = titles()[:classes]
        X = labels
    am.induce(X[:50], labels[:50], method)  # type: ignore[index]  # imports what is needed
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu = time.perf_counter(), time.process_time()
    tax = am.induce(X, labels, method)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "data": data,
        "method": method,
        "classes": len(labels),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "further_MB": round((peak - before) / 1024),
        "peak_MB": round(peak / 1024),
        "nodes": tax.num_nodes,
        "depth": tax.depth,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="+", default=[10_000, 20_000, 40_000, 80_000])
    parser.add_argument("--method", default="kmeans")
    parser.add_argument("--data", choices=["titles", "features"], default="titles")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--one", action="store_true", help="measure one size in this process and print it as JSON")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.classes[0], args.method, args.data)))
        return
    rows = []
    for classes in args.classes:
        words = [sys.executable, __file__, "--one", "--classes", str(classes)]
        words += ["--method", args.method, "--data", args.data]
        found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        rows.append({**found, **circumstances("numpy", "scipy", "scikit-learn")})
        print({name: rows[-1][name] for name in found}, flush=True)
    append(args.out, rows)


if __name__ == "__main__":
    main()
