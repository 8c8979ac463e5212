"""What a GPU offers to Triton."""

from __future__ import annotations

import os
import shutil
from functools import cache
from importlib.util import find_spec

import torch

HAS_TRITON = find_spec("triton") is not None


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
