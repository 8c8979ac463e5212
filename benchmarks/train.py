"""Training and prediction: `bag` against fastText on ICD-10-CM, the cost of the loop around a BiLSTM, texts per second.

    python benchmarks/train.py --tune     select the settings of each contender on held-out training titles
    python benchmarks/train.py            times and test accuracy with the selected settings, medians of several rounds

Both write to benchmarks/results: train_tuning.csv, train.csv, and train.svg, the frontier of time and accuracy.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import fasttext
import numpy as np
import pytorch_lightning as pl
import torch

from arbormax.data import Batches, Dataset, Examples, load
from arbormax.data.folds import hold_out
from arbormax.data.tokens import words
from arbormax.model import Model, TrainConfig
from arbormax.training import fit
from arbormax.training.optim import clip_gradients
from common import append, circumstances
from frontier import write_frontier

RESULTS = Path(__file__).parent / "results"
COLUMNS = [
    *("what", "contender", "lr", "epochs", "ngrams", "is_tuned", "batch", "threads", "seconds"),
    *("test_accuracy", "spread", "bare_seconds", "ratio", "texts_per_second"),
]
GRID: dict[str, dict[str, list[Any]]] = {
    "fastText hs": {"lr": [0.05, 0.1, 0.25, 0.5, 1.0], "epochs": [5, 10, 25, 50, 100], "ngrams": [1, 2, 3]},
    "fastText softmax": {"lr": [0.1, 0.25, 0.5, 1.0], "epochs": [5, 10, 25], "ngrams": [1, 2, 3]},
    "bag hierarchical": {"lr": [3e-3, 1e-2, 3e-2], "epochs": [1, 2, 4, 8], "ngrams": [1, 2, 3]},
    "bag flat": {"lr": [3e-3, 1e-2, 3e-2], "epochs": [1, 2, 4, 8], "ngrams": [1, 2, 3]},
}
SLOW = "fastText softmax"  # takes minutes: one round is enough
FRONTIER = {"fastText hs": [5, 10, 25, 50, 100], "fastText softmax": [5, 10, 25], "bag hierarchical": [1, 2, 4, 8]}


@cache
def dataset() -> Dataset:
    return load("icd10cm")


Predict = Callable[[list[str]], np.ndarray]


class Contender:
    """A classifier that is trained with a learning rate, a number of epochs and n-grams."""

    def __init__(self, name: str, train: Examples, threads: int) -> None:
        self.name, self.train, self.threads = name, train, threads
        self.classes = dataset().taxonomy.class_of
        if name.startswith("fastText"):
            self.file = Path(tempfile.mkdtemp()) / "train.txt"
            lines = (f"__label__{self.classes[n]} {plain(t)}\n" for t, n in zip(train.inputs, train.nodes, strict=True))
            self.file.write_text("".join(lines), "utf-8")

    def run(self, lr: float, epochs: int, ngrams: int, seed: int = 0) -> tuple[float, Predict]:
        """The seconds of training, and a function from texts to classes."""
        kind, loss = self.name.split()
        if kind == "fastText":
            start = time.perf_counter()
            model = fasttext.train_supervised(
                str(self.file),
                loss=loss,
                lr=lr,
                epoch=epochs,
                wordNgrams=ngrams,
                thread=self.threads,
                seed=seed,
                verbose=0,
            )
            seconds = time.perf_counter() - start

            def predict(texts: list[str]) -> np.ndarray:
                return np.array([int(found[0][9:]) for found in model.predict([plain(t) for t in texts])[0]])

            return seconds, predict
        torch.set_num_threads(self.threads)
        config = TrainConfig.make(
            encoder=kind,
            head=loss,
            learning_rate=lr,
            epochs=epochs,
            validation=0.0,
            seed=seed,
            encoder_options={"ngrams": ngrams},
        )
        start = time.perf_counter()
        trained = fit(config, dataset().taxonomy, self.train).model
        seconds = time.perf_counter() - start  # includes building the vocabulary and encoding, as for fastText
        return seconds, lambda texts: classes_of(trained, texts)


def plain(text: str) -> str:
    return " ".join(words(text))


def classes_of(model: Model, texts: list[str]) -> np.ndarray:
    leaves = torch.tensor(model.taxonomy.leaves)
    return torch.cat([logp[:, leaves].argmax(1) for logp in model.node_log_probs(texts)]).numpy()


def accuracy(predict: Predict, examples: Examples) -> float:
    return float((predict(examples.inputs) == dataset().taxonomy.class_of[examples.nodes]).mean())


def tuned(job: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """One point of the grid: accuracy on a tenth of the titles, held out from training."""
    warnings.simplefilter("ignore")
    name, settings = job
    train, valid = hold_out(dataset().train, 0.1, seed=0)
    assert valid is not None
    try:
        seconds, predict = Contender(name, train, threads=1).run(**settings)
    except RuntimeError as error:  # fastText raises for a learning rate that is too high
        return {"contender": name, **settings, "valid_accuracy": 0.0, "seconds": 0.0, "note": str(error)}
    score = round(accuracy(predict, valid), 4)
    return {"contender": name, **settings, "valid_accuracy": score, "seconds": round(seconds, 2), "note": ""}


def tune(workers: int) -> None:
    jobs = [
        (name, dict(zip(grid, values, strict=True)))
        for name, grid in GRID.items()
        for values in itertools.product(*grid.values())
    ]
    jobs.sort(key=lambda job: -job[1]["epochs"] * (10 if job[0] != "fastText hs" else 1))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(tuned, jobs))
    stamp = circumstances("torch", "fasttext-numpy2-wheel")
    append(RESULTS / "train_tuning.csv", [{**row, **stamp} for row in rows])
    for name in GRID:
        print(name, best_of(rows, name))


def best_of(rows: Iterable[dict[str, Any]], name: str) -> dict[str, Any]:
    """The settings with the best accuracy on held-out titles; of equal ones, those with the fewest epochs."""
    mine = [row for row in rows if row["contender"] == name]
    best = max(mine, key=lambda row: (float(row["valid_accuracy"]), -int(row["epochs"])))
    return {"lr": float(best["lr"]), "epochs": int(best["epochs"]), "ngrams": int(best["ngrams"])}


def chosen() -> dict[str, dict[str, Any]]:
    with (RESULTS / "train_tuning.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: best_of(rows, name) for name in GRID}


def frontier(threads: int, turns: int) -> list[dict[str, Any]]:
    """Each contender with its tuned learning rate and n-grams and several numbers of epochs, in alternating order."""
    settings = chosen()
    points = [
        (name, {**settings[name], "epochs": epochs}, epochs == settings[name]["epochs"])
        for name, many in FRONTIER.items()
        for epochs in sorted({*many, settings[name]["epochs"]})
    ]
    contenders = {name: Contender(name, dataset().train, threads) for name in FRONTIER}
    seconds: dict[int, list[float]] = {i: [] for i in range(len(points))}
    scores: dict[int, list[float]] = {i: [] for i in range(len(points))}
    for turn in range(turns):
        for i, (name, values, _) in enumerate(points):
            if turn and name == SLOW:
                continue
            taken, predict = contenders[name].run(**values, seed=turn)
            seconds[i].append(taken)
            scores[i].append(accuracy(predict, dataset().test))
            print(f"{name:18} {values} {taken:6.1f} s  test accuracy {scores[i][-1]:.4f}", flush=True)
    return [
        {
            "what": "train",
            "contender": name,
            **values,
            "is_tuned": tuned_here,
            "threads": threads,
            "seconds": round(statistics.median(seconds[i]), 2),
            "test_accuracy": round(statistics.mean(scores[i]), 4),
            "spread": round(statistics.stdev(scores[i]), 4) if len(scores[i]) > 1 else "",
        }
        for i, (name, values, tuned_here) in enumerate(points)
    ]


class StepClock(pl.Callback):
    """The times at which the first and the last step of a training end."""

    first = last = 0.0

    def on_train_batch_end(self, *_: Any) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last


def overhead(threads: int, turns: int) -> list[dict[str, Any]]:
    """Seconds per step of `fit` with a BiLSTM, and of a bare loop over ready tensors with the same modules.

    From the first step to the last: what `fit` saves at the end of an epoch is not a step.
    """
    torch.set_num_threads(threads)
    train = dataset().train.take(np.arange(0, len(dataset().train), 8))
    rows = []
    for preset in (None, "paper"):
        config = TrainConfig.make(preset, encoder="bilstm", epochs=1, validation=0.0).resolved()
        size = config.batch_size or 1
        part = train.take(np.arange(min(len(train), 400 * size)))
        steps = -(-len(part) // size)
        ours, bare = [], []
        for _ in range(turns):
            clock = StepClock()
            with tempfile.TemporaryDirectory() as folder:
                fit(config, dataset().taxonomy, part, folder=folder, callbacks=[clock])
            ours.append((clock.last - clock.first) / (steps - 1))
            bare.append(bare_loop(config, part) / steps)
        ratio = statistics.median(o / b for o, b in zip(ours, bare, strict=True))
        fitted, plain_loop = statistics.median(ours), statistics.median(bare)
        print(f"bilstm, batch {size}: fit {fitted * 1e3:.2f} ms a step, bare {plain_loop * 1e3:.2f}, ratio {ratio:.3f}")
        rows.append(
            {
                "what": "overhead",
                "contender": "bilstm",
                "batch": size,
                "threads": threads,
                "seconds": round(fitted, 5),
                "bare_seconds": round(plain_loop, 5),
                "ratio": round(ratio, 3),
            }
        )
    return rows


def bare_loop(config: TrainConfig, examples: Examples) -> float:
    """Seconds of a plain training loop with the same modules, optimiser and clipping, and prepared batches."""
    model = Model.new(examples.inputs, dataset().taxonomy, config)
    targets = dataset().taxonomy.class_of[examples.nodes]
    rows = model.encoder.encode(examples.inputs)
    batches = list(Batches(rows, targets, model.encoder.collate, config.batch_size or 1, shuffle=True, sort=True))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    model.train()
    start = time.perf_counter()
    for inputs, target in batches:
        optimiser.zero_grad()
        model.head.loss(model.encoder(*inputs), target).backward()
        clip_gradients(model.parameters(), 5.0)
        optimiser.step()
    return time.perf_counter() - start


def throughput(threads: int, turns: int) -> list[dict[str, Any]]:
    """Texts per second, from strings to the most probable class."""
    torch.set_num_threads(threads)
    texts = dataset().train.inputs
    rows = []
    for encoder in ("bag", "bilstm"):
        model = Model.new(texts, dataset().taxonomy, TrainConfig.make(encoder=encoder).resolved())
        some = texts if encoder == "bag" else texts[:20_000]
        rates = []
        for _ in range(turns):
            start = time.perf_counter()
            classes_of(model, some)
            rates.append(len(some) / (time.perf_counter() - start))
        print(f"predict, {encoder}: {statistics.median(rates):,.0f} texts a second", flush=True)
        rate = round(statistics.median(rates))
        rows.append({"what": "predict", "contender": encoder, "threads": threads, "texts_per_second": rate})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tune", action="store_true", help="choose each contender's settings first")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes while tuning")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", choices=["frontier", "overhead", "predict"], action="append")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.tune:
        tune(args.workers)
        return
    stamp = circumstances("torch", "pytorch-lightning", "fasttext-numpy2-wheel")
    wanted = args.only or ["frontier", "overhead", "predict"]
    rows: list[dict[str, Any]] = []
    if "frontier" in wanted:
        rows += (measured := frontier(args.threads, args.turns))
        write_frontier(measured, RESULTS / "train.svg")
        tuned_rows = {row["contender"]: row for row in measured if row["is_tuned"]}
        ours, theirs = tuned_rows["bag hierarchical"], tuned_rows["fastText hs"]
        print(
            f"bag hierarchical takes {ours['seconds'] / theirs['seconds']:.2f} × the time of fastText hs, "
            f"test accuracy {ours['test_accuracy']:.4f} against {theirs['test_accuracy']:.4f}"
        )
    if "overhead" in wanted:
        rows += overhead(args.threads, args.turns)
    if "predict" in wanted:
        rows += throughput(args.threads, args.turns)
    append(RESULTS / "train.csv", [{**{name: row.get(name, "") for name in COLUMNS}, **stamp} for row in rows])


if __name__ == "__main__":
    main()
