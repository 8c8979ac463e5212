"""Checks of tensors. Values are read in eager CPU code; compiled and GPU code asserts on the device without waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from arbormax.errors import InputError, OptionError

Reduction = Literal["none", "mean", "sum"]
TargetKind = Literal["class", "node"]
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_width(tensor: Tensor, width: int, meaning: str) -> None:
    """Raise unless the last dimension is `width` and the values are floating-point numbers."""
    if not isinstance(tensor, Tensor):
        raise InputError(f"expected a tensor, found {type(tensor).__name__}")
    if tensor.dim() == 0 or tensor.shape[-1] != width:
        raise InputError(f"expected a last dimension of {width}, {meaning}, found the shape {tuple(tensor.shape)}")
    if not tensor.is_floating_point():
        raise InputError(f"expected floating-point values, found {tensor.dtype}")


def find_non_finite(features: Tensor) -> Tensor | None:
    """Raise if the features contain NaN or an infinite value, where values can be read without waiting.

    Returns:
        Elsewhere, in compiled code and on a GPU, which of the (...,) items contain one.
    """
    values = features if features.layout == torch.strided else _sparse_values(features)
    if values is features and (not _can_read(features) or is_transformed()):
        return ~features.isfinite().all(-1)
    finite = values.isfinite()
    if bool(finite.all()):
        return None
    place = int((~finite).nonzero()[0, 0])
    where = f" in item {place}" if values is features and features.dim() > 1 else ""
    raise InputError(f"the features contain a value that is not finite{where}; a prediction needs finite features")


def mark_items(values: Tensor, items: Tensor | None, mark: float) -> Tensor:
    """Set (..., *) values of the given (...,) items, if there are any, to the mark."""
    if items is None:
        return values
    return values.masked_fill(items.view(items.shape + (1,) * (values.dim() - items.dim())), mark)


def _sparse_values(features: Tensor) -> Tensor:
    return features.coalesce().values() if features.layout == torch.sparse_coo else features.values()


def is_transformed() -> bool:
    """Whether eager code runs inside a transform of torch.func, where values cannot be read."""
    # torch has no public function for this
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()  # noqa: SLF001


def check_target(target: Tensor, batch: torch.Size, kind: TargetKind) -> Tensor:
    """Return the target as one row of int64, without a look at its values."""
    if not isinstance(target, Tensor):
        raise InputError(f"expected a tensor of {kind} ids as target, found {type(target).__name__}")
    if target.dtype not in _INTEGERS:
        raise InputError(f"expected {kind} ids, integers, as target, found {target.dtype}")
    if target.shape != batch:
        raise InputError(
            f"the target has the shape {tuple(target.shape)}, but the leading dimensions of the input are "
            f"{tuple(batch)}"
        )
    return target.reshape(-1).long()


def check_ids(row: Tensor, limit: int, kind: TargetKind, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Check that every id that is not ignored lies below the limit.

    Returns:
        The ids with a valid id in the place of ignored ones, and which items are ignored.
    """
    ignored = row == ignore_index
    if is_transformed():  # an invalid id fails in the look-up that follows
        return row.masked_fill(ignored, 0), ignored
    if not _can_read(row):
        # Clamped, because an invalid id must not read foreign memory before the assertion is seen.
        valid = row.clamp(0, limit - 1)
        _assert_on_device(((valid == row) | ignored).all(), f"a target is not a {kind} id below {limit}")
        return valid, ignored
    row = row.masked_fill(ignored, 0)
    invalid = (row < 0) | (row >= limit)
    if invalid.any():
        place = int(invalid.nonzero()[0, 0])
        raise InputError(
            f"target {int(row[place])} at position {place} is not a {kind} id: expected 0 to {limit - 1} "
            f"(ignore_index={ignore_index})"
        )
    return row, ignored


def check_weights(weights: Tensor, length: int, name: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a vector of finite weights of at least 0 on a device and in a precision."""
    weights = torch.as_tensor(weights)
    if weights.shape != (length,):
        what = "classes" if name == "weight" else "nodes"
        message = f"expected one value for each of {length} {what}, found the shape {tuple(weights.shape)}"
        raise InputError(message, argument=name)
    weights = weights.to(device=device, dtype=dtype)
    valid = torch.isfinite(weights) & (weights >= 0)
    if _can_read(weights):
        if not bool(valid.all()):
            place = int((~valid).nonzero()[0, 0])
            message = f"expected finite weights of at least 0, found {float(weights[place])} at position {place}"
            raise InputError(message, argument=name)
    else:
        _assert_on_device(valid.all(), f"{name} contains a value that is negative or not finite")
    return weights


def check_path_weight(path_weight: float | Sequence[float], depth: int) -> tuple[float, tuple[float, ...]]:
    """Return the share of the loss that falls on ancestors, and the weight of each level that has inner nodes."""
    is_single = isinstance(path_weight, (int, float))
    try:
        shares = (float(path_weight),) if is_single else tuple(map(float, path_weight))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        message = f"expected a number from 0 to 1 or a list of numbers, found {path_weight!r}"
        raise OptionError(message, argument="path_weight") from None
    if not is_single and len(shares) != depth - 1:
        message = f"expected one share for each of {depth - 1} levels with inner nodes, found {len(shares)}"
        raise OptionError(message, argument="path_weight")
    total = sum(shares)
    if not all(share >= 0 for share in shares) or not total <= 1 + 1e-6:
        kind = "a number from 0 to 1" if is_single else "shares of at least 0 whose sum is at most 1"
        raise OptionError(f"expected {kind}, found {path_weight!r}", argument="path_weight")
    return min(total, 1.0), (1.0,) * (depth - 1) if is_single else shares


def _can_read(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def _assert_on_device(condition: Tensor, message: str) -> None:
    if condition.device.type != "meta":
        torch._assert_async(condition, message)  # noqa: SLF001  # torch has no public name for it
