"""Measures of predictions, and their registry `MEASURES`.

The registry needs numpy alone. The functions load torch, and the accumulators torchmetrics, on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arbormax.metrics.curves import Curve
from arbormax.metrics.measure import Measure
from arbormax.metrics.registry import MEASURES

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

_MODULES = {
    "HierarchicalDistanceAtK": "accumulators",
    "LevelCalibrationError": "accumulators",
    "NodeMetric": "accumulators",
    "NodeMetrics": "accumulators",
    "OperatingCurve": "accumulators",
    "evaluate": "evaluation",
    "hierarchical_distance_at_k": "probabilities",
    "level_calibration_error": "probabilities",
    "operating_curve": "probabilities",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"arbormax.metrics.{_MODULES[name]}"), name)
