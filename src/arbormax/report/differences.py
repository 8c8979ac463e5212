"""Intervals of the measures of runs, and of their differences from a baseline run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from arbormax.metrics.bootstrap import CLASS_MEASURES, Interval, bootstrap
from arbormax.report.runs import Run

LEVEL = 0.95
_CELLS = 100_000_000  # numbers in all resamples together, which bounds the time


class Differences(NamedTuple):
    """The intervals of each run, and rows of differences: head, baseline, measure, mean, low, high, level."""

    own: list[dict[str, Interval]]
    rows: list[dict[str, Any]]
    baseline: int
    unpaired: list[str]  # names of the runs that were evaluated on other texts than the baseline


def compare_runs(runs: Sequence[Run], known: Sequence[Mapping[str, Any]] = ()) -> Differences:
    """Bootstrap the runs that were evaluated on the same texts; `known` are rows that a comparison has computed."""
    baseline = next((place for place, run in enumerate(runs) if run.head == "flat"), 0)
    own: list[dict[str, Interval]] = [{} for _ in runs]
    rows = [dict(row) for row in known]
    groups: dict[str, list[int]] = {}
    for place in (baseline, *(place for place in range(len(runs)) if place != baseline)):
        if runs[place].true is not None:
            groups.setdefault(runs[place].digest, []).append(place)
    unpaired: list[str] = []
    for group in groups.values():
        intervals, differences = _bootstrap([runs[place] for place in group])
        for place, found in zip(group, intervals, strict=True):
            own[place] = found
        if group[0] == baseline:
            for place, found in zip(group[1:], differences, strict=True):
                rows += [_row(runs[place], runs[baseline], name, interval) for name, interval in found.items()]
        elif runs[baseline].true is not None:
            unpaired += [runs[place].name for place in group]
    return Differences(own, rows, baseline, unpaired)


def _bootstrap(runs: Sequence[Run]) -> tuple[list[dict[str, Interval]], list[dict[str, Interval]]]:
    """The intervals of each run, and of each later run minus the first."""
    tax, true = runs[0].tree.tax, runs[0].true
    assert true is not None
    predicted = {str(place): run.predicted for place, run in enumerate(runs) if run.predicted is not None}
    resamples = int(np.clip(_CELLS // (max(len(true), tax.num_leaves) * len(runs)), 200, 2000))
    measures = CLASS_MEASURES if runs[0].is_graph else None  # the others depend on the edges that the tree lacks
    found = bootstrap(true, predicted, tax, measures=measures, resamples=resamples, level=LEVEL)
    # resamples of very few texts may all have the same value, which is no evidence of certainty
    own = [{name: i for name, i in table.items() if i.low < i.high} for table in found.own.values()]
    differences = [
        {name: i for name, i in table.items() if i.low < i.high or not i.mean} for table in found.differences.values()
    ]
    return own, differences


def _row(run: Run, base: Run, name: str, interval: Interval) -> dict[str, Any]:
    return {"head": run.name, "baseline": base.name, "measure": name, **interval._asdict(), "level": LEVEL}
