"""Lightning callbacks: exact resuming, a clean stop on Ctrl-C, and the best weights in memory."""

from __future__ import annotations

import logging
import math
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, RichProgressBar, Timer
from torch import Tensor

from arbormax.training.errors import TrainingInterrupted

_LOG = logging.getLogger("arbormax")
MONITOR = "valid/macro_f1"
SECONDS, EPOCHS, CURVE = "run/seconds", "run/epochs", "run/curve"
CURVE_COLUMNS = ("loss", "macro_f1", "accuracy", "hf")
EVERY_SECONDS = 60.0  # between two checkpoints
_NEAR_SHARE, _NEAR = 0.05, 0.01  # how far above the lowest loss is near it: as a share, or in nats if that is more

Monitor = Literal["both", "macro_f1", "accuracy", "loss"]


class EpochLines(pl.Callback):
    """Logs one line for each epoch, where nobody watches a progress bar."""

    def on_train_epoch_end(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        found = {name: float(value) for name, value in trainer.callback_metrics.items()}
        names = {"train/loss": "loss", "valid/loss": "validation loss", "valid/macro_f1": "macro-F1"}
        names["valid/accuracy"] = "accuracy"
        parts = ", ".join(f"{title} {found[name]:.4f}" for name, title in names.items() if name in found)
        _LOG.info("epoch %d of %d: %s", trainer.current_epoch + 1, trainer.max_epochs, parts)


class OnStep(pl.Callback):
    """Calls a function after each step."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function

    def on_train_batch_end(self, *_: Any) -> None:
        self.function()


class BestWeights(pl.Callback):
    """Records the validation measures of every epoch, stops early, and restores the weights of the best epoch.

    `best_epoch` defines the best epoch; training stops `patience` epochs after it. The results are also written to the
    trainer's metrics: with several processes, only these reach the caller.
    """

    def __init__(self, timer: Timer, monitor: Monitor, patience: int | None) -> None:
        self.timer, self.monitor, self.patience = timer, monitor, patience
        self.weights: dict[str, Tensor] = {}
        self.curve: list[list[float]] = []

    def on_train_start(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        self._stop_if_due(trainer)  # a finished run that is resumed stays stopped

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.curve.append([float(trainer.callback_metrics[f"valid/{name}"]) for name in CURVE_COLUMNS])
        if best_epoch(self.curve, self.monitor) == len(self.curve):
            self.weights = {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}
        self._stop_if_due(trainer)

    def on_fit_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        trainer.callback_metrics[SECONDS] = torch.tensor(self.timer.time_elapsed(), dtype=torch.float64)
        trainer.callback_metrics[EPOCHS] = torch.tensor(trainer.current_epoch)
        trainer.callback_metrics[CURVE] = torch.tensor(self.curve, dtype=torch.float64)
        if self.weights:
            module.load_state_dict(self.weights)
            self.weights = {}

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights, "curve": self.curve}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights, self.curve = state["weights"], state["curve"]

    def _stop_if_due(self, trainer: pl.Trainer) -> None:
        if self.curve and self.patience is not None:
            waited = len(self.curve) - best_epoch(self.curve, self.monitor)
            trainer.should_stop = trainer.should_stop or waited >= self.patience


def best_epoch(curve: Sequence[Sequence[float]], monitor: Monitor) -> int:
    """The best epoch of a curve, counted from 1.

    With `"both"`, a later epoch is better if its loss is near the lowest loss so far, and its macro-F1 is higher or
    the former best has a loss that is not near the lowest any more. Near is at most 5 % or 0.01 above it.
    """
    score = CURVE_COLUMNS.index("macro_f1" if monitor == "both" else monitor)
    loss = CURVE_COLUMNS.index("loss")
    best, lowest = 0, math.inf
    for epoch, row in enumerate(curve):
        if monitor == "loss":
            is_better = row[loss] < curve[best][loss]
        elif monitor == "both":
            lowest = min(lowest, row[loss])
            limit = lowest + max(_NEAR_SHARE * lowest, _NEAR)
            was_near = curve[best][loss] <= limit
            is_better = row[loss] <= limit and (row[score] > curve[best][score] or not was_near)
        else:
            is_better = row[score] > curve[best][score]
        if is_better:
            best = epoch
    return best + 1


class ProgressBar(RichProgressBar):
    """Lightning's progress bar on standard error, which also shows the phase of a training."""

    def __init__(self, phase: str | None = None) -> None:
        super().__init__(leave=False, console_kwargs={"stderr": True})
        self.phase = phase

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        shown: dict[str, Any] = super().get_metrics(trainer, pl_module)
        return shown if self.phase is None else {"phase": self.phase, **shown}


class ResumableCheckpoint(Checkpoint):
    """Saves the whole state of a run, so that a resumed run ends with the weights of one that was never interrupted.

    It saves between two steps or two epochs: after every `every_steps` steps if given, else once a minute, on SIGINT
    and SIGTERM, and at the end. Lightning calls a `Checkpoint` after all other callbacks, so that their state is
    included.
    """

    def __init__(self, path: Path, every_steps: int | None = None) -> None:
        self.path, self.every_steps = path, every_steps
        self._last_save = time.monotonic()
        self._random_states: list[dict[str, Any]] = []
        self._is_interrupted = False
        self._former_handlers: dict[int, Any] = {}

    def setup(self, *_: Any, **__: Any) -> None:
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
        # All processes save together: one decides about the time, and any of them may have received a signal.
        interrupted = trainer.strategy.reduce_boolean_decision(self._is_interrupted, all=False)
        if self.every_steps:
            is_due = trainer.global_step % self.every_steps == 0
        else:
            is_due = trainer.strategy.broadcast(time.monotonic() - self._last_save >= EVERY_SECONDS)
        if not (interrupted or is_due or is_last):
            return
        trainer.save_checkpoint(self.path)
        self._last_save = time.monotonic()
        if interrupted:
            raise TrainingInterrupted(str(self.path.parent.parent))

    def _interrupt(self, *_: Any) -> None:
        self._is_interrupted = True
        self._restore_handlers()  # a second Ctrl-C stops at once

    def _restore_handlers(self) -> None:
        for number, handler in self._former_handlers.items():
            signal.signal(number, handler)
        self._former_handlers = {}


def get_random_states() -> dict[str, Any]:
    """The states of Python, numpy, torch and CUDA as plain numbers and tensors, which load without pickle."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - other libraries use the global generator
    return {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
    }


def set_random_states(states: dict[str, Any]) -> None:
    """Restore what `get_random_states` returned."""
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])


def gather_from_ranks(states: dict[str, Any]) -> list[dict[str, Any]]:
    """The states of all processes, by rank."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [states]
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, states)
    return gathered
