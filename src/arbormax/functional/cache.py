"""Tensors that are built once for a taxonomy and a device."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from arbormax.taxonomy import Taxonomy

T = TypeVar("T")

# Before torch 2.13 a compiler cannot treat a taxonomy as a constant. There it traces the look-up, which finds what a
# head has built.
_IS_CONSTANT = [int(part) for part in torch.__version__.split(".")[:2]] >= [2, 13]


def cached_per_device(build: Callable[[Taxonomy, torch.device], T]) -> Callable[[Taxonomy, torch.device], T]:
    """Return a function that builds its result at the first call and stores it on the taxonomy."""

    @wraps(build)
    def lookup(tax: Taxonomy, device: torch.device) -> T:
        key = build.__name__, device
        found: T | None = tax.scratch.get(key)
        if found is None:
            # A first call while a graph is captured, or in inference mode, must still build ordinary tensors; torch
            # has no public name for leaving the modes of a capture.
            with _disable_current_modes(), torch.inference_mode(False):
                found = tax.scratch[key] = build(tax, device)
        return found

    # What torch.compiler.assume_constant_result does, without loading the compiler when arbormax is imported.
    lookup._dynamo_marked_constant = _IS_CONSTANT  # type: ignore[attr-defined]  # noqa: SLF001
    return lookup


def mark_static(tensor: Tensor) -> Tensor:
    """Mark all dimensions of a tensor as fixed, also if the compiler treats other shapes as dynamic."""
    # What torch._dynamo.mark_static does, without loading the compiler.
    tensor._dynamo_static_indices = set(range(tensor.dim()))  # type: ignore[attr-defined]  # noqa: SLF001
    return tensor
