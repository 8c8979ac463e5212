"""What Lightning does not do by itself: an exact restart, a clean Ctrl-C, the best weights in memory."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, EarlyStopping
from torch import Tensor

from arbormax.errors import ArbormaxError

MONITOR = "valid/macro_f1"
BEST_SCORE, BEST_EPOCH, SECONDS, EPOCHS = "run/best_score", "run/best_epoch", "run/seconds", "run/epochs"
CURVE, CURVE_COLUMNS = "run/curve", ("loss", "macro_f1", "accuracy", "hf")


class TrainingInterrupted(ArbormaxError):  # noqa: N818 - nothing went wrong
    """Training was asked to stop; where it had a folder, it saved its state there."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        super().__init__(f"stopped as asked, everything so far is in {folder}; go on with resume")

    def __reduce__(self) -> tuple[type[TrainingInterrupted], tuple[str]]:  # it may come from another process
        return type(self), (self.folder,)


class Patience(EarlyStopping):
    """Early stopping that a restart does not make forget that it had had enough."""

    def __init__(self, patience: int) -> None:
        super().__init__(MONITOR, mode="max", patience=patience, check_on_train_epoch_end=False)

    def on_train_start(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        if self.wait_count >= self.patience:
            trainer.should_stop = True


class Best(pl.Callback):
    """Remembers how every epoch did on the held-out texts, and the weights of the best one for the end.

    The best has the highest macro-F1. What it found goes into the trainer's metrics too: of what several processes
    know, only these reach the caller.
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
            trainer.callback_metrics[BEST_SCORE] = torch.tensor(self.score, dtype=torch.float64)
            trainer.callback_metrics[BEST_EPOCH] = torch.tensor(self.epoch)
            trainer.callback_metrics[CURVE] = torch.tensor(self.curve, dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        return {"score": self.score, "epoch": self.epoch, "weights": self.weights, "curve": self.curve}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.score, self.epoch, self.weights = state["score"], state["epoch"], state["weights"]
        self.curve = state["curve"]


class Clock(pl.Callback):
    """The seconds and epochs of training, over all restarts."""

    def __init__(self) -> None:
        self._before = 0.0
        self._began: float | None = None  # None: not training now

    @property
    def seconds(self) -> float:
        return self._before + (0.0 if self._began is None else time.monotonic() - self._began)

    def on_train_start(self, *_: Any) -> None:
        self._began = time.monotonic()

    def on_train_end(self, *_: Any) -> None:
        self._before, self._began = self.seconds, None

    def on_fit_end(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        trainer.callback_metrics[SECONDS] = torch.tensor(self.seconds, dtype=torch.float64)
        trainer.callback_metrics[EPOCHS] = torch.tensor(trainer.current_epoch)

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._before = state["seconds"]


class Snapshots(Checkpoint):
    """Saves the whole state now and then, and when asked to stop; a run that goes on from it ends as if never stopped.

    A state is saved between two steps or two epochs, never inside one: after so many steps where `every_steps` tells,
    else after so many seconds, and at the end. Being a `Checkpoint`, it comes after all
    other callbacks, so that theirs are in it.
    """

    def __init__(self, path: Path, every_seconds: float = 60.0, every_steps: int | None = None) -> None:
        self.path, self.every_seconds, self.every_steps = path, every_seconds, every_steps
        self._saved = time.monotonic()
        self._states: list[dict[str, Any]] = []
        self._asked = False
        self._former: dict[int, Any] = {}

    def setup(self, *_: Any, **__: Any) -> None:
        self._saved = time.monotonic()
        if threading.current_thread() is threading.main_thread():
            self._former = {sign: signal.signal(sign, self._ask) for sign in (signal.SIGINT, signal.SIGTERM)}

    def teardown(self, *_: Any, **__: Any) -> None:
        self._give_back()

    def on_train_start(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        if self._states:
            set_random_states(self._states[trainer.global_rank % len(self._states)])
            self._states = []

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.is_last_batch:
            return  # the epoch's own end follows, after validation
        self._save_if_due(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        is_last = trainer.should_stop or trainer.current_epoch + 1 == trainer.max_epochs
        self._save_if_due(trainer, is_last)

    def state_dict(self) -> dict[str, Any]:
        return {"states": gathered(random_states())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._states = state["states"]

    def _save_if_due(self, trainer: pl.Trainer, is_last: bool = False) -> None:
        asked = self._is_asked(trainer)
        due = trainer.global_step % self.every_steps == 0 if self.every_steps else self._is_due(trainer)
        if asked or due or is_last:
            self._save(trainer, asked)

    def _save(self, trainer: pl.Trainer, asked: bool) -> None:
        # Lightning writes by way of the machine's temporary folder: a copy from there could be cut short
        beside = self.path.with_suffix(".tmp")
        trainer.save_checkpoint(beside)
        if trainer.is_global_zero:
            os.replace(beside, self.path)
        self._saved = time.monotonic()
        if asked:
            raise TrainingInterrupted(str(self.path.parent.parent))

    def _is_due(self, trainer: pl.Trainer) -> bool:
        due = time.monotonic() - self._saved >= self.every_seconds
        return due if trainer.world_size == 1 else trainer.strategy.broadcast(due)

    def _is_asked(self, trainer: pl.Trainer) -> bool:
        return (
            self._asked if trainer.world_size == 1 else trainer.strategy.reduce_boolean_decision(self._asked, all=False)
        )

    def _ask(self, *_: Any) -> None:
        self._asked = True
        self._give_back()  # who asks twice does not want to wait for the end of the step

    def _give_back(self) -> None:
        for sign, handler in self._former.items():
            signal.signal(sign, handler)
        self._former = {}


def random_states() -> dict[str, Any]:
    """All random states of this process, as plain numbers and tensors, which load without pickle."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - other libraries draw from it
    return {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
    }


def set_random_states(states: dict[str, Any]) -> None:
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])


def gathered(states: dict[str, Any]) -> list[dict[str, Any]]:
    """The states of all ranks."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [states]
    everyone: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(everyone, states)
    return everyone
