"""Lightning's log lines and warnings about choices that are made here."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("pytorch_lightning", "lightning_fabric", "lightning.pytorch")


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
