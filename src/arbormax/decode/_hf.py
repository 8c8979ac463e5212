"""The node with the largest expected hierarchical F.

B items, N nodes, M = N - 1 nodes below the root.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.errors import OptionError
from arbormax.functional.graphs import ancestor_pairs, node_index
from arbormax.functional.index import TreeIndex, cached_per_device, tree_index
from arbormax.functional.probabilities import path_sums
from arbormax.functional.threshold import check_node_log_probs
from arbormax.taxonomy import Taxonomy


def hf(logp: Tensor, tax: Taxonomy, beta: float = 1.0) -> Tensor:
    """Return the node with the largest expected hF of the item; ties go to the lower node id.

    With A(n), the path from below the root to n (in a graph, n and all nodes above it), the hF of a prediction n for a
    leaf y is (1 + β²)·|A(n) ∩ A(y)| / (β²·|A(y)| + |A(n)|).
    """
    check_node_log_probs(logp, tax)
    weight = check_positive(beta, "beta") ** 2
    index = node_index(tax, logp.device)
    p_MB = node_probabilities(logp, tax)[1:]
    depth_M = _node_depths(tax, logp.device)
    scores_MB = torch.zeros_like(p_MB)
    for length in _path_lengths(tax, logp.device):
        # Paths of one length share one denominator for each depth of the prediction.
        is_end_M = (depth_M == length) & (index.class_of[1:] >= 0)
        ends_MB = torch.where(is_end_M[:, None], p_MB, 0)
        shared_MB = _shared_steps(ends_MB, tax)
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
def _node_depths(tax: Taxonomy, device: torch.device) -> Tensor:
    """Return the (M,) number of nodes at or above each node."""
    return torch.tensor(tax.ancestor_counts[1:], device=device)


@cached_per_device
def _path_lengths(tax: Taxonomy, device: torch.device) -> tuple[int, ...]:  # noqa: ARG001
    """Return the different numbers of nodes at or above a leaf."""
    return tuple(np.unique(tax.ancestor_counts[tax.leaves]).tolist())


def _shared_steps(ends_MB: Tensor, tax: Taxonomy) -> Tensor:
    """Return for each node the (M, B) expected number of nodes at or above it that are also above the end."""
    if not tax.is_graph:
        index = tree_index(tax, ends_MB.device)
        return path_sums(_sums_below(ends_MB, index), index)
    nodes_A, above_A = (part - 1 for part in ancestor_pairs(tax, ends_MB.device))
    below_MB = torch.zeros_like(ends_MB).index_add(0, above_A, ends_MB.index_select(0, nodes_A))
    return torch.zeros_like(ends_MB).index_add(0, nodes_A, below_MB.index_select(0, above_A))


def _sums_below(values_MB: Tensor, index: TreeIndex) -> Tensor:
    """Return the (M, B) sums of the rows of each node and of the nodes below it."""
    levels = list(torch.split(values_MB, list(index.levels)))
    for depth in range(len(levels) - 1, 0, -1):
        levels[depth - 1] = levels[depth - 1].index_add(0, index.lifts[depth - 1], levels[depth])
    return torch.cat(levels)
