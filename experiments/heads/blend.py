"""Blends and ensembles from the saved probabilities of finished trainings; no training.

    python experiments/heads/blend.py --probabilities FOLDER

A blend is the weighted mean of the probabilities of a fine-tuned all-mpnet-base-v2 and of the TF-IDF classifier, with
the weight that is most accurate on held-out training texts. An ensemble is the mean over the seeds of one arm.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from heads_study.jobs import pack, plain, read, write
from heads_study.plan import DATASETS, SEEDS, Arm, Job

from arbormax.functional.probabilities import flat_node_log_probs
from arbormax.studies.evaluate import evaluate_log_probs

RESULTS = Path(__file__).parent / "results"
WEIGHTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # of the transformer
TRANSFORMER, LINEAR = Arm("mpnet", "shared", names=True), Arm("tfidf", "blended", names=True)


def load(folder: Path, job: Job) -> np.ndarray:
    """(n, C) probabilities of the classes."""
    logp_nC = np.load(folder / job.file.replace(".json", ".npy"), allow_pickle=False).astype(np.float64)
    prob_nC: np.ndarray = np.exp(logp_nC - np.logaddexp.reduce(logp_nC, axis=1, keepdims=True))
    return prob_nC


def has(folder: Path, *jobs: Job) -> bool:
    return all((folder / job.file.replace(".json", ".npy")).exists() for job in jobs)


def choose_weight(folder: Path, dataset: str) -> float:
    """The weight with the highest accuracy on the held-out training texts; the largest of equal ones."""
    tax, _, held_out = read(dataset, "valid")
    first, second = (load(folder, Job(dataset, arm, "valid")) for arm in (TRANSFORMER, LINEAR))
    truth = tax.class_of[held_out.nodes]
    return max(WEIGHTS, key=lambda weight: np.mean((weight * first + (1 - weight) * second).argmax(1) == truth))


def store(dataset: str, name: str, seed: int, probability_nC: np.ndarray, about: dict, out: Path) -> None:
    """Evaluate probabilities on the test texts and write their record."""
    tax, _, test = read(dataset, "test")
    logp = flat_node_log_probs(torch.from_numpy(np.log(probability_nC)), tax)
    found = evaluate_log_probs([logp], test, tax)
    arm = Arm(name)
    record = {"dataset": dataset, "arm": {"model": name}, "part": "test", "seed": seed, "name": name, **about}
    record |= {key: plain(value) for key, value in found.metrics.items()}
    record["predicted"] = pack(tax.class_of[found.predicted])
    write(record, Job(dataset, arm, "test", seed), out)
    print(dataset, name, seed, *(f"{100 * found.metrics[key]:.2f}" for key in ("accuracy", "macro_f1")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probabilities", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    folder = args.probabilities
    for dataset in args.datasets:
        jobs = [Job(dataset, TRANSFORMER, "test", seed) for seed in range(SEEDS)]
        done = [job for job in jobs if has(folder, job)]
        if len(done) > 1:
            mean = np.mean([load(folder, job) for job in done], axis=0)
            about = {"members": [job.file for job in done]}
            store(dataset, "ensemble", 0, mean, about, args.out)
        second = Job(dataset, LINEAR)
        if not done or not has(folder, second, Job(dataset, TRANSFORMER, "valid"), Job(dataset, LINEAR, "valid")):
            continue
        weight = choose_weight(folder, dataset)
        for job in done:
            mixed = weight * load(folder, job) + (1 - weight) * load(folder, second)
            store(dataset, "blend", job.seed, mixed, {"weight": weight, "members": [job.file, second.file]}, args.out)


if __name__ == "__main__":
    main()
