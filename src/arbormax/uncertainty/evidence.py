"""The precision of the prior that maximises the marginal likelihood of Laplace's method.

With the eigenvalues λ of the Hessian at weights w, and a prior with the precision δ, the logarithm of the marginal
likelihood is log p(data | w) - δ |w|² / 2 - Σ log(1 + λ / δ) / 2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOWEST, HIGHEST = 1e-6, 1e8  # of a precision
_STEPS = 100


def best_precision(eigenvalues: Tensor, squares: float) -> float:
    """The precision δ at which Σ λ / (λ + δ), the number of determined weights, equals δ |w|².

    The derivative of the marginal likelihood is zero there. The left side falls with δ and the right side rises, so
    that there is one such precision, which bisection finds. `squares` is |w|².

    >>> round(best_precision(torch.tensor([1e9, 1e9]), 8.0), 3)  # two determined weights with a mean square of 4
    0.25
    """
    low, high = math.log(LOWEST), math.log(HIGHEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        precision = math.exp(middle)
        determined = float((eigenvalues / (eigenvalues + precision)).sum())
        low, high = (middle, high) if determined > precision * squares else (low, middle)
    return math.exp((low + high) / 2)


def log_evidence(log_likelihood: float, eigenvalues: Tensor, squares: float, precision: float) -> float:
    """The logarithm of the marginal likelihood."""
    volume = float(torch.log1p(eigenvalues / precision).sum())
    return log_likelihood - (precision * squares + volume) / 2
