"""Kernels for large trees, which read and write only the rows on the paths of a batch.

An implementation is a module with `log_probs` and `gradients`; `path_torch` is the reference for the others.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import Literal, get_args

import torch
from torch import Tensor

from arbormax.errors import MissingDependencyError, OptionError
from arbormax.kernels import path_torch
from arbormax.kernels.gpu import HAS_TRITON, shared_memory
from arbormax.kernels.path_tree import PathTree, SearchTree

Impl = Literal["auto", "torch", "triton"]
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_LEVELS, _WIDTH = 32, 4096  # deeper trees and wider sibling groups are left to torch


def choose(impl: Impl, h: Tensor, rows: Tensor, tree: PathTree) -> str:
    """Return the implementation for these tensors, or raise if the requested one cannot run."""
    if impl not in get_args(Impl):
        raise OptionError(f"expected 'auto', 'torch' or 'triton', found {impl!r}", argument="impl")
    if impl == "torch" or (impl == "auto" and h.device.type != "cuda"):
        return "torch"
    if not HAS_TRITON:
        if impl == "auto":
            return "torch"
        raise MissingDependencyError("impl='triton'", "triton")
    obstacle = _triton_obstacle(h, rows)
    is_large = len(tree.widths) > _LEVELS or max(tree.widths) > _WIDTH  # a compiler cannot trace a tuple's properties
    if obstacle is None and is_large:
        obstacle = f"'triton' supports trees of up to {_LEVELS} levels and {_WIDTH:,} siblings"
    if obstacle is not None and impl == "triton":
        raise OptionError(obstacle, argument="impl")
    return "triton" if obstacle is None else "torch"


def _triton_obstacle(h: Tensor, rows: Tensor) -> str | None:
    if h.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"'triton' needs tensors on a GPU, found {h.device}"
    if h.device.type == "cuda" and not shared_memory(h.device.index or 0):
        return "'triton' needs a C compiler and an NVIDIA GPU of compute capability 8 or more"
    if h.dtype not in _DTYPES or rows.dtype not in _DTYPES:
        return f"'triton' computes in float32, bfloat16 or float16, found {h.dtype} and {rows.dtype}"
    return None


def search_kernel(h: Tensor, rows: Tensor, tree: SearchTree, k: int) -> ModuleType | None:
    """Return the module that searches for the best leaves on these tensors, or None if torch must."""
    if not HAS_TRITON or _triton_obstacle(h, rows) is not None:
        return None
    module = import_module("arbormax.kernels.search_triton")
    is_supported = (
        tree.max_children <= module.MAX_CHILDREN and tree.levels <= module.MAX_LEVELS and k <= module.MAX_RESULTS
    )
    return module if is_supported else None


def implementation(name: str) -> ModuleType:
    """Return the module of an implementation that `choose` has named."""
    return path_torch if name == "torch" else import_module("arbormax.kernels.path_triton")
