"""Rows of SVMs that are drawn towards given rows, where those of liblinear are drawn towards zero.

n examples, U features, P outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from arbormax.errors import import_extra

_TOLERANCE = 1e-3  # of the gradient, relative to that at the given rows
_MAX_ITERATIONS = 200


def fit_towards(
    rows: Any, is_own: np.ndarray, weights: np.ndarray | None, strength: float, prior: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The (P, U) weights and the (P,) biases of one SVM with a squared hinge loss for each output.

    The weight w and the bias b of an output minimise ½‖w − w₀‖² + ½b² + C Σ s max(0, 1 − y (w·x + b))², where w₀ is
    its row of `prior` (P, U), y is 1 for its own examples (`is_own`, (n, P)) and −1 for the others, s is their weight,
    and C is the strength. `rows` (n, U) are a dense array or a CSR matrix.
    """
    costs = np.full(rows.shape[0], strength, np.float32) if weights is None else strength * weights.astype(np.float32)
    found = [_fit(rows, own, costs, start) for own, start in zip(is_own.T, prior.astype(np.float32), strict=True)]
    weight, bias = zip(*found, strict=True)
    return np.stack(weight), np.array(bias, np.float32)


def _fit(rows: Any, is_own: np.ndarray, costs: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, float]:
    optimize = import_extra("scipy.optimize", "a convex solver", "scipy", "sklearn")
    signs = np.where(is_own, np.float32(1), np.float32(-1))
    offsets = rows @ prior  # the scores of the prior; what is solved for is the change of its row, with the bias last

    def cost(change: np.ndarray) -> tuple[float, np.ndarray]:
        change = change.astype(np.float32)
        gaps = np.maximum(1 - signs * (rows @ change[:-1] + change[-1] + offsets), 0)
        pull = -2 * costs * signs * gaps
        gradient = np.append(rows.T @ pull, pull.sum()) + change
        total = 0.5 * np.square(change, dtype=np.float64).sum() + (costs * np.square(gaps, dtype=np.float64)).sum()
        return float(total), gradient.astype(np.float64)

    zero = np.zeros(rows.shape[1] + 1)
    limit = _TOLERANCE * max(float(np.abs(cost(zero)[1]).max()), 1e-30)
    options = {"maxiter": _MAX_ITERATIONS, "gtol": limit, "ftol": 1e-7, "maxcor": 5}
    change = optimize.minimize(cost, zero, jac=True, method="L-BFGS-B", options=options).x.astype(np.float32)
    return prior + change[:-1], float(change[-1])
