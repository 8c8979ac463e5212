"""Decoders: functions from node log-probabilities (..., N) and a taxonomy to node ids.

A decoder returns one node of each item, (...,), or several, (..., k), the best first. It is called as
`decoder(logp, tax, **options)`; its options are its keyword parameters. A new decoder is one function and one line
here; afterwards it is also an attribute of this module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from arbormax._registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from arbormax.decode._beam import beam
    from arbormax.decode._climb import climb
    from arbormax.decode._greedy import greedy
    from arbormax.decode._leaf import leaf
    from arbormax.decode._optimal import optimal
    from arbormax.decode._risk import cost_matrix
    from arbormax.decode._threshold import threshold
    from arbormax.decode._within import Restriction, within, without

    NAMES: tuple[str, ...]

__all__ = [
    "DECODERS",
    "NAMES",
    "Restriction",
    "beam",
    "climb",
    "cost_matrix",
    "greedy",
    "leaf",
    "optimal",
    "threshold",
    "within",
    "without",
]

DECODERS: Registry[Callable[..., Tensor]] = Registry("decoder")
DECODERS.add("leaf", "arbormax.decode._leaf:leaf", "the most probable leaf")
DECODERS.add("greedy", "arbormax.decode._greedy:greedy", "the best child at every step, down to a leaf")
DECODERS.add("threshold", "arbormax.decode._threshold:threshold", "the deepest node with a probability above tau")
DECODERS.add("climb", "arbormax.decode._climb:climb", "the lowest node above tau on the path of the best leaf")
DECODERS.add("optimal", "arbormax.decode._optimal:optimal", "the best node for a metric, such as hf or tree_distance")
DECODERS.add("beam", "arbormax.decode._beam:beam", "the k most probable leaves, the best first")


def option_names(function: Callable[..., Tensor]) -> tuple[str, ...]:
    """The options of a decoder or of a metric of `optimal`: its parameters after the log-probabilities and the tree."""
    return tuple(inspect.signature(function).parameters)[2:]


def option_hint(name: str, registry: Registry[Callable[..., Tensor]] = DECODERS) -> str:
    """`"; it is an option of the decoder 'optimal'"`, or an empty string if no entry has an option of this name."""
    found = [repr(entry) for entry in registry if name in option_names(registry[entry])]
    return f"; it is an option of the {registry.kind} {' or '.join(found)}" if found else ""


def option_choices(name: str) -> dict[str, tuple[str, ...]]:
    """The values of an option that is a name, such as `metric`, with the further options that each of them takes."""
    registry = import_module("arbormax.decode._optimal").METRICS
    return {value: option_names(registry[value]) for value in registry} if name == registry.kind else {}


_PLACES = dict.fromkeys(("Restriction", "within", "without"), "_within") | {"cost_matrix": "_risk"}


def __getattr__(name: str) -> Any:
    if name == "NAMES":
        return DECODERS.names
    if name in _PLACES:
        return getattr(import_module(f"arbormax.decode.{_PLACES[name]}"), name)
    if name in DECODERS:
        return DECODERS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "NAMES", *_PLACES, *DECODERS.names})
