"""The random states of a process, saved in a checkpoint so that a resumed run draws the same numbers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


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
