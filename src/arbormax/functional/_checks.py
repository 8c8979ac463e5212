"""What a loss is given, checked: at once in eager CPU code, by an asynchronous assert in compiled and GPU code."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from arbormax.errors import InputError, OptionError, did_you_mean
from arbormax.taxonomy import Taxonomy

Reduction = Literal["none", "mean", "sum"]
TargetKind = Literal["class", "node"]


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        listed = ", ".join(map(repr, known))
        raise OptionError(f"{name} is one of {listed}, not {value!r}{did_you_mean(str(value), known)}")


def check_width(tensor: Tensor, width: int, what: str) -> None:
    """The last dimension must be `width`, and the values floating-point numbers."""
    if tensor.dim() == 0 or tensor.shape[-1] != width:
        raise InputError(f"expected {what}, so a last dimension of {width}, found the shape {tuple(tensor.shape)}")
    if not tensor.is_floating_point():
        raise InputError(f"expected floating-point values, found {tensor.dtype}")


def _reads_values(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def _assert_later(condition: Tensor, message: str) -> None:
    """Fail on the device, without waiting for it."""
    if condition.device.type != "meta":
        torch._assert_async(condition, message)  # noqa: SLF001  # torch offers it under no other name


def check_target(
    target: Tensor, batch: torch.Size, tax: Taxonomy, kind: TargetKind, ignore_index: int
) -> tuple[Tensor, Tensor | None]:
    """The target as one row with its ignored items put to 0, and which items count (None: all of them)."""
    if not isinstance(target, Tensor):
        raise InputError(f"the target is a tensor of {kind} ids, not {type(target).__name__}")
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise InputError(f"the target holds {kind} ids, whole numbers, not {target.dtype}")
    if target.shape != batch:
        raise InputError(
            f"the target has the shape {tuple(target.shape)}, but the input's leading dimensions are {tuple(batch)}"
        )
    limit = tax.num_leaves if kind == "class" else tax.num_nodes
    row = target.reshape(-1).long()
    if _reads_values(row):
        if row.numel() == 0:
            return row, None
        low, high = torch.stack(torch.aminmax(row)).tolist()
        if low >= 0 and high < limit and not low <= ignore_index <= high:
            return row, None
        counted = row != ignore_index
        row = row.masked_fill(~counted, 0)
        wrong = (row < 0) | (row >= limit)
        if wrong.any():
            at = int(wrong.nonzero()[0, 0])
            raise InputError(
                f"target {int(row[at])} at position {at} is no {kind} id: they run from 0 to {limit - 1} "
                f"(ignore_index={ignore_index})"
            )
        return row, counted
    counted = row != ignore_index
    row = row.masked_fill(~counted, 0)
    _assert_later(((row >= 0) & (row < limit)).all(), f"a target is no {kind} id below {limit}")
    # A wrong target must not reach memory it does not own before the assert is seen.
    return row.clamp(0, limit - 1), counted


def check_weights(
    weights: Tensor | None, length: int, name: str, device: torch.device, dtype: torch.dtype
) -> Tensor | None:
    """A vector of finite weights, none negative, on a device and in a precision."""
    if weights is None:
        return None
    if not isinstance(weights, Tensor):
        weights = torch.as_tensor(weights)
    if weights.shape != (length,):
        raise InputError(f"{name} has one value for each of {length}, found the shape {tuple(weights.shape)}")
    weights = weights.to(device=device, dtype=dtype)
    fine = torch.isfinite(weights) & (weights >= 0)
    if _reads_values(weights):
        if not bool(fine.all()):
            at = int((~fine).nonzero()[0, 0])
            raise InputError(f"{name}[{at}] is {float(weights[at])}: a weight is a finite number of at least 0")
    else:
        _assert_later(fine.all(), f"{name} holds a value that is negative or not finite")
    return weights
