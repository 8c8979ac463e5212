"""Cross-validation: every example is predicted once by a model that never saw it.

n examples, K folds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from arbormax import metrics
from arbormax._files import write_file
from arbormax.data.examples import Examples
from arbormax.data.folds import assign_folds
from arbormax.errors import InputError, OptionError
from arbormax.model.folder import remove_state
from arbormax.model.settings import TrainConfig
from arbormax.studies.evaluate import evaluate
from arbormax.taxonomy import Taxonomy
from arbormax.training.fit import Run, check_examples, fit
from arbormax.training.hardware import ONE_DEVICE, Hardware
from arbormax.training.state import run_identity

Progress = Callable[[str, int, int], None]
EpochsFrom = Literal["inner", "fold"]


class Measured(NamedTuple):
    """One training with the measures on what it did not see."""

    metrics: dict[str, Any]
    predicted: np.ndarray  # int64 node of each example's most probable leaf


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """The measures of every fold, their mean and spread, and those of all predictions together."""

    config: TrainConfig
    epochs_from: EpochsFrom
    folds: tuple[dict[str, Any], ...]  # measures of each fold, with its epochs, best_epoch, seconds and parameters
    mean: dict[str, float]  # over the folds
    std: dict[str, float]  # over the folds, with K - 1 in the denominator
    pooled: dict[str, Any]  # of all validated examples at once
    fold: np.ndarray  # (n,) int64 the fold that each example was validated in, -1 for none
    predicted: np.ndarray  # (n,) int64 the most probable leaf as a node, -1 for the never validated

    @property
    def never_validated(self) -> int:
        """How many examples are the only one of their label: they are always trained on, never measured."""
        return int((self.fold < 0).sum())

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {
            "config": self.config.model_dump(mode="json"),
            "epochs_from": self.epochs_from,
            "folds": [dict(fold) for fold in self.folds],
            "mean": dict(self.mean),
            "std": dict(self.std),
            "pooled": dict(self.pooled),
            "never_validated": self.never_validated,
            "fold": self.fold.tolist(),
            "predicted": self.predicted.tolist(),
        }


def crossval(
    config: TrainConfig,
    taxonomy: Taxonomy,
    examples: Examples,
    folds: int = 4,
    *,
    hardware: Hardware = ONE_DEVICE,
    folder: Path | str | None = None,
    progress: Progress | None = None,
    epochs_from: EpochsFrom = "inner",
) -> CrossValidation:
    """Train once for each fold on all other examples, and measure on the fold.

    `epochs_from="inner"` stops early on a share `config.validation` of the examples trained on, so that the fold stays
    untouched until it is measured. `"fold"` stops early on the fold itself, which trains on more but reports the best
    epoch of the very examples it is measured on: a little too good.

    With `folder`, every finished fold is written there, and a call that is started again goes on where it was.
    """
    if epochs_from not in ("inner", "fold"):
        raise OptionError(f"epochs_from is 'inner' or 'fold', found {epochs_from!r}")
    config = config.resolved(len(examples))
    check_examples(examples, taxonomy, "train")
    if epochs_from == "fold" and config.validation == 0:
        raise OptionError("epochs_from='fold' stops early on the fold, but validation=0 asks for no early stopping")
    fold_n = assign_folds(examples.nodes, folds, config.seed)
    identity = run_identity(config, taxonomy, examples, folds=folds, epochs_from=epochs_from)
    ledger = Ledger(folder, identity, "a cross-validation")
    told = progress or silent
    measured = []
    for number in range(folds):
        told(f"fold {number + 1} of {folds}", number, folds)
        name = f"fold-{number}"
        done = ledger.get(name)
        if done is None:
            inside, outside = (
                examples.take(np.flatnonzero(fold_n != number)),
                examples.take(np.flatnonzero(fold_n == number)),
            )
            done = measure(
                config,
                taxonomy,
                inside,
                outside,
                valid=outside if epochs_from == "fold" else None,
                hardware=hardware,
                folder=ledger.place(name),
            )
            ledger.put(name, done)
        measured.append(done)
    told("finished", folds, folds)

    predicted_n = np.full(len(examples), -1, dtype=np.int64)
    for number, done in enumerate(measured):
        predicted_n[fold_n == number] = done.predicted
    per_fold = tuple({"fold": number, **done.metrics} for number, done in enumerate(measured))
    mean, std = mean_and_std([done.metrics for done in measured])
    return CrossValidation(
        config=config,
        epochs_from=epochs_from,
        folds=per_fold,
        mean=mean,
        std=std,
        pooled=_pooled(examples.nodes, predicted_n, taxonomy, per_fold),
        fold=fold_n,
        predicted=predicted_n,
    )


def measure(
    config: TrainConfig,
    taxonomy: Taxonomy,
    train: Examples,
    test: Examples,
    *,
    valid: Examples | None = None,
    hardware: Hardware = ONE_DEVICE,
    folder: Path | None = None,
) -> Measured:
    """Train on one part and measure on the other; with `folder`, an interrupted training goes on from there."""
    run: Run = fit(config, taxonomy, train, valid, hardware=hardware, folder=folder, resume=folder is not None)
    with_cuda = hardware.accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    values, predicted = evaluate(run.model.to("cuda" if with_cuda else "cpu"), test)
    how = {
        "epochs": run.epochs,
        "best_epoch": run.best_epoch,
        "valid_macro_f1": run.valid_macro_f1,
        "seconds": run.seconds,
        "parameters": run.model.num_parameters,
        "curve": [{"epoch": number, **values} for number, values in enumerate(run.curve, start=1)],
    }
    return Measured({**values, **how}, predicted)


class Ledger:
    """The finished parts of an experiment as JSON files in a folder; without a folder it remembers nothing."""

    def __init__(self, folder: Path | str | None, identity: Mapping[str, Any], what: str) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is None:
            return
        if self.folder.exists() and not self.folder.is_dir():
            raise OptionError(f"{self.folder} is a file: {what} is kept in a folder")
        now = json.loads(json.dumps(dict(identity)))
        record = self.folder / "identity.json"
        if record.exists():
            before = read_json(record)
            differing = [name for name in {**now, **before} if before.get(name) != now.get(name)]
            if differing:
                told = "; ".join(f"{name} was {before.get(name)!r}, now {now.get(name)!r}" for name in differing)
                raise OptionError(f"{self.folder} holds {what} that differs from this one, so give another: {told}")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_file(record, (json.dumps(now, indent=2) + "\n").encode())

    def place(self, name: str) -> Path | None:
        """Where the logs and the state of this part go."""
        return None if self.folder is None else self.folder / name

    def get(self, name: str) -> Measured | None:
        """The part of this name, if it is finished."""
        if self.folder is None or not (self.folder / f"{name}.json").exists():
            return None
        record = read_json(self.folder / f"{name}.json")
        return Measured(record["metrics"], np.array(record["predicted"], dtype=np.int64))

    def put(self, name: str, done: Measured) -> None:
        """Write a finished part, whole or not at all, and only then forget the state of its training."""
        if self.folder is not None:
            record = {"metrics": done.metrics, "predicted": done.predicted.tolist()}
            write_file(self.folder / f"{name}.json", (json.dumps(record) + "\n").encode())
            remove_state(self.folder / name)


def read_json(path: Path) -> dict[str, Any]:
    """The object in this file; an error names the file."""
    try:
        record = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not whole JSON ({error}): remove it, and that part is run again") from error
    if not isinstance(record, dict):
        raise InputError(f"{path} holds no JSON object: remove it, and that part is run again")
    return record


def mean_and_std(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], dict[str, float]]:
    """Mean and sample deviation of every measure that is one number in each row; no deviation of a single row."""
    counts = {"items", *(name for name in metrics.MEASURES if metrics.MEASURES[name].unit == "count")}
    numbers = {
        name: [row[name] for row in rows]
        for name in rows[0]
        if name not in counts and all(isinstance(row.get(name), (int, float)) for row in rows)
    }
    mean = {name: float(np.mean(column)) for name, column in numbers.items()}
    std = {name: float(np.std(column, ddof=1)) for name, column in numbers.items()} if len(rows) > 1 else {}
    return mean, std


def silent(_stage: str, _done: int, _total: int) -> None:
    """Progress that nobody wants to know."""


def _pooled(
    nodes: np.ndarray, predicted: np.ndarray, taxonomy: Taxonomy, folds: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The measures of all validated examples; what needs probabilities is averaged by items."""
    at = predicted >= 0
    items = [fold["items"] for fold in folds]
    return {
        "items": int(at.sum()),
        **metrics.evaluate(nodes[at], predicted[at], taxonomy),
        "nll": float(np.average([fold["nll"] for fold in folds], weights=items)),
        "seconds": float(sum(fold["seconds"] for fold in folds)),
        "parameters": float(np.mean([fold["parameters"] for fold in folds])),
    }
