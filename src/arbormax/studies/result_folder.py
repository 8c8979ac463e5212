"""The finished parts of an experiment in a folder, so that a restarted experiment runs only the missing parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arbormax._files import write_file
from arbormax.errors import InputError, OptionError
from arbormax.model.folder import remove_state
from arbormax.training.state import describe_differences


class Measured(NamedTuple):
    """The measures of one training on examples that it was not trained on."""

    metrics: dict[str, Any]
    predicted: np.ndarray  # int64 node of each example's most probable leaf


class ResultFolder:
    """One JSON file for each finished part; without a folder nothing is saved."""

    def __init__(self, folder: Path | str | None, identity: Mapping[str, Any], kind: str) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is None:
            return
        if self.folder.exists() and not self.folder.is_dir():
            raise OptionError(f"{self.folder} is a file; {kind} is saved in a folder")
        now = json.loads(json.dumps(dict(identity)))
        record = self.folder / "identity.json"
        if record.exists():
            before = read_json(record)
            if differences := describe_differences(before, {**dict.fromkeys(before), **now}):
                raise OptionError(f"{self.folder} contains another {kind}; choose another folder: {differences}")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_file(record, json.dumps(now, indent=2) + "\n")

    def training_folder(self, name: str) -> Path | None:
        """The folder of the logs and the checkpoint of a part."""
        return None if self.folder is None else self.folder / name

    def get(self, name: str) -> Measured | None:
        """A part, if it is finished."""
        if self.folder is None or not (self.folder / f"{name}.json").exists():
            return None
        record = read_json(self.folder / f"{name}.json")
        return Measured(record["metrics"], np.array(record["predicted"], dtype=np.int64))

    def put(self, name: str, measured: Measured) -> None:
        """Save a finished part, then remove the checkpoint of its training."""
        if self.folder is not None:
            record = {"metrics": measured.metrics, "predicted": measured.predicted.tolist()}
            write_file(self.folder / f"{name}.json", json.dumps(record) + "\n")
            remove_state(self.folder / name)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        record = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not complete JSON ({error}); remove it to run that part again") from error
    if not isinstance(record, dict):
        raise InputError(f"{path} contains no JSON object; remove it to run that part again")
    return record
