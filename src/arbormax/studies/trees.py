"""The same model on several trees over the same classes, compared by cross-validation.

n examples, C classes, K folds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from arbormax import metrics
from arbormax._files import to_plain
from arbormax.data.examples import Examples
from arbormax.data.folds import assign_folds
from arbormax.errors import InputError, OptionError
from arbormax.metrics.bootstrap import bootstrap, bootstrap_means, check_options
from arbormax.model.settings import TrainConfig
from arbormax.studies.compare import Difference
from arbormax.studies.crossval import Progress, ignore_progress, mean_and_std, train_and_measure
from arbormax.studies.result_folder import Measured, ResultFolder
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.distance import match_classes, triplet_distance
from arbormax.training.fit import check_examples
from arbormax.training.hardware import ONE_DEVICE, Hardware
from arbormax.training.state import run_identity

MEASURES = ("macro_f1", "accuracy", "hf")
SHOWN = (*MEASURES, "nll", "seconds", "parameters")


@dataclass(frozen=True, eq=False)
class TreeComparison:
    """The measures of one model on each tree, and the differences from the first tree.

    `hf` is measured on the first tree, the reference, for all trees.
    """

    config: TrainConfig
    trees: Mapping[str, Taxonomy]
    reference: str  # the first tree
    folds: tuple[dict[str, Any], ...]  # one for each tree and fold
    pooled: Mapping[str, dict[str, float]]  # tree → measures of all validated examples, and sums of the costs
    std: Mapping[str, dict[str, float]]  # tree → deviation over the folds
    distance: Mapping[str, float]  # tree → triplet distance from the reference
    differences: tuple[Difference, ...]  # of each other tree from the reference
    predicted: Mapping[str, np.ndarray]  # tree → (n,) predicted class of the reference, -1 if never validated

    def to_dict(self) -> dict[str, Any]:
        """All fields except the predictions, ready for JSON."""
        fields = {name: value for name, value in vars(self).items() if name != "predicted"}
        sizes = {name: {"nodes": tree.num_nodes, "depth": tree.depth} for name, tree in self.trees.items()}
        rows = [difference.to_dict() for difference in self.differences]
        config = self.config.model_dump(mode="json")
        plain: dict[str, Any] = to_plain({**fields, "config": config, "trees": sizes, "differences": rows})
        return plain


def compare_trees(
    config: TrainConfig,
    trees: Mapping[str, Taxonomy],
    examples: Examples,
    folds: int = 5,
    *,
    hardware: Hardware = ONE_DEVICE,
    folder: Path | str | None = None,
    progress: Progress | None = None,
    resamples: int = 2000,
    level: float = 0.95,
) -> TreeComparison:
    """Train the model on each tree in each fold, and bootstrap the differences from the first tree.

    The trees have the same classes, in any order. The labels of the examples are leaves of the first tree. All trees
    have the same folds. With `folder`, finished folds are saved there.
    """
    if len(trees) < 2:
        raise OptionError(f"expected at least two trees, found {len(trees)}", argument="trees")
    check_options(MEASURES, resamples, level)
    reference, first = next(iter(trees.items()))
    check_examples(examples, first, "train")
    class_n = first.class_of[examples.nodes]
    if (class_n < 0).any():
        count = int((class_n < 0).sum())
        raise InputError(f"{count:,} labels are inner nodes of {reference}, which have no place in the other trees")
    config = config.resolved(len(examples))
    fold_n = assign_folds(class_n, folds, config.seed)
    study = _Study(config, first, examples, fold_n, hardware, folder, progress or ignore_progress, len(trees) * folds)
    parts = {name: study.run(name, tree) for name, tree in trees.items()}
    at = fold_n >= 0
    sides = {name: first.leaves[predicted[at]] for name, (_, predicted, _) in parts.items()}
    options: dict[str, Any] = {"measures": MEASURES, "resamples": resamples, "level": level}
    intervals = bootstrap(examples.nodes[at], sides, first, baseline=reference, **options).differences
    losses = {name: -log_probs[at] for name, (_, _, log_probs) in parts.items()}
    likelihoods = bootstrap_means(losses, baseline=reference, resamples=resamples, level=level)
    return TreeComparison(
        config=config,
        trees=dict(trees),
        reference=reference,
        folds=tuple(row for rows, *_ in parts.values() for row in rows),
        pooled={
            name: {**_measure(examples.nodes[at], sides[name], first), **_costs(rows)}
            for name, (rows, *_) in parts.items()
        },
        std={name: _deviations(rows) for name, (rows, *_) in parts.items()},
        distance={name: triplet_distance(first, tree) for name, tree in trees.items()},
        differences=tuple(
            Difference(name, reference, measure, *interval, level)
            for name, by_measure in intervals.items()
            for measure, interval in (*by_measure.items(), ("nll", likelihoods[name]))
        ),
        predicted={name: predicted for name, (_, predicted, _) in parts.items()},
    )


@dataclass(eq=False)
class _Study:
    """What all trees have in common."""

    config: TrainConfig
    reference: Taxonomy
    examples: Examples
    fold_n: np.ndarray  # (n,)
    hardware: Hardware
    folder: Path | str | None
    report: Progress
    total: int
    done: int = 0

    def run(self, name: str, tree: Taxonomy) -> tuple[list[dict[str, Any]], np.ndarray, np.ndarray]:
        """The measures of each fold on the reference, and (n,) the classes predicted and the labels' likelihoods."""
        reference, nodes, folds = self.reference, self.examples.nodes, int(self.fold_n.max()) + 1
        own = tree.leaves[match_classes(reference, tree)]  # the leaf of each class of the reference
        class_of = np.full(tree.num_nodes, -1)
        class_of[own] = np.arange(len(own))
        examples = Examples(self.examples.inputs, own[reference.class_of[nodes]])
        identity = run_identity(self.config, tree, examples, folds=folds)
        place = None if self.folder is None else Path(self.folder) / name
        results = ResultFolder(place, identity, "comparison of trees")
        rows, predicted_n, log_probs_n = [], np.full(len(nodes), -1), np.full(len(nodes), np.nan)
        for fold in range(folds):
            self.report(f"{name}, fold {fold + 1} of {folds}", self.done, self.total)
            train, test = (examples.take(np.flatnonzero(at)) for at in (self.fold_n != fold, self.fold_n == fold))
            run = partial(_train, self.config, tree, train, test, self.hardware)
            measured = results.run(f"fold-{fold}", run)
            at = self.fold_n == fold
            predicted_n[at] = class_of[measured.predicted]
            log_probs_n[at] = _check_log_probs(measured, place, fold)
            found = _measure(nodes[at], reference.leaves[predicted_n[at]], reference)
            costs = {key: measured.metrics[key] for key in ("nll", "seconds", "parameters")}
            rows.append({"tree": name, "fold": fold, "items": int(at.sum()), **found, **costs})
            self.done += 1
        return rows, predicted_n, log_probs_n


def _check_log_probs(measured: Measured, place: Path | None, fold: int) -> np.ndarray:
    if measured.log_probs is None:
        raise InputError(
            f"{place}/fold-{fold}.json is of another version of arbormax; remove it to run that part again"
        )
    return measured.log_probs


def _train(
    config: TrainConfig, tree: Taxonomy, train: Examples, test: Examples, hardware: Hardware, folder: Path | None
) -> Measured:
    return train_and_measure(config, tree, train, test, hardware=hardware, folder=folder)


def _measure(true_n: np.ndarray, predicted_n: np.ndarray, reference: Taxonomy) -> dict[str, float]:
    found = metrics.evaluate(true_n, predicted_n, reference)
    return {name: found[name] for name in MEASURES}


def _costs(parts: list[dict[str, Any]]) -> dict[str, float]:
    """The mean log-likelihood of all examples, the time of all folds, and the mean number of parameters."""
    return {
        "nll": float(np.average([part["nll"] for part in parts], weights=[part["items"] for part in parts])),
        "seconds": float(sum(part["seconds"] for part in parts)),
        "parameters": float(np.mean([part["parameters"] for part in parts])),
    }


def _deviations(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {name: value for name, value in mean_and_std(rows)[1].items() if name in SHOWN}
