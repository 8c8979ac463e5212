"""Draws of the node log-probabilities of a model with uncertainty, and what they say about each node.

S draws, B batch, N nodes.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from arbormax._files import read_json
from arbormax.errors import InputError, OptionError
from arbormax.functional import scale_siblings
from arbormax.functional.graphs import steps_to
from arbormax.heads import TreeHead
from arbormax.heads.calibrated import CalibratedHead
from arbormax.model.network import CHUNK, Model, ModelInputs, evaluating, input_chunks
from arbormax.model.posterior import UNCERTAINTIES, Posterior
from arbormax.model.settings import validate
from arbormax.taxonomy import Taxonomy

_RECORD, _VALUES = "uncertainty.json", "uncertainty.safetensors"
_CELLS = 1 << 22  # log-probabilities of all draws that are in memory together


def get_posterior(model: Model) -> Posterior:
    """The posterior of a model, or an error if it has none."""
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

    The draws of an item depend on the items in its batch, as far as these share random numbers.
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


def decompose(logp_SBN: Tensor, tax: Taxonomy) -> dict[str, Tensor]:
    """The uncertainty of every node, (B, N) each, from draws of log-probabilities; entropies are in nats.

    `probability` and `std` are the mean and the standard deviation of P(node) over the draws. `total`, `aleatoric` and
    `epistemic` are about the question whether the item is at or below the node: the entropy of the mean, the mean
    entropy of the draws, and their difference, the mutual information of the answer and the draw. `children_total`,
    `children_aleatoric` and `children_epistemic` are about the choice among the children of the node, 0 for leaves.
    There, a draw counts in proportion to its P(node), so that the sum of P(node) times `children_epistemic` over all
    nodes is the mutual information of the class and the draw; likewise for the other two.
    """
    parent_M = torch.from_numpy(tax.parent[1:].copy()).to(logp_SBN.device)
    logp = logp_SBN.double()
    p = logp.exp()
    mean_BN = p.mean(0)
    total, aleatoric = _binary_entropy(mean_BN), _binary_entropy(p).mean(0)

    def of_children(logp: Tensor, p: Tensor) -> Tensor:
        """(..., N) P(node) times the entropy of the choice among its children."""
        steps = p[..., 1:] * (logp[..., parent_M] - logp[..., 1:])
        steps = torch.where(p[..., 1:] > 0, steps, 0.0)
        return torch.zeros_like(p).index_add(-1, parent_M, steps).clamp(min=0)

    children = of_children(mean_BN.log(), mean_BN)
    within = of_children(logp, p).mean(0)
    weight_BN = torch.where(mean_BN > 0, 1 / mean_BN, 0.0)
    return {
        "probability": mean_BN,
        "std": p.std(0, correction=0),
        "total": total,
        "aleatoric": aleatoric,
        "epistemic": (total - aleatoric).clamp(min=0),
        "children_total": children * weight_BN,
        "children_aleatoric": within * weight_BN,
        "children_epistemic": (children - within).clamp(min=0) * weight_BN,
    }


def path_uncertainty(logp_SBN: Tensor, nodes_B: Tensor, tax: Taxonomy) -> Tensor:
    """(B, K, 4) the values of `StepUncertainty` for each node on the path to the given nodes, on the CPU."""
    path_BK = torch.stack(steps_to(tax, nodes_B), dim=-1)
    with torch.inference_mode():
        found = decompose(logp_SBN, tax)
        return torch.stack([found[name].gather(1, path_BK) for name in StepUncertainty._fields], dim=-1)


class StepUncertainty(NamedTuple):
    """The uncertainty of one node of a path, see `decompose`; entropies are in nats."""

    probability: float  # the mean over the draws
    total: float
    aleatoric: float
    epistemic: float


def _binary_entropy(p: Tensor) -> Tensor:
    p = p.clamp(0, 1)
    return -(torch.xlogy(p, p) + torch.xlogy(1 - p, 1 - p))


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
    model.posterior = kind.restore(model, options, load_file(folder / _VALUES))
