"""The prediction with the smallest expected cost.

B items, N nodes, M = N - 1 nodes below the root, C classes, P possible predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.decode._hf import node_probabilities
from arbormax.errors import InputError, LabelError
from arbormax.functional.graphs import node_index
from arbormax.functional.index import NodeIndex, tree_index
from arbormax.functional.probabilities import path_sums
from arbormax.functional.threshold import check_node_log_probs
from arbormax.taxonomy import Taxonomy

# an array, a tensor, nested lists, a mapping of labels to mappings, or a function (predicted nodes, true leaves)
Costs = Any
_CELLS = 1 << 22  # costs of a function that are in memory together
_MOST_CELLS = 1 << 30  # costs of a function at most: each batch computes all of them


def risk(logp: Tensor, tax: Taxonomy, costs: Costs = None) -> Tensor:
    """Return the prediction with the smallest expected cost; ties go to the first class, or to the lower node id.

    Without costs, it is the leaf with the smallest expected tree distance.
    """
    check_node_log_probs(logp, tax)
    index = node_index(tax, logp.device)
    p_NB = node_probabilities(logp, tax)
    if costs is None and tax.is_graph:
        best_B = least_of_function(p_NB, tax, tax.distance, tax.leaves)
    elif costs is None:
        # The distance to a leaf y is d(n) + d(y) - 2·|A(n) ∩ A(y)|, of which d(y) is the same for all predictions.
        best_B = index.leaves[path_sums(1 - 2 * p_NB[1:], tree_index(tax, logp.device))[index.leaves - 1].argmin(0)]
    elif callable(costs):
        best_B = least_of_function(p_NB, tax, costs, np.arange(tax.num_nodes))
    else:
        best_B = _least_of_matrix(p_NB, tax, costs, index)
    return best_B.view(logp.shape[:-1])


def _least_of_matrix(p_NB: Tensor, tax: Taxonomy, costs: Costs, index: NodeIndex) -> Tensor:
    costs_PC = cost_matrix(costs, tax).to(p_NB)
    best_B = (costs_PC @ p_NB[index.leaves]).argmin(0)
    return index.leaves[best_B] if len(costs_PC) == tax.num_leaves else best_B


def least_of_function(p_NB: Tensor, tax: Taxonomy, costs: Callable[..., Any], nodes: np.ndarray) -> Tensor:
    """(B,) the node of the given ones with the smallest expected cost; ties go to the first."""
    if len(nodes) * tax.num_leaves > _MOST_CELLS:
        raise InputError(
            f"a function would be called for {len(nodes):,} nodes × {tax.num_leaves:,} classes; without costs, the "
            "tree distance takes little time on a tree of any size",
            argument="costs",
        )
    size, leaves = max(1, _CELLS // tax.num_leaves), node_index(tax, p_NB.device).leaves
    p_CB = p_NB[leaves]
    least_B, best_B = p_CB.new_full(p_CB.shape[1:], torch.inf), leaves.new_zeros(p_CB.shape[1])
    for start in range(0, len(nodes), size):
        predicted = nodes[start : start + size]
        found = np.asarray(costs(predicted[:, None], tax.leaves[None, :]))
        expected = (len(predicted), tax.num_leaves)
        if found.shape != expected or found.dtype.kind not in "biuf":
            raise InputError(
                f"the function takes arrays of node ids, predicted ({len(predicted)}, 1) and true "
                f"(1, {tax.num_leaves}), and returns numbers of shape {expected}; found {found.dtype} of shape "
                f"{found.shape}: np.vectorize makes such a function of one for single nodes",
                argument="costs",
            )
        costs_PC = _check_values(torch.from_numpy(found.astype(np.float64)).to(p_CB))
        values_B, places_B = (costs_PC @ p_CB).min(0)
        is_less_B = values_B < least_B
        least_B = torch.where(is_less_B, values_B, least_B)
        best_B = torch.where(is_less_B, places_B + start, best_B)
    return torch.tensor(nodes, device=best_B.device)[best_B]


def cost_matrix(costs: Costs, tax: Taxonomy) -> Tensor:
    """Return the (P, C) costs of predicted classes or nodes against true classes, or raise for other costs.

    `costs` are those of `optimal`, except a function.
    """
    if isinstance(costs, Mapping):
        return _check_values(torch.from_numpy(_named_costs(costs, tax)))
    n, c = tax.num_nodes, tax.num_leaves
    expected = (
        f"expected numbers in one row for each prediction and one column for each truth: ({c}, {c}) for classes, "
        f"({n}, {c}) for nodes and classes, or ({n}, {n}) for nodes"
    )
    try:
        matrix = costs.detach() if isinstance(costs, Tensor) else torch.from_numpy(np.asarray(costs, np.float64))
    except (TypeError, ValueError) as error:
        raise InputError(f"{expected}, found {type(costs).__name__}", argument="costs") from error
    if matrix.ndim != 2 or tuple(matrix.shape) not in ((c, c), (n, c), (n, n)):
        raise InputError(f"{expected}, found the shape {tuple(matrix.shape)}", argument="costs")
    if matrix.shape[1] == n:
        matrix = matrix[:, torch.tensor(tax.leaves, device=matrix.device)]
    return _check_values(matrix)


def _named_costs(costs: Mapping[Any, Any], tax: Taxonomy) -> np.ndarray:
    """Return the (C, C) costs of a mapping from predicted labels to mappings from true labels to costs."""
    place_C = _places(list(costs), tax, "the rows")
    (first, *_), values_CC = costs.values(), np.zeros((tax.num_leaves, tax.num_leaves))
    true = list(first) if isinstance(first, Mapping) else []
    columns_C = _places(true, tax, "the columns")
    for place, (label, row) in zip(place_C, costs.items(), strict=True):
        if not isinstance(row, Mapping) or row.keys() != first.keys():
            raise InputError(f"the row of {label!r} has other columns than the first row", argument="costs")
        try:
            values_CC[place, columns_C] = [float(row[name]) for name in true]
        except (TypeError, ValueError):
            raise InputError(f"expected numbers in the row of {label!r}", argument="costs") from None
    return values_CC


def _places(labels: list[Any], tax: Taxonomy, what: str) -> np.ndarray:
    """Return the class ids of labels that have to name every class once."""
    try:
        class_C = tax.class_of[tax.find_many(labels)]
    except LabelError as error:
        raise LabelError(error.message, error.problems, argument="costs") from None
    inner = [label for label, place in zip(labels, class_C.tolist(), strict=True) if place < 0]
    missing = np.setdiff1d(np.arange(tax.num_leaves), class_C)
    if inner or len(missing) or len(class_C) != tax.num_leaves:
        listed = ", ".join(repr(tax.classes[place]) for place in missing[:5].tolist()) + ", …" * (len(missing) > 5)
        problem = f"{inner[0]!r} is no class" if inner else f"missing: {listed}" if listed else "a class is there twice"
        raise InputError(
            f"{what} are {len(labels):,} labels, and each of the {tax.num_leaves:,} classes is needed once: {problem}",
            argument="costs",
        )
    return np.asarray(class_C)


def _check_values(matrix: Tensor) -> Tensor:
    if not bool(matrix.isfinite().all()):
        raise InputError(
            "expected finite costs, found NaN or infinity; write a large number for a prediction that must not happen, "
            "or restrict the predictions with within",
            argument="costs",
        )
    if bool((matrix < 0).any()):
        raise InputError(
            f"expected costs of at least 0, found {float(matrix.min()):g}; add a number to all of them, which does not "
            "change the best predictions",
            argument="costs",
        )
    return matrix
