"""What a loss is given, checked: at once in eager CPU code, by an asynchronous assert in compiled and GPU code."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from arbormax.errors import InputError, OptionError, did_you_mean

Reduction = Literal["none", "mean", "sum"]
TargetKind = Literal["class", "node"]
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        listed = ", ".join(map(repr, known))
        raise OptionError(f"{name} is one of {listed}, not {value!r}{did_you_mean(str(value), known)}")


def check_width(tensor: Tensor, width: int, what: str) -> None:
    """The last dimension must be `width`, and the values floating-point numbers."""
    if not isinstance(tensor, Tensor):
        raise InputError(f"expected a tensor, found {type(tensor).__name__}")
    if tensor.dim() == 0 or tensor.shape[-1] != width:
        raise InputError(f"expected {what}, so a last dimension of {width}, found the shape {tuple(tensor.shape)}")
    if not tensor.is_floating_point():
        raise InputError(f"expected floating-point values, found {tensor.dtype}")


def _reads_values(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def is_transformed() -> bool:
    """Whether torch.func is at work on eager code: batched values cannot be read, and not every operator is known."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()  # noqa: SLF001


def _assert_later(condition: Tensor, message: str) -> None:
    """Fail on the device, without waiting for it."""
    if condition.device.type != "meta":
        torch._assert_async(condition, message)  # noqa: SLF001  # torch offers it under no other name


def check_target(target: Tensor, batch: torch.Size, kind: TargetKind) -> Tensor:
    """The target as one row of whole numbers, its values still unread."""
    if not isinstance(target, Tensor):
        raise InputError(f"the target is a tensor of {kind} ids, not {type(target).__name__}")
    if target.dtype not in _WHOLE:
        raise InputError(f"the target holds {kind} ids, whole numbers, not {target.dtype}")
    if target.shape != batch:
        raise InputError(
            f"the target has the shape {tuple(target.shape)}, but the input's leading dimensions are {tuple(batch)}"
        )
    row = target if target.dim() == 1 else target.reshape(-1)
    return row if row.dtype == torch.int64 else row.long()


def may_look_up_unread(row: Tensor, limit: int, ignore_index: int) -> bool:
    """Whether a look-up by the row finds every target that does not fit, the ignored ones among them.

    On the CPU `index_select` refuses what is out of range, so that values need a look only when it does.
    """
    return _reads_values(row) and not 0 <= ignore_index < limit


def mask_target(row: Tensor, limit: int, kind: TargetKind, ignore_index: int) -> tuple[Tensor, Tensor]:
    """The row with a fitting id in the place of its ignored items, and which items count; any other must be an id."""
    counted = row != ignore_index
    if not _reads_values(row):
        # A wrong target must not reach memory it does not own before the assert is seen.
        fitting = row.clamp(0, limit - 1)
        _assert_later(((fitting == row) | ~counted).all(), f"a target is no {kind} id below {limit}")
        return fitting, counted
    row = row.masked_fill(~counted, 0)
    wrong = (row < 0) | (row >= limit)
    if wrong.any():
        at = int(wrong.nonzero()[0, 0])
        raise InputError(
            f"target {int(row[at])} at position {at} is no {kind} id: they run from 0 to {limit - 1} "
            f"(ignore_index={ignore_index})"
        )
    return row, counted


def check_weights(weights: Tensor, length: int, name: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A vector of finite weights, none negative, on a device and in a precision."""
    if not isinstance(weights, Tensor):
        weights = torch.as_tensor(weights)
    if weights.shape != (length,):
        what = "classes" if name == "weight" else "nodes"
        raise InputError(f"{name} has one value for each of {length} {what}, found the shape {tuple(weights.shape)}")
    weights = weights.to(device=device, dtype=dtype)
    fine = torch.isfinite(weights) & (weights >= 0)
    if _reads_values(weights):
        if not bool(fine.all()):
            at = int((~fine).nonzero()[0, 0])
            raise InputError(f"{name}[{at}] is {float(weights[at])}: a weight is a finite number of at least 0")
    else:
        _assert_later(fine.all(), f"{name} holds a value that is negative or not finite")
    return weights
