"""Inputs of the measures, checked: nodes become int64 numpy arrays, log-probabilities a (B, N) tensor.

B items, N nodes, C classes, k ranks.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.errors import InputError, LabelError
from arbormax.functional.threshold import ROUNDING, check_node_log_probs
from arbormax.taxonomy import Taxonomy


def node_ids(values: Any, tax: Taxonomy, name: str) -> np.ndarray:
    """Node ids of any shape from a list, an array or a tensor on any device; or (n,) from labels."""
    labels = _labels(values, tax)
    if labels is None:
        return _ids(values, name, "node", tax.num_nodes)
    try:
        return tax.find_many(labels)
    except LabelError as error:
        raise LabelError(error.message, error.problems if len(error.problems) > 1 else (), argument=name) from None


def node_pairs(true_nodes: Any, pred_nodes: Any, tax: Taxonomy) -> tuple[np.ndarray, np.ndarray]:
    """True and predicted node ids, both flattened to (B,)."""
    true, pred = node_ids(true_nodes, tax, "true_nodes"), node_ids(pred_nodes, tax, "pred_nodes")
    if true.shape != pred.shape:
        raise InputError(f"expected the shape of true_nodes, {true.shape}; found {pred.shape}", argument="pred_nodes")
    return true.ravel(), pred.ravel()


def ranked_classes(true_nodes: Any, topk_classes: Any, tax: Taxonomy) -> tuple[np.ndarray, np.ndarray]:
    """True node ids (B,) and the class ids ranked for each (B, k)."""
    true = node_ids(true_nodes, tax, "true_nodes")
    ranked = _ids(topk_classes, "topk_classes", "class", tax.num_leaves)
    if ranked.ndim < 1 or ranked.shape[:-1] != true.shape or not ranked.shape[-1]:
        raise InputError(
            f"expected the shape {(*true.shape, 'k')} with k at least 1, because true_nodes has the shape "
            f"{true.shape}; found {ranked.shape}",
            argument="topk_classes",
        )
    return true.ravel(), ranked.reshape(true.size, ranked.shape[-1])


def scored_nodes(log_probs: Any, true_nodes: Any, tax: Taxonomy) -> tuple[Tensor, np.ndarray]:
    """Node log-probabilities (B, N), on their own device, and true node ids (B,)."""
    true = node_ids(true_nodes, tax, "true_nodes")
    logp = log_probs.detach() if isinstance(log_probs, Tensor) else _tensor(log_probs)
    check_node_log_probs(logp, tax)
    if logp.shape[:-1] != true.shape:
        raise InputError(
            f"expected the shape {(*true.shape, tax.num_nodes)}, because true_nodes has the shape {true.shape}; "
            f"found {tuple(logp.shape)}",
            argument="log_probs",
        )
    highest = logp.max().item() if logp.numel() else 0.0
    if not highest <= ROUNDING:
        raise InputError(
            f"expected log-probabilities, which are at most 0; found {highest:g}, as in logits, probabilities or NaN",
            argument="log_probs",
        )
    return logp.reshape(true.size, tax.num_nodes), true.ravel()


def _labels(values: Any, tax: Taxonomy) -> list[Any] | None:
    """The labels, strings or paths, that `values` lists; None if it has numbers or is empty."""
    if isinstance(values, Tensor) or (isinstance(values, np.ndarray) and values.dtype.kind not in "OUT"):
        return None
    rows = values.tolist() if isinstance(values, np.ndarray) else values
    if isinstance(rows, str) or not isinstance(rows, Iterable):
        return None
    rows = list(rows)
    if not any(_is_label(row) for row in rows):
        return None
    return [_unfilled(row, tax) if isinstance(row, (tuple, list)) else row for row in rows]


def _is_label(row: Any) -> bool:
    """Whether this is a string, a path, or the empty tuple, which is the path of the root."""
    return (
        isinstance(row, str)
        or (isinstance(row, tuple) and not row)
        or (isinstance(row, (tuple, list)) and any(isinstance(name, str) for name in row))
    )


def _unfilled(row: Any, tax: Taxonomy) -> tuple[Any, ...]:
    """A path without the empty names that fill up the rows of a table of paths."""
    names = tuple(row)
    while names and (names[-1] is None or (names[-1] == "" and tax.find(names, missing=-1) < 0)):
        names = names[:-1]
    return names


def _ids(values: Any, name: str, kind: str, stop: int) -> np.ndarray:
    if isinstance(values, Tensor):
        if values.is_floating_point() or values.is_complex():
            raise InputError(f"{kind} ids are whole numbers, found {values.dtype}", argument=name)
        values = values.detach().cpu().numpy()
    array = _array(values, name)
    if not array.size:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(f"{kind} ids are whole numbers, found {array.dtype}", argument=name)
    outside = np.flatnonzero((array < 0) | (array >= stop))
    if len(outside):
        raise InputError(
            f"{kind} ids run from 0 to {stop - 1}, found {array.flat[outside[0]]} at position {outside[0]} "
            f"({len(outside)} of {array.size} are out of range); remove ignored items first",
            argument=name,
        )
    return array.astype(np.int64)


def _tensor(values: Any) -> Tensor:
    array = _array(values, "log_probs")
    if array.dtype.kind not in "fiub":
        raise InputError(f"expected numbers, found {array.dtype}", argument="log_probs")
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _array(values: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError("expected an array, found rows of unequal length", argument=name) from error
