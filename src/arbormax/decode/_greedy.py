"""The best child at every step."""

import math
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from arbormax.functional.index import tree_index
from arbormax.functional.threshold import check_node_log_probs
from arbormax.taxonomy import Taxonomy


def greedy(logp: Tensor, tax: Taxonomy) -> Tensor:
    """Return the leaf that is reached by following the most probable child from the root.

    Ties go to the first child, also where all children have probability zero.

    Args:
        logp: (..., N) node log-probabilities.
        tax: the taxonomy.

    Returns:
        (...,) node ids, int64.

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
    current_B = torch.zeros(logp.shape[:-1], dtype=torch.int64, device=logp.device)
    # Each level is scanned once, with the children of other nodes masked: one pass over (B, N) in total.
    for start, stop in pairwise(accumulate((1, *index.levels))):
        masked = parent_N[start:stop] != current_B[..., None]
        best_B = start + logp_BN[..., start:stop].masked_fill(masked, -math.inf).argmax(-1)
        # If every child is at minus infinity, the masked maximum may be the child of another node.
        best_B = torch.where(parent_N[best_B] == current_B, best_B, first_child_N[current_B])
        current_B = torch.where(first_child_N[current_B] > 0, best_B, current_B)
    return current_B
