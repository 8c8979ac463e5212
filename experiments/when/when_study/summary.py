"""The records of the study, summarised: means over the seeds, and paired intervals of differences.

n test texts, S seeds.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from heads_study.jobs import unpack

from arbormax.data.datasets import MissingDataError, load_split, load_taxonomy
from arbormax.errors import InputError
from arbormax.metrics.bootstrap import bootstrap
from when_study.plan import DATASETS, HEADS, RESTS, SHARES

MEASURES = ("accuracy", "macro_f1", "hf")
RARE = ((0, 2), (3, 5), (6, 20), (21, 10**9))  # training texts of a class
RESAMPLES = 1000

Record = dict[str, Any]
Key = tuple[str, str, str]  # model, head, setting
Records = dict[str, dict[Key, list[Record]]]  # by dataset, with the records in the order of their seeds


class Difference(NamedTuple):
    """One configuration minus another in a measure, with its 95 % interval."""

    key: Key
    baseline: Key
    measure: str
    seeds: int
    mean: float
    low: float
    high: float


class Dataset(NamedTuple):
    """What the page shows of one dataset."""

    name: str
    means: dict[Key, dict[str, float]]
    stds: dict[Key, dict[str, float]]
    seeds: dict[Key, int]
    differences: list[Difference]
    current: bool

    def difference(self, key: Key, baseline: Key, measure: str) -> Difference | None:
        """The difference of two configurations, or None without a record of one of them."""
        return next((d for d in self.differences if d[:3] == (key, baseline, measure)), None)


def read_records(folder: Path) -> Records:
    """All records in `folder/<dataset>`."""
    found: Records = {}
    for dataset in DATASETS:
        groups: dict[Key, list[Record]] = defaultdict(list)
        for path in sorted((folder / dataset).glob("*-seed*.json")):
            try:
                record = json.loads(path.read_text("utf-8"))
                groups[record["model"], record["head"], record["setting"]].append(record)
            except (ValueError, KeyError, TypeError) as error:
                message = f"{path} is not a record of the study ({error!r}); remove it and run it again"
                raise InputError(message) from None
        if groups:
            found[dataset] = {key: sorted(groups[key], key=lambda run: run["seed"]) for key in sorted(groups)}
    return found


def pairs(keys: Sequence[Key]) -> Iterator[tuple[Key, Key]]:
    """The configurations to compare: with flat, with the texts of a class alone, and with the shuffled tree."""
    for model, heads in HEADS.items():
        for head in heads:
            full = (model, head, "full")
            candidates = [(full, (model, "flat", "full")), (full, (model, head, "shuffled"))]
            candidates += [((model, head, f"levels{level}"), (model, "flat", "full")) for level in range(2, 9)]
            for share in SHARES:
                alone = (model, "flat", f"{share:g}-dropped")
                candidates += [((model, head, f"{share:g}-{rest}"), alone) for rest in RESTS]
            yield from (pair for pair in candidates if pair[0] != pair[1] and set(pair) <= set(keys))


def summarise(records: Records, folder: Path, *, write: bool = True) -> list[Dataset]:
    """The datasets with records; intervals are computed again and stored if the records have changed.

    Without the texts of a dataset, its stored intervals remain, and `current` is False if the records have changed.
    """
    found = []
    for name, groups in records.items():
        path, digest = folder / name / "differences.json", _digest(groups)
        stored = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        if stored.get("digest") != digest:
            try:
                stored = {"digest": digest, "differences": _measure(name, groups)}
            except MissingDataError:
                pass
            else:
                if write:
                    path.write_text(json.dumps(stored, indent=1) + "\n", "utf-8", newline="\n")
        rows = [Difference(tuple(row[0]), tuple(row[1]), *row[2:]) for row in stored.get("differences", ())]
        values = {key: {m: [run[m] for run in runs] for m in MEASURES} for key, runs in groups.items()}
        means = {key: {m: float(np.mean(some)) for m, some in by.items()} for key, by in values.items()}
        stds = {
            key: {m: float(np.std(some, ddof=1)) if len(some) > 1 else 0.0 for m, some in by.items()}
            for key, by in values.items()
        }
        counts = {key: len(runs) for key, runs in groups.items()}
        found.append(Dataset(name, means, stds, counts, rows, stored.get("digest") == digest))
    return found


def rare_measure(low: int, high: int) -> str:
    """The name of the accuracy on the texts of classes with so many training texts."""
    return f"accuracy-{low}-{high}"


def _measure(dataset: str, groups: Mapping[Key, Sequence[Record]]) -> list[list[Any]]:
    tax, truth_n = load_taxonomy(dataset), load_split(dataset, "test").nodes
    train = tax.class_of[load_split(dataset, "train").nodes]
    count_n = np.bincount(train[train >= 0], minlength=tax.num_leaves)[tax.class_of[truth_n]]
    rows = []
    for key, baseline in pairs(list(groups)):
        sides = {}
        seeds = {run["seed"] for run in groups[key]} & {run["seed"] for run in groups[baseline]}
        for side in (baseline, key):
            runs = [run for run in groups[side] if run["seed"] in seeds]
            sides["-".join(side)] = tax.leaves[np.stack([unpack(run["predicted"]) for run in runs])]
        name = "-".join(key)
        found = dict(bootstrap(truth_n, sides, tax, measures=MEASURES, resamples=RESAMPLES).differences[name])
        if key[2] == baseline[2] == "full":
            for low, high in RARE:
                inside = (count_n >= low) & (count_n <= high)
                if inside.any():
                    some = {side: nodes[:, inside] for side, nodes in sides.items()}
                    part = bootstrap(truth_n[inside], some, tax, measures=["accuracy"], resamples=RESAMPLES)
                    found[rare_measure(low, high)] = part.differences[name]["accuracy"]
        for measure, interval in found.items():
            rows.append([key, baseline, measure, len(seeds), *(round(value, 6) for value in interval)])
    return rows


def _digest(groups: Mapping[Key, Sequence[Record]]) -> str:
    used = [[*key, run["seed"], run["predicted"]] for key, runs in groups.items() for run in runs]
    return hashlib.sha256(json.dumps([RESAMPLES, RARE, MEASURES, used]).encode()).hexdigest()
