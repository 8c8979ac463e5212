"""What `--tune` gains on test texts: the default settings, and the best ones of a search of one minute.

The search sees the training texts only. Seeds change the held-out texts and what is tried. How many trials a minute
has depends on the machine.

    python benchmarks/tune.py
"""

import argparse
import logging
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from arbormax.data.datasets import load
from arbormax.model import TrainConfig
from arbormax.studies import evaluate
from arbormax.studies.tune import tune
from arbormax.training import fit
from common import append, circumstances

MOST_TEXTS = 5000  # of icd10cm, whose test texts are of another kind than its training texts
RESULTS = Path(__file__).parent / "results" / "tune.csv"
MEASURES = ("accuracy", "macro_f1", "hf", "nll")


def measured(config, data):
    start = time.perf_counter()
    run = fit(config, data.taxonomy, data.train)
    seconds = time.perf_counter() - start
    found = evaluate(run.model, data.test).metrics
    return {**{name: round(found[name], 4) for name in MEASURES}, "seconds": round(seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=("trec", "r52", "soc2020"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    about = circumstances("torch", "numpy", "optuna")
    for name in options.datasets:
        data = whole = load(name)
        for seed in range(options.seeds):
            if name == "icd10cm":
                draw = np.random.default_rng(seed).permutation(len(whole.train))[:MOST_TEXTS]
                data = replace(whole, train=whole.train.take(draw))
            config = TrainConfig.make(seed=seed)
            found = tune(config, data.taxonomy, data.train, budget=options.budget)
            settings = found.trials[found.best].settings
            known = {"dataset": name, "seed": seed, "budget": options.budget, "trials": len(found.trials)}
            rows = [{**known, "settings": "default", **measured(config, data), **about}]
            best = ", ".join(f"{key} {value:.3g}" for key, value in settings.items())
            rows.append({**known, "settings": best, **measured(found.config, data), **about})
            append(options.out, rows)


if __name__ == "__main__":
    main()
