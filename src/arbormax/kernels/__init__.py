"""Kernels for large trees: they read and write the rows on the paths of a batch and no others.

An implementation is a module with `log_probs` and `gradients`; `path_torch` is the reference of the others.
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
from arbormax.kernels.path_tree import PathTree

Impl = Literal["auto", "torch", "triton"]
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_LEVELS, _WIDTH = 32, 4096  # deeper trees and wider sibling groups are left to torch


def choose(impl: Impl, h: Tensor, rows: Tensor, tree: PathTree) -> str:
    """The implementation for these tensors, `torch` or `triton`; raises where the one asked for cannot work."""
    if impl not in get_args(Impl):
        raise OptionError(f"impl is one of 'auto', 'torch', 'triton', not {impl!r}")
    if impl == "torch" or (impl == "auto" and h.device.type != "cuda"):
        return "torch"
    if not HAS_TRITON:
        if impl == "auto":
            return "torch"
        raise MissingDependencyError("impl='triton'", "triton")
    why = _why_not_triton(h, rows, tree)
    if why is not None and impl == "triton":
        raise OptionError(why)
    return "triton" if why is None else "torch"


def _why_not_triton(h: Tensor, rows: Tensor, tree: PathTree) -> str | None:
    if h.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"impl='triton' needs tensors on a GPU, found {h.device}"
    if h.device.type == "cuda" and not shared_memory(h.device.index or 0):
        return "impl='triton' needs a C compiler, and a GPU of NVIDIA's of compute capability 8 or more"
    if h.dtype not in _DTYPES or rows.dtype not in _DTYPES:
        return f"impl='triton' computes in float32, bfloat16 or float16, found {h.dtype} and {rows.dtype}"
    if len(tree.widths) > _LEVELS or max(tree.widths) > _WIDTH:
        return f"impl='triton' takes trees of up to {_LEVELS} levels and {_WIDTH:,} siblings"
    return None


def descends(h: Tensor, rows: Tensor, widest: int, levels: int, k: int) -> ModuleType | None:
    """The module that finds the best leaves by descent, where it can."""
    is_there = h.device.type == "cuda" and HAS_TRITON and shared_memory(h.device.index or 0)
    is_read = h.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1" and HAS_TRITON
    if not (is_there or is_read) or h.dtype not in _DTYPES or rows.dtype not in _DTYPES:
        return None
    module = import_module("arbormax.kernels.best_triton")
    is_fit = widest <= module.WIDEST and levels <= module.DEEPEST and k <= module.MOST
    return module if is_fit else None


def implementation(name: str) -> ModuleType:
    """The module behind a name that `choose` gave."""
    return path_torch if name == "torch" else import_module("arbormax.kernels.path_triton")
