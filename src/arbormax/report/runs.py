"""Runs read from their JSON files and checked: the measures, the tree, and the origin.

n items, N nodes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from arbormax.errors import InputError
from arbormax.metrics import MEASURES
from arbormax.taxonomy import Taxonomy

FORMAT = 1
LARGEST = 2.0**53  # every whole number up to this one has an exact floating-point representation
FILES = ("metrics.json", "results.json")  # of a run, and of a comparison
MAX_ITEMS = 50_000_000  # so that a small file cannot request all memory
_EVALUATE = "run `arbormax evaluate MODEL DATA --out FILE`, then `arbormax report FILE`"


@dataclass(frozen=True, eq=False)
class Tree:
    """The taxonomy, and the numbers of test texts at or below each node: by truth, by prediction, and by both."""

    tax: Taxonomy
    support: np.ndarray  # (N,) int64
    predicted: np.ndarray
    correct: np.ndarray

    def label(self, node: int) -> str:
        """The path of a node in one line."""
        return " › ".join(self.tax.path(node)) or "all classes"

    def levels(self) -> list[tuple[int, int]]:
        """For each level below the root: texts whose truth reaches it, and those with the correct node there."""
        bounds = self.tax.level_start.tolist()
        return [
            (int(self.support[start:stop].sum()), int(self.correct[start:stop].sum()))
            for start, stop in pairwise(bounds[1:])
        ]


@dataclass(frozen=True, eq=False)
class Run:
    """One model evaluated on test texts."""

    name: str
    measures: Mapping[str, Any]
    tree: Tree
    severity: list[int]
    confusions: np.ndarray  # (P, 3) true node, predicted node, count; the costliest first
    left_out: tuple[int, int]  # pairs and mistakes that are not listed
    forks: np.ndarray  # (P, 3) true branch, predicted branch, count
    quotes: Sequence[Sequence[Mapping[str, Any]]] = ()
    digest: str = ""
    true: np.ndarray | None = None  # (n,) nodes
    predicted: np.ndarray | None = None
    calibration: Sequence[Mapping[str, np.ndarray]] = ()
    calibrated: Mapping[str, Any] | None = None  # measures of held-out texts `before` and `after` a calibration
    answers: Mapping[str, np.ndarray] | None = None
    curve: Sequence[Mapping[str, float]] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    tuning: Mapping[str, Any] = field(default_factory=dict)  # the search for settings
    data: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)  # command, date, versions
    seeds: int = 1
    spread: Mapping[str, float] = field(default_factory=dict)  # standard deviation over the seeds

    @property
    def head(self) -> str:
        return str(self.config.get("head", self.name))

    @property
    def texts(self) -> int:
        """The number of test texts, each counted once."""
        return int(self.tree.support[0]) // self.seeds

    @property
    def errors(self) -> int:
        return sum(self.severity)


def read_runs(paths: Sequence[Path]) -> tuple[list[Run], list[dict[str, Any]]]:
    """The runs of models' folders, files of evaluations and comparisons, and the differences that comparisons contain.

    Runs of the same name get a number.
    """
    counts: Counter[str] = Counter()
    runs: list[Run] = []
    rows: list[dict[str, Any]] = []
    for path in paths:
        own, differences = _read(_file(path))
        names: dict[str, str] = {}
        for run in own:
            counts[run.name] += 1
            names[run.name] = f"{run.name} ({counts[run.name]})" if counts[run.name] > 1 else run.name
            runs.append(replace(run, name=names[run.name]))
        rows += [row | {key: names.get(row[key], row[key]) for key in ("head", "baseline")} for row in differences]
    return runs, rows


def _file(path: Path) -> Path:
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; expected a model's folder or a file of `arbormax evaluate`")
    if path.is_file():
        return path
    for name in FILES:
        if (path / name).is_file():
            return path / name
    raise InputError(
        f"{path} is not a run: it has neither metrics.json (written by training) nor results.json (written by a "
        "comparison)"
    )


def _read(file: Path) -> tuple[list[Run], list[dict[str, Any]]]:
    try:
        found = json.loads(file.read_text("utf-8"), parse_int=_int, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{file} does not contain a run: expected a JSON object")
    try:
        return _comparison(found, file) if "heads" in found and "differences" in found else ([_run(found, file)], [])
    except InputError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{file}: the details of the run are invalid: {problem}") from None


def _run(found: dict[str, Any], file: Path) -> Run:
    measures = found.get("test", found)
    if "accuracy" not in measures:
        why = "the model was not evaluated on test texts" if "training" in found else "it has no accuracy"
        raise InputError(f"{file} has nothing to report, because {why}: {_EVALUATE}")
    if "details" not in found:
        raise InputError(f"{file} has measures but no details: {_EVALUATE}")
    training = found.get("training") or {}
    return _run_details(
        found["details"],
        file,
        name=file.parent.resolve().name if file.name in FILES else file.stem,
        measures=_scalars(measures),
        training=training,
        tuning=found.get("tuning") or {},
        data=found.get("data") or {},
        curve=_curve(training.get("curve")),
        calibrated=_calibrated(found.get("calibration")),
    )


def _comparison(found: dict[str, Any], file: Path) -> tuple[list[Run], list[dict[str, Any]]]:
    if "details" not in found:
        raise InputError(
            f"{file} has no details: run the comparison again with the same folder, {file.parent}; finished parts are "
            "not trained again"
        )
    runs = []
    for head, own in found["details"].items():
        row = found["table"].get(head, {})
        records: list[dict[str, Any]] = [record for record in found.get("records", ()) if record.get("head") == head]
        run = _run_details(
            own,
            file,
            name=head,
            measures=_scalars({measure: value.get("mean") for measure, value in row.items()}),
            spread={m: float(v["std"]) for m, v in row.items() if isinstance(v.get("std"), (int, float))},
            data=found.get("data") or {},
            curve=_curve(records[0].get("curve") if records else None),
        )
        config = {**run.config, "head": head, "seed": found.get("seeds")}
        # the items are of one seed only, while the intervals of the comparison are over all seeds
        runs.append(replace(run, config=config, true=None, predicted=None))
    if not runs:
        raise InputError(f"{file} compares no heads")
    rows = found["differences"] if isinstance(found["differences"], list) else []
    return runs, [row for row in rows if isinstance(row, dict) and _is_difference(row)]


def _is_difference(row: dict[str, Any]) -> bool:
    numbers = [row.get(key) for key in ("mean", "low", "high", "level")]
    return all(isinstance(row.get(key), str) for key in ("head", "baseline", "measure")) and all(
        isinstance(number, (int, float)) and abs(number) <= LARGEST for number in numbers
    )


def _run_details(details: Mapping[str, Any], file: Path, **known: Any) -> Run:
    version = details.get("format")
    if not isinstance(version, int) or version > FORMAT:
        raise InputError(
            f"{file} has details of format {version!r}, but this version reads formats up to {FORMAT}: update arbormax"
        )
    tree = _tree(details["tree"])
    nodes = tree.tax.num_nodes
    items, confusions = details["items"], details["confusions"]
    count = int(items["count"])
    pairs = _pairs(confusions["pairs"], nodes)
    return Run(
        **known,
        tree=tree,
        severity=_array(details["severity"], None, whole=True).tolist(),
        confusions=pairs,
        left_out=(int(confusions["all_pairs"]) - len(pairs), int(confusions["all_mistakes"]) - int(pairs[:, 2].sum())),
        forks=_pairs(details["forks"]["pairs"], nodes),
        quotes=[
            [quote for quote in quotes if isinstance(quote.get("text"), str)]
            for quotes in confusions.get("examples") or ()
        ],
        digest=f"{items['digest']} {tree.tax.fingerprint}",
        true=_unpack(items["true"], count, nodes),
        predicted=_unpack(items["predicted"], count, nodes),
        calibration=[_bins(level) for level in details.get("calibration", ())],
        answers=_answers(details.get("answers"), tree.tax.depth + 1),
        config=details.get("config") or {},
        origin={key: details.get(key) for key in ("command", "date", "versions", "probabilities")},
        seeds=max(1, int(details.get("seeds", 1))),
    )


def _tree(given: Mapping[str, Any]) -> Tree:
    names, children = given["names"], _array(given["children"], None, whole=True)
    count = len(children)
    if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise ValueError(f"expected the names of {count} nodes")
    parent = np.concatenate(([-1], np.repeat(np.arange(count), children)))
    if count < 2 or len(parent) != count or (parent[1:] >= np.arange(1, count)).any():
        raise ValueError("the numbers of children do not form a tree")
    tax = Taxonomy(tuple(names), parent, np.flatnonzero(children == 0), np.arange(count), np.zeros(0, np.int64))
    return Tree(tax, *(_array(given[key], count, whole=True) for key in ("support", "predicted", "correct")))


def _array(values: Any, *shape: int | None, whole: bool = False) -> np.ndarray:
    """Numbers from 0 to LARGEST in an array of this shape, where None is any length."""
    array = np.asarray(values)
    has_shape = array.ndim == len(shape) and all(
        want in (None, size) for want, size in zip(shape, array.shape, strict=True)
    )
    kinds = "iu" if whole else "iuf"
    if not has_shape or (array.size and (array.dtype.kind not in kinds or array.min() < 0 or array.max() > LARGEST)):
        lengths = " × ".join("any" if size is None else f"{size:,}" for size in shape)
        raise ValueError(f"expected {lengths} {'whole ' * whole}numbers from 0, found {str(values)[:40]}")
    return array.astype(np.int64 if whole else np.float64)


def _pairs(rows: Any, nodes: int) -> np.ndarray:
    table = _array(rows or np.zeros((0, 3), np.int64), None, 3, whole=True)
    if table.size and table[:, :2].max() >= nodes:
        raise ValueError(f"confusions name nodes from 0 to {nodes - 1}, found {table[:, :2].max()}")
    return table


def _bins(level: Any) -> dict[str, np.ndarray]:
    count = _array(level["count"], None)
    return {"count": count, **{key: _array(level[key], len(count)) for key in ("right", "confidence")}}


def _calibrated(given: Any) -> dict[str, Any] | None:
    """What a calibration changed; None if the model only has coverage."""
    if not isinstance(given, Mapping) or not given.get("method"):
        return None
    sides = {
        name: {**_scalars(given[name]), "levels": [_bins(level) for level in given[name]["levels"]]}
        for name in ("before", "after")
    }
    return {"method": str(given["method"]), "items": int(given["items"]), "applied": bool(given["applied"]), **sides}


def _unpack(text: str, count: int, nodes: int) -> np.ndarray:
    if not 0 < count <= MAX_ITEMS:
        raise ValueError(f"expected 1 to {MAX_ITEMS:,} items, found {count:,}")
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), 4 * count + 1)
    except zlib.error as error:
        raise ValueError(f"the items cannot be unpacked: {error}") from None
    if len(data) != 4 * count:
        raise ValueError(f"expected {count} items")
    array = np.frombuffer(data, "<u4").astype(np.int64)
    if array.max() >= nodes:
        raise ValueError(f"an item names node {array.max()}, beyond the {nodes} of the tree")
    return array


def _answers(given: Mapping[str, Any] | None, levels: int) -> dict[str, np.ndarray] | None:
    if given is None:
        return None
    thresholds = _array(given["thresholds"], None)
    count = len(thresholds)
    by_level = {name: _array(given[name], count, levels) for name in ("answered", "right")}
    of_classes = {name: _array(given[name], count) for name in ("classes", "classes_right")}
    return {"thresholds": thresholds, **by_level, **of_classes}


def _curve(rows: Sequence[Mapping[str, Any]] | None) -> list[dict[str, float]]:
    """The measures of each epoch, without those of a training that diverged."""
    return [{key: float(value) for key, value in row.items() if isinstance(value, (int, float))} for row in rows or ()]


def _scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    lists = [name for name in MEASURES if MEASURES[name].per == "level"]
    return {
        str(k): v
        for k, v in values.items()
        if (isinstance(v, list) if k in lists else isinstance(v, (int, float)) and not isinstance(v, bool))
    }


def _int(digits: str) -> int | None:
    """A whole number, or None if it does not fit into 64 bits."""
    return int(digits) if len(digits) < 19 else None
