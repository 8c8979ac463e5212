"""The state of a run that is not finished: whose it is, and whether it is whole."""

from __future__ import annotations

import json
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from arbormax._files import write_file
from arbormax.data.examples import Examples
from arbormax.errors import InputError, OptionError
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy


def open_run(state: Path, identity: dict[str, Any], resume: bool, write: bool = True) -> None:
    """Make the folder of a run's state, or check that the state there is of this very run.

    Of several processes one may `write`; the others may come before or after it.
    """
    record = state.parent / "run.json"
    if not resume:
        if write and state.exists():
            raise OptionError(f"{state.parent.parent} holds an unfinished run: go on with resume, or remove it")
    elif record.exists():
        before = json.loads(record.read_text("utf-8"))
        differing = [name for name in identity if before.get(name) != identity[name]]
        if differing:
            told = "; ".join(_difference(name, before.get(name), identity[name]) for name in differing)
            raise OptionError(f"{state.parent.parent} holds another run, which cannot be resumed with this one: {told}")
    state.parent.mkdir(parents=True, exist_ok=True)
    if write:
        write_file(record, json.dumps(identity, indent=2).encode())


def _difference(name: str, before: Any, now: Any) -> str:
    digests = {
        "examples": "other training texts or labels",
        "validation_examples": "other validation texts or labels",
        "taxonomy": "another taxonomy",
        "batch_size": f"the texts of a step, on all devices together, were {before!r}, now {now!r}",
    }
    return digests.get(name, f"{name} was {before!r}, now {now!r}")


def identity_of(config: TrainConfig, taxonomy: Taxonomy, examples: Examples, **more: Any) -> dict[str, Any]:
    """What must be the same for a run or an experiment to go on: settings, taxonomy, examples and whatever is named."""
    return {
        **config.model_dump(mode="json"),
        "taxonomy": taxonomy.fingerprint,
        "examples": examples.digest(),
        **more,
    }


def check_state(state: Path) -> None:
    """Raise where the state of a run cannot be read; it is mapped, so that this costs little."""
    try:
        torch.load(state, weights_only=True, mmap=True, map_location="cpu")
    except (RuntimeError, OSError, EOFError, ValueError, UnpicklingError) as error:
        raise InputError(
            f"{state} is not the whole state of a run (cut short, or not written by arbormax): remove it to start anew"
        ) from error
