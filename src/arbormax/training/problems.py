"""The convex problems of a head with fixed features: one for each of its softmaxes, solved by scikit-learn.

A problem is small where the tree is deep: it has the examples and the features of one subtree only. n examples,
D features, U features that occur in a problem, K outputs of a problem, S scales.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from arbormax.errors import import_extra
from arbormax.heads.base import SoftmaxGroup
from arbormax.taxonomy import Taxonomy
from arbormax.training.priors import fit_towards

ConvexLoss = Literal["squared_hinge", "log"]

SCALES = np.geomspace(0.25, 64.0, 33)  # factors of the scores among which those of the softmaxes are chosen
_PULL = 4.0  # how strongly the scale of a softmax is drawn towards the common one, in units of the held-out loss
_MOST_TEXTS = 100  # of a softmax: with more, most of the time would be spent on similarities
_TEXT_FACTOR = 2.0  # of the similarities to texts, whose weights are regularised less the larger it is
_TOLERANCE = {"squared_hinge": 1e-2, "log": 1e-4}
_WARM_TOLERANCE = 3e-5  # the gradient at the solution of another strength is small already
_LARGE, _LONG = 2e7, 200  # values × outputs of a problem, and values of a row, from which late iterations gain nothing
_LONG_TOLERANCE = 0.3
_FACTOR = {"squared_hinge": 1.0, "log": 0.5}  # from scikit-learn's row for two outputs to those of the head
_MAX_ITERATIONS = {"squared_hinge": 1000, "log": 200}


@dataclass(frozen=True)
class Problem:
    """One softmax and the examples whose label is at or below one of its outputs."""

    group: SoftmaxGroup
    items: np.ndarray  # (n,) rows of the feature matrix
    targets: np.ndarray  # (n,) 0 to K - 1
    valid_items: np.ndarray  # rows of the held-out matrix
    valid_targets: np.ndarray


@dataclass(frozen=True)
class Solution:
    """Some rows of a head, and the held-out loss of their softmax with its scores multiplied by each scale."""

    rows: np.ndarray  # (K,) numbers of the rows in the head
    columns: np.ndarray  # (U,)
    weight: np.ndarray  # (K, U) float32
    bias: np.ndarray  # (K,) float32
    losses: np.ndarray  # (S,) summed over the held-out examples; zeros if there are none
    valid_count: int


@dataclass(frozen=True)
class SolverOptions:
    loss: ConvexLoss
    strength: float
    seed: int


class Near(NamedTuple):
    """Rows near a solution: those from which regression starts, and those towards which SVMs are drawn."""

    start: tuple[np.ndarray, np.ndarray] | None  # weights and biases
    prior: np.ndarray | None  # weights


def make_problems(
    groups: list[SoftmaxGroup], tax: Taxonomy, nodes: np.ndarray, valid_nodes: np.ndarray
) -> list[Problem]:
    """The problems of these softmaxes; a softmax over a single output is none."""
    group_of, position = np.full(tax.num_nodes, -1), np.full(tax.num_nodes, -1)
    for number, group in enumerate(groups):
        if len(group.nodes) > 1:
            group_of[group.nodes], position[group.nodes] = number, np.arange(len(group.nodes))
    train, valid = (_split(tax, labels, group_of, len(groups)) for labels in (nodes, valid_nodes))
    none = np.zeros(0, np.int64), np.zeros(0, np.int64)
    problems = []
    for number, group in enumerate(groups):
        items, outputs = train.get(number, none)
        valid_items, valid_outputs = valid.get(number, none)
        if len(group.nodes) > 1:
            problems.append(Problem(group, items, position[outputs], valid_items, position[valid_outputs]))
    return problems


def _split(
    tax: Taxonomy, labels: np.ndarray, group_of: np.ndarray, count: int
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """The examples of each softmax, and the output of it that each example's label is at or below."""
    items, outputs = [], []
    for depth in range(1, tax.depth + 1):
        ancestors = tax.ancestor_at(labels, depth)
        found = np.flatnonzero((ancestors >= 0) & (group_of[ancestors] >= 0))
        items.append(found)
        outputs.append(ancestors[found])
    all_items, all_outputs = np.concatenate(items), np.concatenate(outputs)
    numbers = group_of[all_outputs]
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(count + 1))
    parts = ((n, order[bounds[n] : bounds[n + 1]]) for n in range(count))
    return {n: (all_items[part], all_outputs[part]) for n, part in parts if len(part)}


def solve(
    problem: Problem,
    X: Any,
    valid_X: Any,
    weights: np.ndarray | None,
    texts: Any,
    options: SolverOptions,
    start: Solution | None = None,
    prior: Any = None,
) -> Solution:
    """The solution of one problem; it depends on nothing but the arguments, so that problems can be solved in parallel.

    `X` is a dense array or a scipy CSR matrix, `weights` (n,) are those of all its rows, `texts` (N, D) are vectors of
    the texts of all nodes, or None, and the rows of SVMs are drawn towards those of `prior`, a (K, D) CSR matrix. The
    iterations of multinomial regression begin at `start`, a solution of the
    same softmax with other examples or another strength; liblinear always begins at zero.
    """
    item_weights = None if weights is None else weights[problem.items]
    rows, columns = compact(X[problem.items])
    nodes = problem.group.nodes
    texts = None if texts is None or len(nodes) > _MOST_TEXTS else texts[nodes][:, columns]
    first = None if start is None else _start(start, columns, X.shape[1])
    weight, bias = solve_rows(
        rows,
        problem.targets,
        len(nodes),
        item_weights,
        options,
        texts,
        first,
        None if prior is None else prior[:, columns],
    )
    losses = np.zeros(len(SCALES))
    if len(problem.valid_items):
        scores = _score(valid_X[problem.valid_items], columns, weight, bias, X.shape[1])
        losses = _losses(scores, problem.valid_targets)
    return Solution(problem.group.rows, columns, weight, bias, losses, len(problem.valid_items))


def solve_rows(
    rows: Any,
    targets: np.ndarray,
    outputs: int,
    weights: np.ndarray | None,
    options: SolverOptions,
    texts: Any = None,
    start: tuple[np.ndarray, np.ndarray] | None = None,
    prior: Any = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The (K, U) weight and the (K,) bias that separate the targets, 0 to K - 1.

    With `texts`, a sparse matrix of vectors of length one at most, the weight is less regularised in their directions.
    Multinomial regression begins at `start`, a weight and a bias. The rows of SVMs are drawn towards those of `prior`,
    a (K, U) CSR matrix, and towards zero without it.
    """
    if weights is not None and not weights.all():  # liblinear would print a warning about a class without weight
        rows, targets, weights = rows[weights > 0], targets[weights > 0], weights[weights > 0]
    present = np.unique(targets)
    weight = np.zeros((outputs, rows.shape[1]), np.float32)
    bias = np.full(outputs, -1.0, np.float32)  # the best score of an output without examples
    if len(present) == 1 or not rows.shape[1]:
        bias[present] = 1.0
    elif len(present) > 1:
        strength = options.strength / _mean_square(rows)
        near = Near(
            None if start is None else _to_coef(*start, present, options),
            None if prior is None else _to_coef(prior.toarray(), bias, present, options)[0],
        )
        if texts is None:
            coef, intercept = _fit(rows, targets, weights, strength, options, near)
        else:  # the similarity to each text is one more feature, which is a direction of the others
            sparse = import_extra("scipy.sparse", "a convex solver", "scipy", "sklearn")
            rows = sparse.hstack([rows, _TEXT_FACTOR * (rows @ texts.T)], format="csr", dtype=rows.dtype)
            coef, intercept = _fit(rows, targets, weights, strength, options, near)
            coef, of_texts = np.hsplit(coef, [weight.shape[1]])
            coef = coef + _TEXT_FACTOR * (texts.T @ of_texts.T).T
        if len(present) == 2:  # scikit-learn has one row for two outputs
            factors = np.array([[-1.0], [1.0]]) * _FACTOR[options.loss]
            coef, intercept = factors * coef, factors[:, 0] * intercept
        weight[present], bias[present] = coef, intercept
        if options.loss == "log" and len(present) < outputs:
            absent = np.setdiff1d(np.arange(outputs), present)
            bias[absent] = intercept.min() - 1.0
    return weight, bias


def _start(solution: Solution, columns: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The (K, U) weight and the (K,) bias of a solution for these columns."""
    place = np.full(width, -1)
    place[solution.columns] = np.arange(len(solution.columns))
    found = place[columns]
    return np.where(found >= 0, solution.weight[:, found], 0.0), solution.bias


def _to_coef(
    weight: np.ndarray, bias: np.ndarray, present: np.ndarray, options: SolverOptions
) -> tuple[np.ndarray, np.ndarray]:
    """The weight and the bias of the outputs with examples as scikit-learn has them: one row for two outputs."""
    weight, bias = weight[present].astype(np.float64), bias[present].astype(np.float64)
    if len(present) > 2:
        return weight, bias
    factor = 2.0 * _FACTOR[options.loss]
    return (weight[1:] - weight[:1]) / factor, (bias[1:] - bias[:1]) / factor


def _fit(
    rows: Any, targets: np.ndarray, weights: np.ndarray | None, strength: float, options: SolverOptions, near: Near
) -> tuple[np.ndarray, np.ndarray]:
    if near.prior is not None:
        present = np.unique(targets)[-len(near.prior) :]
        return fit_towards(rows, targets[:, None] == present, weights, strength, _pad(near.prior, rows))
    svm = import_extra("sklearn.svm", "a convex solver", "scikit-learn", "sklearn")
    linear = import_extra("sklearn.linear_model", "a convex solver", "scikit-learn", "sklearn")
    tolerance = _TOLERANCE[options.loss]
    is_large = rows.size > _LONG * rows.shape[0] and rows.size * len(np.unique(targets)) > _LARGE
    if options.loss == "squared_hinge" and is_large:
        tolerance = _LONG_TOLERANCE
    settings: dict[str, Any] = {
        "C": strength,
        "tol": tolerance,
        "max_iter": _MAX_ITERATIONS[options.loss],
        "random_state": options.seed,
    }
    if options.loss == "squared_hinge":
        model = svm.LinearSVC(**settings)
    else:
        model = linear.LogisticRegression(**settings, warm_start=True)
        if near.start is not None:
            coef, model.intercept_ = near.start
            model.coef_, model.tol = _pad(coef, rows), _WARM_TOLERANCE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an early end of the iterations costs little accuracy
        model.fit(rows, targets, sample_weight=weights)
    return model.coef_, model.intercept_


def _pad(coef: np.ndarray, rows: Any) -> np.ndarray:
    """Rows of weights with zeros for the similarities to texts."""
    return np.pad(coef, ((0, 0), (0, rows.shape[1] - coef.shape[1])))


def _mean_square(rows: Any) -> float:
    """The mean squared length of the rows, so that the strength has the same meaning for features of any length."""
    values = rows.ravel() if isinstance(rows, np.ndarray) else rows.data
    total = float(np.einsum("i,i->", values, values, dtype=np.float64))  # without a copy in double precision
    return max(total / int(rows.shape[0]), 1e-30)


def compact(rows: Any) -> tuple[Any, np.ndarray]:
    """The rows without the columns in which they have no values, and the others' numbers."""
    if isinstance(rows, np.ndarray):
        return rows, np.arange(rows.shape[1])
    is_used = np.zeros(rows.shape[1], bool)  # faster than a sort of all indices
    is_used[rows.indices] = True
    columns = np.flatnonzero(is_used)
    places = (np.cumsum(is_used, dtype=np.int32) - 1)[rows.indices]
    return type(rows)((rows.data, places, rows.indptr), shape=(rows.shape[0], len(columns))), columns


def _score(rows: Any, columns: np.ndarray, weight: np.ndarray, bias: np.ndarray, width: int) -> np.ndarray:
    if isinstance(rows, np.ndarray):
        scores: np.ndarray = rows[:, columns] @ weight.T + bias
        return scores
    place = np.full(width, -1, np.int32)
    place[columns] = np.arange(len(columns))
    found = place[rows.indices]
    is_known = found >= 0
    counts = np.concatenate([[0], np.cumsum(is_known)])[rows.indptr]
    known = type(rows)((rows.data[is_known], found[is_known], counts), shape=(rows.shape[0], len(columns)))
    product: np.ndarray = known @ weight.T + bias
    return product


def _losses(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """(S,) the summed negative log-likelihood of the targets for each scale."""
    own = scores[np.arange(len(targets)), targets][:, None]
    gaps = (scores - own).astype(np.float64)

    def loss(scale: float) -> float:
        scaled = scale * gaps
        top = scaled.max(1, keepdims=True)
        return float((top[:, 0] + np.log(np.exp(scaled - top).sum(1))).sum())

    return np.array([loss(scale) for scale in SCALES])


def choose_scales(solutions: Sequence[Solution], default: float) -> dict[int, float]:
    """The scale of each softmax, by its first row: that of the lowest held-out loss, drawn towards the common one."""
    common, losses = default, np.sum([solution.losses for solution in solutions], axis=0)
    if any(solution.valid_count for solution in solutions):
        # with few held-out examples it stays close to the default
        common = float(SCALES[(losses + _PULL * np.log(SCALES / default) ** 2).argmin()])
    penalty = _PULL * np.log(SCALES / common) ** 2
    return {
        int(each.rows[0]): float(SCALES[(each.losses + penalty).argmin()]) if each.valid_count else common
        for each in solutions
    }
