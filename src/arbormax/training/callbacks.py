"""Lightning callbacks: exact resuming, a clean stop on Ctrl-C, and the best weights in memory."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, EarlyStopping
from torch import Tensor

from arbormax.training.errors import TrainingInterrupted
from arbormax.training.random_state import gather_from_ranks, get_random_states, set_random_states

MONITOR = "valid/macro_f1"
BEST_SCORE, BEST_EPOCH, SECONDS, EPOCHS = "run/best_score", "run/best_epoch", "run/seconds", "run/epochs"
CURVE, CURVE_COLUMNS = "run/curve", ("loss", "macro_f1", "accuracy", "hf")


class ResumableEarlyStopping(EarlyStopping):
    """Early stopping that stays stopped when a finished run is resumed."""

    def __init__(self, patience: int) -> None:
        super().__init__(MONITOR, mode="max", patience=patience, check_on_train_epoch_end=False)

    def on_train_start(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        if self.wait_count >= self.patience:
            trainer.should_stop = True


class BestWeights(pl.Callback):
    """Records the validation measures of every epoch and restores the weights of the best one at the end.

    The best epoch has the highest macro-F1. The results are also written to the trainer's metrics: with several
    processes, only these reach the caller.
    """

    def __init__(self) -> None:
        self.score, self.epoch = -1.0, -1
        self.weights: dict[str, Tensor] = {}
        self.curve: list[list[float]] = []

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.curve.append([float(trainer.callback_metrics[f"valid/{name}"]) for name in CURVE_COLUMNS])
        score = float(trainer.callback_metrics[MONITOR])
        if score > self.score:
            self.score, self.epoch = score, trainer.current_epoch
            self.weights = {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}

    def on_fit_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.weights:
            module.load_state_dict(self.weights)
            self.weights = {}
            trainer.callback_metrics[BEST_SCORE] = torch.tensor(self.score, dtype=torch.float64)
            trainer.callback_metrics[BEST_EPOCH] = torch.tensor(self.epoch)
            trainer.callback_metrics[CURVE] = torch.tensor(self.curve, dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        return {"score": self.score, "epoch": self.epoch, "weights": self.weights, "curve": self.curve}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.score, self.epoch, self.weights = state["score"], state["epoch"], state["weights"]
        self.curve = state["curve"]


class TrainingTime(pl.Callback):
    """The seconds and epochs of training, summed over all resumed parts."""

    def __init__(self) -> None:
        self._earlier = 0.0
        self._start: float | None = None  # None while not training

    @property
    def seconds(self) -> float:
        return self._earlier + (0.0 if self._start is None else time.monotonic() - self._start)

    def on_train_start(self, *_: Any) -> None:
        self._start = time.monotonic()

    def on_train_end(self, *_: Any) -> None:
        self._earlier, self._start = self.seconds, None

    def on_fit_end(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        trainer.callback_metrics[SECONDS] = torch.tensor(self.seconds, dtype=torch.float64)
        trainer.callback_metrics[EPOCHS] = torch.tensor(trainer.current_epoch)

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._earlier = state["seconds"]


class ResumableCheckpoint(Checkpoint):
    """Saves the whole state of a run, so that a resumed run ends with the weights of one that was never interrupted.

    It saves between two steps or two epochs: after every `every_steps` steps if given, else after `every_seconds`
    seconds, on SIGINT and SIGTERM, and at the end. Lightning calls a `Checkpoint` after all other callbacks, so that
    their state is included.
    """

    def __init__(self, path: Path, every_seconds: float = 60.0, every_steps: int | None = None) -> None:
        self.path, self.every_seconds, self.every_steps = path, every_seconds, every_steps
        self._last_save = time.monotonic()
        self._random_states: list[dict[str, Any]] = []
        self._is_interrupted = False
        self._former_handlers: dict[int, Any] = {}

    def setup(self, *_: Any, **__: Any) -> None:
        self._last_save = time.monotonic()
        if threading.current_thread() is threading.main_thread():
            signals = (signal.SIGINT, signal.SIGTERM)
            self._former_handlers = {number: signal.signal(number, self._interrupt) for number in signals}

    def teardown(self, *_: Any, **__: Any) -> None:
        self._restore_handlers()

    def on_train_start(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        if self._random_states:
            set_random_states(self._random_states[trainer.global_rank % len(self._random_states)])
            self._random_states = []

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if not trainer.is_last_batch:  # after the last batch, the end of the epoch saves, with its validation
            self._save_if_due(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        is_last = trainer.should_stop or trainer.current_epoch + 1 == trainer.max_epochs
        self._save_if_due(trainer, is_last)

    def state_dict(self) -> dict[str, Any]:
        return {"states": gather_from_ranks(get_random_states())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._random_states = state["states"]

    def _save_if_due(self, trainer: pl.Trainer, is_last: bool = False) -> None:
        interrupted = self._any_rank_interrupted(trainer)
        is_due = trainer.global_step % self.every_steps == 0 if self.every_steps else self._is_time(trainer)
        if interrupted or is_due or is_last:
            self._save(trainer)
        if interrupted:
            raise TrainingInterrupted(str(self.path.parent.parent))

    def _save(self, trainer: pl.Trainer) -> None:
        # Lightning copies from the machine's temporary folder, which an interruption could cut short.
        temporary = self.path.with_suffix(".tmp")
        trainer.save_checkpoint(temporary)
        if trainer.is_global_zero:
            os.replace(temporary, self.path)
        self._last_save = time.monotonic()

    def _is_time(self, trainer: pl.Trainer) -> bool:
        is_time = time.monotonic() - self._last_save >= self.every_seconds
        return is_time if trainer.world_size == 1 else trainer.strategy.broadcast(is_time)

    def _any_rank_interrupted(self, trainer: pl.Trainer) -> bool:
        if trainer.world_size == 1:
            return self._is_interrupted
        return trainer.strategy.reduce_boolean_decision(self._is_interrupted, all=False)

    def _interrupt(self, *_: Any) -> None:
        self._is_interrupted = True
        self._restore_handlers()  # a second Ctrl-C stops at once

    def _restore_handlers(self) -> None:
        for number, handler in self._former_handlers.items():
            signal.signal(number, handler)
        self._former_handlers = {}
