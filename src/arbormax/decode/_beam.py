"""The most probable paths from the root to a leaf."""

from torch import Tensor

from arbormax.errors import OptionError
from arbormax.functional.best import top_classes
from arbormax.functional.graphs import node_index
from arbormax.functional.threshold import check_node_log_probs
from arbormax.taxonomy import Taxonomy


def beam(logp: Tensor, tax: Taxonomy, k: int = 5) -> Tensor:
    """Return the leaves at which the k most probable paths end, the best first; ties are in class order.

    The result is exact. If the taxonomy has fewer than k classes, it contains all of them.

    Args:
        logp: (..., N) node log-probabilities.
        tax: the taxonomy.
        k: the number of paths.

    Returns:
        (..., k) node ids, int64.

    >>> import torch
    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> beam(torch.tensor([[1.0, 0.7, 0.3, 0.5, 0.2, 0.3]]).log(), tax, k=2)
    tensor([[3, 5]])
    """
    check_node_log_probs(logp, tax)
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise OptionError(f"expected a number of paths of at least 1, found {k!r}", argument="k")
    leaves_C = node_index(tax, logp.device).leaves
    _, classes = top_classes(logp.detach()[..., leaves_C], min(k, tax.num_leaves))
    return leaves_C[classes]
