"""The deepest node that is probable enough."""

from torch import Tensor

from arbormax.functional.threshold import check_node_log_probs, check_tau, deepest_node
from arbormax.taxonomy import Taxonomy


def threshold(logp: Tensor, tax: Taxonomy, tau: float = 0.5) -> Tensor:
    """Return the deepest node with P > tau, or the root if no other node passes.

    With tau < 0.5 several nodes of one level may pass; the most probable of the deepest is returned, and ties go to
    the lower node id. tau = 0.5 minimises the expected tree distance.

    Args:
        logp: (..., N) node log-probabilities.
        tax: the taxonomy.
        tau: the threshold, from 0 to 1.

    Returns:
        (...,) node ids, int64.

    >>> import torch
    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> logp = torch.tensor([[1.0, 0.6, 0.4, 0.3, 0.3, 0.4]]).log()
    >>> [threshold(logp, tax, tau).item() for tau in (0.2, 0.5, 0.7)]
    [5, 1, 0]
    """
    check_node_log_probs(logp, tax)
    return deepest_node(logp, tax, check_tau(tau))
