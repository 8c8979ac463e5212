"""Values of the sums over log-probabilities: operating curve, calibration error, distance of the k best classes.

T thresholds, L levels below the root, Q values of k. numpy only; `probabilities` accumulates the sums.
"""

from typing import NamedTuple

import numpy as np

from arbormax.metrics.sums import FIXED, Sums, ratio


class Curve(NamedTuple):
    """Correctness and specificity at each threshold, in the order of the thresholds, and the area below the curve."""

    correct: list[float]
    specificity: list[float]
    area: float


def operating_curve_value(sums: Sums) -> Curve:
    """The curve and its area; all 0 without items."""
    taus, count = sums["thresholds"], sums["curve_count"]
    correct = ratio(sums["correct"], count)
    specificity = ratio(sums["specificity"] / FIXED, count)
    # specificity need not fall with the threshold on uneven trees, and points may share one: strictest first
    order = np.lexsort((-taus, specificity))
    x, y = np.append(0.0, specificity[order]), np.append(1.0, correct[order])
    return Curve(correct.tolist(), specificity.tolist(), float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2)))


def curve_area(sums: Sums) -> float:
    """The area below the operating curve."""
    return operating_curve_value(sums).area


def calibration_errors(sums: Sums) -> np.ndarray:
    """(L,) the expected calibration error of each level; NaN where no item counts."""
    gaps_L = np.abs(sums["bin_right"] - sums["bin_confidence"] / FIXED).sum(1)
    counts_L = sums["bin_count"].sum(1)
    return np.where(counts_L > 0, ratio(gaps_L, counts_L), np.nan)


def distances(sums: Sums) -> dict[int, float]:
    """The hierarchical distance for each k."""
    heights_Q = ratio(sums["ranked_height"], sums["ranked_pairs"])
    return dict(zip(sums["ks"].tolist(), heights_Q.tolist(), strict=True))
