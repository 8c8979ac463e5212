"""Train one model on examples. Lightning runs the loop."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl

from arbormax.data.examples import Examples
from arbormax.data.folds import hold_out
from arbormax.errors import InputError, OptionError
from arbormax.model.folder import lock_state
from arbormax.model.graph_settings import graph_settings
from arbormax.model.network import Model
from arbormax.model.posterior import Trained
from arbormax.model.run import Run
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy
from arbormax.training.bayesian import PosteriorFit
from arbormax.training.calibrator import Calibrator
from arbormax.training.callbacks import CURVE, CURVE_COLUMNS, EPOCHS, SECONDS, OnStep, best_epoch
from arbormax.training.convex import fit_convex
from arbormax.training.distributed import is_first_process
from arbormax.training.hardware import ONE_DEVICE, Hardware
from arbormax.training.loop import Phase, TrainingLoop
from arbormax.training.optim import refit_epochs
from arbormax.training.state import open_run, run_identity
from arbormax.uncertainty import OFF

_ONLY = Phase("last.ckpt", "logs", None)
_FIRST = Phase("last.ckpt", "logs", "selection")
_SECOND = Phase("refit.ckpt", "logs/refit", "refit")


def fit(
    config: TrainConfig,
    taxonomy: Taxonomy,
    train: Examples,
    valid: Examples | None = None,
    *,
    folder: Path | str | None = None,
    resume: bool = False,
    hardware: Hardware = ONE_DEVICE,
    progress: bool = False,
    callbacks: Sequence[pl.Callback] = (),
    every_steps: int | None = None,
    on_step: Callable[[], None] | None = None,
) -> Run:
    """Train a model on the examples; without `valid`, the share `config.validation` of them is held out.

    With `config.refit`, a second training on all examples follows, for the number of epochs that the held-out examples
    select. Examples given as `valid` are never trained on: with them, there is no second training.

    The probabilities are calibrated as `config.calibration` says, on the held-out examples and the model that was
    trained without them, if this improves the likelihood of the held-out examples. A model with uncertainty is
    calibrated only if `config.calibration` names a method.

    With `folder`, logs and checkpoints are written there, and `resume=True` continues from a checkpoint to the same
    weights as a run that was never interrupted. `every_steps` saves a checkpoint after this many steps instead of
    once a minute. Callbacks are called in both trainings; the trainer that they receive is not usable afterwards.
    `on_step` is called after each step of Adam and each problem of the convex solver; an error in it ends the training.
    """
    hardware.check()
    config = graph_settings(config) if taxonomy.is_graph else config
    config = config.resolved(len(train), taxonomy.num_leaves)
    check_examples(train, taxonomy, "train")
    if valid is not None:
        check_examples(valid, taxonomy, "validate")
    if config.names == "only":
        raise OptionError("'only' uses no training data; build the model from the texts of the nodes", argument="names")
    # with uncertainty, a calibration needs the posterior of the model that was trained without the held-out examples
    method = OFF if config.uncertainty and config.calibration is None else config.calibration
    fits = _Fits(Calibrator(method), PosteriorFit(config, taxonomy))
    part, held_out = hold_out(train, config.validation, config.seed) if valid is None else (train, valid)
    is_refit = config.refit and valid is None and held_out is not None
    seen = train if is_refit else part  # what the final weights are trained on
    if config.solver == "convex":

        def fit_parts(model: Model, held_out: Examples) -> None:
            fits.use(Trained(model, part), held_out)

        run = fit_convex(config, taxonomy, train, valid, progress=progress, on_selected=fit_parts, on_step=on_step)
        fits.bayesian.add(Trained(run.model, seen))
        return fits.calibrator.apply(run)
    assert config.batch_size is not None
    callbacks = callbacks if on_step is None else [*callbacks, OnStep(on_step)]
    lock: AbstractContextManager[None] = nullcontext()
    if folder is not None:
        folder = Path(folder)
        # A run can be resumed on other devices if all of them together have the same examples in a step.
        joint = config.model_copy(update={"batch_size": config.batch_size * hardware.ranks})
        digest = None if valid is None else valid.digest()
        identity = run_identity(joint, taxonomy, train, validation_examples=digest)
        if config.uses_names:
            identity["node_texts"] = hashlib.sha256(repr(taxonomy.texts).encode()).hexdigest()
        lock = _hold_run(folder, identity, resume, not hardware.several or is_first_process())
    loop = TrainingLoop(config, taxonomy, hardware, folder, resume, progress, callbacks, every_steps)
    with lock:
        return fits.calibrator.apply(_run_phases(loop, train, part, held_out, is_refit, fits))


class _Fits(NamedTuple):
    """What is fitted besides the network."""

    calibrator: Calibrator
    bayesian: PosteriorFit

    def use(self, trained: Trained, held_out: Examples) -> None:
        """Fit to the held-out examples; the model was trained without them."""
        self.bayesian.choose(trained, held_out)
        if self.calibrator.method != OFF:
            with self.bayesian.attached(trained):
                self.calibrator.fit(trained.model, held_out)


@dataclass(frozen=True)
class _Retraining:
    """Trains other networks on the examples of one that was trained."""

    loop: TrainingLoop
    phase: Phase
    examples: Examples
    held_out: Examples | None
    epochs: int | None

    def __call__(self, seed: int, *, start: Model | None = None, epochs: int | None = None) -> Model:
        """Another network, trained as the first one was, or `start` trained for further epochs."""
        config = self.loop.config.model_copy(update={"seed": seed})
        other = replace(self.loop, config=config, folder=None, resume=False, callbacks=())
        if start is not None:
            return other.run(_SECOND, self.examples, None, epochs, start=start)[0]
        return other.run(self.phase, self.examples, self.held_out, self.epochs)[0]


@contextmanager
def _hold_run(folder: Path, identity: dict[str, Any], resume: bool, write: bool) -> Iterator[None]:
    """Keep other processes from training in the folder; one of the processes of this training writes to it."""
    with lock_state(folder, "folder") if write else nullcontext():
        open_run(folder / "checkpoints", identity, resume, write)
        yield


def _run_phases(
    loop: TrainingLoop,
    train: Examples,
    part: Examples,
    held_out: Examples | None,
    is_refit: bool,
    fits: _Fits,
) -> Run:
    """Train on a part of the examples, then with `is_refit` on all of them, and fit the posterior."""
    config, seen = loop.config, train if is_refit else part  # what the final weights are trained on
    model, metrics, prepared = loop.run(_FIRST if is_refit else _ONLY, part, held_out, config.epochs)
    epochs, rows, seconds = int(metrics[EPOCHS]), metrics[CURVE].tolist(), float(metrics[SECONDS])
    best = best_epoch(rows, config.monitor) if rows else epochs
    again = _Retraining(loop, _ONLY, part, held_out, config.epochs)
    if held_out is not None:
        fits.use(Trained(model, part, again, prepared), held_out)
    epochs_again = None
    if is_refit:
        del model  # its memory is needed for the next one
        epochs_again = refit_epochs(best, config)
        again = _Retraining(loop, _SECOND, train, None, epochs_again)
        model, metrics, prepared = loop.run(_SECOND, train, None, epochs_again)
        seconds += float(metrics[SECONDS])
    model.row_counts = model.count_rows(seen.nodes)
    started = time.perf_counter()
    fits.bayesian.add(Trained(model, seen, again, prepared))
    seconds += time.perf_counter() - started
    curve = tuple(dict(zip(CURVE_COLUMNS, row, strict=True)) for row in rows)
    score = curve[best - 1]["macro_f1"] if curve else None
    return Run(model, epochs, best, valid_macro_f1=score, seconds=seconds, curve=curve, refit_epochs=epochs_again)


def check_examples(examples: Examples, taxonomy: Taxonomy, purpose: str) -> None:
    """Raise if the examples are empty or their labels do not fit the taxonomy."""
    if not len(examples):
        raise InputError(f"no examples to {purpose} on")
    if examples.nodes.min() < 0 or examples.nodes.max() >= taxonomy.num_nodes:
        raise InputError(f"expected labels that are node ids from 0 to {taxonomy.num_nodes - 1} of the taxonomy")
    if not examples.nodes.any():
        raise InputError(f"every example to {purpose} on has the root as its label; expected nodes below the root")
