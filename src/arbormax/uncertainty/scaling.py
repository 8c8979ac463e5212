"""The registered calibrations: temperatures of sibling groups, fitted with L-BFGS.

In each sibling group, log P(node | parent) becomes the log-softmax of `scale * log P(node | parent) + shift`. What is
minimised is the negative log-likelihood of the labels plus penalties on the squared differences of each log-temperature
to that of the larger group it belongs to: a parent's to its level's, a level's to the tree's, and the tree's to 0,
which is no change. So a group with few items keeps the temperature of its level, and data that say little change
little. The penalties are those of normal priors with the standard deviations below. Of a model with uncertainty, every
draw of the network is scaled, and the likelihood is that of the mean over the scaled draws, which is the prediction.

M = N - 1 nodes below the root, S steps, Z cells, K levels, D draws, I items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from arbormax.model.calibration import Scaling
from arbormax.taxonomy import Taxonomy
from arbormax.uncertainty.steps import Steps

TREE, LEVEL, PARENT, NODE, SHIFT = 0.3, 0.2, 0.1, 0.1, 0.1  # standard deviations of the priors
_ITERATIONS = 200


def fit_temperature(steps: Steps, tax: Taxonomy) -> Scaling:
    """One temperature for all sibling groups."""
    return _fit(steps, tax, levels=False, parents=False, nodes=False)


def fit_levels(steps: Steps, tax: Taxonomy) -> Scaling:
    """One temperature for each level of the tree."""
    return _fit(steps, tax, levels=True, parents=False, nodes=False)


def fit_parents(steps: Steps, tax: Taxonomy) -> Scaling:
    """One temperature for each parent, which is close to that of its level unless many items speak against it."""
    return _fit(steps, tax, levels=True, parents=True, nodes=False)


def fit_vector(steps: Steps, tax: Taxonomy) -> Scaling:
    """A factor and a shift for each node, close to the factor of its parent and to no shift."""
    return _fit(steps, tax, levels=True, parents=True, nodes=True)


def _fit(steps: Steps, tax: Taxonomy, *, levels: bool, parents: bool, nodes: bool) -> Scaling:
    parent_M = torch.from_numpy(np.maximum(tax.parent[1:], 0))
    level_M = torch.from_numpy(tax.node_depth[1:] - 1)
    tree = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    level_K = torch.zeros(tax.depth, dtype=torch.float64, requires_grad=levels)
    group_N = torch.zeros(tax.num_nodes, dtype=torch.float64, requires_grad=parents)
    node_M = torch.zeros(tax.num_nodes - 1, dtype=torch.float64, requires_grad=nodes)
    shift_M = torch.zeros(tax.num_nodes - 1, dtype=torch.float64, requires_grad=nodes)
    likelihood = _Likelihood(steps)

    def log_scale() -> Tensor:
        return -(tree + level_K[level_M] + group_N[parent_M] + node_M)

    def objective() -> Tensor:
        loss = likelihood(log_scale().exp(), shift_M)
        priors = ((tree, TREE), (level_K, LEVEL), (group_N, PARENT), (node_M, NODE), (shift_M, SHIFT))
        for values, deviation in priors:
            loss = loss + (values * values).sum() / (2 * deviation**2)
        return loss / max(steps.items, 1)

    minimise(objective, [each for each in (tree, level_K, group_N, node_M, shift_M) if each.requires_grad])
    with torch.no_grad():
        return Scaling(log_scale().exp().numpy(), shift_M.detach().numpy().copy())


class _Likelihood:
    """The negative log-likelihood of the labels, as a function of scales and shifts."""

    def __init__(self, steps: Steps) -> None:
        self.column = torch.from_numpy(steps.node - 1)
        self.logp_DZ = torch.from_numpy(steps.logp)
        self.step = torch.from_numpy(steps.step)
        self.target = torch.from_numpy(steps.target)
        self.item, self.items = torch.from_numpy(steps.item), steps.items

    def __call__(self, scale_M: Tensor, shift_M: Tensor) -> Tensor:
        loss_DS = self.step_losses(scale_M, shift_M)
        loss_DI = loss_DS.new_zeros(len(loss_DS), self.items).index_add(1, self.item, loss_DS)
        return (math.log(len(loss_DI)) - (-loss_DI).logsumexp(0)).sum()

    def step_losses(self, scale_M: Tensor, shift_M: Tensor) -> Tensor:
        """(D, S) the negative log-probability of the right child of each step."""
        logit_DZ = scale_M[self.column] * self.logp_DZ + shift_M[self.column]
        return _log_sums(logit_DZ, self.step, len(self.target)) - logit_DZ[:, self.target]


def step_losses(steps: Steps, scaling: Scaling) -> np.ndarray:
    """(S,) the negative log-probability of the right child of each step after scaling, for one draw."""
    values = torch.from_numpy(scaling.scale), torch.from_numpy(scaling.shift)
    losses: np.ndarray = _Likelihood(steps).step_losses(*values)[0].numpy()
    return losses


def _log_sums(logit_DZ: Tensor, step_Z: Tensor, steps: int) -> Tensor:
    """(D, S) the logarithm of the sum of exponentials of each step."""
    draws = len(logit_DZ)
    most_DS = torch.full((draws, steps), -torch.inf, dtype=logit_DZ.dtype)
    most_DS = most_DS.scatter_reduce(1, step_Z.expand(draws, -1), logit_DZ.detach(), "amax")
    sums_DS = torch.zeros_like(most_DS).index_add(1, step_Z, (logit_DZ - most_DS[:, step_Z]).exp())
    return sums_DS.log() + most_DS


def minimise(objective: Callable[[], Tensor], parameters: Sequence[Tensor]) -> None:
    """Minimise a smooth function of the parameters with L-BFGS, in place."""
    solver = torch.optim.LBFGS(
        parameters, max_iter=_ITERATIONS, tolerance_grad=1e-7, tolerance_change=1e-10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        solver.zero_grad()
        loss = objective()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.inference_mode(False), torch.enable_grad():
        solver.step(closure)  # type: ignore[no-untyped-call]
