"""The node with the largest expected hierarchical F.

B items, N nodes, M = N - 1 nodes below the root.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.errors import OptionError
from arbormax.functional.index import TreeIndex, cached_per_device, tree_index
from arbormax.functional.probabilities import path_sums
from arbormax.functional.threshold import check_node_log_probs
from arbormax.taxonomy import Taxonomy


def hf(logp: Tensor, tax: Taxonomy, beta: float = 1.0) -> Tensor:
    """Return the node with the largest expected hF of the item; ties go to the lower node id.

    With A(n), the path from below the root to n, the hF of a prediction n for a leaf y is
    (1 + β²)·|A(n) ∩ A(y)| / (β²·|A(y)| + |A(n)|).
    """
    check_node_log_probs(logp, tax)
    weight = check_positive(beta, "beta") ** 2
    index = tree_index(tax, logp.device)
    p_MB = node_probabilities(logp, tax)[1:]
    depth_M = index.node_depth[1:]
    scores_MB = torch.zeros_like(p_MB)
    for length in _path_lengths(tax, logp.device):
        # Paths of one length share one denominator for each depth of the prediction.
        is_end_M = (depth_M == length) & (index.class_of[1:] >= 0)
        ends_MB = torch.where(is_end_M[:, None], p_MB, 0)
        shared_MB = path_sums(_sums_below(ends_MB, index), index)
        scores_MB = scores_MB + shared_MB * ((1 + weight) / (weight * length + depth_M))[:, None]
    return (scores_MB.argmax(0) + 1).view(logp.shape[:-1])


def node_probabilities(logp: Tensor, tax: Taxonomy) -> Tensor:
    """Return the (N, B) probabilities of the nodes, in float32 or wider."""
    wide = torch.promote_types(logp.dtype, torch.float32)
    return logp.detach().reshape(-1, tax.num_nodes).to(wide).t().exp()


def check_positive(value: Any, argument: str, what: str = "a finite number above 0") -> float:
    """Return an option as a float, or raise unless it is positive and finite."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise OptionError(f"expected {what}, found {value!r}", argument=argument)
    return number


@cached_per_device
def _path_lengths(tax: Taxonomy, device: torch.device) -> tuple[int, ...]:  # noqa: ARG001
    """Return the depths at which the tree has leaves."""
    return tuple(np.unique(tax.node_depth[tax.leaves]).tolist())


def _sums_below(values_MB: Tensor, index: TreeIndex) -> Tensor:
    """Return the (M, B) sums of the rows of each node and of the nodes below it."""
    levels = list(torch.split(values_MB, list(index.levels)))
    for depth in range(len(levels) - 1, 0, -1):
        levels[depth - 1] = levels[depth - 1].index_add(0, index.lifts[depth - 1], levels[depth])
    return torch.cat(levels)
