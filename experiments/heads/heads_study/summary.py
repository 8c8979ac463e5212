"""The records of the study, summarised: means over the seeds and paired intervals of differences.

n test items, S seeds.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arbormax.data.datasets import MissingDataError
from arbormax.errors import InputError
from arbormax.metrics.bootstrap import bootstrap
from arbormax.taxonomy import Taxonomy
from heads_study.jobs import taxonomy, test_nodes, unpack
from heads_study.plan import CONTENDERS, DATASETS

_SHARED = ("bag", "minilm", "mpnet", "efficientnet")
DEFAULTS = {"tfidf": "blended", "features": "blended", **dict.fromkeys(_SHARED, "shared")}  # model → its default head
MEASURES = ("accuracy", "macro_f1", "hf")
TOP = "top_accuracy"  # the share of items below the right child of the root
RESAMPLES = 1000

Record = dict[str, Any]
Records = dict[str, dict[str, list[Record]]]  # dataset → arm → records by seed


class Difference(NamedTuple):
    """An arm minus its baseline in one measure, and its 95 % interval."""

    arm: str
    baseline: str
    measure: str
    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """`better`, `worse`, or `no clear difference` if the interval, in points with one decimal, touches 0."""
        low, high = round(100 * self.low, 1), round(100 * self.high, 1)
        return "better" if low > 0 else "worse" if high < 0 else "no clear difference"


class Dataset(NamedTuple):
    """What the tables show of one dataset."""

    name: str
    arms: dict[str, dict[str, tuple[float, float]]]  # arm → measure → mean and standard deviation
    seeds: dict[str, int]
    differences: list[Difference]
    current: bool = True  # whether the intervals belong to these records

    def difference(self, arm: str, baseline: str, measure: str) -> Difference | None:
        """The difference of two arms, or None without a record of one of them."""
        return next((d for d in self.differences if d[:3] == (arm, baseline, measure)), None)


def read_records(folder: Path) -> Records:
    """All records of the test split in `folder/<dataset>/test`."""
    found: Records = {}
    for dataset in DATASETS:
        arms = defaultdict(list)
        for path in sorted((folder / dataset / "test").glob("*.json")):
            try:
                record = json.loads(path.read_text("utf-8"))
                arms[record["name"]].append(record)
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"{path} is not a record of the study ({error!r}); remove it and run it again"
                ) from None
        if arms:
            found[dataset] = {name: sorted(arms[name], key=lambda record: record["seed"]) for name in sorted(arms)}
    return found


def pairs(arms: Mapping[str, Sequence[Record]]) -> list[tuple[str, str]]:
    """The compared arms: every arm with the flat head of its model, and each default with every contender."""
    found = []
    for arm in arms:
        model, _, rest = arm.partition("-")
        flat = f"{model}-flat"
        if model not in DEFAULTS:
            continue
        same = f"{flat}-names" if "names" in rest else flat
        found += [(arm, base) for base in dict.fromkeys((flat, same)) if base in arms and base != arm]
        if rest.removesuffix("-names") == DEFAULTS[model]:
            found += [(arm, other) for other in CONTENDERS if other in arms]
    return found


def summarise(records: Records, folder: Path, *, write: bool = True) -> list[Dataset]:
    """The datasets with records; intervals are computed again and stored if the records have changed.

    Without the texts of a dataset, its stored intervals remain, and `current` is False if the records have changed.
    """
    found = []
    for name, arms in records.items():
        path, digest = folder / name / "differences.json", _digest(arms)
        stored = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        if stored.get("digest") != digest:
            try:
                truth = test_nodes(name)
            except MissingDataError:
                pass
            else:
                stored = _measure(arms, truth, taxonomy(name)) | {"digest": digest}
                if write:
                    path.write_text(json.dumps(stored, indent=1) + "\n", "utf-8", newline="\n")
        top = stored.get("top", {})
        values = {
            arm: {key: _mean_and_std([record[key] for record in runs]) for key in MEASURES}
            | {"nll": _mean_and_std([record.get("nll", np.nan) for record in runs])}
            | {TOP: _mean_and_std(top.get(arm, [np.nan]))}
            for arm, runs in arms.items()
        }
        differences = [Difference(*row) for row in stored.get("differences", ())]
        seeds = {arm: len(runs) for arm, runs in arms.items()}
        found.append(Dataset(name, values, seeds, differences, stored.get("digest") == digest))
    return found


def _measure(arms: Mapping[str, Sequence[Record]], truth_n: np.ndarray, tax: Taxonomy) -> dict[str, Any]:
    """Intervals of all pairs, and the accuracy at the top level for each arm and seed."""
    top_of = np.array([[*tax.ancestors(node), node, node][1] for node in range(tax.num_nodes)])  # below the root
    nodes = {arm: np.stack([_nodes(run, truth_n, tax) for run in runs]) for arm, runs in arms.items()}
    top = {arm: (top_of[nodes_Sn] == top_of[truth_n]).mean(1).round(6).tolist() for arm, nodes_Sn in nodes.items()}
    rows: list[tuple[Any, ...]] = []
    for baseline in dict.fromkeys(base for _, base in pairs(arms)):
        compared = [arm for arm, base in pairs(arms) if base == baseline]
        for seeds in {min(len(nodes[arm]), _count(nodes[baseline], baseline)) for arm in compared}:
            same = [arm for arm in compared if min(len(nodes[arm]), _count(nodes[baseline], baseline)) == seeds]
            sides = {arm: _first(nodes[arm], seeds) for arm in (baseline, *same)}
            found = bootstrap(truth_n, sides, tax, measures=MEASURES, resamples=RESAMPLES).differences
            tops = {arm: top_of[side] for arm, side in sides.items()}
            above = bootstrap(top_of[truth_n], tops, tax, measures=["accuracy"], resamples=RESAMPLES).differences
            for arm in same:
                rows += [(arm, baseline, name, *found[arm][name]) for name in MEASURES]
                rows.append((arm, baseline, TOP, *above[arm]["accuracy"]))
    return {"top": top, "differences": [[*row[:3], *(round(value, 6) for value in row[3:])] for row in rows]}


def _count(nodes_Sn: np.ndarray, arm: str) -> int:
    """The seeds to compare with: a contender with one run stands for all."""
    return 1_000 if arm in CONTENDERS and len(nodes_Sn) == 1 else len(nodes_Sn)


def _first(nodes_Sn: np.ndarray, seeds: int) -> np.ndarray:
    return nodes_Sn[:seeds] if len(nodes_Sn) >= seeds else np.broadcast_to(nodes_Sn, (seeds, nodes_Sn.shape[1]))


def _nodes(run: Record, truth_n: np.ndarray, tax: Taxonomy) -> np.ndarray:
    """(n,) the predicted nodes, checked against the test split."""
    nodes: np.ndarray = tax.leaves[unpack(run["predicted"])]
    if nodes.shape != truth_n.shape or abs(float(np.mean(nodes == truth_n)) - run["accuracy"]) > 1e-4:
        raise InputError(f"{run['dataset']}, {run['name']}, seed {run['seed']}: the record belongs to other test texts")
    return nodes


def _mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _digest(arms: Mapping[str, Sequence[Record]]) -> str:
    used = [[name, run["seed"], run["predicted"]] for name, runs in arms.items() for run in runs]
    return hashlib.sha256(json.dumps([RESAMPLES, MEASURES, used]).encode()).hexdigest()
