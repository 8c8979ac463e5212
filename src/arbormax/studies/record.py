"""The schema of metrics.json: measures on test examples, how training went, the data, and the details for a report.

Training, evaluation and both estimators write it; the report and the model card read it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from arbormax._files import to_plain, write_file
from arbormax._version import __version__
from arbormax.data.examples import Examples
from arbormax.model.folder import ModelFolderError, format_metrics, read_metrics
from arbormax.model.network import Model
from arbormax.model.predict import Decoding
from arbormax.model.settings import TrainConfig
from arbormax.studies.details import Details, build_details, evaluation_details
from arbormax.studies.evaluate import LEAF, Evaluation, evaluate
from arbormax.taxonomy import Taxonomy

if TYPE_CHECKING:
    from arbormax.model.run import Run
    from arbormax.studies.compare import Comparison


class Training(BaseModel):
    """How a training went."""

    model_config = ConfigDict(extra="allow")

    epochs: int | None = None
    best_epoch: int | None = None
    refit_epochs: int | None = None  # epochs of the second training, on all examples
    valid_macro_f1: float | None = None
    curve: list[dict[str, float | None]] = []  # for each epoch: measures on the held-out examples
    seconds: float | None = None
    parameters: int | None = None
    train_items: int | None = None
    valid_items: int | None = None
    validation: float | None = None  # the share of the training examples that was held out
    device: str | None = None
    command: str | None = None

    @classmethod
    def of(cls, run: Run, **known: Any) -> Training:
        """The record of a finished training; `known` has the fields that the run does not know."""
        fields = {**to_plain(run.to_record()), "seconds": round(run.seconds, 3)}
        return cls(**fields, parameters=run.model.num_parameters, device=str(run.model.device), **known)


class Record(BaseModel):
    """The content of metrics.json. Parts that are not known are left out."""

    model_config = ConfigDict(extra="allow")

    calibration: dict[str, Any] | None = None  # what the calibration on held-out examples changed
    test: dict[str, Any] | None = None  # every measure by name
    unseen_labels: dict[str, int] | None = None  # the number of test examples with each label that the model lacks
    training: Training | None = None
    data: dict[str, Any] | None = None  # name, source, licence and size of the data
    tuning: dict[str, Any] | None = None  # the search for settings: the best ones, and every trial
    continued: dict[str, Any] | None = None  # accuracy before and after a continued training, by examples
    details: dict[str, Any] | None = None  # `Details`

    @classmethod
    def read(cls, folder: Path | str) -> Record:
        """The record in a model's folder, empty if there is none."""
        try:
            return cls.model_validate(read_metrics(folder))
        except ValidationError as error:
            raise ModelFolderError(f"the metrics.json of {folder} does not follow the schema: {error}") from error

    def to_dict(self, *, details: bool = True) -> dict[str, Any]:
        """The record ready for JSON, with or without its details."""
        parts = {name: value for name, value in self.model_dump().items() if value is not None}
        if not details:
            parts.pop("details", None)
        return parts

    def write_evaluation(self, path: Path) -> None:
        """Write the file of an evaluation, which has its measures at the top level."""
        parts = self.to_dict()
        write_file(path, format_metrics({**parts.pop("test", {}), **parts}).encode())


def of_classifier(
    run: Run | None,
    evaluated: Record | None = None,
    metrics: Mapping[str, Any] | None = None,
    *,
    texts: bool = True,
) -> Record:
    """The record of a classifier: its training, its last evaluation, and metrics of the caller's own.

    The details of the evaluation are left out if the caller's own test measures are of another evaluation.
    """
    record = Record() if evaluated is None else evaluated.model_copy(deep=True)
    own = to_plain(metrics or {})
    if "test" in own and own["test"] != record.test:
        record.details = None
    if record.details is not None and not texts:
        record.details["confusions"].pop("examples", None)
    if run is not None:
        record.training, record.calibration = Training.of(run), run.calibration
    return Record.model_validate({**record.to_dict(), **own})


def build(
    run: Run,
    train: Examples,
    *,
    valid: Examples | None = None,
    test: Examples | None = None,
    data: Mapping[str, Any] | None = None,
    command: str = "",
    texts: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Record:
    """The record of a training, with the measures on the test examples if there are any."""
    record = Record()
    if test is not None:
        record, _ = evaluation(run.model, test, command=command, texts=texts, progress=progress)
    record.training = Training.of(
        run,
        train_items=len(train),
        valid_items=None if valid is None else len(valid),
        validation=run.model.config.validation if valid is None else None,
        command=command,
    )
    record.calibration = run.calibration
    record.data = None if data is None else dict(data)
    return record


def evaluation(
    model: Model,
    examples: Examples,
    *,
    command: str = "",
    texts: bool = True,
    batch_size: int = 256,
    progress: Callable[[int], None] | None = None,
    decoding: Decoding = LEAF,
) -> tuple[Record, Evaluation]:
    """The record and the result of evaluating a model on labelled examples; without `texts` it quotes no text."""
    found = evaluate(model, examples, batch_size, progress, decoding)
    unseen = examples.unseen_counts(model.taxonomy) or None
    if model.taxonomy.is_graph:  # a report draws trees
        return Record(test=to_plain(found.metrics), unseen_labels=unseen), found
    details: dict[str, Any] = {**origin(command, model.config), **evaluation_details(examples, found, texts=texts)}
    if model.posterior is not None:
        details["probabilities"] = f"means over {model.posterior.draws} draws of {model.config.uncertainty}"
    return Record(test=to_plain(found.metrics), unseen_labels=unseen, details=details), found


def comparison(
    result: Comparison,
    examples: Examples,
    tax: Taxonomy,
    *,
    data: Mapping[str, Any],
    command: str,
    texts: bool = True,
) -> dict[str, Any]:
    """The content of a comparison's results.json: the result, and the details of each head over all seeds."""
    at = np.flatnonzero(result.predicted[result.heads[0]][0] >= 0)  # the only example of a label is never validated
    measured = examples.take(at)
    if tax.is_graph:  # a report draws trees
        return {**to_plain(result.to_dict()), "data": dict(data)}
    details = {
        head: {**origin(command, result.config), **build_details(measured, rows[:, at], tax, texts=texts)}
        for head, rows in result.predicted.items()
    }
    return {**to_plain(result.to_dict()), "data": dict(data), "details": details}


def origin(command: str, config: TrainConfig) -> Details:
    """Where details come from: the command, the settings, the versions and the time."""
    versions = {"arbormax": __version__, "torch": str(torch.__version__), "numpy": np.__version__}
    return {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {**versions, "python": platform.python_version()},
        "config": config.model_dump(mode="json"),
    }
