"""The records of a study, summarised: rows of measures, curves and the headline.

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
from study.choice import fold_curves, select_curves

DATASETS = ("trec", "20ng", "r8", "r52")
ARMS = (
    "bilstm",
    "bilstm-tuned",
    "bilstm-smoothed",
    "bilstm-deep",
    "bilstm-names",
    "bilstm-path",
    "bilstm-adapter",
    "bilstm-wide",
    "bilstm-script",
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
)  # the order in tables; other arms follow
# added after the others were measured on the test split; the results say so
LATER = frozenset(ARMS) - {"bilstm", "bilstm-deep", "lstm", "bag", "tfidf", "minilm", "minilm-deep", "blend", "svc"}
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
    """The test results of the BiLSTM in Schuurmans & Frasincar (2020), in points; one run each."""

    flat: Mapping[str, float]
    hierarchical: Mapping[str, float]
    best_accuracy: float  # the state of the art in the paper


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
    """The records of a study: dataset → records, each with its `file`."""

    folds: Mapping[str, list[Record]]
    choices: Mapping[str, list[Record]]
    runs: Mapping[str, list[Record]]

    def choice(self, dataset: str, arm: str, head: str) -> Record | None:
        """The choice of cross-validation for an arm and head, or None."""
        found = (c for c in self.choices.get(dataset, ()) if (c["arm"], c["head"]) == (arm, head))
        return next(found, None)

    def runs_of(self, dataset: str, arm: str, head: str) -> list[Record]:
        """The runs of an arm and head on the test split, by seed."""
        found = (r for r in self.runs.get(dataset, ()) if (r["arm"], r["head"]) == (arm, head))
        return sorted(found, key=lambda run: run["seed"])


def read_results(folder: Path | str) -> Results:
    """All records in `folder/<dataset>/{folds,choices,runs}`; one error lists all invalid files."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; expected the results of a study, such as <dataset>/runs/*.json")
    problems: list[str] = []
    found: dict[str, dict[str, list[Record]]] = {}
    for kind, wanted in _KINDS.items():
        found[kind] = {}
        for dataset in DATASETS:
            paths = sorted((folder / dataset / kind).glob("*.json"))
            records = [record for path in paths if (record := _read(path, dataset, wanted, folder, problems))]
            _find_duplicates(records, _ONCE.get(kind), problems)
            if records:
                found[kind][dataset] = sorted(records, key=_sort_key)
    if problems:
        raise InputError("\n".join(["invalid records of the study:", *(f"  - {p}" for p in problems)]))
    return Results(**found)


def _read(path: Path, dataset: str, wanted: Mapping[str, type], folder: Path, problems: list[str]) -> Record | None:
    name = path.relative_to(folder).as_posix()
    try:
        record = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError) as error:
        problems.append(f"{name}: not JSON ({error}); remove it to run that part again")
        return None
    if not isinstance(record, dict):
        problems.append(f"{name}: expected one JSON object, found {type(record).__name__}")
        return None
    wrong = [key for key, kind in wanted.items() if not _fits(record.get(key), kind)]
    if wrong:
        fields = ", ".join(f"{key} ({wanted[key].__name__})" for key in wrong)
        problems.append(f"{name}: missing or wrong type: {fields}")
        return None
    if record["dataset"] != dataset:
        problems.append(f"{name}: the dataset is {record['dataset']!r}, but the folder is {dataset!r}")
        return None
    return {**record, "file": name}


def _fits(value: Any, kind: type) -> bool:
    if kind in (int, float):
        allowed = (int, float) if kind is float else int
        return isinstance(value, allowed) and not isinstance(value, bool) and bool(np.isfinite(value))
    return isinstance(value, kind)


def _find_duplicates(records: Sequence[Record], keys: tuple[str, ...] | None, problems: list[str]) -> None:
    first: dict[tuple[Any, ...], str] = {}
    for record in records if keys else ():
        key = tuple(record[name] for name in keys or ())
        if key in first:
            problems.append(f"{record['file']}: the same {', '.join(keys or ())} as {first[key]}; remove one of them")
        first.setdefault(key, record["file"])


def _sort_key(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """The position of a record in lists and tables."""
    arm, head = record["arm"], record["head"]
    return (_rank(arm, ARMS), arm, _rank(head, HEADS), head, record.get("seed", 0), record.get("fold", 0))


def _rank(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


@dataclass(frozen=True, eq=False)
class Row:
    """The measures of one arm and head on the test split, over its seeds."""

    dataset: str
    arm: str
    head: str
    tree: str
    seeds: tuple[int, ...]
    mean: Mapping[str, float]  # a list such as level_accuracy has one entry per level: "level_accuracy@1"
    std: Mapping[str, float]  # empty for a single seed
    point: Mapping[str, Any]  # the selected settings
    epochs: int | float | None
    cv_macro_f1: float | None
    outdated: bool  # whether cross-validation now selects other settings
    vectors: str | None
    devices: tuple[str, ...]

    @property
    def levels(self) -> list[float]:
        """The accuracy at levels 1, 2, …"""
        found: list[float] = []
        while (name := f"level_accuracy@{len(found) + 1}") in self.mean:
            found.append(self.mean[name])
        return found


def rows(results: Results, dataset: str) -> list[Row]:
    """One row for each arm and head with a run, in the order of the tables."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for run in sorted(results.runs.get(dataset, ()), key=_sort_key):
        groups[run["arm"], run["head"]].append(run)
    return [_row(runs, results.choice(dataset, arm, head)) for (arm, head), runs in groups.items()]


def _row(runs: Sequence[Record], choice: Record | None) -> Row:
    first = runs[0]
    for run in runs[1:]:
        for key in ("chosen", "tree", "vectors"):
            if run.get(key) != first.get(key):
                raise InputError(
                    f"{first.get('file')} and {run.get('file')} differ in {key}, {first.get(key)!r} and "
                    f"{run.get(key)!r}: all seeds of an arm and head need the same value; run the older one again"
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
    """The numeric measures of a run; values of lists are named `name@level`, from 1."""
    numbers: dict[str, float] = {}
    for name, value in run.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name not in _NO_MEASURE:
            numbers[name] = value
        elif name in ("level_accuracy", "ece"):
            places = value.items() if isinstance(value, dict) else enumerate(value, start=1)
            numbers |= {f"{name}@{place}": number for place, number in places if number is not None}
    return numbers


def headline(results: Results, dataset: str, without: Container[str] = ()) -> Record | None:
    """The choice with the best cross-validated macro-F1, the first of equal ones; test results are not used."""
    choices = sorted((c for c in results.choices.get(dataset, ()) if c["arm"] not in without), key=_sort_key)
    return max(choices, key=lambda choice: float(choice["macro_f1"]), default=None)


class MeanCurve(NamedTuple):
    """A measure on the held-out folds for each epoch."""

    epochs: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]  # worst and best fold
    high: tuple[float, ...]
    folds: int


def mean_curves(
    results: Results, dataset: str, arm: str, head: str, point: Mapping[str, Any], measure: str = "macro_f1"
) -> MeanCurve | None:
    """The mean over the folds at a point, for the epochs that all folds reached; None without folds."""
    matching = [r for r in results.folds.get(dataset, ()) if (r["arm"], r["head"]) == (arm, head)]
    curves = select_curves(matching, point)
    if not curves:
        return None
    table = fold_curves(curves, measure)
    mean, low, high = (tuple(column.tolist()) for column in (table.mean(0), table.min(0), table.max(0)))
    return MeanCurve(tuple(range(1, len(mean) + 1)), mean, low, high, len(curves))


def list_arms(records: Iterable[Record]) -> list[str]:
    """The arms of the records, in the order of the tables."""
    return list(dict.fromkeys(record["arm"] for record in sorted(records, key=_sort_key)))
