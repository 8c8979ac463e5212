"""Measure every calibration on the scores of `scores.py`.

    python experiments/probabilities/calibration.py --scores scores

Each calibration is fitted on the held-out texts and measured on the test texts. `valid_nll` is the likelihood of
held-out texts in five folds, each scaled by a fit on the other four; it is what the default is chosen by. The records
are results/calibration.jsonl, one line for each run, seed and method.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scores import RUNS, Scores, read_scores, taxonomy_of

from arbormax import Taxonomy, decode
from arbormax.functional import scale_siblings
from arbormax.metrics import evaluate
from arbormax.model.calibration import Scaling
from arbormax.uncertainty import CALIBRATIONS
from arbormax.uncertainty.measures import measure_probabilities
from arbormax.uncertainty.scaling import step_losses
from arbormax.uncertainty.steps import find_steps

RESULTS = Path(__file__).parent / "results"
FOLDS = 5


def measure(run: str, seed: int, scores: Scores, tax: Taxonomy) -> list[dict[str, Any]]:
    """One record for no calibration and for each registered one."""
    steps = find_steps(scores.valid.numpy(), scores.valid_nodes, tax)
    fold_n = np.random.default_rng(seed).permutation(steps.items) % FOLDS
    before = decode.leaf(scores.test, tax)
    records = []
    for method in ("none", *CALIBRATIONS):
        start = time.perf_counter()
        scaling = unchanged(tax) if method == "none" else CALIBRATIONS[method](steps, tax)
        seconds = time.perf_counter() - start
        logp = scores.test if method == "none" else scaled(scores.test, scaling, tax)
        predicted = decode.leaf(logp, tax)
        nodes = evaluate(scores.test_nodes, predicted, tax)
        losses = 0.0
        for fold in range(FOLDS):
            part = steps.take(fold_n != fold)
            other = unchanged(tax) if method == "none" else CALIBRATIONS[method](part, tax)
            losses += step_losses(steps.take(fold_n == fold), other).sum()
        found = measure_probabilities([(logp, scores.test_nodes)], tax)
        records.append(
            {
                "run": run,
                "seed": seed,
                "method": method,
                "valid_items": len(scores.valid_nodes),
                "valid_nll": losses / len(scores.valid_nodes),
                **{name: found[name] for name in ("nll", "brier", "ece", "ece_debiased")},
                **{name: nodes[name] for name in ("accuracy", "macro_f1", "hf", "mistake_severity")},
                "changed": float((predicted != before).double().mean()),
                "seconds": round(seconds, 2),
            }
        )
    return records


def unchanged(tax: Taxonomy) -> Scaling:
    """A scaling that changes nothing."""
    return Scaling(np.ones(tax.num_nodes - 1), np.zeros(tax.num_nodes - 1))


def scaled(logp: torch.Tensor, scaling: Scaling, tax: Taxonomy) -> torch.Tensor:
    """(n, N) calibrated log-probabilities, a part at a time."""
    scale, shift = torch.from_numpy(scaling.scale), torch.from_numpy(scaling.shift)
    return torch.cat([scale_siblings(part, scale, shift, tax) for part in torch.split(logp, 1024)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--runs", nargs="+", default=RUNS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "calibration.jsonl")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w") as out:
        for run in args.runs:
            tax = taxonomy_of(run)
            for seed in range(args.seeds):
                if (scores := read_scores(args.scores, run, seed)) is None:
                    continue
                for record in measure(run, seed, scores, tax):
                    out.write(json.dumps(record) + "\n")
                    top = ", ".join(f"{record[name]:.4f}" for name in ("valid_nll", "nll", "brier", "accuracy"))
                    print(run, seed, record["method"], top, f"{record['changed']:.3%} changed", flush=True)
            out.flush()


if __name__ == "__main__":
    main()
