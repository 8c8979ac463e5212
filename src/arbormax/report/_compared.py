"""Runs beside each other: which one is the baseline, and how sure the differences from it are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from arbormax.report._chance import LEVEL, Interval, chances
from arbormax.report._runs import Run


class Compared(NamedTuple):
    """The intervals of each run, and rows of differences: head, baseline, measure, mean, low, high, level."""

    own: list[dict[str, Interval]]
    rows: list[dict[str, Any]]
    baseline: int
    unpaired: list[str]  # names of runs that were measured on other texts than the baseline


def compared(runs: Sequence[Run], given: Sequence[Mapping[str, Any]] = ()) -> Compared:
    """What can be told of the runs together; `given` are differences that a comparison has measured itself."""
    baseline = next((place for place, run in enumerate(runs) if run.head == "flat"), 0)
    own: list[dict[str, Interval]] = [{} for _ in runs]
    rows = [dict(row) for row in given]
    groups: dict[str, list[int]] = {}
    order = [baseline, *(place for place in range(len(runs)) if place != baseline)]
    for place in order:
        if runs[place].true is not None:
            groups.setdefault(runs[place].digest, []).append(place)
    unpaired: list[str] = []
    for group in groups.values():
        found = chances([runs[place] for place in group])
        for at, place in enumerate(group):
            own[place] = found.own[at]
            if group[0] == baseline and at:
                rows += [_row(runs[place], runs[baseline], name, d) for name, d in found.against_first[at].items()]
        if group[0] != baseline and runs[baseline].true is not None:
            unpaired += [runs[place].name for place in group]
    return Compared(own, rows, baseline, unpaired)


def _row(run: Run, base: Run, name: str, found: Interval) -> dict[str, Any]:
    bounds = {"mean": found.value, "low": found.low, "high": found.high}
    return {"head": run.name, "baseline": base.name, "measure": name, **bounds, "level": LEVEL}
