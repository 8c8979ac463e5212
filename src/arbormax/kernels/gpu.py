"""What a GPU offers to Triton."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cache, wraps
from importlib.util import find_spec
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
_P = ParamSpec("_P")
_R = TypeVar("_R")


@cache
def _read_shared_memory(index: int) -> int:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if torch.version.cuda is None or not HAS_TRITON or compiler is None:
        return 0
    properties = torch.cuda.get_device_properties(index)
    return int(getattr(properties, "shared_memory_per_block_optin", 0)) if properties.major >= 8 else 0


def shared_memory(index: int) -> int:
    """Return the shared memory of a program on this GPU in bytes; 0 if Triton cannot build kernels for it."""
    return _read_shared_memory(index)


# What torch.compiler.assume_constant_result does, without loading the compiler when arbormax is imported.
shared_memory._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001


def on_device_of_first(function: Callable[Concatenate[Tensor, _P], _R]) -> Callable[Concatenate[Tensor, _P], _R]:
    """Return the function, launched on the GPU of its first argument, whichever GPU is the current one."""

    @wraps(function)
    def launch(first: Tensor, /, *rest: _P.args, **named: _P.kwargs) -> _R:
        with torch.cuda.device_of(first):  # type: ignore[no-untyped-call]
            return function(first, *rest, **named)

    return launch


def allows_tf32() -> bool:
    """Whether float32 products may round their factors to TF32."""
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):  # from torch 2.9 on; reading allow_tf32 may raise there
        return bool(matmul.fp32_precision == "tf32")
    return bool(matmul.allow_tf32)


# Triton's functions of these names may run in kernels, too, which makes them slow on the host.
def ceil_div(number: int, divisor: int) -> int:
    """Return the quotient, rounded up."""
    return -(-number // divisor)


def next_power_of_2(number: int) -> int:
    """Return the smallest power of 2 that is not smaller.

    >>> next_power_of_2(1), next_power_of_2(16), next_power_of_2(17)
    (1, 16, 32)
    """
    return 1 << (number - 1).bit_length() if number > 1 else 1
