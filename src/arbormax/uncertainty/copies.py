"""Copies of a model that share what does not change."""

from __future__ import annotations

import copy
from collections.abc import Container
from typing import Any

from arbormax.model.network import Model


def copy_model(model: Model, own: Container[str] | None = None) -> Model:
    """A copy without a posterior, with weights of its own for the parameters named in `own`, by default for all.

    The other weights, the vocabulary and the taxonomy are shared.
    """
    memo: dict[int, Any] = {}
    for module in model.modules():  # attributes whose names begin with _ are torch's
        memo |= {id(value): value for name, value in vars(module).items() if not name.startswith("_")}
    if own is not None:
        memo |= {id(value): value for name, value in model.named_parameters() if name not in own}
        memo |= {id(value): value for _, value in model.named_buffers()}
    copied = copy.deepcopy(model, memo)
    copied.posterior = None
    return copied
