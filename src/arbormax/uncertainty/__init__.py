"""Probabilities that can be trusted: calibration, sets with guaranteed coverage, and distributions over networks.

A calibration is a function `(steps, taxonomy) -> Scaling` and one line here. A method of uncertainty is a subclass of
`arbormax.model.posterior.Posterior` and one line there, because models are loaded without this package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from arbormax._lazy import lazy_names
from arbormax._registry import Registry
from arbormax.model.posterior import UNCERTAINTIES

if TYPE_CHECKING:
    from arbormax.model.calibration import Scaling
    from arbormax.taxonomy import Taxonomy
    from arbormax.uncertainty.calibration import CalibrationReport, calibrate
    from arbormax.uncertainty.conformal import measure_coverage, predict_sets
    from arbormax.uncertainty.predictive import predict_uncertainty
    from arbormax.uncertainty.steps import Steps

__all__ = [
    "CALIBRATIONS",
    "DEFAULT",
    "OFF",
    "UNCERTAINTIES",
    "CalibrationReport",
    "calibrate",
    "calibration_choices",
    "measure_coverage",
    "predict_sets",
    "predict_uncertainty",
]

DEFAULT = "parent"  # of a training, see docs/adr/0014
OFF = "none"  # a training without calibration
CALIBRATIONS: Registry[Callable[[Steps, Taxonomy], Scaling]] = Registry("calibration")
CALIBRATIONS.add("temperature", "arbormax.uncertainty.scaling:fit_temperature", "one temperature for the whole tree")
CALIBRATIONS.add("level", "arbormax.uncertainty.scaling:fit_levels", "one temperature for each level")
CALIBRATIONS.add(
    "parent", "arbormax.uncertainty.scaling:fit_parents", "one temperature for each parent, close to that of its level"
)
CALIBRATIONS.add(
    "vector", "arbormax.uncertainty.scaling:fit_vector", "a factor and a shift for each node, close to its parent's"
)


def calibration_choices() -> tuple[str, ...]:
    """The values of the setting `calibration` of a training."""
    return (*CALIBRATIONS.names, OFF)


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "calibration": ("CalibrationReport", "calibrate"),
        "conformal": ("measure_coverage", "predict_sets"),
        "predictive": ("predict_uncertainty",),
    },
)
