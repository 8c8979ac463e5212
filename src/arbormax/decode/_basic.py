"""Node log-probabilities to one node per item.

B any leading dimensions, N nodes, C classes, L = depth + 1 levels.
"""

import math
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from arbormax.functional.index import tree_index
from arbormax.functional.threshold import check_node_log_probs, check_tau, level_best, stop_level
from arbormax.taxonomy.tree import Taxonomy


def leaf(logp: Tensor, tax: Taxonomy) -> Tensor:
    """The most probable leaf: node ids (...,) int64 from node log-probabilities (..., N); ties go by class order.

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
    >>> logp = torch.tensor([[1.0, 0.6, 0.4, 0.3, 0.3, 0.4]]).log()
    >>> leaf(logp, tax)
    tensor([5])
    """
    check_node_log_probs(logp, tax)
    leaves_C = tree_index(tax, logp.device).leaves
    return leaves_C[logp.detach()[..., leaves_C].argmax(-1)]


def greedy(logp: Tensor, tax: Taxonomy) -> Tensor:
    """The leaf that the best child at each step leads to: node ids (...,) int64 from node log-probabilities (..., N).

    Ties go to the first child, also where no child is possible (all at minus infinity).

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> logp = torch.tensor([[1.0, 0.6, 0.4, 0.3, 0.3, 0.4]]).log()
    >>> greedy(logp, tax)
    tensor([3])
    """
    check_node_log_probs(logp, tax)
    logp_BN = logp.detach()
    index = tree_index(tax, logp.device)
    parent_N, first_child_N = index.parent, index.first_child
    at_B = torch.zeros(logp.shape[:-1], dtype=torch.int64, device=logp.device)
    # one pass over each level with the other nodes' children masked: all levels together cost one pass over (B, N)
    for start, stop in pairwise(accumulate((1, *index.levels))):
        elsewhere = parent_N[start:stop] != at_B[..., None]
        best_B = start + logp_BN[..., start:stop].masked_fill(elsewhere, -math.inf).argmax(-1)
        # where every child is at minus infinity the masked maximum may be nobody's child
        best_B = torch.where(parent_N[best_B] == at_B, best_B, first_child_N[at_B])
        at_B = torch.where(first_child_N[at_B] > 0, best_B, at_B)
    return at_B


def threshold(logp: Tensor, tax: Taxonomy, tau: float = 0.5) -> Tensor:
    """The deepest node with P > tau: node ids (...,) int64 from node log-probabilities (..., N).

    Below 0.5 several nodes of a level may pass: the most probable of the deepest is taken, ties go to the lower node
    id. The root is the answer when none passes. At 0.5 the expected tree distance is least.

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> logp = torch.tensor([[1.0, 0.6, 0.4, 0.3, 0.3, 0.4]]).log()
    >>> [threshold(logp, tax, tau).item() for tau in (0.2, 0.5, 0.7)]
    [5, 1, 0]
    """
    check_node_log_probs(logp, tax)
    tau = check_tau(tau)
    best_BL, nodes_BL = level_best(logp, tax)
    return nodes_BL.gather(-1, stop_level(best_BL, tau)[..., None]).squeeze(-1)
