"""Train the models of the study and keep the log-probabilities of their held-out and test texts.

    python experiments/probabilities/scores.py --out scores --runs tfidf:icd10cm tfidf:soc2020 --seeds 5

A run is ENCODER:DATASET, optionally with :HEAD. A tenth of the training texts is held out, with another draw for each
seed; the model is trained on the others with default settings and without calibration. Each run and seed is one file
of a few hundred megabytes at most; a file that is there is kept. The other commands of the study read these files.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from arbormax import Taxonomy
from arbormax.data import load
from arbormax.data.examples import Examples
from arbormax.data.folds import hold_out
from arbormax.model import Model, TrainConfig
from arbormax.training import fit

RUNS = ("tfidf:trec", "tfidf:r52", "bag:trec", "bag:r52", "tfidf:soc2020", "tfidf:icd10cm")
SHARE = 0.1


class Scores(NamedTuple):
    """Node log-probabilities (n, N) and true nodes (n,) of held-out and test texts."""

    valid: torch.Tensor
    valid_nodes: np.ndarray
    test: torch.Tensor
    test_nodes: np.ndarray


def read_scores(folder: Path, run: str, seed: int) -> Scores | None:
    """The scores of a run, None if it was not made."""
    path = folder / f"{run.replace(':', '-')}-{seed}.npz"
    if not path.exists():
        return None
    with np.load(path) as found:
        return Scores(
            torch.from_numpy(found["valid"]), found["valid_nodes"], torch.from_numpy(found["test"]), found["test_nodes"]
        )


def taxonomy_of(run: str) -> Taxonomy:
    """The taxonomy of the dataset of a run."""
    return load(run.split(":")[1]).taxonomy


def make(run: str, seed: int, folder: Path) -> None:
    """Train one model and write its scores."""
    path = folder / f"{run.replace(':', '-')}-{seed}.npz"
    if path.exists():
        return
    encoder, name, *head = run.split(":")
    data = load(name)
    part, valid = hold_out(data.train, SHARE, seed)
    assert valid is not None
    given: dict[str, Any] = {"head": head[0]} if head else {}
    if "calibration" in TrainConfig.model_fields:
        given["calibration"] = "none"
    start = time.perf_counter()
    config = TrainConfig.make(encoder=encoder, seed=seed, **given)
    model = fit(config, data.taxonomy, part, valid).model
    print(f"{run}, seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
    np.savez(
        path,
        valid=_log_probs(model, valid),
        valid_nodes=valid.nodes,
        test=_log_probs(model, data.test),
        test_nodes=data.test.nodes,
    )


def _log_probs(model: Model, examples: Examples) -> np.ndarray:
    found: np.ndarray = torch.cat(list(model.node_log_probs(examples.inputs))).float().numpy()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", nargs="+", default=RUNS)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for run in args.runs:
        for seed in range(args.seeds):
            make(run, seed, args.out)


if __name__ == "__main__":
    main()
