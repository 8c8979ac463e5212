"""The rows of the classes of a blended head: each separates its class from its rivals.

The rivals of a class are the training examples of other classes for which the softmaxes of the parents find it likely.
There are few of them, so that this takes a fraction of the time of one class against all others. n examples, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from arbormax.errors import import_extra
from arbormax.functional.linear import sparse_rows
from arbormax.heads.base import TreeHead
from arbormax.heads.blended import BlendedSoftmax
from arbormax.taxonomy import Taxonomy
from arbormax.training.problems import ConvexLoss, Solution, SolverOptions, compact, solve_rows

NUM_RIVALS = 10  # classes for which an example can be a rival: the most probable ones
FEW_CLASSES = 200  # so few classes are separated from all others
_VERY_FEW_CLASSES = 64  # the path has the smallest share
_FACTOR = {"squared_hinge": 2.0, "log": 1.0}  # of the scores
_PULL = 4.0  # how strongly the blend is drawn towards the default, in units of the held-out loss
_BLEND_EXAMPLES, _BLEND_CELLS = 1000, 1 << 22  # enough for two numbers
_CELLS = 1 << 25  # numbers of a (examples, rows) matrix in memory at one time


def find_rivals(head: BlendedSoftmax, X: Any, nodes: np.ndarray) -> list[np.ndarray]:
    """The rivals of each class, as positions of rows of `X`; the rows of the classes are still zero."""
    tax = head.taxonomy
    count = min(NUM_RIVALS, tax.num_leaves)
    with torch.inference_mode():
        classes = torch.cat([head.parts(part)[0].topk(count)[1] for part in tensors(head, X)]).numpy().ravel()
    items = np.repeat(np.arange(len(nodes)), count)
    is_rival = ~_is_below(tax, tax.leaves[classes], nodes[items])
    items, classes = items[is_rival], classes[is_rival]
    order = np.argsort(classes, kind="stable")
    return np.split(items[order], np.searchsorted(classes[order], np.arange(1, tax.num_leaves)))


def _is_below(tax: Taxonomy, leaves: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Whether each leaf is at or below a node, so that it may be the class of an example with this label."""
    found: np.ndarray = tax.lca(leaves, nodes) == nodes
    return found


def solve_class(
    row: int,
    own: np.ndarray,
    rivals: np.ndarray,
    X: Any,
    weights: np.ndarray | None,
    text: Any,
    options: SolverOptions,
    prior: Any = None,
) -> Solution:
    """The row that separates the examples of one class from its rivals.

    It is zero without rivals; without examples its score is -1.

    `text` is the (1, D) vector of the text of the class, or None, and `prior` is the (1, D) row that it is drawn
    towards, or None.
    """
    none = np.zeros(0, np.int64), np.zeros((1, 0), np.float32), np.zeros(1, np.float32)
    columns, weight, bias = none
    if len(rivals) and not len(own):
        bias = bias - 1
    elif len(rivals):
        items = np.concatenate([own, rivals])
        targets = np.repeat([1, 0], [len(own), len(rivals)])
        rows, columns = compact(X[items])
        text = None if text is None else text[:, columns]
        sides = None if prior is None else _stack([-prior, prior])[:, columns]
        both = solve_rows(rows, targets, 2, None if weights is None else weights[items], options, text, prior=sides)
        weight, bias = (part[1:] for part in both)
        if prior is not None:  # features of none of these examples keep the weight of the prior
            others = np.setdiff1d(prior.indices, columns)
            columns = np.concatenate([columns, others])
            weight = np.hstack([weight, prior[:, others].toarray()])
    return Solution(np.array([row]), columns, weight, bias, np.zeros(0), 0)


def _stack(blocks: list[Any]) -> Any:
    sparse = import_extra("scipy.sparse", "a convex solver", "scipy", "sklearn")
    return sparse.vstack(blocks, format="csr")


def default_blend(head: BlendedSoftmax, loss: ConvexLoss) -> tuple[float, float]:
    """The share of the path, and the factor of the scores of the classes, without held-out examples."""
    return _default_share(head.taxonomy.num_leaves), _FACTOR[loss]


def _default_share(num_classes: int) -> float:
    """The share of the path: rows that know all other classes need less of it, most of all with very few classes."""
    if num_classes > FEW_CLASSES:
        return 0.75
    return 0.5 if num_classes > _VERY_FEW_CLASSES else 0.25


def fit_blend(head: BlendedSoftmax, X: Any, nodes: np.ndarray, default: tuple[float, float]) -> tuple[float, float]:
    """The share of the path, and the factor of the scores of the classes, with the lowest loss on held-out examples.

    With few classes, only the factor is fitted.
    """
    is_fitted = torch.tensor([head.taxonomy.num_leaves > FEW_CLASSES, True])
    is_class = head.taxonomy.class_of[nodes] >= 0
    X, nodes = X[is_class], nodes[is_class]
    most = max(_BLEND_EXAMPLES, _BLEND_CELLS // head.out_features)
    few = np.linspace(0, len(nodes) - 1, min(len(nodes), most)).astype(np.int64)
    with torch.inference_mode():
        parts = [head.parts(part) for part in tensors(head, X[few])]
    if not parts:
        return default
    on_path, own = (torch.cat([part[i] for part in parts]).clone() for i in range(2))
    targets = torch.from_numpy(head.taxonomy.class_of[nodes[few]])
    start = torch.tensor(default, dtype=torch.float64).log()
    logs = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([logs], max_iter=40, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        share, factor = logs.exp().to(on_path.dtype)
        total = cross_entropy(share * on_path + factor * own, targets, reduction="sum")
        total = (total + _PULL * (logs - start).square().sum()) / len(targets)
        total.backward()  # type: ignore[no-untyped-call]
        assert logs.grad is not None
        logs.grad *= is_fitted
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    share, factor = logs.detach().exp().tolist()
    return share, factor


def tensors(head: TreeHead, X: Any) -> Iterable[Tensor]:
    """The rows of a matrix, some at a time."""
    size = max(1, _CELLS // head.num_rows(head.taxonomy))
    for start in range(0, X.shape[0], size):
        rows = X[start : start + size]
        if isinstance(rows, np.ndarray):
            yield torch.from_numpy(rows)
        else:
            lengths, columns = (torch.from_numpy(part).long() for part in (np.diff(rows.indptr), rows.indices))
            yield sparse_rows(lengths, columns, torch.from_numpy(rows.data), rows.shape[1])
