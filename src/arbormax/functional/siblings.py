"""Node log-probabilities changed within sibling groups.

N nodes, M = N - 1 columns (column j is node j + 1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from arbormax.functional.index import tree_index
from arbormax.functional.probabilities import node_log_probs
from arbormax.functional.threshold import check_node_log_probs
from arbormax.taxonomy import Taxonomy


def conditional_log_probs(logp: Tensor, tax: Taxonomy) -> Tensor:
    """Return the (..., M) log P(node | parent) of all non-root nodes, from (..., N) node log-probabilities.

    Below a node of probability zero all nodes get the value 0.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> conditional_log_probs(torch.tensor([1.0, 0.5, 0.5, 0.4, 0.1, 0.5]).log(), tax).exp()
    tensor([0.5000, 0.5000, 0.8000, 0.2000, 1.0000])
    """
    check_node_log_probs(logp, tax)
    above = logp.index_select(-1, tree_index(tax, logp.device).parent[1:])
    return torch.where(above == -torch.inf, 0.0, logp[..., 1:] - above)


def scale_siblings(logp: Tensor, scale: Tensor, shift: Tensor, tax: Taxonomy) -> Tensor:
    """Return (..., N) node log-probabilities: in every sibling group the softmax of `scale * log P + shift`.

    `logp` is (..., N), and `scale` and `shift` are (M,), one value per non-root node. A scale of 1 / T for all nodes of
    a group is temperature scaling of the group with the temperature T.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> logp = torch.tensor([1.0, 0.5, 0.5, 0.4, 0.1, 0.5]).log()
    >>> scale_siblings(logp, torch.full((5,), 0.5), torch.zeros(5), tax).exp()
    tensor([1.0000, 0.5000, 0.5000, 0.3333, 0.1667, 0.5000])
    """
    conditional = conditional_log_probs(logp, tax)
    return node_log_probs(scale.to(conditional) * conditional + shift.to(conditional), tax)
