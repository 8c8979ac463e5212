"""`arbormax train --from`: a trained model continues with new texts."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbormax.cli import errors, output
from arbormax.cli.inputs import adding_classes, read_for_model, read_new
from arbormax.cli.options import MachineOptions, ModelOptions, TrainingDataOptions, resolve_device
from arbormax.errors import OptionError

if TYPE_CHECKING:
    from arbormax.data import Examples
    from arbormax.model import Model, TrainConfig
    from arbormax.studies.train import TrainedModel


@dataclass(frozen=True, eq=False)
class Continuation:
    """A model, its settings, and the new texts."""

    model: Model
    config: TrainConfig
    machine: MachineOptions
    train: Examples
    valid: Examples | None
    test: Examples | None
    start: Path
    data: Path
    folder: Path

    def run(self, ctx: Any, *, resume: bool, overwrite: bool, texts: bool, json: bool) -> None:
        """Train, save the model and print what changed."""
        from arbormax.model.folder import has_model
        from arbormax.studies.train import continue_model

        if has_model(self.folder, "out") and not overwrite:
            raise OptionError(f"{self.folder} contains a model already", argument="out", fix={"overwrite": True})
        again = errors.command_line(ctx, without=("--overwrite",), extra=("--resume",))
        with errors.resume_hint(self.folder, again):
            trained = continue_model(
                self.model,
                self.config,
                self.train,
                self.folder,
                valid=self.valid,
                test=self.test,
                data={"name": self.data.name, "from": str(self.start)},
                hardware=self.machine.hardware(),
                resume=resume,
                overwrite=overwrite,
                command=errors.command_line(ctx),
                texts=texts,
                progress=output.is_terminal(),
                evaluation_bar=partial(output.progress_bar, "evaluating on the test texts"),
            )
        if json:
            output.print_json({"model": str(self.folder), **trained.record.to_dict(details=False)})
            return
        self._print(trained)

    def _print(self, trained: TrainedModel) -> None:
        changes = trained.record.continued or {}
        titles = {"new": "held-out new texts", "test": "test texts"}
        rows = [
            (titles[name], f"{each['items']:,}", f"{each['before']:.4f}", f"{each['after']:.4f}")
            for name, each in changes.items()
        ]
        if rows:
            output.print_result(output.table(("accuracy on", "texts", "before", "after"), rows))
        if self.test is not None and (unseen := self.test.describe_unseen(self.model.taxonomy)) is not None:
            output.print_result(unseen)
        if self.test is None:
            output.print_result("Accuracy on the old data is not known: give their test texts (--test FILE).")
        seconds = f"{trained.run.seconds:.1f} s"
        output.print_result(f"{len(self.train):,} new texts, {seconds}; the model is in {self.folder}")
        output.print_result(f"Next: arbormax predict {shlex.quote(str(self.folder))} --message 'your text'")


def continue_from(
    start: Path,
    data: str,
    options: ModelOptions,
    table: TrainingDataOptions,
    machine: MachineOptions,
    valid: Path | None,
    test: Path | None,
    out: Path | None,
) -> Continuation:
    """Load the model and read the new texts with its taxonomy."""
    from arbormax.model import load_model
    from arbormax.training.continuing import change_config

    if out is None:
        raise OptionError("expected a folder for the new model", argument="out", fix={"out": f"{start}-continued"})
    for name in ("preset", "option", "uncertainty_option", "vectors"):
        if getattr(options, name):
            raise OptionError("cannot be combined with --from: a model keeps its own", argument=name)
    model = load_model(start, resolve_device("auto") if machine.accelerator == "auto" else "cpu")
    if not model.encoder.takes_texts:
        raise OptionError(f"{start} classifies feature matrices; continue it in Python with partial_fit")
    config = change_config(model, options.settings)
    with adding_classes(start):
        train = read_new(Path(data), model, table)
        held_out = None if valid is None else read_new(valid, model, table)
    tested = None if test is None else read_for_model(test, start, model, None, table)
    return Continuation(model, config, machine, train, held_out, tested, start, Path(data), out)
