"""Laplace's method for the head: a Gaussian over its rows, around the trained ones (Daxberger et al. 2021).

The Hessian of a softmax for each parent has one block for each parent. The precision of the prior maximises the
marginal likelihood. The logits of an item are Gaussian, too, so that they are drawn instead of weights.

n items, D features, M rows, S draws, B batch, N nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from arbormax.data.examples import Examples
from arbormax.encoders import ENCODERS
from arbormax.errors import InputError, OptionError
from arbormax.heads import TreeHead
from arbormax.model.draws import predicted_log_probs, raw_head
from arbormax.model.network import Model, evaluating
from arbormax.model.posterior import DrawsOptions, Posterior, Trained
from arbormax.model.settings import TrainConfig
from arbormax.uncertainty.dense import DenseRows
from arbormax.uncertainty.noise import standard_normals
from arbormax.uncertainty.sparse import SparseRows

Rows = DenseRows | SparseRows  # the Gaussian over the rows of a head
_FACTORS = tuple(10 ** (power / 2) for power in range(9))
_MOST_HELD_OUT = 1000
_SPARSE_STRUCTURES = ("auto", "diagonal")


class LaplaceOptions(DrawsOptions):
    structure: Literal["auto", "full", "kronecker", "diagonal"] = Field(
        "auto",
        description="form of the Hessian of each softmax: full, kronecker or diagonal; auto is full for small ones and "
        "kronecker for others, and diagonal for sparse features",
    )
    prior: Literal["tree", "parent"] = Field(
        "tree", description="whether all softmaxes share one precision of the prior, or each has its own"
    )
    precision: float | None = Field(
        None, gt=0, description="precision of the prior; by default it maximises the marginal likelihood"
    )
    factor: float | None = Field(
        None,
        gt=0,
        description="factor of this precision; by default 1, and with sparse features the one from 1 to 10,000 under "
        "which held-out examples are most likely",
    )


class Laplace(Posterior):
    """A Gaussian over the rows of a head with one softmax for each parent, or of a flat one."""

    Options = LaplaceOptions
    needs_logits = True
    options: LaplaceOptions

    def __init__(self, options: LaplaceOptions, rows: Rows) -> None:
        super().__init__(options)
        self.rows = rows

    @classmethod
    def supports_head(cls, head: type[TreeHead]) -> bool:
        return head.has_logits and head.supports_convex

    @classmethod
    def problems(cls, config: TrainConfig) -> list[OptionError]:
        problems = []
        if config.adapter:
            message = "needs rows that all meet the same features, which adapters change"
            problems.append(OptionError(message, argument="uncertainty", fix={"adapter": 0}))
        if ENCODERS[config.encoder].has_sparse_features(config.options):
            structure = config.uncertainty_options.get("structure", "auto")
            if structure not in _SPARSE_STRUCTURES:
                message = f"{structure!r} needs dense features, and those of encoder {config.encoder!r} are sparse"
                problems.append(OptionError(message, argument="uncertainty_options.structure"))
            if config.solver_in_use == "adam":
                message = "with sparse features, 'laplace' needs the sparse weights of the convex solver"
                problems.append(OptionError(message, argument="uncertainty", fix={"solver": "convex"}))
        return problems

    @classmethod
    def choose(cls, trained: Trained, held_out: Examples | None, options: Any) -> Any:
        head = raw_head(trained.model)
        if options.factor is not None or options.precision is not None or head.sparse_weight is None:
            return options
        unscaled = cls.fit(trained, options)
        if held_out is None:
            raise InputError(
                "with sparse features, the factor of the precision of the prior is chosen on held-out examples, and "
                "there are none",
                argument="uncertainty_options.factor",
                fix={"validation": 0.1},
            )
        if len(held_out) > _MOST_HELD_OUT:
            chosen = np.random.default_rng(0).permutation(len(held_out))[:_MOST_HELD_OUT]
            held_out = held_out.take(np.sort(chosen))
        losses = {
            factor: _loss(trained.model, cls(options, unscaled.rows.with_factor(factor)), held_out)
            for factor in _FACTORS
        }
        return options.model_copy(update={"factor": min(losses, key=losses.__getitem__)})

    @classmethod
    def fit(cls, trained: Trained, options: Any) -> Self:
        model, nodes = trained.model, trained.examples.nodes
        head = raw_head(model)
        parts = list(model.features(trained.examples.inputs))
        is_sparse = parts[0].layout != torch.strided
        if is_sparse and options.structure not in _SPARSE_STRUCTURES:
            message = f"{options.structure!r} needs dense features, and those of this encoder are sparse"
            raise OptionError(message, argument="uncertainty_options.structure")
        if is_sparse and head.sparse_weight is None:
            raise InputError(
                "with sparse features, the weight of the head must be sparse, too: train with the convex solver",
                argument="uncertainty",
                fix={"solver": "convex"},
            )
        kind: type[Rows] = SparseRows if is_sparse else DenseRows
        rows = kind.fit(head, parts, nodes, options.structure, options.prior, options.precision)
        return cls(options, rows if options.factor in (None, 1) else rows.with_factor(options.factor))

    @property
    def draws(self) -> int:
        return self.options.draws

    def draw(self, model: Model, rows: Any, batch_size: int) -> Iterator[Tensor]:
        head = raw_head(model)
        self.rows.to(model.device)
        generator = torch.Generator(model.device).manual_seed(model.config.seed)
        normal_SM = standard_normals(self.draws, head.num_rows(head.taxonomy), generator)
        for h_BD in model.row_features(rows, batch_size):
            with evaluating(head):
                noise_SBM = self.rows.noise(h_BD, normal_SM)
                logp_SBN = head.from_logits(head.logits(h_BD) + noise_SBM)
            yield logp_SBN

    def state(self) -> dict[str, Tensor]:
        return self.rows.state()

    @classmethod
    def restore(cls, model: Model, options: Any, state: dict[str, Tensor]) -> Self:
        kind: type[Rows] = SparseRows if raw_head(model).sparse_weight is not None else DenseRows
        return cls(options, kind.restore(raw_head(model), state))

    def describe(self) -> dict[str, Any]:
        """The precisions, the evidence and how many groups have which form."""
        return self.rows.describe()


def _loss(model: Model, posterior: Laplace, examples: Examples) -> float:
    """The negative log-likelihood of labels under the mean over the draws."""
    model.posterior = posterior
    try:
        logp_nN = torch.cat(list(predicted_log_probs(model, examples.inputs)))
    finally:
        model.posterior = None
    return -float(logp_nN[torch.arange(len(logp_nN)), torch.from_numpy(examples.nodes)].double().sum())
