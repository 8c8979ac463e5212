"""Cross-validation: each example is predicted once, by a model that was not trained on it.

n examples, K folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from arbormax import metrics
from arbormax._files import to_plain
from arbormax.data.examples import Examples
from arbormax.data.folds import assign_folds
from arbormax.errors import OptionError, check_choice
from arbormax.model.graph_settings import graph_settings
from arbormax.model.settings import TrainConfig
from arbormax.studies.evaluate import evaluate
from arbormax.studies.result_folder import Measured, ResultFolder
from arbormax.taxonomy import Taxonomy
from arbormax.training.fit import check_examples, fit
from arbormax.training.hardware import ONE_DEVICE, Hardware
from arbormax.training.state import run_identity

Progress = Callable[[str, int, int], None]  # stage, finished parts, all parts
EpochsFrom = Literal["inner", "fold"]


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """The measures of each fold, their mean and deviation, and the measures of all predictions together."""

    config: TrainConfig
    epochs_from: EpochsFrom
    folds: tuple[dict[str, Any], ...]  # measures of each fold, with its epochs, best_epoch, seconds and parameters
    mean: dict[str, float]  # over the folds
    std: dict[str, float]  # over the folds, with K - 1 in the denominator
    pooled: dict[str, Any]  # of all validated examples together
    fold: np.ndarray  # (n,) int64 validation fold of each example, -1 for none
    predicted: np.ndarray  # (n,) int64 node of the most probable leaf, -1 if never validated

    @property
    def never_validated(self) -> int:
        """The number of examples that are the only one of their label: they are in every training part."""
        return int((self.fold < 0).sum())

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        config = self.config.model_dump(mode="json")
        plain: dict[str, Any] = to_plain({**vars(self), "config": config, "never_validated": self.never_validated})
        return plain


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

    `epochs_from="inner"` stops early on a share `config.validation` of the training examples, so that the fold is used
    only for the measures. `"fold"` stops early on the fold itself: training has more examples, but the measures are
    optimistic, since they belong to the best epoch of the fold.

    With `folder`, each finished fold is saved there, and a restarted call runs only the missing folds.
    """
    check_choice("epochs_from", epochs_from, get_args(EpochsFrom))
    config = (graph_settings(config) if taxonomy.is_graph else config).resolved(len(examples))
    check_examples(examples, taxonomy, "train")
    if epochs_from == "fold" and config.validation == 0:
        message = "'fold' stops early, but early stopping is disabled"
        raise OptionError(message, argument="epochs_from", fix={"validation": 0.1})
    fold_n = assign_folds(examples.nodes, folds, config.seed)
    identity = run_identity(config, taxonomy, examples, folds=folds, epochs_from=epochs_from)
    results = ResultFolder(folder, identity, "cross-validation")
    report = progress or ignore_progress

    def run_fold(number: int, place: Path | None) -> Measured:
        train, test = (examples.take(np.flatnonzero(at)) for at in (fold_n != number, fold_n == number))
        valid = test if epochs_from == "fold" else None
        return train_and_measure(config, taxonomy, train, test, valid=valid, hardware=hardware, folder=place)

    measured = []
    for number in range(folds):
        report(f"fold {number + 1} of {folds}", number, folds)
        measured.append(results.run(f"fold-{number}", partial(run_fold, number)))
    report("finished", folds, folds)

    predicted_n = np.full(len(examples), -1, dtype=np.int64)
    for number, part in enumerate(measured):
        predicted_n[fold_n == number] = part.predicted
    per_fold = tuple({"fold": number, **part.metrics} for number, part in enumerate(measured))
    mean, std = mean_and_std([part.metrics for part in measured])
    return CrossValidation(
        config=config,
        epochs_from=epochs_from,
        folds=per_fold,
        mean=mean,
        std=std,
        pooled=_pool(examples.nodes, predicted_n, taxonomy, per_fold),
        fold=fold_n,
        predicted=predicted_n,
    )


def train_and_measure(
    config: TrainConfig,
    taxonomy: Taxonomy,
    train: Examples,
    test: Examples,
    *,
    valid: Examples | None = None,
    hardware: Hardware = ONE_DEVICE,
    folder: Path | None = None,
) -> Measured:
    """Train on one part and measure on another; with `folder`, an interrupted training is resumed."""
    run = fit(config, taxonomy, train, valid, hardware=hardware, folder=folder, resume=folder is not None)
    use_cuda = hardware.accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    found = evaluate(run.model.to("cuda" if use_cuda else "cpu"), test)
    training = {**run.to_record(), "parameters": run.model.num_parameters}
    return Measured({**found.metrics, **training}, found.predicted, found.log_probs)


def mean_and_std(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], dict[str, float]]:
    """Mean and sample deviation of each measure that is a number in every row; one row has no deviation."""
    counts = {"items", *(name for name in metrics.MEASURES if metrics.MEASURES[name].unit == "count")}
    numbers = {
        name: [row[name] for row in rows]
        for name in rows[0]
        if name not in counts and all(isinstance(row.get(name), (int, float)) for row in rows)
    }
    mean = {name: float(np.mean(column)) for name, column in numbers.items()}
    std = {name: float(np.std(column, ddof=1)) for name, column in numbers.items()} if len(rows) > 1 else {}
    return mean, std


def ignore_progress(_stage: str, _done: int, _total: int) -> None:
    """The default of `progress`."""


def _pool(
    nodes: np.ndarray, predicted: np.ndarray, taxonomy: Taxonomy, folds: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The measures of all validated examples; those of probabilities are means over the folds, weighted by size."""
    at = predicted >= 0
    items = [fold["items"] for fold in folds]
    return {
        "items": int(at.sum()),
        **metrics.evaluate(nodes[at], predicted[at], taxonomy),
        "nll": float(np.average([fold["nll"] for fold in folds], weights=items)),
        "seconds": float(sum(fold["seconds"] for fold in folds)),
        "parameters": float(np.mean([fold["parameters"] for fold in folds])),
    }
