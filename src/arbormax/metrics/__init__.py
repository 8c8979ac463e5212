"""Measures: functions, and on top of them accumulators that need torchmetrics and are loaded when first named."""

from typing import TYPE_CHECKING, Any

from arbormax.metrics._evaluate import evaluate
from arbormax.metrics.probabilities import (
    Curve,
    hierarchical_distance_at_k,
    level_calibration_error,
    operating_curve,
)

if TYPE_CHECKING:
    from arbormax.metrics.accumulators import (
        HierarchicalDistanceAtK,
        LevelCalibrationError,
        NodeMetric,
        NodeMetrics,
        OperatingCurve,
    )

__all__ = [
    "Curve",
    "HierarchicalDistanceAtK",
    "LevelCalibrationError",
    "NodeMetric",
    "NodeMetrics",
    "OperatingCurve",
    "evaluate",
    "hierarchical_distance_at_k",
    "level_calibration_error",
    "operating_curve",
]

_ACCUMULATORS = {"HierarchicalDistanceAtK", "LevelCalibrationError", "NodeMetric", "NodeMetrics", "OperatingCurve"}


def __getattr__(name: str) -> Any:
    if name in _ACCUMULATORS:
        from arbormax.metrics import accumulators

        return getattr(accumulators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
