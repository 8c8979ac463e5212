"""The measures of probabilities before and after calibration.

B items, N nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor

from arbormax.metrics import MEASURES
from arbormax.metrics.probabilities import brier_sums, calibration_sums, level_table
from arbormax.metrics.registry import to_plain
from arbormax.metrics.sums import FIXED, Sums
from arbormax.taxonomy import Taxonomy

BINS = 15
NAMES = ("nll", "brier", "ece", "ece_debiased")


def measure_probabilities(batches: Iterable[tuple[Tensor, np.ndarray]], tax: Taxonomy) -> dict[str, Any]:
    """The likelihood, the Brier score and the calibration errors of (B, N) log-probabilities and true nodes.

    `levels` has the items, the right items and the summed confidence of each bin of each level, for reliability
    diagrams.
    """
    sums = Sums(tax, {})
    for logp_BN, true_B in batches:
        found = {
            **calibration_sums(level_table(logp_BN, true_B, tax), BINS),
            **brier_sums(logp_BN[:, tax.leaves.copy()], true_B, tax),
            "nll": np.asarray(-float(logp_BN.double().numpy()[np.arange(len(true_B)), true_B].sum())),
            "count": np.asarray(len(true_B)),
        }
        sums.update({name: sums.get(name, 0) + value for name, value in found.items()})
    if not sums:
        return {}
    levels = zip(sums["bin_count"], sums["bin_right"], sums["bin_confidence"], strict=True)
    return {
        **{name: to_plain(MEASURES[name].compute(sums)) for name in NAMES},
        "levels": [
            {"count": n.tolist(), "right": r.tolist(), "confidence": np.round(c / FIXED, 4).tolist()}
            for n, r, c in levels
        ],
    }
