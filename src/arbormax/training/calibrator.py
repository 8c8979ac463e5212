"""The calibration at the end of a training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arbormax.data.examples import Examples
from arbormax.model.calibration import Calibration, Coverage, apply_calibration
from arbormax.model.network import Model
from arbormax.model.run import Run
from arbormax.uncertainty import CALIBRATIONS, DEFAULT, OFF, calibration_choices
from arbormax.uncertainty.calibration import ENOUGH, CalibrationReport, fit_calibration
from arbormax.uncertainty.conformal import coverage_scores

_MOST_SCORES = 1 << 28  # scores of nodes; of a very large tree, fewer examples are used


class Calibrator:
    """Fits a calibration to the model that was trained without the held-out examples, and applies it to the last one.

    The model stays as it is if a calibration on some held-out examples does not improve the likelihood of others, as
    often after a convex solver, which has already fitted the scale of the scores to them. `method` is a name from
    `CALIBRATIONS`, "none", or None for the default. If there are enough held-out examples, the last model also gets
    their scores: an estimate of its coverage, because it may have been trained on them.
    """

    def __init__(self, method: str | None) -> None:
        self.method = DEFAULT if method is None else method
        if self.method != OFF:
            CALIBRATIONS.check(self.method, argument="calibration", listed=calibration_choices())
        self._found: tuple[Calibration | None, CalibrationReport] | None = None
        self._coverage: Coverage | None = None

    def fit(self, model: Model, held_out: Examples) -> None:
        """Find the calibration; labels that are never below a node with several children say nothing about it."""
        tax = model.taxonomy
        if self.method == OFF:
            return
        is_open = tax.num_children[tax.parent[held_out.nodes]] > 1
        if not is_open[held_out.nodes > 0].any():
            return
        most = max(1, _MOST_SCORES // tax.num_nodes)
        if len(held_out) > most:
            held_out = held_out.take(np.sort(np.random.default_rng(0).permutation(len(held_out))[:most]))
        calibration, report = fit_calibration(model, held_out, self.method)
        if report.after["nll"] >= report.before["nll"]:
            self._found = None, replace(report, applied=False)
        else:
            self._found = calibration, report
        if len(held_out) >= ENOUGH:
            scaling = None if self._found[0] is None else calibration.scaling
            scores = coverage_scores(model, held_out, sizes=1, scaling=scaling)
            self._coverage = Coverage(held_out.nodes, scores, is_estimate=True)

    def apply(self, run: Run) -> Run:
        """The run with its model calibrated, if a calibration was found."""
        if self._found is None:
            return run
        calibration, report = self._found
        if calibration is not None:
            apply_calibration(run.model, calibration)
        run.model.coverage = self._coverage
        return replace(run, calibration=report.to_dict())
