"""The best child at every step."""

import math
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from arbormax.functional.graphs import GraphIndex, graph_index
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
    if tax.is_graph:
        return _greedy_walk(logp_BN, graph_index(tax, logp.device))
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


def _greedy_walk(logp_BN: Tensor, index: GraphIndex) -> Tensor:
    """The same in a graph, where the children of a node are anywhere on the levels below."""
    current_B = torch.zeros(logp_BN.shape[:-1], dtype=torch.int64, device=logp_BN.device)
    offset_S = torch.arange(index.max_children, device=logp_BN.device)
    for _ in range(index.depth):
        start_B = index.edge_start[current_B]
        count_B = index.edge_start[current_B + 1] - start_B
        children_BS = index.edge_child[(start_B[..., None] + offset_S).clamp(max=len(index.edge_child) - 1)]
        is_padding = offset_S >= count_B[..., None]
        best_B = logp_BN.gather(-1, children_BS).masked_fill(is_padding, -math.inf).argmax(-1, keepdim=True)
        current_B = torch.where(count_B > 0, children_BS.gather(-1, best_B).squeeze(-1), current_B)
    return current_B
