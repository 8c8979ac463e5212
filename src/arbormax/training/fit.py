"""Train one model on examples. Lightning runs the loop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
from pytorch_lightning.callbacks import RichProgressBar, Timer
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger
from torch import Tensor, distributed
from torch.multiprocessing.spawn import ProcessRaisedException

from arbormax.data.examples import Examples
from arbormax.data.folds import hold_out
from arbormax.errors import InputError
from arbormax.functional.checks import TargetKind
from arbormax.model.network import Model, seeded
from arbormax.model.run import Run
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy
from arbormax.training.callbacks import (
    CURVE,
    CURVE_COLUMNS,
    EPOCHS,
    SECONDS,
    BestWeights,
    ResumableCheckpoint,
    ResumableEarlyStopping,
    best_epoch,
)
from arbormax.training.class_weights import class_counts, class_weights
from arbormax.training.datamodule import EncodedExamples
from arbormax.training.distributed import is_first_process, make_strategy, report_lost_workers
from arbormax.training.errors import TrainingError, TrainingInterrupted
from arbormax.training.hardware import ONE_DEVICE, Hardware
from arbormax.training.messages import quiet_lightning
from arbormax.training.module import TrainingModule
from arbormax.training.state import check_checkpoint, open_run, run_identity

_LOG_EVERY = 50  # steps; logging takes longer than a step of a small network


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
) -> Run:
    """Train a model on the examples; without `valid`, the share `config.validation` of them is held out.

    With `folder`, logs and a checkpoint are written there, and `resume=True` continues from the checkpoint to the same
    weights as a run that was never interrupted. `every_steps` saves a checkpoint after this many steps instead of
    once a minute. The trainer that callbacks receive is not usable after the training.
    """
    hardware.check()
    config = config.resolved(len(train))
    check_examples(train, taxonomy, "train")
    if valid is not None:
        check_examples(valid, taxonomy, "validate")
    assert config.batch_size is not None
    step_size = config.batch_size * hardware.ranks
    is_first = not hardware.several or is_first_process()
    checkpoint = None if folder is None else Path(folder) / "checkpoints" / "last.ckpt"
    all_train, given_valid = train, valid
    if valid is None:
        train, valid = hold_out(train, config.validation, config.seed)
    if checkpoint is not None:
        # A run can be resumed on other devices if all of them together have the same examples in a step.
        joint = config.model_copy(update={"batch_size": step_size})
        digest = None if given_valid is None else given_valid.digest()
        identity = run_identity(joint, taxonomy, all_train, validation_examples=digest)
        open_run(checkpoint, identity, resume, write=is_first)
    model = Model.new(train.inputs, taxonomy, config)
    labels = train.nodes if valid is None else np.concatenate([train.nodes, valid.nodes])
    kind: TargetKind = "class" if (taxonomy.class_of[labels] >= 0).all() else "node"
    if config.tau:
        model.head.set_priors(class_counts(train.nodes, taxonomy), smoothing=1.0)
    module = TrainingModule(model, kind, class_weights(config, train.nodes, taxonomy))
    data = EncodedExamples(model, kind, train, valid)
    strategy = make_strategy(hardware)
    with quiet_lightning(), seeded(config.seed):
        trainer = pl.Trainer(
            max_epochs=config.epochs,
            accelerator=hardware.accelerator,
            devices=hardware.devices,
            num_nodes=hardware.num_nodes,
            strategy=strategy,
            precision=config.precision,
            callbacks=[*callbacks, *_callbacks(config, valid is not None, checkpoint, every_steps, progress)],
            logger=_loggers(folder, is_first),
            default_root_dir=folder,
            enable_checkpointing=checkpoint is not None,
            enable_progress_bar=progress,
            enable_model_summary=False,
            log_every_n_steps=min(_LOG_EVERY, max(1, len(train) // step_size)),
            limit_val_batches=0 if valid is None else None,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
        )
        resumed = checkpoint if resume and checkpoint is not None and checkpoint.exists() else None
        if resumed is not None:
            check_checkpoint(resumed)
        is_spawned = strategy != "auto" and strategy.spawns
        try:
            with _translate_interrupts(folder, is_spawned), report_lost_workers(checkpoint, hardware.ranks):
                trainer.fit(module, datamodule=data, ckpt_path=resumed, weights_only=True)
                if distributed.is_available() and distributed.is_initialized():
                    distributed.destroy_process_group()  # else later measures would be summed over all processes
            device, metrics = trainer.strategy.root_device, dict(trainer.callback_metrics)
        finally:
            _release(trainer, module, data)
    if not hardware.several:  # Lightning leaves the model on the CPU
        model.to(device)
    model.eval()
    if not all(parameter.isfinite().all() for parameter in model.parameters()):
        raise TrainingError("training diverged: the weights are not finite; try a lower learning rate or clip")
    return _run(model, metrics)


def check_examples(examples: Examples, taxonomy: Taxonomy, purpose: str) -> None:
    """Raise if the examples are empty or their labels do not fit the taxonomy."""
    if not len(examples):
        raise InputError(f"no examples to {purpose} on")
    if examples.nodes.min() < 0 or examples.nodes.max() >= taxonomy.num_nodes:
        raise InputError(f"expected labels that are node ids from 0 to {taxonomy.num_nodes - 1} of the taxonomy")
    if not examples.nodes.any():
        raise InputError(f"every example to {purpose} on has the root as its label; expected nodes below the root")


def _callbacks(
    config: TrainConfig, has_validation: bool, checkpoint: Path | None, every_steps: int | None, progress: bool
) -> list[pl.Callback]:
    timer = Timer()
    callbacks: list[pl.Callback] = [timer, BestWeights(timer)]
    if has_validation and config.patience is not None:
        callbacks.append(ResumableEarlyStopping(config.patience))
    if checkpoint is not None:
        callbacks.append(ResumableCheckpoint(checkpoint, every_steps=every_steps))
    if progress:
        callbacks.append(RichProgressBar(leave=False, console_kwargs={"stderr": True}))
    return callbacks


def _release(trainer: pl.Trainer, module: TrainingModule, data: EncodedExamples) -> None:
    """Drop the model, the data and the optimisers from Lightning's objects.

    These refer to one another, so that memory would stay in use until the garbage collector runs.
    """
    del module.model, data.encoder
    data.parts.clear()
    trainer.strategy.optimizers = []
    trainer.strategy.lr_scheduler_configs = []


def _run(model: Model, metrics: dict[str, Tensor]) -> Run:
    epochs, rows = int(metrics[EPOCHS]), metrics[CURVE].tolist()
    curve = tuple(dict(zip(CURVE_COLUMNS, row, strict=True)) for row in rows)
    best = best_epoch(rows) if rows else epochs
    score = curve[best - 1]["macro_f1"] if curve else None
    return Run(model, epochs, best, valid_macro_f1=score, seconds=float(metrics[SECONDS]), curve=curve)


@contextmanager
def _translate_interrupts(folder: Path | str | None, is_spawned: bool) -> Iterator[None]:
    """Ctrl-C as KeyboardInterrupt, where Lightning exits; spawned workers handle it themselves if they can save."""
    is_main = threading.current_thread() is threading.main_thread()
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        if is_spawned and folder is not None and is_main:  # ignore the first one
            signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, former[signal.SIGINT]))
        yield
    except SystemExit as error:
        raise KeyboardInterrupt from error
    except ProcessRaisedException as error:
        if folder is not None and TrainingInterrupted.__name__ in str(error):
            raise TrainingInterrupted(str(folder)) from None
        raise
    finally:
        if is_main:  # Lightning restores the handlers that it found, which are those of this function
            for number, handler in former.items():
                signal.signal(number, handler)


def _loggers(folder: Path | str | None, is_first: bool) -> list[Logger]:
    if folder is None:
        return []
    logs = Path(folder) / "logs"
    earlier = logs / "metrics.csv"
    if is_first and earlier.exists():  # of a resumed run; Lightning would delete it
        earlier.rename(logs / f"metrics-{len(list(logs.glob('metrics-*.csv'))) + 1}.csv")
    return [CSVLogger(logs, name="", version=""), TensorBoardLogger(logs, name="", version="")]
