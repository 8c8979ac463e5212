"""What the records of a study say: rows of measures, differences of heads with intervals, curves, the headline.

n test items, S seeds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arbormax.errors import InputError
from arbormax.studies.crossval import mean_and_std
from study.choice import course, curves_of

DATASETS = ("trec", "20ng", "r8", "r52")
ARMS = (
    "bilstm",
    "bilstm-tuned",
    "bilstm-smoothed",
    "bilstm-deep",
    "lstm",
    "bag",
    "tfidf",
    "minilm",
    "minilm-long",
    "minilm-deep",
    "blend",
    "blend-long",
    "blend-all",
    "svc",
)  # the order in tables; others come after
# added when the others had been measured on the test split, which the pages tell where it matters
LATER = frozenset(["bilstm-tuned", "bilstm-smoothed", "minilm-long", "blend-long", "blend-all"])
HEADS = ("flat", "hierarchical", "shared", "svc")

Record = dict[str, Any]

_KINDS = {
    "folds": {"dataset": str, "arm": str, "head": str, "fold": int, "point": dict, "curve": list},
    "choices": {"dataset": str, "arm": str, "head": str, "point": dict, "macro_f1": float},
    "runs": {"dataset": str, "arm": str, "head": str, "seed": int, "accuracy": float, "predicted": list},
}
_ONCE = {"choices": ("arm", "head"), "runs": ("arm", "head", "seed")}  # what no two files of a dataset may share
_NO_MEASURE = {"seed", "fold", "folds", "epochs"}


class Paper(NamedTuple):
    """The test results that Schuurmans & Frasincar (2020) report for their BiLSTM, in points; one run each."""

    flat: Mapping[str, float]
    hierarchical: Mapping[str, float]
    best_accuracy: float  # "state of the art" then


def _paper(flat: Sequence[float], hierarchical: Sequence[float], best: float) -> Paper:
    names = ("macro_f1", "macro_precision", "macro_recall", "accuracy")
    return Paper(dict(zip(names, flat, strict=True)), dict(zip(names, hierarchical, strict=True)), best)


PAPER = {
    "trec": _paper((72.595, 74.937, 73.370, 84.800), (74.258, 75.882, 74.952, 86.000), 97.2),
    "20ng": _paper((81.048, 81.586, 80.905, 81.382), (82.479, 82.979, 82.465, 82.924), 88.5),
    "r8": _paper((89.264, 90.696, 88.380, 96.711), (92.939, 93.065, 93.056, 97.762), 97.8),
    "r52": _paper((63.637, 70.325, 62.926, 93.575), (64.407, 68.361, 64.124, 93.380), 95.0),
}


@dataclass(frozen=True, eq=False)
class Results:
    """The records of a study: dataset → records, each with its `file`; a dataset without records has no entry."""

    folds: Mapping[str, list[Record]]
    choices: Mapping[str, list[Record]]
    runs: Mapping[str, list[Record]]

    def choice(self, dataset: str, arm: str, head: str) -> Record | None:
        """What cross-validation chose for an arm and head, or None."""
        found = (c for c in self.choices.get(dataset, ()) if (c["arm"], c["head"]) == (arm, head))
        return next(found, None)

    def runs_of(self, dataset: str, arm: str, head: str) -> list[Record]:
        """The measured trainings of an arm and head, by seed."""
        found = (r for r in self.runs.get(dataset, ()) if (r["arm"], r["head"]) == (arm, head))
        return sorted(found, key=lambda run: run["seed"])


def read_results(folder: Path | str) -> Results:
    """All records below `folder/<dataset>/{folds,choices,runs}`; every broken file is told in one error."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: expected the results of a study, <dataset>/runs/*.json and others")
    problems: list[str] = []
    found: dict[str, dict[str, list[Record]]] = {}
    for kind, wanted in _KINDS.items():
        found[kind] = {}
        for dataset in DATASETS:
            paths = sorted((folder / dataset / kind).glob("*.json"))
            records = [record for path in paths if (record := _read(path, dataset, wanted, folder, problems))]
            _refuse_twins(records, _ONCE.get(kind), problems)
            if records:
                found[kind][dataset] = sorted(records, key=_place)
    if problems:
        raise InputError("\n".join(["these records of the study cannot be used:", *(f"  - {p}" for p in problems)]))
    return Results(**found)


def _read(path: Path, dataset: str, wanted: Mapping[str, type], folder: Path, problems: list[str]) -> Record | None:
    name = path.relative_to(folder).as_posix()
    try:
        record = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError) as error:
        problems.append(f"{name}: not JSON ({error}); remove it and run that part of the study again")
        return None
    if not isinstance(record, dict):
        problems.append(f"{name}: expected one JSON object, found {type(record).__name__}")
        return None
    wrong = [key for key, kind in wanted.items() if not _fits(record.get(key), kind)]
    if wrong:
        told = ", ".join(f"{key} ({wanted[key].__name__})" for key in wrong)
        problems.append(f"{name}: missing or of another kind: {told}")
        return None
    if record["dataset"] != dataset:
        problems.append(f"{name}: a record of {record['dataset']!r} in the folder of {dataset!r}")
        return None
    return {**record, "file": name}


def _fits(value: Any, kind: type) -> bool:
    if kind in (int, float):
        allowed = (int, float) if kind is float else int
        return isinstance(value, allowed) and not isinstance(value, bool) and bool(np.isfinite(value))
    return isinstance(value, kind)


def _refuse_twins(records: Sequence[Record], keys: tuple[str, ...] | None, problems: list[str]) -> None:
    first: dict[tuple[Any, ...], str] = {}
    for record in records if keys else ():
        key = tuple(record[name] for name in keys or ())
        if key in first:
            problems.append(f"{record['file']}: the same {', '.join(keys or ())} as {first[key]}; keep one of the two")
        first.setdefault(key, record["file"])


def _place(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where a record stands in lists and tables."""
    arm, head = record["arm"], record["head"]
    return (_rank(arm, ARMS), arm, _rank(head, HEADS), head, record.get("seed", 0), record.get("fold", 0))


def _rank(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


@dataclass(frozen=True, eq=False)
class Row:
    """One arm and head on a test split, over its seeds."""

    dataset: str
    arm: str
    head: str
    tree: str
    seeds: tuple[int, ...]
    mean: Mapping[str, float]  # lists such as level_accuracy have an entry for each place: "level_accuracy@1"
    std: Mapping[str, float]  # empty for a single seed
    point: Mapping[str, Any]  # the settings that cross-validation chose
    epochs: int | float | None
    cv_macro_f1: float | None
    outdated: bool  # whether cross-validation has chosen other settings since
    vectors: str | None
    devices: tuple[str, ...]

    @property
    def levels(self) -> list[float]:
        """The accuracy at level 1, 2, …"""
        found: list[float] = []
        while (name := f"level_accuracy@{len(found) + 1}") in self.mean:
            found.append(self.mean[name])
        return found


def rows(results: Results, dataset: str) -> list[Row]:
    """One row for each arm and head of which there is a run, in the order of the tables."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for run in sorted(results.runs.get(dataset, ()), key=_place):
        groups[run["arm"], run["head"]].append(run)
    return [_row(runs, results.choice(dataset, arm, head)) for (arm, head), runs in groups.items()]


def _row(runs: Sequence[Record], choice: Record | None) -> Row:
    first = runs[0]
    for run in runs[1:]:
        for key in ("chosen", "tree", "vectors"):
            if run.get(key) != first.get(key):
                raise InputError(
                    f"{first.get('file')} and {run.get('file')} differ in {key}, {first.get(key)!r} and "
                    f"{run.get(key)!r}: seeds of one arm and head need the same; run the older one again"
                )
    chosen = first.get("chosen") or {}
    mean, std = mean_and_std([_numbers(run) for run in runs])
    return Row(
        dataset=first["dataset"],
        arm=first["arm"],
        head=first["head"],
        tree=first.get("tree") or "paper",
        seeds=tuple(run["seed"] for run in runs),
        mean=mean,
        std=std,
        point=chosen.get("point") or {},
        epochs=chosen.get("epochs"),
        cv_macro_f1=chosen.get("macro_f1"),
        outdated=choice is not None and any(choice.get(key) != chosen.get(key) for key in ("point", "epochs")),
        vectors=first.get("vectors"),
        devices=tuple(sorted({str(run["device"]) for run in runs if run.get("device")})),
    )


def _numbers(run: Mapping[str, Any]) -> dict[str, float]:
    """The measures of a run that are numbers, those inside lists under `name@place` from 1."""
    numbers: dict[str, float] = {}
    for name, value in run.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name not in _NO_MEASURE:
            numbers[name] = value
        elif name in ("level_accuracy", "ece"):
            places = value.items() if isinstance(value, dict) else enumerate(value, start=1)
            numbers |= {f"{name}@{place}": number for place, number in places if number is not None}
    return numbers


def headline(results: Results, dataset: str, without: Container[str] = ()) -> Record | None:
    """The choice with the best cross-validated macro-F1, the first of equals; test results have no say in it."""
    choices = sorted((c for c in results.choices.get(dataset, ()) if c["arm"] not in without), key=_place)
    return max(choices, key=lambda choice: float(choice["macro_f1"]), default=None)


class MeanCurve(NamedTuple):
    """A measure on the held-out folds, epoch by epoch."""

    epochs: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]  # the worst and the best fold
    high: tuple[float, ...]
    folds: int


def mean_curves(
    results: Results, dataset: str, arm: str, head: str, point: Mapping[str, Any], measure: str = "macro_f1"
) -> MeanCurve | None:
    """The mean over the folds of one setting; as far as all of them came. None without folds."""
    mine = [r for r in results.folds.get(dataset, ()) if (r["arm"], r["head"]) == (arm, head)]
    curves = curves_of(mine, point)
    if not curves:
        return None
    table = course(curves, measure)
    mean, low, high = (tuple(column.tolist()) for column in (table.mean(0), table.min(0), table.max(0)))
    return MeanCurve(tuple(range(1, len(mean) + 1)), mean, low, high, len(curves))


def arms_of(records: Iterable[Record]) -> list[str]:
    """The arms of these records, in the order of the tables."""
    return list(dict.fromkeys(record["arm"] for record in sorted(records, key=_place)))
