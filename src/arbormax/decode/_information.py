"""The node with the largest expected information.

N nodes.
"""

import math

import torch
from torch import Tensor

from arbormax.errors import OptionError
from arbormax.functional.threshold import check_node_log_probs
from arbormax.taxonomy import Taxonomy


def information(logp: Tensor, tax: Taxonomy, lam: float = 0.0) -> Tensor:
    """Return the node with the largest P·(I + λ); ties go to the lower node id.

    I = log2(classes / classes below the node) is the information of a correct prediction in bits; the reward of a wrong
    one is 0. A larger λ rewards correctness, and so gives less specific predictions.
    """
    check_node_log_probs(logp, tax)
    extra = _check_lam(lam)
    wide = torch.promote_types(logp.dtype, torch.float32)
    counts_N = torch.tensor(tax.leaf_counts, device=logp.device, dtype=wide)
    bits_N = torch.log2(tax.num_leaves / counts_N)
    return (logp.detach().to(wide) + (bits_N + extra).log()).argmax(-1)


def _check_lam(lam: object) -> float:
    try:
        value = float(lam)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise OptionError(f"expected a finite number of bits of at least 0, found {lam!r}", argument="lam")
    return value
