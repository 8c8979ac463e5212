"""Train a model, measure it on test examples, and save both in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arbormax.data.examples import Examples
from arbormax.errors import OptionError
from arbormax.model.folder import clear_state, has_model, lock_state, read_record, remove_state, save_model
from arbormax.model.network import Model
from arbormax.model.node_texts import build_from_texts
from arbormax.model.run import Run
from arbormax.model.settings import TrainConfig
from arbormax.studies import record
from arbormax.studies.tune import tune
from arbormax.taxonomy import Taxonomy
from arbormax.training.callbacks import EpochLines
from arbormax.training.continuing import Change, accuracy, continue_training
from arbormax.training.distributed import is_first_process
from arbormax.training.fit import fit
from arbormax.training.hardware import ONE_DEVICE, Hardware
from arbormax.training.state import describe_differences

ProgressBar = Callable[[int], AbstractContextManager[Callable[[int], None]]]  # from the number of examples


@dataclass(frozen=True)
class TrainedModel:
    """A model that was trained, measured and saved."""

    run: Run
    record: record.Record
    folder: Path


def train_model(
    config: TrainConfig,
    taxonomy: Taxonomy,
    train: Examples,
    out: Path,
    *,
    valid: Examples | None = None,
    test: Examples | None = None,
    data: Mapping[str, Any] | None = None,
    hardware: Hardware = ONE_DEVICE,
    resume: bool = False,
    overwrite: bool = False,
    command: str = "",
    texts: bool = True,
    every_steps: int | None = None,
    progress: bool = False,
    evaluation_bar: ProgressBar | None = None,
    budget: float | str | None = None,
) -> TrainedModel | None:
    """Train a model and save it in the folder `out`, with its measures on `test` and a description of the `data`.

    With a `budget`, such as "5min", `arbormax.studies.tune` first searches for better settings for so long.

    `resume` continues an interrupted training, `overwrite` replaces the model in `out`. Without `texts`, the record
    quotes no test text. `progress` shows a bar of the training, which otherwise logs a line for each epoch, and
    `evaluation_bar(n)` one of the evaluation. With the strategy `ddp` every process calls this function; the result is
    None in all but the first.
    """
    is_first = not hardware.several or is_first_process()
    options: dict[str, Any] = {"hardware": hardware, "progress": progress, "every_steps": every_steps}
    if not progress and not hardware.several:
        options["callbacks"] = [EpochLines()]
    with lock_state(out, "out") if is_first else nullcontext():
        if overwrite and is_first:
            clear_state(out)
        tuned = None
        if budget is not None:
            tuned = tune(
                config,
                taxonomy,
                train,
                valid,
                budget=budget,
                folder=out,
                resume=resume,
                hardware=hardware,
                progress=progress,
            )
            config = tuned.config
        if config.names == "only":
            run = build_from_texts(config, taxonomy)
        else:
            run = fit(config, taxonomy, train, valid, folder=out, resume=resume, **options)
        if not is_first:
            return None
        bar = nullcontext(None) if test is None or evaluation_bar is None else evaluation_bar(len(test))
        with bar as advance:
            made = record.build(
                run, train, valid=valid, test=test, data=data, command=command, texts=texts, progress=advance
            )
        made.tuning = None if tuned is None else tuned.to_dict()
        save_model(run.model, out, made.to_dict())
        remove_state(out)
    return TrainedModel(run, made, out)


def has_checkpoint(out: Path) -> bool:
    """Whether the folder contains an interrupted training."""
    return (out / "checkpoints" / "last.ckpt").is_file()


def is_finished(
    out: Path, config: TrainConfig, *, resume: bool = False, overwrite: bool = False, tuned: bool = False
) -> bool:
    """Whether the folder contains the finished model of these settings, so that `resume` has nothing to do.

    The options of the encoder are not compared if they were `tuned`.
    Raises an error if training would overwrite other files, or another model without `overwrite`.
    """
    if resume and overwrite:
        raise OptionError("cannot be combined with resume", argument="overwrite")
    if not has_model(out, "out"):
        if has_checkpoint(out) and not (resume or overwrite):
            message = f"{out} contains an interrupted training"
            raise OptionError(message, argument="out", fix={"resume": True, "overwrite": True})
        return False
    saved = read_record(out)["config"]
    if not (resume or overwrite):
        message = f"{out} already contains a model; choose another folder"
        raise OptionError(message, argument="out", fix={"overwrite": True})
    if overwrite or (out / "checkpoints").is_dir():
        return False
    unset = {name for name in type(config).model_fields if getattr(config, name) is None}
    unset |= {"head"} - config.model_fields_set
    unset |= {"encoder_options"} if tuned else set()
    settings = json.loads(config.resolved().model_dump_json(exclude=unset))
    if differences := describe_differences(saved, settings):
        raise OptionError(f"{out} contains a finished model with other settings: {differences}", argument="out")
    return True


def continue_model(
    model: Model,
    config: TrainConfig,
    train: Examples,
    out: Path,
    *,
    valid: Examples | None = None,
    test: Examples | None = None,
    data: Mapping[str, Any] | None = None,
    hardware: Hardware = ONE_DEVICE,
    resume: bool = False,
    overwrite: bool = False,
    command: str = "",
    texts: bool = True,
    progress: bool = False,
    evaluation_bar: ProgressBar | None = None,
) -> TrainedModel:
    """Continue the training of a model with new examples and save the result in the folder `out`.

    The record has the accuracy before and after, under "continued": "new" on held-out new examples and "test" on the
    `test` examples, such as those of the first training. The other arguments are those of `train_model`.
    """
    options: dict[str, Any] = {"hardware": hardware, "progress": progress, "resume": resume}
    with lock_state(out, "out"):
        if overwrite:
            clear_state(out)
        found = continue_training(model, config, train, valid, folder=out, **options)
        bar = nullcontext(None) if test is None or evaluation_bar is None else evaluation_bar(len(test))
        with bar as advance:
            made = record.build(
                found.run, train, valid=valid, test=test, data=data, command=command, texts=texts, progress=advance
            )
        changes: dict[str, Any] = {} if found.new is None else {"new": asdict(found.new)}
        if test is not None:
            assert made.test is not None
            changes["test"] = asdict(Change(len(test), accuracy(model, test), made.test["accuracy"]))
        made = record.Record.model_validate({**made.to_dict(), "continued": changes})
        save_model(found.run.model, out, made.to_dict())
        remove_state(out)
    return TrainedModel(found.run, made, out)
