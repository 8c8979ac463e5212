"""Node weights of the loss: per level, per parent, and the HXE of Bertinetto et al.; and the priors of siblings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from arbormax.errors import InputError
from arbormax.taxonomy import Taxonomy


def level_weights(tax: Taxonomy, weights: ArrayLike) -> Tensor:
    """Return (N,) node weights with one value per level below the root.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> level_weights(tax, [2.0, 1.0])
    tensor([0., 2., 2., 1., 1., 1.])
    """
    values = np.asarray(weights, np.float64)
    if values.shape != (tax.depth,):
        raise InputError(f"expected one weight for each of {tax.depth} levels, found the shape {values.shape}")
    return _as_tensor(np.append(0.0, values)[tax.node_depth])


def parent_weights(tax: Taxonomy, weights: Mapping[str | Sequence[str], float], default: float = 1.0) -> Tensor:
    """Return (N,) node weights with one value per parent, that is, per softmax; `default` for parents not given.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> parent_weights(tax, {"a": 0.5})
    tensor([0.0000, 1.0000, 1.0000, 0.5000, 0.5000, 1.0000])
    """
    values = np.full(tax.num_nodes, default, np.float64)
    for label, value in weights.items():
        node = tax.find(label)
        if tax.is_leaf[node]:
            raise InputError(f"{label!r} is a leaf and has no softmax")
        values[node] = value
    return _as_tensor(np.append(0.0, values[tax.parent[1:]]))


def hxe_weights(tax: Taxonomy, alpha: float) -> Tensor:
    """Return (N,) node weights `exp(-alpha * height)` of the hierarchical cross entropy of Bertinetto et al. (2020).

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> hxe_weights(tax, 0.1)
    tensor([0.0000, 0.9048, 0.9048, 1.0000, 1.0000, 1.0000])
    """
    if not np.isfinite(alpha):
        raise InputError(f"expected a finite number, found {alpha}", argument="alpha")
    values = np.exp(-alpha * tax.height)
    values[0] = 0.0
    return _as_tensor(values)


def sibling_log_priors(class_counts: ArrayLike | Tensor, tax: Taxonomy, smoothing: float = 0.0) -> Tensor:
    """Return the (M,) log-shares of all non-root nodes in the training items of their parents, for logit adjustment.

    Args:
        class_counts: (C,) the number of training items of each class: a list, an array, or a tensor on any device.
        tax: the taxonomy.
        smoothing: added to every count; must be above 0 if a class has no items.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> sibling_log_priors([1, 3, 4], tax).exp()
    tensor([0.5000, 0.5000, 0.2500, 0.7500, 1.0000], dtype=torch.float64)
    """
    if isinstance(class_counts, Tensor):
        class_counts = class_counts.detach().cpu().double().numpy()
    counts = np.asarray(class_counts, np.float64)
    if counts.shape != (tax.num_leaves,) or not np.isfinite(counts).all() or (counts < 0).any() or not smoothing >= 0:
        raise InputError(
            f"expected a finite count of at least 0 for each of {tax.num_leaves} classes and a smoothing of at least "
            f"0, found the shape {counts.shape} and smoothing={smoothing}"
        )
    if smoothing == 0 and not counts.all():
        empty = int(np.flatnonzero(counts == 0)[0])
        raise InputError(
            f"class {tax.classes[empty]!r} has no items, so its log-prior is not finite", fix={"smoothing": 1}
        )
    totals = tax.sum_up(counts + smoothing)
    return torch.from_numpy(np.log(totals[1:]) - np.log(totals[tax.parent[1:]]))


def _as_tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).to(torch.get_default_dtype())
