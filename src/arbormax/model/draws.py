"""Draws of the node log-probabilities of a model with uncertainty, and what they say about each node.

S draws, B batch, N nodes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from arbormax._files import read_json
from arbormax.decode import Restriction
from arbormax.errors import InputError, OptionError
from arbormax.functional import scale_siblings
from arbormax.functional.graphs import steps_to
from arbormax.heads import TreeHead
from arbormax.heads.calibrated import CalibratedHead
from arbormax.model.finite import check_finite
from arbormax.model.network import CHUNK, Model, ModelInputs, evaluating, input_chunks
from arbormax.model.posterior import UNCERTAINTIES, Posterior
from arbormax.model.settings import validate
from arbormax.taxonomy import Taxonomy

if TYPE_CHECKING:
    from arbormax.model.calibration import Scaling

_RECORD, _VALUES = "uncertainty.json", "uncertainty.safetensors"
_CELLS = 1 << 22  # log-probabilities of all draws that are in memory together


def get_posterior(model: Model) -> Posterior:
    """The posterior of a model, or an error if it has none."""
    if model.posterior is None and model.config.uncertainty is not None:
        raise InputError("an edit of its taxonomy has removed the uncertainty of this model; train it again")
    if model.posterior is None:
        raise InputError(
            "this model has no uncertainty; train it with the setting uncertainty, such as 'laplace' "
            f"(available: {', '.join(UNCERTAINTIES)})"
        )
    return model.posterior


def raw_head(model: Model) -> TreeHead:
    """The head of a model without its calibration."""
    return model.head.base if isinstance(model.head, CalibratedHead) else model.head


def check_tree(head: TreeHead) -> None:
    """Raise if the tree is too large for draws of the log-probabilities of all nodes."""
    if head.searches:
        raise OptionError(
            f"draws of a model score all nodes, which is too slow for a tree of {head.taxonomy.num_nodes:,} nodes",
            argument="uncertainty",
        )


def draws_batch(model: Model, batch_size: int = 256) -> int:
    """The number of items whose draws fit into a fixed amount of memory."""
    cells = model.taxonomy.num_nodes * get_posterior(model).draws
    return max(1, min(batch_size, CHUNK, _CELLS // cells)) if batch_size > 0 else batch_size


def node_draws(model: Model, inputs: ModelInputs, batch_size: int = 256) -> Iterator[Tensor]:
    """(S, B, N) draws of the log-probabilities of every node on the CPU, a batch at a time, in the order of the inputs.

    The draws of an item are the same in every batch.
    """
    posterior, size = get_posterior(model), draws_batch(model, batch_size)
    check_tree(model.head)
    head = model.head
    for chunk in input_chunks(inputs, CHUNK):
        with evaluating(model):
            rows = model.encoder.encode(chunk)
        for logp_SBN in posterior.draw(model, rows, size):
            with torch.inference_mode():
                if isinstance(head, CalibratedHead):
                    logp_SBN = scale_siblings(logp_SBN, head.scale, head.shift, head.taxonomy)
                yield logp_SBN.cpu()


def predicted_log_probs(
    model: Model, inputs: ModelInputs, batch_size: int = 256, scaling: Scaling | None = None
) -> Iterator[Tensor]:
    """(B, N) log-probabilities that a model predicts, a batch at a time: with uncertainty, of the mean over the draws.

    They are on the CPU. With `scaling`, they are those that the model would predict after this calibration.
    """
    if model.posterior is None:
        for logp_BN in model.node_log_probs(inputs, batch_size):
            yield scale_log_probs(logp_BN.cpu(), scaling, model.taxonomy)
        return
    for logp_SBN in node_draws(model, inputs, batch_size):
        yield mean_log_probs(scale_log_probs(logp_SBN, scaling, model.taxonomy))


def scale_log_probs(logp: Tensor, scaling: Scaling | None, tax: Taxonomy) -> Tensor:
    """(..., N) log-probabilities on the CPU after a calibration."""
    if scaling is None:
        return logp
    return scale_siblings(logp, torch.from_numpy(scaling.scale), torch.from_numpy(scaling.shift), tax)


def mean_log_probs(logp_SBN: Tensor) -> Tensor:
    """(B, N) the logarithm of the mean probability over the draws."""
    return logp_SBN.logsumexp(0) - math.log(len(logp_SBN))


def restrict_draws(logp_SBN: Tensor, restriction: Restriction, tax: Taxonomy, start: int = 0) -> tuple[Tensor, Tensor]:
    """(S, B, N) draws given that the class is allowed, and (S, B) the weight of each draw.

    A draw counts in proportion to the probability that it gives to the allowed classes. The weighted mean of the draws
    is then the mean of all draws, restricted. The first item has the number `start` in the restriction.
    """
    restricted_SBN = torch.stack([restriction.apply(logp_BN, start) for logp_BN in logp_SBN])
    leaves_C = torch.tensor(tax.leaves)
    best_SB1 = leaves_C[restricted_SBN[..., leaves_C].argmax(-1, keepdim=True)]  # one of the allowed
    mass_SB = (logp_SBN.gather(-1, best_SB1) - restricted_SBN.gather(-1, best_SB1)).squeeze(-1)
    is_impossible = (mass_SB == -torch.inf).all(0)
    return restricted_SBN, mass_SB.masked_fill(is_impossible, 0.0).softmax(0)


def decompose(logp_SBN: Tensor, tax: Taxonomy, weight_SB: Tensor | None = None) -> dict[str, Tensor]:
    """The uncertainty of every node, (B, N) each, from draws of log-probabilities; entropies are in nats.

    `probability` and `std` are the mean and the standard deviation of P(node) over the draws. `total`, `aleatoric` and
    `epistemic` are about the question whether the item is at or below the node: the entropy of the mean, the mean
    entropy of the draws, and their difference, the mutual information of the answer and the draw. `children_total`,
    `children_aleatoric` and `children_epistemic` are about the choice among the children of the node, 0 for leaves.
    There, a draw counts in proportion to its P(node), so that the sum of P(node) times `children_epistemic` over all
    nodes is the mutual information of the class and the draw; likewise for the other two. `weight_SB` are the weights
    of the draws, which sum to 1 for each item, instead of equal ones.
    """

    def average(values_SBN: Tensor) -> Tensor:
        return values_SBN.mean(0) if weight_SB is None else (weight_SB.double()[..., None] * values_SBN).sum(0)

    parent_M = torch.from_numpy(tax.parent[1:].copy()).to(logp_SBN.device)
    logp = logp_SBN.double()
    p = logp.exp()
    mean_BN = average(p)
    total, aleatoric = _binary_entropy(mean_BN), average(_binary_entropy(p))

    def of_children(logp: Tensor, p: Tensor) -> Tensor:
        """(..., N) P(node) times the entropy of the choice among its children."""
        steps = p[..., 1:] * (logp[..., parent_M] - logp[..., 1:])
        steps = torch.where(p[..., 1:] > 0, steps, 0.0)
        return torch.zeros_like(p).index_add(-1, parent_M, steps).clamp(min=0)

    children = of_children(mean_BN.log(), mean_BN)
    within = average(of_children(logp, p))
    weight_BN = torch.where(mean_BN > 0, 1 / mean_BN, 0.0)
    return {
        "probability": mean_BN,
        "std": average((p - mean_BN).square()).sqrt(),
        "total": total,
        "aleatoric": aleatoric,
        "epistemic": (total - aleatoric).clamp(min=0),
        "children_total": children * weight_BN,
        "children_aleatoric": within * weight_BN,
        "children_epistemic": (children - within).clamp(min=0) * weight_BN,
    }


def path_uncertainty(logp_SBN: Tensor, nodes_B: Tensor, tax: Taxonomy, weight_SB: Tensor | None = None) -> Tensor:
    """(B, K, 4) the values of `StepUncertainty` for each node on the path to the given nodes, on the CPU."""
    path_BK = torch.stack(steps_to(tax, nodes_B), dim=-1)
    with torch.inference_mode():
        found = decompose(logp_SBN, tax, weight_SB)
        return torch.stack([found[name].gather(1, path_BK) for name in StepUncertainty._fields], dim=-1)


class StepUncertainty(NamedTuple):
    """The uncertainty of one node of a path, see `decompose`; entropies are in nats."""

    std: float  # of the probability over the draws
    total: float
    aleatoric: float
    epistemic: float


def _binary_entropy(p: Tensor) -> Tensor:
    p = p.clamp(0, 1)
    return 0.0 - torch.xlogy(p, p) - torch.xlogy(1 - p, 1 - p)  # the negative of 0 would be -0.0


def write_posterior(model: Model, folder: Path) -> None:
    """Write the posterior of a model, if it has one."""
    posterior = model.posterior
    if posterior is None:
        return
    method = next(name for name in UNCERTAINTIES if UNCERTAINTIES[name] is type(posterior))
    record = {"method": method, "options": posterior.options.model_dump(mode="json"), "fit": posterior.describe()}
    (folder / _RECORD).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    save_file({name: value.cpu().contiguous().clone() for name, value in posterior.state().items()}, folder / _VALUES)
    (folder / _VALUES).chmod((folder / _RECORD).stat().st_mode)


def read_posterior(model: Model, folder: Path, files: Container[str]) -> None:
    """Give a model, whose weights were read and are not calibrated yet, the posterior of its folder."""
    if _RECORD not in files:
        return
    record = read_json(folder / _RECORD)
    kind = UNCERTAINTIES[record["method"]]
    options = validate(kind.Options, record["options"], f"uncertainty {record['method']!r}", "uncertainty_options")
    values = load_file(folder / _VALUES)
    check_finite(values, "train the model again")
    model.posterior = kind.restore(model, options, values)
