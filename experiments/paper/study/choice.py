"""The selection of settings and epochs by cross-validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arbormax.errors import InputError
from study.plan import Arm, Point


@dataclass(frozen=True)
class Choice:
    """The settings that cross-validation selects for one arm and head; test results are not used."""

    point: dict[str, Any]
    epochs: int
    macro_f1: float | None  # mean over the folds after these epochs; None without cross-validation
    accuracy: float | None
    scores: tuple[dict[str, Any], ...]  # of each point after its best number of epochs

    def to_dict(self) -> dict[str, Any]:
        return {
            "point": self.point,
            "epochs": self.epochs,
            "macro_f1": self.macro_f1,
            "accuracy": self.accuracy,
            "scores": [dict(score) for score in self.scores],
        }


def fold_curves(curves: Sequence[Sequence[Mapping[str, float]]], measure: str) -> np.ndarray:
    """(folds, epochs) a measure on each fold, for the epochs that all folds reached before early stopping."""
    shortest = min(map(len, curves))
    return np.array([[epoch[measure] for epoch in curve[:shortest]] for curve in curves])


def choose(arm: Arm, records: Sequence[Mapping[str, Any]], folds: int) -> Choice:
    """The point and the number of epochs with the best mean macro-F1 over the folds; the first of equal ones."""
    scores: list[dict[str, Any]] = []
    for point in arm.points:
        curves = select_curves(records, point)
        if len(curves) != folds:
            raise InputError(f"{arm.name} has {len(curves)} of {folds} folds at {dict(point)}; expected all folds")
        mean = {name: fold_curves(curves, name).mean(0) for name in ("macro_f1", "accuracy")}
        epoch = int(mean["macro_f1"].argmax()) if arm.early else -1
        values = {name: float(values[epoch]) for name, values in mean.items()}
        scores.append({"point": dict(point), "epochs": min(curves, key=len)[epoch]["epoch"], **values})
    best = max(scores, key=lambda score: score["macro_f1"])
    return Choice(**best, scores=tuple(scores))


def select_curves(records: Sequence[Mapping[str, Any]], point: Point) -> list[Any]:
    """The curves of the folds at a point, in the order of the folds."""
    matching = [record for record in records if record["point"] == dict(point)]
    return [record["curve"] for record in sorted(matching, key=lambda record: record["fold"])]
