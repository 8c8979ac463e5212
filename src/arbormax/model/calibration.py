"""What calibration adds to a model: scales of its probabilities, and held-out scores for sets with coverage.

n held-out items, M = N - 1 nodes below the root, W set sizes.
"""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from arbormax._files import read_json
from arbormax.errors import OptionError
from arbormax.heads.calibrated import CalibratedHead, carry_values
from arbormax.model.finite import check_finite
from arbormax.model.network import Model
from arbormax.taxonomy import Taxonomy

_RECORD, _VALUES = "calibration.json", "calibration.safetensors"


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

    def carry_to(self, node_map: np.ndarray, tax: Taxonomy) -> Calibration:
        """The calibration of an edited taxonomy, with the new number of each node."""
        scaling = Scaling(
            carry_values(self.scaling.scale, node_map, tax, 1.0), carry_values(self.scaling.shift, node_map, tax, 0.0)
        )
        return Calibration(self.method, scaling, self.items, self.in_rows)


@dataclass(frozen=True, eq=False)
class Coverage:
    """The conformity scores of held-out items, from which thresholds of guaranteed coverage follow."""

    nodes: np.ndarray  # (n,) int64 the true nodes
    scores: np.ndarray  # (n, W) float64, for sets of at most 1 to W nodes
    target: float | None = None  # the coverage that commands and the service's page use by default
    # whether the model was trained on the items, so that a coverage is estimated and not guaranteed
    is_estimate: bool = False


def apply_calibration(model: Model, calibration: Calibration) -> None:
    """Calibrate a model in place; an earlier calibration and its coverage are removed first."""
    remove_calibration(model)
    scaling = calibration.scaling
    scale, shift = (torch.from_numpy(values) for values in (scaling.scale, scaling.shift))
    first = model.taxonomy.child_start[np.maximum(model.taxonomy.parent[1:], 0)] - 1
    is_shared = bool((scaling.scale == scaling.scale[first]).all())  # by siblings
    # a posterior belongs to the rows as they were trained
    in_rows = is_shared and model.posterior is None and model.head.scale_rows(scale, shift)
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


def raw_state(model: Model) -> dict[str, Tensor]:
    """The weights of a model under the names that they have without a calibration."""
    state: dict[str, Tensor] = model.state_dict()
    if isinstance(model.head, CalibratedHead):
        state = {name: value for name, value in state.items() if name not in ("head.scale", "head.shift")}
    return {name.replace("head.base.", "head.", 1): value for name, value in state.items()}


def write_calibration(model: Model, folder: Path) -> bool:
    """Write the calibration and the coverage of a model, and return whether its weights alone are not calibrated."""
    calibration, coverage = model.calibration, model.coverage
    record: dict[str, object] = {}
    values: dict[str, np.ndarray] = {}
    if calibration is not None:
        record |= {"method": calibration.method, "items": calibration.items, "in_rows": calibration.in_rows}
        values |= {"scale": calibration.scaling.scale, "shift": calibration.scaling.shift}
    if coverage is not None:
        record |= {"coverage": coverage.target, "estimate": coverage.is_estimate}
        values |= {"coverage_nodes": coverage.nodes, "coverage_scores": coverage.scores}
    if values:
        save_file({name: torch.from_numpy(np.array(value)) for name, value in values.items()}, folder / _VALUES)
        (folder / _RECORD).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
        (folder / _VALUES).chmod((folder / _RECORD).stat().st_mode)
    return calibration is not None and not calibration.in_rows


def read_calibration(model: Model, folder: Path, files: Container[str]) -> None:
    """Calibrate a model, whose weights were read, as its folder says."""
    if _RECORD not in files:
        return
    record = read_json(folder / _RECORD)
    loaded = load_file(folder / _VALUES)
    check_finite({name: loaded[name] for name in ("scale", "shift") if name in loaded}, "calibrate the model again")
    values = {name: value.numpy() for name, value in loaded.items()}
    if "scale" in values:
        scaling = Scaling(values["scale"], values["shift"])
        calibration = Calibration(record["method"], scaling, record["items"], record["in_rows"])
        if calibration.in_rows:
            model.calibration = calibration
        else:
            apply_calibration(model, calibration)
    if "coverage_scores" in values:
        given = record["coverage"], record.get("estimate", False)
        model.coverage = Coverage(values["coverage_nodes"], values["coverage_scores"], *given)
