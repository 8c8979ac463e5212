"""The threshold rule, which decoders and measures share: how deep to go when a node must be more probable than tau.

B any leading dimensions, N nodes, C classes, L = depth + 1 levels.
"""

import math
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from arbormax.errors import InputError, OptionError
from arbormax.functional.index import tree_index
from arbormax.taxonomy.tree import Taxonomy

ROUNDING = 1e-2  # what half precision may make of a log-probability of 0


def check_node_log_probs(logp_BN: Any, tax: Taxonomy) -> None:
    """Refuse what is not a floating-point tensor with one column for every node."""
    expected = f"expected node log-probabilities, a floating-point tensor of shape (..., {tax.num_nodes})"
    if not isinstance(logp_BN, Tensor):
        raise InputError(f"{expected}, found {type(logp_BN).__name__}")
    if not logp_BN.is_floating_point():
        raise InputError(f"{expected}, found {logp_BN.dtype}")
    width = logp_BN.shape[-1] if logp_BN.ndim else None
    if width == tax.num_nodes:
        reads = logp_BN.device.type == "cpu" and not torch.compiler.is_compiling()
        if reads and bool((logp_BN.detach()[..., 0] > ROUNDING).any()):
            raise InputError("the root's log-probability is 0, here it is above: no logits or probabilities")
        return
    hint = ""
    if width == tax.num_leaves:
        hint = f"; {width} is the number of classes: leaf log-probabilities were given, use head.node_log_probs"
    elif width == tax.num_nodes - 1:
        hint = f"; {width} is the number of logits: turn them into log-probabilities with functional.node_log_probs"
    raise InputError(f"{expected}, found shape {tuple(logp_BN.shape)}{hint}")


def check_tau(tau: Any) -> float:
    """A threshold as a float in [0, 1]."""
    try:
        value = float(tau)
    except (TypeError, ValueError) as error:
        raise OptionError(f"expected a probability from 0 to 1, found {tau!r}", argument="tau") from error
    if not 0 <= value <= 1:
        raise OptionError(f"expected a probability from 0 to 1, found {tau!r}", argument="tau")
    return value


def level_best(logp_BN: Tensor, tax: Taxonomy) -> tuple[Tensor, Tensor]:
    """The log-probability (B, L) of the most probable node of each level, and that node (B, L); ties: the lowest id."""
    # argmax and one gather, as max(dim) wakes all threads for every level, however narrow
    logp_BN = logp_BN.detach()
    spans = pairwise(accumulate((0, 1, *tree_index(tax, logp_BN.device).levels)))
    nodes_BL = torch.stack([logp_BN[..., start:stop].argmax(-1) + start for start, stop in spans], -1)
    return logp_BN.gather(-1, nodes_BL), nodes_BL


def passes(logp: Tensor, tau: float) -> Tensor:
    """Where P > tau, from log-probabilities of any shape."""
    # nothing is more probable than 1; a log-probability above 0 is rounding
    bar = math.inf if tau == 1 else math.log(tau) if tau else -math.inf
    # compared in the tensor's own precision, in which P == tau must not pass
    return logp > torch.tensor(bar, dtype=logp.dtype, device=logp.device)


def stop_level(best_BL: Tensor, tau: float) -> Tensor:
    """The deepest level (B,) whose best node has P > tau; 0, the root's, when none has."""
    levels_L = torch.arange(best_BL.shape[-1], device=best_BL.device)
    return (passes(best_BL, tau) * levels_L).amax(-1)
