"""The threshold rule that decoders and measures share: the deepest node with P > tau.

B any leading dimensions, N nodes, L = depth + 1 levels.
"""

import math
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from arbormax.errors import InputError, OptionError
from arbormax.functional.graphs import node_index
from arbormax.taxonomy import Taxonomy

ROUNDING = 1e-2  # how far above 0 half precision may round a log-probability of 0


def check_node_log_probs(logp_BN: Any, tax: Taxonomy) -> None:
    """Raise unless the argument is a floating-point tensor with one column for every node."""
    expected = f"expected node log-probabilities, a floating-point tensor of shape (..., {tax.num_nodes})"
    if not isinstance(logp_BN, Tensor):
        raise InputError(f"{expected}, found {type(logp_BN).__name__}")
    if not logp_BN.is_floating_point():
        raise InputError(f"{expected}, found {logp_BN.dtype}")
    width = logp_BN.shape[-1] if logp_BN.ndim else None
    if width == tax.num_nodes:
        can_read = logp_BN.device.type == "cpu" and not torch.compiler.is_compiling()
        if can_read and bool((logp_BN.detach()[..., 0] > ROUNDING).any()):
            raise InputError(
                "the log-probability of the root must be 0, found a larger value; logits and probabilities are not "
                "accepted"
            )
        return
    hint = ""
    if width == tax.num_leaves:
        hint = f"; {width} is the number of classes: pass head.node_log_probs(h) instead of leaf log-probabilities"
    elif width == tax.num_nodes - 1:
        hint = f"; {width} is the number of logits: pass functional.node_log_probs(logits, tax)"
    raise InputError(f"{expected}, found the shape {tuple(logp_BN.shape)}{hint}")


def check_tau(tau: Any) -> float:
    """Return a threshold as a float, or raise if it is not from 0 to 1."""
    try:
        value = float(tau)
    except (TypeError, ValueError) as error:
        raise OptionError(f"expected a probability from 0 to 1, found {tau!r}", argument="tau") from error
    if not 0 <= value <= 1:
        raise OptionError(f"expected a probability from 0 to 1, found {tau!r}", argument="tau")
    return value


def level_best(logp_BN: Tensor, tax: Taxonomy) -> tuple[Tensor, Tensor]:
    """Return the (B, L) log-probabilities and ids of the most probable node of each level; ties go to the lowest id."""
    # argmax and one gather: max(dim) starts all threads for every level, however narrow
    logp_BN = logp_BN.detach()
    spans = pairwise(accumulate((0, 1, *node_index(tax, logp_BN.device).levels)))
    nodes_BL = torch.stack([logp_BN[..., start:stop].argmax(-1) + start for start, stop in spans], -1)
    return logp_BN.gather(-1, nodes_BL), nodes_BL


def passes(logp: Tensor, tau: float) -> Tensor:
    """Return where P > tau, from log-probabilities of any shape."""
    # Nothing is more probable than 1: a log-probability above 0 is rounding.
    bar = math.inf if tau == 1 else math.log(tau) if tau else -math.inf
    # Compared in the precision of the tensor, in which P == tau must not pass.
    return logp > torch.tensor(bar, dtype=logp.dtype, device=logp.device)


def stop_level(best_BL: Tensor, tau: float) -> Tensor:
    """Return the (B,) deepest level whose best node has P > tau, 0 if no level has one."""
    levels_L = torch.arange(best_BL.shape[-1], device=best_BL.device)
    return (passes(best_BL, tau) * levels_L).amax(-1)


def deepest_node(logp_BN: Tensor, tax: Taxonomy, tau: float) -> Tensor:
    """Return the (B,) deepest node with P > tau, from (B, N) node log-probabilities."""
    best_BL, nodes_BL = level_best(logp_BN, tax)
    return nodes_BL.gather(-1, stop_level(best_BL, tau).unsqueeze(-1)).squeeze(-1)
