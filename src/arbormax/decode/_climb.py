"""The lowest probable node above the most probable leaf."""

import torch
from torch import Tensor

from arbormax.decode._leaf import leaf
from arbormax.functional.graphs import nodes_above
from arbormax.functional.threshold import check_tau, passes
from arbormax.taxonomy import Taxonomy


def climb(logp: Tensor, tax: Taxonomy, tau: float = 0.5) -> Tensor:
    """Return the lowest node with P > tau on the path of the most probable leaf, or the root if no other passes.

    In a graph, it is the lowest of all nodes above that leaf that pass; of several on one level, the last.

    Unlike `threshold`, a lower tau never leads to another branch, so that the answers of all values of tau contain one
    another. Thresholds of guaranteed coverage are thresholds of this decoder.

    Args:
        logp: (..., N) node log-probabilities.
        tax: the taxonomy.
        tau: the threshold, from 0 to 1.

    Returns:
        (...,) node ids, int64.

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> logp = torch.tensor([[1.0, 0.6, 0.4, 0.3, 0.3, 0.4]]).log()
    >>> [climb(logp, tax, tau).item() for tau in (0.2, 0.5)]
    [5, 0]
    """
    tau = check_tau(tau)
    leaf_B = leaf(logp, tax)
    path_BK = nodes_above(tax, leaf_B.reshape(-1))
    path_BK = path_BK.view(*leaf_B.shape, path_BK.shape[-1])
    passing_BK = torch.where(passes(logp.detach().gather(-1, path_BK), tau), path_BK, 0)
    return passing_BK.amax(-1)  # a node has a higher id than its ancestors
