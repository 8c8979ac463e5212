"""Paired intervals of the differences between an arm's heads and its flat head, and their file.

n test items, S seeds.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arbormax.data import datasets
from arbormax.errors import InputError
from arbormax.metrics.bootstrap import bootstrap
from arbormax.studies.compare import Difference
from arbormax.taxonomy import Taxonomy
from study.files import find_tree, write_file
from study.summary import DATASETS, Results, list_arms

MEASURES = ("accuracy", "macro_f1", "macro_precision", "macro_recall", "hf", "mistake_severity")
LEVEL = 0.95
METHOD = "half-samples"  # of the bootstrap; intervals that were stored with another method are computed again


def common_seeds(results: Results, dataset: str, arm: str, head: str) -> tuple[int, ...]:
    """The seeds that both a head of an arm and the flat head have."""
    flat = {run["seed"] for run in results.runs_of(dataset, arm, "flat")}
    return tuple(run["seed"] for run in results.runs_of(dataset, arm, head) if run["seed"] in flat)


def differences(
    results: Results, dataset: str, arm: str, truth: np.ndarray, taxonomy: Taxonomy, resamples: int = 2000
) -> list[Difference]:
    """Hierarchical − flat and shared − flat of an arm in each measure, over their common seeds.

    `truth` is (n,), the node of each test item in the taxonomy of the arm. A head without a common seed is omitted.
    """
    by_seeds: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for head in ("hierarchical", "shared"):
        if seeds := common_seeds(results, dataset, arm, head):
            by_seeds[seeds].append(head)
    found: list[Difference] = []
    for seeds, heads in by_seeds.items():
        sides = {}
        for head in ("flat", *heads):
            runs = [run for run in results.runs_of(dataset, arm, head) if run["seed"] in seeds]
            sides[head] = np.stack([_predicted_nodes(run, truth, taxonomy) for run in runs])  # (S, n)
        intervals = bootstrap(
            truth, sides, taxonomy, baseline="flat", measures=MEASURES, resamples=resamples, level=LEVEL
        ).differences
        for head in heads:
            found += [Difference(head, "flat", name, *interval, LEVEL) for name, interval in intervals[head].items()]
    return found


def _predicted_nodes(run: Mapping[str, Any], truth: np.ndarray, taxonomy: Taxonomy) -> np.ndarray:
    """(n,) the predicted nodes, checked against the test split and the tree."""
    name, classes = run.get("file", "a run"), np.asarray(run["predicted"], dtype=np.int64)
    if classes.shape != truth.shape:
        raise InputError(
            f"{name}: {len(classes)} predictions for {len(truth)} test items; expected the same test split"
        )
    if classes.min(initial=0) < 0 or classes.max(initial=0) >= taxonomy.num_leaves:
        raise InputError(f"{name}: expected class ids from 0 to {taxonomy.num_leaves - 1}")
    nodes: np.ndarray = taxonomy.leaves[classes]
    accuracy = float(np.mean(nodes == truth))
    if abs(accuracy - run["accuracy"]) > 5e-5:  # less than one item of the largest test split
        raise InputError(
            f"{name}: the accuracy of its predictions is {accuracy:.4f}, but its record contains "
            f"{run['accuracy']:.4f}; the test texts or the tree have changed"
        )
    return nodes


@dataclass(frozen=True)
class ArmDifferences:
    """The differences of an arm's heads from flat, and the runs that they belong to."""

    arm: str
    seeds: Mapping[str, tuple[int, ...]]  # head → the seeds in common with flat
    differences: tuple[Difference, ...]
    resamples: int
    digest: str  # of the predictions
    current: bool = True  # whether the predictions have not changed since

    def get(self, head: str, measure: str) -> Difference | None:
        """The difference of a head in a measure, or None."""
        return next((d for d in self.differences if (d.head, d.measure) == (head, measure)), None)


TreeOf = Callable[[str, str], Taxonomy]
Found = dict[str, dict[str, ArmDifferences]]  # dataset → arm


def read_differences(results: Results, folder: Path | str, resamples: int = 2000) -> Found:
    """The differences in `folder/<dataset>/differences.json`, for the arms with runs to compare."""
    found: Found = {}
    for dataset in DATASETS:
        path = Path(folder) / dataset / "differences.json"
        if not path.is_file():
            continue
        try:
            stored = json.loads(path.read_text("utf-8"))["arms"]
            known = {arm: _from_json(arm, entry) for arm, entry in stored.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path} is not a file of differences ({error!r}); remove it and run this again"
            ) from error
        found[dataset] = {
            arm: ArmDifferences(**{**vars(known[arm]), "current": known[arm].digest == digest})
            for arm, digest in _digests(results, dataset, resamples).items()
            if arm in known
        }
    return found


def store_differences(
    results: Results,
    folder: Path | str,
    *,
    root: Path | str | None = None,
    tree_of: TreeOf = find_tree,
    resamples: int = 2000,
    write: bool = True,
) -> Found:
    """The differences of each arm, computed again and stored if the records have changed.

    Without the texts of a dataset, its stored differences remain; `current` is False if the records have changed.
    `root` is the folder of the datasets, and `tree_of(dataset, tree)` returns the tree of an arm.
    """
    known, found = read_differences(results, folder, resamples), Found()
    for dataset in DATASETS:
        digests = _digests(results, dataset, resamples)
        arms = dict(known.get(dataset, {}))
        outdated = [arm for arm in digests if arm not in arms or not arms[arm].current]
        if outdated:
            try:
                test, names = datasets.load_split(dataset, "test", root), tree_of(dataset, "paper").names
            except datasets.MissingDataError:
                outdated = []
        for arm in outdated:
            tree = results.runs_of(dataset, arm, "flat")[0].get("tree") or "paper"
            taxonomy = tree_of(dataset, tree)
            # labels by name: another tree over the same classes may number its nodes differently
            truth = taxonomy.find_many([names[node] for node in test.nodes.tolist()])
            seeds = {head: common_seeds(results, dataset, arm, head) for head in ("hierarchical", "shared")}
            made = tuple(differences(results, dataset, arm, truth, taxonomy, resamples))
            arms[arm] = ArmDifferences(
                arm, {head: some for head, some in seeds.items() if some}, made, resamples, digests[arm]
            )
        if arms:
            found[dataset] = {arm: arms[arm] for arm in digests if arm in arms}
            path = Path(folder) / dataset / "differences.json"
            if write and (not path.is_file() or path.read_text("utf-8") != differences_text(dataset, found[dataset])):
                write_file(path, differences_text(dataset, found[dataset]).encode())
    return found


def differences_text(dataset: str, arms: Mapping[str, ArmDifferences]) -> str:
    """The content of `differences.json`."""
    table = {
        arm: {
            "digest": entry.digest,
            "resamples": entry.resamples,
            "seeds": {head: list(seeds) for head, seeds in entry.seeds.items()},
            "differences": [difference.to_dict() for difference in entry.differences],
        }
        for arm, entry in arms.items()
    }
    return json.dumps({"dataset": dataset, "arms": table}, indent=1, ensure_ascii=False) + "\n"


def _from_json(arm: str, entry: Mapping[str, Any]) -> ArmDifferences:
    fields = ("head", "baseline", "measure", "mean", "low", "high", "level")
    made = tuple(Difference(*(item[name] for name in fields)) for item in entry["differences"])
    seeds = {head: tuple(some) for head, some in entry["seeds"].items()}
    return ArmDifferences(arm, seeds, made, entry["resamples"], entry["digest"])


def _digests(results: Results, dataset: str, resamples: int) -> dict[str, str]:
    """A digest of the predictions of each arm; arms without two heads to compare have none."""
    found = {}
    for arm in list_arms(results.runs.get(dataset, ())):
        seeds = {head: common_seeds(results, dataset, arm, head) for head in ("hierarchical", "shared")}
        if not any(seeds.values()):
            continue
        used = [
            [head, run.get("tree"), run["seed"], run["predicted"]]
            for head in ("flat", "hierarchical", "shared")
            for run in results.runs_of(dataset, arm, head)
            if any(run["seed"] in some for name, some in seeds.items() if head in ("flat", name))
        ]
        text = json.dumps([METHOD, resamples, LEVEL, MEASURES, used])
        found[arm] = hashlib.sha256(text.encode()).hexdigest()
    return found
