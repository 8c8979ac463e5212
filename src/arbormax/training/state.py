"""The checkpoint of an unfinished run, and the record that identifies the run."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

import torch
from lightning_fabric.plugins import CheckpointIO

from arbormax._files import atomic_write, read_json, write_file
from arbormax.data.examples import Examples
from arbormax.errors import InputError, OptionError
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy

_DIGESTS = ".sha256"
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
    if any(checkpoints.glob("*.ckpt")):
        if not resume and write:
            raise OptionError(
                f"{folder} contains an unfinished run; resume it or choose another folder", fix={"resume": True}
            )
        if resume and (differences := describe_differences(_read_record(record), identity)):
            raise OptionError(f"{folder} contains another run, which these settings cannot resume: {differences}")
    if write:
        checkpoints.mkdir(parents=True, exist_ok=True)
        write_file(record, json.dumps(identity, indent=2))


def _read_record(path: Path) -> dict[str, Any]:
    remedy = f"; remove {path.parent} to train from the beginning"
    if not path.is_file():
        raise InputError(f"{path} is missing, which says which run the checkpoints belong to{remedy}")
    try:
        return read_json(path)
    except InputError as error:
        raise InputError(f"{error.message}{remedy}") from error


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


class CheckpointFiles(CheckpointIO):
    """Writes a checkpoint whole or not at all, and reads it only if it is the one that was written.

    Beside `last.ckpt`, `last.sha256` has the digest of the checkpoint and of the one before it. It is written first,
    so that it lists the digest of the checkpoint whenever the process is killed.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        del storage_options
        path = Path(path)
        former = _digests(path)[:1] if path.exists() else []
        with atomic_write(path) as file:
            writer: Any = _HashingWriter(file)
            try:
                torch.save(checkpoint, writer)
            except RuntimeError as error:  # torch raises its own one after an error of the file
                raise (writer.error or error) from None
            write_file(path.with_suffix(_DIGESTS), "\n".join([writer.digest.hexdigest(), *former]) + "\n")

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        del weights_only  # never anything else
        path = Path(path)
        defect = "is not a complete checkpoint of arbormax"
        try:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() not in _digests(path):
                    defect = f"does not have the digest in {path.with_suffix(_DIGESTS).name}: it was changed or damaged"
                    raise ValueError
            loaded: dict[str, Any] = torch.load(path, weights_only=True, map_location=map_location or "cpu")
        except (RuntimeError, OSError, EOFError, ValueError, UnpicklingError) as error:
            raise InputError(f"{path} {defect}; remove it to train from the beginning") from error
        return loaded

    def remove_checkpoint(self, path: Any) -> None:
        for each in (Path(path), Path(path).with_suffix(_DIGESTS)):
            each.unlink(missing_ok=True)


def _digests(checkpoint: Path) -> list[str]:
    try:
        return checkpoint.with_suffix(_DIGESTS).read_text("utf-8").split()
    except (FileNotFoundError, UnicodeDecodeError):
        return []


class _HashingWriter(io.RawIOBase):
    """Computes the digest of what is written to a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self.digest, self._file = hashlib.sha256(), file
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise
