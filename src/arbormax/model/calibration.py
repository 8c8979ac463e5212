"""What calibration adds to a model: scales of its probabilities, and held-out scores for sets with coverage.

n held-out items, M = N - 1 nodes below the root, W set sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from arbormax.errors import OptionError
from arbormax.heads.calibrated import CalibratedHead
from arbormax.model.network import Model


@dataclass(frozen=True, eq=False)
class Scaling:
    """In every sibling group the softmax of `scale * log P(node | parent) + shift`."""

    scale: np.ndarray  # (M,) float64, above 0; 1 / T
    shift: np.ndarray  # (M,) float64


@dataclass(frozen=True, eq=False)
class Calibration:
    """A scaling of a model and where it came from."""

    method: str
    scaling: Scaling
    items: int  # held-out items that it was fitted on
    in_rows: bool = False  # whether the rows of the head contain it; otherwise the head is a `CalibratedHead`


@dataclass(frozen=True, eq=False)
class Coverage:
    """The conformity scores of held-out items, from which thresholds of guaranteed coverage follow."""

    nodes: np.ndarray  # (n,) int64 the true nodes
    scores: np.ndarray  # (n, W) float64, for sets of at most 1 to W nodes
    target: float | None = None  # the coverage that commands and the service's page use by default


def apply_calibration(model: Model, calibration: Calibration) -> None:
    """Calibrate a model in place; an earlier calibration and its coverage are removed first."""
    remove_calibration(model)
    scaling = calibration.scaling
    scale, shift = (torch.from_numpy(values) for values in (scaling.scale, scaling.shift))
    first = model.taxonomy.child_start[np.maximum(model.taxonomy.parent[1:], 0)] - 1
    is_shared = bool((scaling.scale == scaling.scale[first]).all())  # by siblings
    in_rows = is_shared and model.head.scale_rows(scale, shift)
    if not in_rows:
        if model.head.searches:
            message = f"{calibration.method!r} scores all nodes, which is too slow for a tree of this size"
            raise OptionError(message, argument="method", fix={"method": "parent"})
        model.head = CalibratedHead(model.head, scale, shift)
    model.calibration = Calibration(calibration.method, scaling, calibration.items, in_rows)


def remove_calibration(model: Model) -> None:
    """Restore the probabilities that the model had before it was calibrated, and remove its coverage."""
    model.coverage = None
    found, model.calibration = model.calibration, None
    if isinstance(model.head, CalibratedHead):
        model.head = model.head.base
    elif found is not None and found.in_rows:
        scale = 1 / found.scaling.scale
        model.head.scale_rows(torch.from_numpy(scale), torch.from_numpy(-found.scaling.shift * scale))
