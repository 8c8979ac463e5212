"""The most probable leaf."""

from torch import Tensor

from arbormax.functional.graphs import node_index
from arbormax.functional.threshold import check_node_log_probs
from arbormax.taxonomy import Taxonomy


def leaf(logp: Tensor, tax: Taxonomy) -> Tensor:
    """Return the most probable leaf of each item; ties go to the first class.

    Args:
        logp: (..., N) node log-probabilities.
        tax: the taxonomy.

    Returns:
        (...,) node ids, int64.

    >>> import torch
    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
    >>> logp = torch.tensor([[1.0, 0.6, 0.4, 0.3, 0.3, 0.4]]).log()
    >>> leaf(logp, tax)
    tensor([5])
    """
    check_node_log_probs(logp, tax)
    leaves_C = node_index(tax, logp.device).leaves
    return leaves_C[logp.detach()[..., leaves_C].argmax(-1)]
