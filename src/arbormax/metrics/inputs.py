"""What the measures accept, checked: ids become int64 numpy arrays, log-probabilities a (B, N) tensor.

B items, N nodes, C classes, k ranks.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.errors import InputError
from arbormax.functional.threshold import ROUNDING, check_node_log_probs
from arbormax.taxonomy.tree import Taxonomy


def node_ids(values: Any, tax: Taxonomy, name: str) -> np.ndarray:
    """Node ids of any shape from a list, an array or a tensor on any device."""
    return _ids(values, name, "node", tax.num_nodes)


def node_pairs(true_nodes: Any, pred_nodes: Any, tax: Taxonomy) -> tuple[np.ndarray, np.ndarray]:
    """True and predicted node ids, both flattened to (B,)."""
    true, pred = node_ids(true_nodes, tax, "true_nodes"), node_ids(pred_nodes, tax, "pred_nodes")
    if true.shape != pred.shape:
        raise InputError(f"expected true_nodes and pred_nodes of one shape, found {true.shape} and {pred.shape}")
    return true.ravel(), pred.ravel()


def ranked_classes(true_nodes: Any, topk_classes: Any, tax: Taxonomy) -> tuple[np.ndarray, np.ndarray]:
    """True node ids (B,) and the class ids ranked for each (B, k)."""
    true = node_ids(true_nodes, tax, "true_nodes")
    ranked = _ids(topk_classes, "topk_classes", "class", tax.num_leaves)
    if ranked.ndim < 1 or ranked.shape[:-1] != true.shape or not ranked.shape[-1]:
        raise InputError(
            f"expected topk_classes of shape {(*true.shape, 'k')} with k at least 1 beside true_nodes of shape "
            f"{true.shape}, found {ranked.shape}"
        )
    return true.ravel(), ranked.reshape(true.size, ranked.shape[-1])


def scored_nodes(log_probs: Any, true_nodes: Any, tax: Taxonomy) -> tuple[Tensor, np.ndarray]:
    """Node log-probabilities (B, N), on their own device, and true node ids (B,)."""
    true = node_ids(true_nodes, tax, "true_nodes")
    logp = log_probs.detach() if isinstance(log_probs, Tensor) else _tensor(log_probs)
    check_node_log_probs(logp, tax)
    if logp.shape[:-1] != true.shape:
        raise InputError(
            f"expected log_probs of shape {(*true.shape, tax.num_nodes)} beside true_nodes of shape {true.shape}, "
            f"found {tuple(logp.shape)}"
        )
    highest = logp.max().item() if logp.numel() else 0.0
    if not highest <= ROUNDING:
        raise InputError(f"log-probabilities are at most 0, found {highest:g}: no logits, probabilities or NaN here")
    return logp.reshape(true.size, tax.num_nodes), true.ravel()


def _ids(values: Any, name: str, kind: str, stop: int) -> np.ndarray:
    if isinstance(values, Tensor):
        if values.is_floating_point() or values.is_complex():
            raise InputError(f"{name}: {kind} ids are whole numbers, found {values.dtype}")
        values = values.detach().cpu().numpy()
    array = _array(values, name)
    if not array.size:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(f"{name}: {kind} ids are whole numbers, found {array.dtype}")
    outside = np.flatnonzero((array < 0) | (array >= stop))
    if len(outside):
        raise InputError(
            f"{name}: {kind} ids run from 0 to {stop - 1}, found {array.flat[outside[0]]} at position {outside[0]} "
            f"({len(outside)} of {array.size} are out of range); leave out ignored items before measuring"
        )
    return array.astype(np.int64)


def _tensor(values: Any) -> Tensor:
    array = _array(values, "log_probs")
    if array.dtype.kind not in "fiub":
        raise InputError(f"log_probs: expected numbers, found {array.dtype}")
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _array(values: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name}: expected an array, found rows of unequal length") from error
