"""The errors of a training."""

from __future__ import annotations

from arbormax.errors import ArbormaxError


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
