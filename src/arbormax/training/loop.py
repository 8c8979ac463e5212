"""One pass of Lightning's trainer over the examples, which can be interrupted and resumed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch import Tensor, distributed
from torch.multiprocessing.spawn import ProcessRaisedException

from arbormax.data.examples import Examples
from arbormax.errors import OptionError
from arbormax.functional.checks import TargetKind
from arbormax.model.network import Model, seeded
from arbormax.model.node_texts import add_class_texts, start_rows, tie_rows, untie_rows
from arbormax.model.posterior import UNCERTAINTIES
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy
from arbormax.training.callbacks import BestWeights, ProgressBar, ResumableCheckpoint
from arbormax.training.class_weights import class_counts, class_weights
from arbormax.training.distributed import is_first_process, make_strategy, report_lost_workers
from arbormax.training.errors import TrainingError, TrainingInterrupted, quiet_lightning
from arbormax.training.hardware import Hardware
from arbormax.training.module import EncodedExamples, TrainingModule
from arbormax.training.state import CheckpointFiles

_LOG_EVERY = 50  # steps; logging takes longer than a step of a small network


@dataclass(frozen=True)
class Phase:
    """A part of a training with its own checkpoint and logs."""

    checkpoint: str  # file in the folder of checkpoints
    logs: str  # folder of the logs
    title: str | None  # shown by the progress bar


@dataclass(frozen=True, eq=False)
class TrainingLoop:
    """How to train: the settings, the devices, and the folder of logs and checkpoints."""

    config: TrainConfig
    taxonomy: Taxonomy
    hardware: Hardware
    folder: Path | None
    resume: bool
    progress: bool
    callbacks: Sequence[pl.Callback]
    every_steps: int | None

    def run(
        self,
        phase: Phase,
        train: Examples,
        valid: Examples | None,
        epochs: int | None,
        *,
        start: Model | None = None,
        keep_encoder: bool = False,
    ) -> tuple[Model, dict[str, Tensor], Any]:
        """A model trained for at most this many epochs, the metrics that `BestWeights` wrote, and its variational part.

        With `start`, it has the weights of this model at the beginning, and with `keep_encoder` also its vocabulary.
        """
        config, hardware = self.config, self.hardware
        assert config.batch_size is not None
        checkpoints = None if self.folder is None else self.folder / "checkpoints"
        checkpoint = None if checkpoints is None else checkpoints / phase.checkpoint
        if start is not None and keep_encoder:
            model = deepcopy(start).train()
            model.config = config
        else:
            model = Model.new(train.inputs, self.taxonomy, config)
        labels = train.nodes if valid is None else np.concatenate([train.nodes, valid.nodes])
        kind: TargetKind = "class" if (self.taxonomy.class_of[labels] >= 0).all() else "node"
        if start is not None and not keep_encoder:
            model.load_state_dict(start.state_dict())
        elif start is None and config.uses_names:
            model.to(hardware.first_device)  # a transformer is slow on a CPU; Lightning moves it to its own device
        if config.names == "init" and start is None:
            start_rows(model, train)
            if model.encoder.starts_random:
                train = add_class_texts(train, self.taxonomy)
        elif config.names == "tied" and start is None:
            tie_rows(model, train)
        if config.logit_adjustment:
            model.head.set_priors(class_counts(train.nodes, self.taxonomy), smoothing=1.0)
        variational = None
        if config.uncertainty is not None:
            method = UNCERTAINTIES[config.uncertainty]
            variational = method.prepare(model, config.posterior_options, len(train))
        if variational is not None and hardware.several:
            message = f"{config.uncertainty!r} trains on one device"
            raise OptionError(message, argument="uncertainty", fix={"devices": 1})
        module = TrainingModule(model, kind, class_weights(config, train.nodes, self.taxonomy), variational)
        data = EncodedExamples(model, kind, train, valid)
        strategy = make_strategy(hardware)
        is_spawned = strategy != "auto" and strategy.spawns
        if is_spawned and config.names == "tied":  # torch cannot send such a head to another process
            raise OptionError("on several devices needs the strategy ddp", argument="names", fix={"strategy": "ddp"})
        with quiet_lightning(), seeded(config.seed):
            trainer = pl.Trainer(
                max_epochs=epochs,
                accelerator=hardware.accelerator,
                devices=hardware.devices,
                num_nodes=hardware.num_nodes,
                strategy=strategy,
                precision=config.precision,
                callbacks=[*self.callbacks, *self._own_callbacks(phase, checkpoint)],
                logger=self._loggers(phase),
                default_root_dir=self.folder,
                enable_checkpointing=checkpoint is not None,
                enable_progress_bar=self.progress,
                enable_model_summary=False,
                log_every_n_steps=min(_LOG_EVERY, max(1, len(train) // (config.batch_size * hardware.ranks))),
                limit_val_batches=0 if valid is None else None,
                num_sanity_val_steps=0,
                use_distributed_sampler=False,
                plugins=[CheckpointFiles()],
            )
            resumed = checkpoint if self.resume and checkpoint is not None and checkpoint.exists() else None
            try:
                with _translate_interrupts(self.folder, is_spawned), report_lost_workers(checkpoints, hardware.ranks):
                    trainer.fit(module, datamodule=data, ckpt_path=resumed, weights_only=True)
                    if distributed.is_available() and distributed.is_initialized():
                        distributed.destroy_process_group()  # else later measures would be summed over all processes
                device, metrics = trainer.strategy.root_device, dict(trainer.callback_metrics)
            finally:
                _release(trainer, module, data)
        if not hardware.several:  # Lightning leaves the model on the CPU
            model.to(device)
        untie_rows(model)
        model.eval()
        if not all(parameter.isfinite().all() for parameter in model.parameters()):
            raise TrainingError("training diverged: the weights are not finite; try a lower learning rate or clip")
        return model, metrics, variational

    def _own_callbacks(self, phase: Phase, checkpoint: Path | None) -> list[pl.Callback]:
        timer = Timer()
        callbacks: list[pl.Callback] = [timer, BestWeights(timer, self.config.monitor, self.config.patience)]
        if checkpoint is not None:
            callbacks.append(ResumableCheckpoint(checkpoint, every_steps=self.every_steps))
        if self.progress:
            callbacks.append(ProgressBar(phase.title))
        return callbacks

    def _loggers(self, phase: Phase) -> list[Logger]:
        if self.folder is None:
            return []
        logs = self.folder / phase.logs
        earlier = logs / "metrics.csv"
        is_first = not self.hardware.several or is_first_process()
        if is_first and earlier.exists():  # of a resumed run; Lightning would delete it
            earlier.rename(logs / f"metrics-{len(list(logs.glob('metrics-*.csv'))) + 1}.csv")
        return [CSVLogger(logs, name="", version=""), TensorBoardLogger(logs, name="", version="")]


def _release(trainer: pl.Trainer, module: TrainingModule, data: EncodedExamples) -> None:
    """Drop the model, the data and the optimisers from Lightning's objects.

    These refer to one another, so that memory would stay in use until the garbage collector runs.
    """
    del module.model, data.encoder
    data.parts.clear()
    trainer.strategy.optimizers = []
    trainer.strategy.lr_scheduler_configs = []


@contextmanager
def _translate_interrupts(folder: Path | None, is_spawned: bool) -> Iterator[None]:
    """Ctrl-C as KeyboardInterrupt and SIGTERM as status 143, where Lightning exits with 1.

    Spawned workers handle Ctrl-C themselves if they can save.
    """
    is_main = threading.current_thread() is threading.main_thread()
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        if is_spawned and folder is not None and is_main:  # ignore the first one
            signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, former[signal.SIGINT]))
        yield
    except SIGTERMException as error:  # after the end of a batch; with a folder, `ResumableCheckpoint` comes first
        raise SystemExit(128 + signal.SIGTERM) from error
    except SystemExit as error:
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        raise KeyboardInterrupt from error
    except ProcessRaisedException as error:
        if folder is not None and TrainingInterrupted.__name__ in str(error):
            raise TrainingInterrupted(str(folder)) from None
        raise
    finally:
        if is_main:  # Lightning restores the handlers that it found, which are those of this function
            for number, handler in former.items():
                signal.signal(number, handler)
