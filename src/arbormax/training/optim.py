"""Optimisers for networks of which some parameters get gradients on a few rows only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from arbormax.errors import OptionError


class Together(Optimizer):
    """Several optimisers that step as one, so that dense and row-sparse parameters can train side by side.

    >>> dense, rows = nn.Linear(2, 2), nn.Embedding(9, 2, sparse=True)
    >>> optimiser = Together(torch.optim.Adam(dense.parameters()), torch.optim.SparseAdam(list(rows.parameters())))
    >>> dense(rows(torch.tensor([3]))).sum().backward()
    >>> optimiser.step()
    """

    def __init__(self, *optimisers: Optimizer) -> None:
        self.optimisers = optimisers
        super().__init__([group for part in optimisers for group in part.param_groups], {})
        # The same dicts, not copies: a schedule that sets a rate here sets it there.
        self.param_groups = [group for part in optimisers for group in part.param_groups]

    @property  # type: ignore[override]
    def state(self) -> dict[Any, Any]:
        return {key: value for part in self.optimisers for key, value in part.state.items()}

    @state.setter
    def state(self, value: Any) -> None:
        """Set by the parent's constructor; each part keeps its own."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.optimisers:
            part.step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.optimisers:
            part.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part in self.optimisers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for part, state in zip(self.optimisers, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self.optimisers for group in part.param_groups]


def clip_gradients(parameters: Tensor | Iterable[Tensor], largest: float) -> Tensor:
    """The norm of all gradients together, dense and sparse, which are scaled down where it exceeds `largest`."""
    if not largest >= 0:
        raise OptionError(f"the largest norm is a number from 0, not {largest!r}")
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    grads = []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()  # rows that occur twice count once, with their sum
            grads.append(parameter.grad._values())  # noqa: SLF001 - `values()` copies under autograd
        else:
            grads.append(parameter.grad)
    norm = nn.utils.get_total_norm(grads)
    if grads:
        torch._foreach_mul_(grads, (largest / (norm + 1e-6)).clamp(max=1.0))
    return norm
