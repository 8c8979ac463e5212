"""The choice of settings and epochs, from cross-validation alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arbormax.errors import InputError
from study.plan import Arm, Point


@dataclass(frozen=True)
class Choice:
    """What cross-validation chose for one arm and head; made of fold records, which hold nothing of a test split."""

    point: dict[str, Any]
    epochs: int
    macro_f1: float  # mean over the folds, at these epochs
    accuracy: float
    scores: tuple[dict[str, Any], ...]  # of every point, at its best epochs

    def to_dict(self) -> dict[str, Any]:
        return {
            "point": self.point,
            "epochs": self.epochs,
            "macro_f1": self.macro_f1,
            "accuracy": self.accuracy,
            "scores": [dict(score) for score in self.scores],
        }


def course(curves: Sequence[Sequence[Mapping[str, float]]], measure: str) -> np.ndarray:
    """(folds, epochs) a measure on every fold, for the epochs that all of them came to before they stopped early."""
    shortest = min(map(len, curves))
    return np.array([[epoch[measure] for epoch in curve[:shortest]] for curve in curves])


def choose(arm: Arm, records: Sequence[Mapping[str, Any]], folds: int) -> Choice:
    """The point and the epochs with the best mean macro-F1 over the folds; the earlier one where two are equal."""
    scores: list[dict[str, Any]] = []
    for point in arm.points:
        curves = curves_of(records, point)
        if len(curves) != folds:
            raise InputError(f"{arm.name} has {len(curves)} of {folds} folds at {dict(point)}: nothing can be chosen")
        mean = {name: course(curves, name).mean(0) for name in ("macro_f1", "accuracy")}
        epoch = int(mean["macro_f1"].argmax()) if arm.early else -1
        found = {name: float(values[epoch]) for name, values in mean.items()}
        scores.append({"point": dict(point), "epochs": min(curves, key=len)[epoch]["epoch"], **found})
    best = max(scores, key=lambda score: score["macro_f1"])
    return Choice(**best, scores=tuple(scores))


def curves_of(records: Sequence[Mapping[str, Any]], point: Point) -> list[Any]:
    """The curves of the folds at this point, in the order of the folds."""
    mine = [record for record in records if record["point"] == dict(point)]
    return [record["curve"] for record in sorted(mine, key=lambda record: record["fold"])]
