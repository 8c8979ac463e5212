"""The errors of a training, and Lightning's messages about choices that are made here."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from arbormax.errors import ArbormaxError

_LOGGERS = ("pytorch_lightning", "lightning_fabric", "lightning.pytorch")


class TrainingError(ArbormaxError, RuntimeError):
    """Training failed."""


class WorkerLostError(TrainingError):
    """A worker process ended unexpectedly, and the others stopped; the last saved state, if any, can be resumed."""

    def __init__(self, message: str, is_resumable: bool) -> None:
        self.is_resumable = is_resumable
        super().__init__(message, fix={"resume": True} if is_resumable else None)

    def __reduce__(self) -> tuple[type, tuple[str, bool]]:
        return type(self), (self.message, self.is_resumable)


class TrainingInterrupted(ArbormaxError):  # noqa: N818 - not a failure
    """Training was interrupted and saved its state in `folder`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        super().__init__(f"interrupted; the state is saved in {folder}", fix={"resume": True})

    def __reduce__(self) -> tuple[type, tuple[str]]:  # errors of worker processes are pickled
        return type(self), (self.folder,)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Suppress Lightning's log lines and the warnings below."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        try:
            silence_lightning()
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def silence_lightning() -> None:
    """The same for the rest of this process."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=r".*LeafSpec.* is deprecated")
    # the value is the same on all devices
    warnings.filterwarnings("ignore", message=r"It is recommended to use `self.log\(.*sync_dist=True")
    # a resumed run adds to its logs
    warnings.filterwarnings("ignore", message="Experiment logs directory .* exists and is not empty")
