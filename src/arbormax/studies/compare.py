"""A comparison of heads that are trained with the same seeds, folds and batches.

n evaluated examples, S seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from arbormax._files import to_plain
from arbormax.data.examples import Examples
from arbormax.errors import OptionError
from arbormax.heads import HEADS
from arbormax.metrics import MEASURES
from arbormax.metrics.bootstrap import bootstrap, check_options
from arbormax.metrics.registry import COSTS, compared_measures, shown_measures
from arbormax.model.graph_settings import graph_settings
from arbormax.model.settings import TrainConfig, unsupported_options
from arbormax.studies.crossval import (
    EpochsFrom,
    Progress,
    crossval,
    ignore_progress,
    mean_and_std,
    train_and_measure,
)
from arbormax.studies.result_folder import Measured, ResultFolder
from arbormax.taxonomy import Taxonomy
from arbormax.training.fit import check_examples
from arbormax.training.hardware import ONE_DEVICE, Hardware
from arbormax.training.state import run_identity


def table_columns() -> tuple[str, ...]:
    """The measures of a comparison's table, followed by the costs of training."""
    return (*shown_measures("table"), *COSTS)


@dataclass(frozen=True)
class Difference:
    """One head minus the baseline in one measure, over all seeds."""

    head: str
    baseline: str
    measure: str
    mean: float
    low: float
    high: float
    level: float

    @property
    def verdict(self) -> str:
        """`better` or `worse` if the interval excludes 0, otherwise `no clear difference`."""
        return MEASURES[self.measure].verdict(self.low, self.high)

    @property
    def sentence(self) -> str:
        """The difference in words, shares in points of a hundred.

        >>> Difference("hierarchical", "flat", "macro_f1", 0.0121, -0.0034, 0.0262, 0.95).sentence
        'hierarchical − flat, macro-F1: +1.2 points [−0.3, +2.6] (95 %): no clear difference'
        """
        measure = MEASURES[self.measure]
        difference = measure.format_difference(self.mean, self.low, self.high)
        title = f"{self.head} − {self.baseline}, {measure.title}"
        return f"{title}: {difference} ({100 * self.level:g} %): {self.verdict}"

    def to_dict(self) -> dict[str, Any]:
        """All fields, the verdict and the sentence, ready for JSON."""
        return {**asdict(self), "verdict": self.verdict, "sentence": self.sentence}


@dataclass(frozen=True, eq=False)
class Comparison:
    """The measures of each head and seed, and the differences of the heads from the baseline."""

    config: TrainConfig
    heads: tuple[str, ...]
    seeds: tuple[int, ...]
    measured_on: str  # "test" or "folds"
    records: tuple[dict[str, Any], ...]  # one for each head and seed; with folds, the measures of all predictions
    differences: tuple[Difference, ...]  # of each other head from the baseline, in each measure
    predicted: Mapping[str, np.ndarray]  # head → (S, n) int64 nodes; -1 if never validated

    def table(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """head → measure → `mean` and `std` over the seeds; the deviation of a single seed is None."""
        rows: dict[str, dict[str, dict[str, float | None]]] = {}
        for head in self.heads:
            mean, std = mean_and_std([record for record in self.records if record["head"] == head])
            rows[head] = {name: {"mean": mean[name], "std": std.get(name)} for name in table_columns() if name in mean}
        return rows

    def to_dict(self) -> dict[str, Any]:
        """All fields except the predictions, ready for JSON."""
        plain: dict[str, Any] = to_plain(
            {
                **{name: value for name, value in vars(self).items() if name != "predicted"},
                "config": self.config.model_dump(mode="json", exclude={"head", "seed"}),
                "table": self.table(),
                "differences": [difference.to_dict() for difference in self.differences],
            }
        )
        return plain


def compare(
    config: TrainConfig,
    taxonomy: Taxonomy,
    examples: Examples,
    test: Examples | None = None,
    *,
    heads: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    folds: int = 4,
    hardware: Hardware = ONE_DEVICE,
    folder: Path | str | None = None,
    progress: Progress | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    epochs_from: EpochsFrom = "inner",
) -> Comparison:
    """Train each head with each seed, measure on `test` or by cross-validation, and bootstrap the differences.

    `heads` are by default all registered heads that the solver of the settings can train. For one seed, all heads have
    the same folds or held-out part, the same batches and the same initial weights of the encoder. The baseline is
    `flat`, or the first head without `flat`.

    With `folder`, finished trainings are saved there; a restarted call, also with more seeds or heads, runs only the
    missing ones.
    """
    if heads is None:  # with the usual baseline first
        heads = _default_heads(config, taxonomy.is_graph)
    if taxonomy.is_graph:
        config = graph_settings(config, any_head=True)
    settings = _settings(config, heads, seeds, len(examples))
    check_examples(examples, taxonomy, "train")
    check_options(compared_measures(), resamples, level)
    evaluation: dict[str, Any] = {"folds": folds, "epochs_from": epochs_from}
    if test is not None:
        check_examples(test, taxonomy, "test")
        if epochs_from == "fold":
            raise OptionError("'fold' requires cross-validation, without test examples", argument="epochs_from")
        evaluation = {"test": test.digest()}
    identity = run_identity(next(iter(settings.values())), taxonomy, examples, **evaluation)
    results = ResultFolder(
        folder, {name: value for name, value in identity.items() if name not in ("head", "seed")}, "comparison"
    )
    report = progress or ignore_progress
    parts = 1 if test is not None else folds
    total = len(settings) * parts

    def measure(own: TrainConfig, progress: Progress, place: Path | None) -> Measured:
        if test is not None:
            return train_and_measure(own, taxonomy, examples, test, hardware=hardware, folder=place)
        options: dict[str, Any] = {"hardware": hardware, "folder": place, "progress": progress}
        result = crossval(own, taxonomy, examples, folds, epochs_from=epochs_from, **options)
        over_folds = {"fold_mean": result.mean, "fold_std": result.std, "never_validated": result.never_validated}
        return Measured({**result.pooled, **over_folds}, result.predicted)

    records, predicted = [], {head: np.empty((len(seeds), len(test or examples)), np.int64) for head in heads}
    for index, ((head, seed), own) in enumerate(settings.items()):
        stage = f"{head}, seed {seed}"
        report(stage, index * parts, total)
        report_fold = partial(_report_part, report, stage, index * parts, total)
        measured = results.run(f"{head}-seed-{seed}", partial(measure, own, report_fold))
        records.append({"head": head, "seed": seed, **measured.metrics})
        predicted[head][seeds.index(seed)] = measured.predicted
    report("bootstrap of the differences", total, total)
    true_n, baseline = (test or examples).nodes, "flat" if "flat" in heads else heads[0]
    at = predicted[baseline][0] >= 0  # the only example of a label is never validated, for any seed
    sides = {head: rows[:, at] for head, rows in predicted.items()}
    intervals = bootstrap(true_n[at], sides, taxonomy, baseline=baseline, resamples=resamples, level=level)
    return Comparison(
        config=config,
        heads=tuple(heads),
        seeds=tuple(seeds),
        measured_on="folds" if test is None else "test",
        records=tuple(records),
        differences=tuple(
            Difference(head, baseline, measure, *interval, level)
            for head, by_measure in intervals.differences.items()
            for measure, interval in by_measure.items()
        ),
        predicted=predicted,
    )


def _default_heads(config: TrainConfig, is_graph: bool) -> list[str]:
    """The heads of the solver that the settings select, flat first: another solver can take many times as long."""
    solver_of = {head: config.model_copy(update={"head": head}).solver_in_use for head in (config.head, *HEADS.names)}
    found = [head for head in HEADS.names if solver_of[head] == solver_of[config.head]]
    found = [head for head in found if HEADS[head].supports_graph or not is_graph]
    return sorted(found, key=lambda head: head != "flat")


def _report_part(report: Progress, stage: str, before: int, total: int, part: str, done: int, parts: int) -> None:
    """Report the progress of one cross-validation as a part of the whole."""
    if done < parts:
        report(f"{stage}, {part}", before + done, total)


def _settings(
    config: TrainConfig, heads: Sequence[str], seeds: Sequence[int], items: int
) -> dict[tuple[str, int], TrainConfig]:
    """The settings of each training by head and seed; raises before the first training if one of them is invalid."""
    for head in heads:
        HEADS.check(head, argument="heads")
    for name, values in (("heads", heads), ("seeds", seeds)):
        if not values or len(set(values)) != len(values):
            raise OptionError(f"expected at least one, each once, found {tuple(values)}", argument=name)
    if any(not isinstance(seed, int) or not 0 <= seed < 2**32 for seed in seeds):
        raise OptionError(f"expected integers from 0 to 2**32 - 1, found {tuple(seeds)}", argument="seeds")
    unsupported = {head: unsupported_options(config, HEADS[head]) for head in heads}
    if used := {name: option for options in unsupported.values() for name, option in options.items()}:
        without = {name: ", ".join(head for head in heads if name in unsupported[head]) for name in used}
        messages = {
            name: f"acts on {option.acts_on}, not available in {without[name]}; compare without it"
            for name, option in used.items()
        }
        raise OptionError(parts=[OptionError(message, argument=name) for name, message in messages.items()])
    return {
        (head, seed): config.model_copy(update={"head": head, "seed": seed}).resolved(items)
        for seed in seeds
        for head in heads
    }
