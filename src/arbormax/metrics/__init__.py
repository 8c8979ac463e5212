"""Measures of predictions, and their registry `MEASURES`.

The registry needs numpy alone. The functions load torch, and the accumulators torchmetrics, on first use.
"""

from typing import TYPE_CHECKING

from arbormax._lazy import lazy_names
from arbormax.metrics.measure import Measure
from arbormax.metrics.registry import MEASURES
from arbormax.metrics.sums import Curve

if TYPE_CHECKING:
    from arbormax.metrics.accumulators import (
        HierarchicalDistanceAtK,
        LevelCalibrationError,
        NodeMetric,
        NodeMetrics,
        OperatingCurve,
    )
    from arbormax.metrics.evaluation import evaluate
    from arbormax.metrics.probabilities import hierarchical_distance_at_k, level_calibration_error, operating_curve

__all__ = [
    "MEASURES",
    "Curve",
    "HierarchicalDistanceAtK",
    "LevelCalibrationError",
    "Measure",
    "NodeMetric",
    "NodeMetrics",
    "OperatingCurve",
    "evaluate",
    "hierarchical_distance_at_k",
    "level_calibration_error",
    "operating_curve",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "accumulators": (
            "HierarchicalDistanceAtK",
            "LevelCalibrationError",
            "NodeMetric",
            "NodeMetrics",
            "OperatingCurve",
        ),
        "evaluation": ("evaluate",),
        "probabilities": ("hierarchical_distance_at_k", "level_calibration_error", "operating_curve"),
    },
)
