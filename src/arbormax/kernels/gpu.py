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
def _shared_memory(index: int) -> int:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if torch.version.cuda is None or not HAS_TRITON or compiler is None:
        return 0
    properties = torch.cuda.get_device_properties(index)
    return int(getattr(properties, "shared_memory_per_block_optin", 0)) if properties.major >= 8 else 0


def shared_memory(index: int) -> int:
    """Bytes that a program may share on this GPU; 0 where Triton cannot build kernels, as without a C compiler."""
    return _shared_memory(index)


shared_memory._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001


def on_its_device(function: Callable[Concatenate[Tensor, _P], _R]) -> Callable[Concatenate[Tensor, _P], _R]:
    """The same, launched where its first tensor is, whichever GPU is the current one."""

    @wraps(function)
    def launched(first: Tensor, /, *rest: _P.args, **named: _P.kwargs) -> _R:
        with torch.cuda.device_of(first):  # type: ignore[no-untyped-call]
            return function(first, *rest, **named)

    return launched


def allows_tf32() -> bool:
    """Whether float32 products may round their factors."""
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # set through torch's newer names
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")
