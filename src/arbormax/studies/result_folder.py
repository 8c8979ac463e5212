"""The finished parts of an experiment in a folder, so that a restarted experiment runs only the missing parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arbormax import _files as files
from arbormax.errors import InputError, OptionError
from arbormax.model.folder import format_metrics, remove_state
from arbormax.training.state import describe_differences


class Measured(NamedTuple):
    """The measures of one training on examples that it was not trained on."""

    metrics: dict[str, Any]
    predicted: np.ndarray  # int64 node of each example's most probable leaf
    log_probs: np.ndarray | None = None  # of each example's label, where it was measured


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
        files.write_file(record, json.dumps(now, indent=2) + "\n")

    def run(self, name: str, train: Callable[[Path | None], Measured]) -> Measured:
        """A part: read if it is finished, else the result of `train(folder)`, which is then saved."""
        if self.folder is None:
            return train(None)
        path = self.folder / f"{name}.json"
        if path.exists():
            record = read_json(path)
            log_probs = record.get("log_probs")
            return Measured(
                record["metrics"],
                np.array(record["predicted"], dtype=np.int64),
                None if log_probs is None else np.array(log_probs, dtype=np.float64),
            )
        measured = train(self.folder / name)
        record = {"metrics": measured.metrics, "predicted": measured.predicted.tolist()}
        if measured.log_probs is not None:
            record["log_probs"] = measured.log_probs.tolist()
        files.write_file(path, json.dumps(record) + "\n")
        remove_state(self.folder / name)
        return measured


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """Write the results of all parts as results.json, which `arbormax report` reads."""
    files.write_file(folder / "results.json", format_metrics(results))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in the file of a part."""
    try:
        return files.read_json(path)
    except InputError as error:
        raise InputError(f"{error}; remove it to run that part again") from error
