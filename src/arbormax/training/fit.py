"""Training: examples in, a model out. Lightning runs the loop."""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import RichProgressBar
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from arbormax.data.batching import Batches, Shares
from arbormax.data.examples import Examples
from arbormax.data.folds import held_out
from arbormax.errors import ArbormaxError, InputError, OptionError, did_you_mean
from arbormax.functional.checks import TargetKind
from arbormax.model.network import Model, seeded
from arbormax.model.run import Run
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy
from arbormax.training.callbacks import (
    BEST_EPOCH,
    BEST_SCORE,
    CURVE,
    CURVE_COLUMNS,
    EPOCHS,
    SECONDS,
    Best,
    Clock,
    Patience,
    Snapshots,
    TrainingInterrupted,
)
from arbormax.training.distributed import (
    STRATEGIES,
    StrategyName,
    Workers,
    ignore_advice,
    is_first_process,
    is_lost_connection,
    leave_group,
    strategy_of,
)
from arbormax.training.module import TrainingModule
from arbormax.training.state import check_state, identity_of, open_run


class TrainingError(ArbormaxError, RuntimeError):
    """Training came to nothing."""


class WorkerLost(TrainingError):  # noqa: N818 - nothing is wrong with the training
    """A process that took part is gone, and the others stopped; the state that was saved last can be resumed."""


@dataclass(frozen=True)
class Hardware:
    """Where to train: Lightning's own words; `devices` are those of each of `num_nodes` machines.

    With the strategy `ddp_spawn` the caller starts the processes and gets the result; with `ddp` all of them run the
    caller's program. `auto` is the former, but for several machines and below torchrun or SLURM.
    """

    accelerator: str = "auto"
    devices: int | str = 1
    strategy: StrategyName = "auto"
    num_nodes: int = 1

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            near = did_you_mean(str(self.strategy), STRATEGIES)
            raise OptionError(f"strategy is one of {', '.join(STRATEGIES)}; found {self.strategy!r}{near}")
        if self.num_nodes < 1:
            raise OptionError(f"training needs at least one machine, found num_nodes={self.num_nodes}")
        if self.strategy == "ddp_spawn" and self.num_nodes > 1:
            raise OptionError(f"ddp_spawn starts processes on one machine, found num_nodes={self.num_nodes}: take ddp")

    @property
    def ranks(self) -> int:
        """How many devices these are, on all machines together."""
        if self.devices in ("auto", "-1", -1):
            here = torch.cuda.device_count() if self.accelerator in ("auto", "gpu", "cuda") else 1
        elif isinstance(self.devices, str) and not self.devices.isdigit():
            here = self.devices.strip(",").count(",") + 1
        else:
            here = int(self.devices)
        return max(here, 1) * self.num_nodes

    def check(self) -> None:
        """Raise where there are no such devices here, before anything is made for a run."""
        has_other = torch.accelerator.is_available()
        if self.accelerator in ("gpu", "cuda") and not has_other:
            raise OptionError(f"there is no GPU here that torch can use; found accelerator={self.accelerator!r}")
        is_cpu = self.accelerator == "cpu" or (self.accelerator == "auto" and not has_other)
        if is_cpu and self.devices != "auto" and not (str(self.devices).isdigit() and int(self.devices) > 0):
            raise OptionError(f"on a CPU devices are a number of processes, from 1; found {self.devices!r}")

    @property
    def several(self) -> bool:
        """Whether these are more devices than one."""
        return self.ranks > 1


ONE_DEVICE = Hardware()
_LOG_EVERY = 50  # steps; logging costs more than a step of a small network


class TextData(pl.LightningDataModule):
    """Encoded texts as Lightning wants them, a share for each device."""

    def __init__(self, model: Model, kind: TargetKind, train: Examples, valid: Examples | None) -> None:
        super().__init__()
        self.encoder, self.config = model.encoder, model.config
        self.parts = {
            name: (self.encoder.encode(part.inputs), targets_of(part.nodes, model.taxonomy, kind))
            for name, part in (("train", train), ("valid", valid))
            if part is not None
        }

    def train_dataloader(self) -> Batches:
        return self._batches("train", shuffle=True)

    def val_dataloader(self) -> Batches:
        return self._batches("valid", shuffle=False)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, _: int) -> tuple[Any, ...]:
        # Lightning's own looks for tensors in anything, which takes longer than a small network's step.
        inputs, target, *weight = batch
        return tuple(tensor.to(device) for tensor in inputs), target.to(device), *weight

    def _batches(self, part: str, shuffle: bool) -> Batches:
        assert self.trainer is not None
        assert self.config.batch_size is not None
        rows, targets = self.parts[part]
        size, rank, ranks = self.config.batch_size, self.trainer.global_rank, self.trainer.world_size
        options: dict[str, Any] = {"sort": self.encoder.sorts_by_length, "seed": self.config.seed}
        if shuffle and ranks > 1:  # the batches that one device would have, with as many texts as all have together
            options |= {"shuffle": True, "share": rank, "shares": ranks}
            return Shares(rows, targets, self.encoder.collate, size * ranks, **options)
        if not shuffle:  # a device without a batch would not come to where all of them add up their measures
            if len(rows) < ranks:
                raise InputError(f"expected an example to validate on for each of {ranks} devices, found {len(rows)}")
            size = min(max(size, 256), len(rows) // ranks)
            options |= {"rank": rank, "ranks": ranks}
        return Batches(rows, targets, self.encoder.collate, size, shuffle=shuffle, **options)


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
    """A model trained on the examples; without `valid`, the share `config.validation` of them is held out.

    With `folder`, logs and the state of the run go there and `resume` goes on from that state, to the same weights as
    a run that was never stopped. Callbacks must not keep the trainer, which is taken apart in the end.
    """
    hardware.check()
    config = config.resolved(len(train))
    assert config.batch_size is not None
    step = config.batch_size * hardware.ranks  # texts, on all devices
    is_first = not hardware.several or is_first_process()
    check_examples(train, taxonomy, "train")
    if valid is not None:
        check_examples(valid, taxonomy, "validate")
    more = {"validation_examples": None if valid is None else valid.digest()}
    # a run goes on with other devices if the texts of a step stay the same
    joint = config.model_copy(update={"batch_size": step})
    identity = None if folder is None else identity_of(joint, taxonomy, train, **more)
    if valid is None:
        train, valid = held_out(train, config.validation, config.seed)
    state = None if folder is None else Path(folder) / "checkpoints" / "last.ckpt"
    if state is not None and identity is not None:
        open_run(state, identity, resume, write=is_first)
    model = Model.new(train.inputs, taxonomy, config)
    labels = train.nodes if valid is None else np.concatenate([train.nodes, valid.nodes])
    kind: TargetKind = "class" if (taxonomy.class_of[labels] >= 0).all() else "node"
    if config.tau:
        model.head.set_priors(class_counts(train.nodes, taxonomy), smoothing=1.0)
    module = TrainingModule(model, kind, class_weights(config, train.nodes, taxonomy))
    data = TextData(model, kind, train, valid)
    active: list[pl.Callback] = [*callbacks, Clock()]
    if valid is not None:
        active += [Best()] if config.patience is None else [Patience(config.patience), Best()]
    if state is not None:
        active.append(Snapshots(state, every_steps=every_steps))
    if progress:
        active.append(RichProgressBar(leave=False, console_kwargs={"stderr": True}))
    strategy = strategy_of(hardware.strategy, hardware.num_nodes) if hardware.several else "auto"
    with quiet(), seeded(config.seed):
        trainer = pl.Trainer(
            max_epochs=config.epochs,
            accelerator=hardware.accelerator,
            devices=hardware.devices,
            num_nodes=hardware.num_nodes,
            strategy=strategy,
            precision=config.precision,
            callbacks=active,
            logger=_loggers(folder, is_first),
            default_root_dir=folder,
            enable_checkpointing=state is not None,
            enable_progress_bar=progress,
            enable_model_summary=False,
            log_every_n_steps=min(_LOG_EVERY, max(1, len(train) // step)),
            limit_val_batches=0 if valid is None else None,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
        )
        resumed = state if resume and state is not None and state.exists() else None
        if resumed is not None:
            check_state(resumed)
        spawned = isinstance(strategy, Workers) and strategy.spawns
        try:
            with _interrupts(folder, spawned), _losses(state, hardware.ranks):
                trainer.fit(module, datamodule=data, ckpt_path=resumed, weights_only=True)
                leave_group()
            device, told = trainer.strategy.root_device, dict(trainer.callback_metrics)
        finally:  # they refer to one another, and would keep weights, texts and optimiser
            for part in (trainer.strategy, trainer):
                vars(part).clear()
    if not hardware.several:  # Lightning leaves it on the CPU
        model.to(device)
    model.eval()
    if not all(parameter.isfinite().all() for parameter in model.parameters()):
        raise TrainingError("training diverged, its weights are not finite: try a lower learning rate, or clip")
    curve = told.pop(CURVE, torch.zeros(0, 0))
    found = {name: value.item() for name, value in told.items()}
    return Run(
        model,
        epochs=int(found[EPOCHS]),
        best_epoch=int(found[BEST_EPOCH]) + 1 if BEST_EPOCH in found else int(found[EPOCHS]),
        valid_macro_f1=found.get(BEST_SCORE),
        curve=tuple(dict(zip(CURVE_COLUMNS, row, strict=True)) for row in curve.tolist()),
        seconds=found[SECONDS],
    )


def check_examples(examples: Examples, taxonomy: Taxonomy, what: str) -> None:
    if not len(examples):
        raise InputError(f"there is nothing to {what} on: no examples")
    if examples.nodes.min() < 0 or examples.nodes.max() >= taxonomy.num_nodes:
        raise InputError(f"labels are node ids from 0 to {taxonomy.num_nodes - 1} of the taxonomy, found others")
    if not examples.nodes.any():
        raise InputError(f"every example to {what} on is labelled with the root, which says nothing")


def targets_of(nodes: np.ndarray, taxonomy: Taxonomy, kind: TargetKind) -> np.ndarray:
    """(n,) what the loss takes: class ids or node ids."""
    return taxonomy.class_of[nodes] if kind == "class" else nodes


def class_counts(nodes: np.ndarray, taxonomy: Taxonomy) -> np.ndarray:
    """(C,) how many of the labels are each class; labels at inner nodes count for none."""
    classes = taxonomy.class_of[nodes]
    return np.bincount(classes[classes >= 0], minlength=taxonomy.num_leaves)


def class_weights(config: TrainConfig, nodes: np.ndarray, taxonomy: Taxonomy) -> torch.Tensor | None:
    """(C,) weights of the classes, as scikit-learn's `class_weight` has them, or None."""
    if config.class_weight is None:
        return None
    weights = np.ones(taxonomy.num_leaves, dtype=np.float32)
    if config.class_weight == "balanced":
        counts = class_counts(nodes, taxonomy)
        seen = counts > 0
        weights[seen] = counts.sum() / (seen.sum() * counts[seen])
    else:
        weights[taxonomy.encode(list(config.class_weight))] = list(config.class_weight.values())
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise OptionError("class weights are numbers of at least 0, not all of them 0")
    return torch.from_numpy(weights)


@contextmanager
def _losses(state: Path | None, ranks: int) -> Iterator[None]:
    """A process that is gone, told as that."""
    try:
        yield
    except (ProcessExitedException, ProcessRaisedException, RuntimeError) as error:
        how = f" ({error})" if isinstance(error, ProcessExitedException) else ""
        if ranks == 1 or not (how or is_lost_connection(error)):
            raise
        kept = state is not None and state.exists()
        advice = f"; the state that was saved last is {state}: go on with resume" if kept else ", no state was saved"
        raise WorkerLost(f"one of {ranks} processes is gone, and the others stopped{how}{advice}") from error


@contextmanager
def _interrupts(folder: Path | str | None, spawned: bool) -> Iterator[None]:
    """Ctrl-C as Python knows it, where Lightning would end the program; of several processes the workers decide."""
    is_main = threading.current_thread() is threading.main_thread()
    former = {sign: signal.getsignal(sign) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        if spawned and folder is not None and is_main:
            signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, former[signal.SIGINT]))
        yield
    except SystemExit as error:
        raise KeyboardInterrupt from error
    except ProcessRaisedException as error:
        if folder is not None and TrainingInterrupted.__name__ in str(error):
            raise TrainingInterrupted(str(folder)) from None
        raise
    finally:
        if is_main:  # Lightning puts back those it found, which were ours
            for sign, handler in former.items():
                signal.signal(sign, handler)


def _loggers(folder: Path | str | None, is_first: bool) -> list[Logger]:
    if folder is None:
        return []
    logs = Path(folder) / "logs"
    past = logs / "metrics.csv"
    if is_first and past.exists():  # of a run that is resumed; Lightning would delete it
        past.rename(logs / f"metrics-{len(list(logs.glob('metrics-*.csv'))) + 1}.csv")
    return [CSVLogger(logs, name="", version=""), TensorBoardLogger(logs, name="", version="")]


@contextmanager
def quiet() -> Iterator[None]:
    """Without the advice that Lightning gives on what is decided here."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        ignore_advice()
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
