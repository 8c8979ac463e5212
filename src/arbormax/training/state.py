"""The checkpoint of an unfinished run, and the record that identifies the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from arbormax._files import write_file
from arbormax.data.examples import Examples
from arbormax.errors import InputError, OptionError
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy

_DESCRIPTIONS = {
    "examples": "other training examples",
    "validation_examples": "other validation examples",
    "taxonomy": "another taxonomy",
    "node_texts": "other texts of nodes",
    "batch_size": "examples per step on all devices together was {before!r}, now {now!r}",
}


def open_run(checkpoints: Path, identity: dict[str, Any], resume: bool, write: bool = True) -> None:
    """Create the folder of checkpoints, or check that the checkpoints in it belong to this run.

    With several processes, one of them writes; the others may run before or after it.
    """
    folder, record = checkpoints.parent, checkpoints / "run.json"
    if not resume:
        if write and any(checkpoints.glob("*.ckpt")):
            raise OptionError(
                f"{folder} contains an unfinished run; resume it or choose another folder", fix={"resume": True}
            )
    elif record.exists() and (differences := describe_differences(json.loads(record.read_text("utf-8")), identity)):
        raise OptionError(f"{folder} contains another run, which these settings cannot resume: {differences}")
    checkpoints.mkdir(parents=True, exist_ok=True)
    if write:
        write_file(record, json.dumps(identity, indent=2))


def run_identity(config: TrainConfig, taxonomy: Taxonomy, examples: Examples, **more: Any) -> dict[str, Any]:
    """What must not change for a run to be resumed: settings, taxonomy, examples and the given values."""
    return {
        **config.model_dump(mode="json"),
        "taxonomy": taxonomy.fingerprint,
        "examples": examples.digest(),
        **more,
    }


def describe_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The values of `now` that differ from `before`, in words; empty if there are none."""
    return "; ".join(
        _DESCRIPTIONS.get(name, f"{name} was {{before!r}}, now {{now!r}}").format(before=before.get(name), now=value)
        for name, value in now.items()
        if before.get(name) != value
    )


def check_checkpoint(checkpoint: Path) -> None:
    """Raise if a checkpoint cannot be read; the file is memory-mapped, which is cheap."""
    try:
        torch.load(checkpoint, weights_only=True, mmap=True, map_location="cpu")
    except (RuntimeError, OSError, EOFError, ValueError, UnpicklingError) as error:
        raise InputError(
            f"{checkpoint} is not a complete checkpoint of arbormax; remove it to train from the beginning"
        ) from error
