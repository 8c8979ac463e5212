"""The node with the largest expected information.

N nodes.
"""

import math

import numpy as np
import torch
from torch import Tensor

from arbormax.errors import OptionError
from arbormax.functional.graphs import past_only_children
from arbormax.functional.index import cached_per_device
from arbormax.functional.threshold import check_node_log_probs
from arbormax.taxonomy import Taxonomy


def information(logp: Tensor, tax: Taxonomy, lam: float = 0.0) -> Tensor:
    """Return the node with the largest P·(I + λ); an only child stands for its parent, other ties go to the lower id.

    I = log2(classes / classes below the node) is the information of a correct prediction in bits; the reward of a wrong
    one is 0. A larger λ rewards correctness, and so gives less specific predictions.
    """
    check_node_log_probs(logp, tax)
    extra = _check_lam(lam)
    wide = torch.promote_types(logp.dtype, torch.float32)
    bits_N = _bits(tax, logp.device).to(wide)
    best_B = (logp.detach().to(wide) + (bits_N + extra).log()).argmax(-1)
    return past_only_children(tax, logp.device)[best_B]


@cached_per_device
def _bits(tax: Taxonomy, device: torch.device) -> Tensor:
    """(N,) the information of each node, in float64 and by NumPy, where that of the root is exactly 0."""
    return torch.from_numpy(np.log2(tax.num_leaves / tax.leaf_counts)).to(device)


def _check_lam(lam: object) -> float:
    try:
        value = float(lam)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise OptionError(f"expected a finite number of bits of at least 0, found {lam!r}", argument="lam")
    return value
