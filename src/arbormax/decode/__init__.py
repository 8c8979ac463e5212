"""Decoders: functions from node log-probabilities (..., N) and a taxonomy to node ids (...,).

A decoder is called as `decoder(logp, tax, **options)`; its options are its keyword parameters. A new decoder is one
function and one line here; afterwards it is also an attribute of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from arbormax._registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from arbormax.decode._climb import climb
    from arbormax.decode._greedy import greedy
    from arbormax.decode._leaf import leaf
    from arbormax.decode._threshold import threshold

    NAMES: tuple[str, ...]

__all__ = ["DECODERS", "NAMES", "climb", "greedy", "leaf", "threshold"]

DECODERS: Registry[Callable[..., Tensor]] = Registry("decoder")
DECODERS.add("leaf", "arbormax.decode._leaf:leaf", "the most probable leaf")
DECODERS.add("greedy", "arbormax.decode._greedy:greedy", "the best child at every step, down to a leaf")
DECODERS.add("threshold", "arbormax.decode._threshold:threshold", "the deepest node with a probability above tau")
DECODERS.add("climb", "arbormax.decode._climb:climb", "the lowest node above tau on the path of the best leaf")


def __getattr__(name: str) -> Any:
    if name == "NAMES":
        return DECODERS.names
    if name in DECODERS:
        return DECODERS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "NAMES", *DECODERS.names})
