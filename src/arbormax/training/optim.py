"""Optimisation of networks with dense and row-sparse gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from arbormax.errors import OptionError
from arbormax.model.settings import TrainConfig


def rate_factor(step: float, total: float, schedule: str | None, warmup: float) -> float:
    """The factor of the learning rate at this of all steps."""
    rising = int(warmup * total)
    if step < rising:
        return (step + 1) / (rising + 1)
    return 1.0 if schedule == "constant" else max(0.0, (total - step) / max(total - rising, 1))


def refit_epochs(best: int, config: TrainConfig) -> int:
    """The number of epochs of a whole schedule that has the summed learning rate of the epochs up to the best one.

    >>> config = TrainConfig(epochs=10, schedule="linear")
    >>> [refit_epochs(best, config) for best in (1, 3, 6, 10)]
    [2, 5, 8, 10]
    """
    assert config.epochs is not None
    parts = 100  # of an epoch
    total = config.epochs * parts
    factors = [rate_factor(step, total, config.schedule, config.warmup or 0.0) for step in range(total)]
    return max(1, round(config.epochs * sum(factors[: best * parts]) / sum(factors)))


class JointOptimizer(Optimizer):
    """Several optimisers that step as one, for networks with dense and row-sparse parameters.

    >>> dense, rows = nn.Linear(2, 2), nn.Embedding(9, 2, sparse=True)
    >>> sparse = torch.optim.SparseAdam(list(rows.parameters()))
    >>> optimiser = JointOptimizer(torch.optim.Adam(dense.parameters()), sparse)
    >>> dense(rows(torch.tensor([3]))).sum().backward()
    >>> optimiser.step()
    """

    def __init__(self, *optimisers: Optimizer) -> None:
        self.optimisers = optimisers
        super().__init__([group for part in optimisers for group in part.param_groups], {})
        # The same dicts, not copies: a schedule that sets a rate here sets it in the part.
        self.param_groups = [group for part in optimisers for group in part.param_groups]

    @property  # type: ignore[override]
    def state(self) -> dict[Any, Any]:
        return {key: value for part in self.optimisers for key, value in part.state.items()}

    @state.setter
    def state(self, value: Any) -> None:
        """Called by the constructor of `Optimizer`; each part has its own state."""

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


@torch.no_grad()
def clip_gradients(parameters: Tensor | Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale the gradients, dense and sparse, to a total norm of at most `max_norm`; returns the norm before."""
    if not max_norm >= 0:
        raise OptionError(f"expected a number of at least 0, found {max_norm!r}", argument="max_norm")
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    grads, dense, sparse_values = [], [], []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()  # the norm is that of the summed rows
            sparse_values.append(parameter.grad.values())
            grads.append(sparse_values[-1])
        else:
            dense.append(parameter)
            grads.append(parameter.grad)
    norm = nn.utils.get_total_norm(grads)
    nn.utils.clip_grads_with_norm_(dense, max_norm, norm)
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # as clip_grads_with_norm_ does
    for values in sparse_values:
        values.mul_(scale)
    return norm
