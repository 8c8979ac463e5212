"""The check that the values of a model are numbers: one NaN makes every prediction meaningless without an error."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from arbormax.errors import InputError


def check_finite(values: Mapping[str, Tensor], remedy: str) -> None:
    """Raise if one of the tensors contains a value that is infinite or NaN."""
    for name, value in values.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            count = int((~value.isfinite()).sum())
            raise InputError(f"{name} has {count:,} of {value.numel():,} values that are not finite; {remedy}")
