"""Heads compared with everything else equal: the same seeds, folds and batches.

n examples that are measured, S seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from arbormax.data.examples import Examples
from arbormax.errors import OptionError
from arbormax.heads import HEADS
from arbormax.metrics import MEASURES
from arbormax.metrics.bootstrap import Interval, check_options, paired_differences
from arbormax.metrics.registry import COSTS, compared_measures, shown_measures
from arbormax.model.settings import TrainConfig, sibling_options
from arbormax.studies.crossval import (
    EpochsFrom,
    Ledger,
    Measured,
    Progress,
    crossval,
    mean_and_std,
    measure,
    silent,
)
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
        """All of it, ready for JSON."""
        names = ("head", "baseline", "measure", "mean", "low", "high", "level", "verdict", "sentence")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Every head with every seed, and how the heads differ from the baseline."""

    config: TrainConfig
    heads: tuple[str, ...]
    seeds: tuple[int, ...]
    measured_on: str  # "test" or "folds"
    records: tuple[dict[str, Any], ...]  # one for each head and seed; over folds, the measures of all predictions
    differences: tuple[Difference, ...]  # of each other head from the baseline, in each measure
    predicted: Mapping[str, np.ndarray]  # head → (S, n) int64 nodes; -1 for the never validated

    def table(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """head → measure → `mean` and `std` over the seeds; the deviation of a single seed is None."""
        rows: dict[str, dict[str, dict[str, float | None]]] = {}
        for head in self.heads:
            mean, std = mean_and_std([record for record in self.records if record["head"] == head])
            rows[head] = {name: {"mean": mean[name], "std": std.get(name)} for name in table_columns() if name in mean}
        return rows

    def to_dict(self) -> dict[str, Any]:
        """All but the predictions, ready for JSON."""
        return {
            "config": self.config.model_dump(mode="json", exclude={"head", "seed"}),
            "heads": list(self.heads),
            "seeds": list(self.seeds),
            "measured_on": self.measured_on,
            "records": [dict(record) for record in self.records],
            "table": self.table(),
            "differences": [difference.to_dict() for difference in self.differences],
        }


def compare(
    config: TrainConfig,
    taxonomy: Taxonomy,
    examples: Examples,
    test: Examples | None = None,
    *,
    heads: Sequence[str] = ("flat", "hierarchical", "shared"),
    seeds: Sequence[int] = (0, 1, 2),
    folds: int = 4,
    hardware: Hardware = ONE_DEVICE,
    folder: Path | str | None = None,
    progress: Progress | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    epochs_from: EpochsFrom = "inner",
) -> Comparison:
    """Train every head with every seed, measure on `test` or by cross-validation, and bootstrap the differences.

    For one seed, all heads get the same folds or the same held-out part, the same batches and the same first weights
    of the encoder. The baseline is `flat`, or the first head where `flat` is not among them.

    With `folder`, what is finished is kept there: a call that is started again, also with more seeds or heads, runs
    only what is missing.
    """
    settings = _settings(config, heads, seeds, len(examples))
    check_examples(examples, taxonomy, "train")
    check_options(compared_measures(), resamples, level)
    how: dict[str, Any] = {"folds": folds, "epochs_from": epochs_from}
    if test is not None:
        check_examples(test, taxonomy, "test")
        how = {"test": test.digest()}
    first = run_identity(next(iter(settings.values())), taxonomy, examples, **how)
    shared = {name: value for name, value in first.items() if name not in ("head", "seed")}
    ledger = Ledger(folder, shared, "a comparison")
    told = progress or silent
    parts = 1 if test is not None else folds
    total = len(settings) * parts
    records, predicted = [], {head: np.empty((len(seeds), len(test or examples)), np.int64) for head in heads}
    for place, ((head, seed), own) in enumerate(settings.items()):
        name, stage = f"{head}-seed-{seed}", f"{head}, seed {seed}"
        told(stage, place * parts, total)
        if test is not None:
            done = ledger.get(name)
            if done is None:
                done = measure(own, taxonomy, examples, test, hardware=hardware, folder=ledger.place(name))
                ledger.put(name, done)
        else:
            done = _crossvalidated(
                own,
                taxonomy,
                examples,
                folds,
                hardware=hardware,
                folder=ledger.place(name),
                progress=partial(_inside, told, stage, place * folds, total),
                epochs_from=epochs_from,
            )
        records.append({"head": head, "seed": seed, **done.metrics})
        predicted[head][seeds.index(seed)] = done.predicted
    told("bootstrap of the differences", total, total)
    true_n, baseline = (test or examples).nodes, "flat" if "flat" in heads else heads[0]
    at = predicted[baseline][0] >= 0  # the only example of its label is never validated, whatever the seed
    found = paired_differences(
        true_n[at],
        {head: rows[:, at] for head, rows in predicted.items()},
        baseline,
        taxonomy,
        resamples=resamples,
        level=level,
    )
    return Comparison(
        config=config,
        heads=tuple(heads),
        seeds=tuple(seeds),
        measured_on="folds" if test is None else "test",
        records=tuple(records),
        differences=tuple(_differences(found, baseline, level)),
        predicted=predicted,
    )


def _crossvalidated(*given: Any, **options: Any) -> Measured:
    result = crossval(*given, **options)
    of_folds = {"fold_mean": result.mean, "fold_std": result.std, "never_validated": result.never_validated}
    return Measured({**result.pooled, **of_folds}, result.predicted)


def _inside(told: Progress, stage: str, before: int, total: int, part: str, done: int, parts: int) -> None:
    """The progress of a cross-validation as a part of the whole."""
    if done < parts:
        told(f"{stage}, {part}", before + done, total)


def _differences(found: Mapping[str, Mapping[str, Interval]], baseline: str, level: float) -> list[Difference]:
    return [
        Difference(head, baseline, measure, *interval, level)
        for head, intervals in found.items()
        for measure, interval in intervals.items()
    ]


def _settings(
    config: TrainConfig, heads: Sequence[str], seeds: Sequence[int], items: int
) -> dict[tuple[str, int], TrainConfig]:
    """The settings of every training, seed by seed; raises for whatever one of them would meet."""
    for head in heads:
        HEADS.check(head, argument="heads")
    for what, values in (("head", heads), ("seed", seeds)):
        if not values or len(set(values)) != len(values):
            raise OptionError(f"a comparison needs one {what} or more, each once; found {tuple(values)}")
    if any(not isinstance(seed, int) or not 0 <= seed < 2**32 for seed in seeds):
        raise OptionError(f"seeds are whole numbers from 0, found {tuple(seeds)}")
    spoken, refusing = sibling_options(config), [head for head in heads if not HEADS[head].sibling_options]
    if spoken and refusing:
        speak, these = ("speaks", "this option") if len(spoken) == 1 else ("speak", "these options")
        know = "knows" if len(refusing) == 1 else "know"
        raise OptionError(
            f"{', '.join(spoken)} {speak} of siblings, of which {' and '.join(refusing)} {know} nothing: in a "
            f"comparison everything is equal but the head, so leave {these} out"
        )
    return {
        (head, seed): config.model_copy(update={"head": head, "seed": seed}).resolved(items)
        for seed in seeds
        for head in heads
    }
