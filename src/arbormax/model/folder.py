"""Save and load a model as a folder of JSON, safetensors and text, without executable content.

config.json         settings, versions, and the size and digest of every other file
taxonomy.json       the tree
model.safetensors   all weights
vocabulary.txt …    files of the encoder
calibration.…       how the probabilities are calibrated, and held-out scores; only of a calibrated model
uncertainty.…       the posterior; only of a model with uncertainty
examples.safetensors how many training examples each row of the head has had
metrics.json        measures and the course of training
README.md           the model card
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from arbormax._files import read_json, temporary_folder, write_file
from arbormax._locks import lock_folder
from arbormax._version import __version__
from arbormax.encoders import ENCODERS, Encoder
from arbormax.errors import ArbormaxError, OptionError
from arbormax.model.calibration import raw_state, read_calibration, write_calibration
from arbormax.model.card import model_card
from arbormax.model.draws import read_posterior, write_posterior
from arbormax.model.finite import check_finite
from arbormax.model.network import Model, seeded
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import load_taxonomy

FORMAT, VERSION = "arbormax text model", 2  # 2: the probabilities of the weights are calibrated when loaded
_CONFIG, _TREE, _WEIGHTS, _EXAMPLES, _METRICS, _CARD = (
    "config.json",
    "taxonomy.json",
    "model.safetensors",
    "examples.safetensors",
    "metrics.json",
    "README.md",
)
_STATE, _LOGS, _LOCK = "checkpoints", "logs", "lock"  # what an unfinished training leaves in its folder


class ModelFolderError(ArbormaxError, ValueError):
    """The folder does not contain a complete model."""


def has_model(folder: Path, argument: str) -> bool:
    """Whether the folder contains a model; raises if it is a file, or contains other files and no model.

    `argument` is the caller's name of the folder. What an unfinished training leaves does not count as other files.
    """
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{folder} is a file; a model is saved in a folder", argument=argument)
    found = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if _CONFIG not in found and _STATE not in found and found - {_LOGS}:
        raise OptionError(f"{folder} contains other files and no model; choose another folder", argument=argument)
    return _CONFIG in found


def save_model(model: Model, folder: Path | str, metrics: dict[str, Any] | None = None) -> Path:
    """Write the model: first all files to a temporary folder, then each to its place, config.json last.

    A model that is in the folder already is replaced. `load_model` detects a replacement that was interrupted.
    """
    folder = Path(folder)
    has_model(folder, "folder")
    folder.mkdir(parents=True, exist_ok=True)
    metrics = metrics or {}
    state = raw_state(model)
    check_finite(state, "a model with such weights cannot be saved; train it again")
    with _name_folder(folder), temporary_folder(folder) as new:
        needs_reader = _write_files(model, state, new)
        (new / _METRICS).write_text(format_metrics(metrics), "utf-8")
        (new / _CARD).write_text(model_card(model, metrics), "utf-8")
        names = sorted(str(p.relative_to(new).as_posix()) for p in new.rglob("*") if p.is_file())
        record = {
            "format": FORMAT,
            "format_version": VERSION if needs_reader else 1,
            "arbormax": __version__,
            "torch": torch.__version__,
            "config": model.config.model_dump(mode="json"),
            "encoder_options": model.encoder.options.model_dump(mode="json"),
            "files": {name: _digest(new / name) for name in names if name not in (_METRICS, _CARD)},
        }
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(new / name, folder / name)
    write_file(folder / _CONFIG, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
    return folder


def _write_files(model: Model, state: dict[str, Tensor], folder: Path) -> bool:
    """Write the files that load a model, and return whether its weights alone are not calibrated."""
    model.encoder.save(folder)
    model.taxonomy.save(folder / _TREE)
    # copies, because the weights of an LSTM share memory on a GPU, which safetensors rejects
    save_file({name: value.cpu().clone() for name, value in state.items()}, folder / _WEIGHTS)
    (folder / _WEIGHTS).chmod((folder / _TREE).stat().st_mode)  # safetensors makes it readable by the owner only
    if model.row_counts is not None:
        save_file({"row_counts": torch.from_numpy(model.row_counts.astype("int64"))}, folder / _EXAMPLES)
        (folder / _EXAMPLES).chmod((folder / _TREE).stat().st_mode)
    write_posterior(model, folder)
    return write_calibration(model, folder)


@contextmanager
def _name_folder(folder: Path) -> Iterator[None]:
    """Let errors of the file system, such as a full disk, name the folder instead of a temporary file in it."""
    try:
        yield
    except SafetensorError as error:
        found = re.search(r"os error (\d+)", str(error))
        number = int(found[1]) if found else errno.EIO
        raise OSError(number, os.strerror(number), str(folder)) from error
    except OSError as error:
        if error.errno is None or error.strerror is None:
            raise
        raise type(error)(error.errno, error.strerror, str(folder)) from error


def load_model(folder: Path | str, device: torch.device | str = "cpu") -> Model:
    """The model in this folder, ready to predict."""
    folder = Path(folder)
    record = read_record(folder)
    for name, digest in record["files"].items():
        _check_file(folder, name, digest)
    try:
        kind = _find_encoder(record["config"].get("encoder"), folder)
        config = TrainConfig.model_validate(record["config"])
        options = kind.Options.model_validate(record["encoder_options"])
    except (ValidationError, OptionError) as error:
        raise ModelFolderError(f"{folder / _CONFIG} contains unknown settings: {error}") from error
    try:
        taxonomy = load_taxonomy(folder / _TREE)
        with seeded(0):
            model = Model(kind.load(folder, options), taxonomy, config)
        state = load_file(folder / _WEIGHTS)
        check_finite(state, "copy or save the model again")
        model.load_state_dict(state)
        if _EXAMPLES in record["files"]:
            model.row_counts = load_file(folder / _EXAMPLES)["row_counts"].numpy()
            if len(model.row_counts) != len(model.head.row_nodes()):
                raise ModelFolderError(f"{_EXAMPLES} has {len(model.row_counts)} rows")
        read_posterior(model, folder, record["files"])
        read_calibration(model, folder, record["files"])
    except (ArbormaxError, SafetensorError, RuntimeError, OSError, ValueError, LookupError, MemoryError) as error:
        raise ModelFolderError(f"the files in {folder} do not match its {_CONFIG}: {error}") from error
    return model.to(device).eval()


def _find_encoder(name: Any, folder: Path) -> type[Encoder]:
    try:
        return ENCODERS[name]
    except OptionError as error:
        raise ModelFolderError(
            f"{folder} has the encoder {name!r}, which is not registered; first import the module that registers it "
            f"({error.message})"
        ) from error


def read_record(folder: Path) -> dict[str, Any]:
    """The validated content of config.json."""
    path = folder / _CONFIG
    if not path.is_file():
        what = "no such folder" if not folder.exists() else f"it has no {_CONFIG}"
        unfinished = "; it contains an unfinished training, which can be resumed" if (folder / _STATE).is_dir() else ""
        raise ModelFolderError(f"{folder} is not a model: {what}{unfinished}")
    record = read_json(path, ModelFolderError)
    if record.get("format") != FORMAT:
        raise ModelFolderError(f'{path} does not belong to a model of arbormax: expected "format": {FORMAT!r}')
    version = record.get("format_version")
    if not isinstance(version, int) or version > VERSION:
        writer = record.get("arbormax")
        raise ModelFolderError(
            f"{path} has format {version}, written by arbormax {writer}; arbormax {__version__} reads formats up to "
            f"{VERSION}; upgrade arbormax"
        )
    if not (isinstance(record.get("config"), dict) and isinstance(record.get("encoder_options"), dict)):
        raise ModelFolderError(f"{path} does not contain the settings of the model")
    if not (isinstance(record.get("files"), dict) and _WEIGHTS in record["files"] and _TREE in record["files"]):
        raise ModelFolderError(f"{path} does not list the files of the model")
    return record


def read_metrics(folder: Path | str) -> dict[str, Any]:
    """The measures that were saved with the model."""
    path = Path(folder) / _METRICS
    return read_json(path, ModelFolderError) if path.exists() else {}


def format_metrics(metrics: Mapping[str, Any]) -> str:
    """The text of metrics.json: indented, except for the details, each part of which is one long line at the end."""
    rest = {name: value for name, value in metrics.items() if name != "details"}
    text = json.dumps(rest, indent=2, ensure_ascii=False)
    if "details" not in metrics:
        return text + "\n"
    parts = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(part, ensure_ascii=False, separators=(',', ':'))}"
        for name, part in metrics["details"].items()
    )
    comma = "," if rest else ""
    return f'{text[:-1].rstrip()}{comma}\n  "details": {{\n{parts}\n  }}\n}}\n'


def lock_state(folder: Path | str, argument: str) -> AbstractContextManager[None]:
    """Keep other processes from training in the folder during the block; `argument` is the caller's name of it."""
    return lock_folder(Path(folder) / _STATE / _LOCK, argument)


def clear_state(folder: Path | str) -> None:
    """Delete the state of a training, except for its lock."""
    state = Path(folder) / _STATE
    for path in state.iterdir() if state.is_dir() else ():
        if path.name != _LOCK:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def remove_state(folder: Path | str) -> None:
    """Delete the state of a finished training."""
    state = Path(folder) / _STATE
    if state.is_dir():
        with lock_state(folder, "folder"):
            clear_state(folder)
            (state / _LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # another training has begun
                state.rmdir()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_file(folder: Path, name: str, digest: str) -> None:
    path = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ModelFolderError(f"{folder / _CONFIG} lists the file {name!r}, which is not in the folder")
    try:
        is_there = path.is_file()
    except OSError as error:  # such as a name that is too long
        raise ModelFolderError(f"{folder / _CONFIG} lists the file {name[:60]!r}…: {error.strerror}") from error
    if not is_there:
        raise ModelFolderError(f"{folder} is incomplete: {name} is missing")
    if _digest(path) != digest:
        raise ModelFolderError(
            f"{path} is not the file that was saved with this model (truncated, changed, or of another model)"
        )
