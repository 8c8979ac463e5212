"""The operating curve of thresholds. numpy only; `probabilities` computes the sums.

T thresholds.
"""

from typing import NamedTuple

import numpy as np

from arbormax.metrics.sums import FIXED, Sums, ratio


class Curve(NamedTuple):
    """Correctness and specificity at each threshold, in the order of the thresholds, and the area below the curve."""

    correct: list[float]
    specificity: list[float]
    area: float


def compute_curve(sums: Sums) -> Curve:
    """The curve and its area; all 0 without items."""
    count_T = sums["answered"].sum(-1)
    correct = ratio(sums["answered_right"].sum(-1), count_T)
    specificity = ratio(sums["specificity"] / FIXED, count_T)
    # specificity need not fall with the threshold on uneven trees, and points may share one: strictest first
    order = np.lexsort((-sums["thresholds"], specificity))
    x, y = np.append(0.0, specificity[order]), np.append(1.0, correct[order])
    return Curve(correct.tolist(), specificity.tolist(), float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2)))
