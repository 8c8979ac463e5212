"""Monte Carlo dropout: the dropout of the network also when it predicts (Gal and Ghahramani 2016).

S draws, B batch, D features, N nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn

from arbormax.encoders import ENCODERS
from arbormax.errors import OptionError
from arbormax.model.draws import raw_head
from arbormax.model.network import Model, evaluating
from arbormax.model.posterior import DrawsOptions, Posterior, Trained
from arbormax.model.settings import TrainConfig
from arbormax.uncertainty.copies import copy_model


class Dropout(Posterior):
    """Networks in which a part of the features is dropped at random; the training is that of a network with dropout."""

    Options = DrawsOptions
    options: DrawsOptions

    @classmethod
    def problems(cls, config: TrainConfig) -> list[OptionError]:
        if getattr(config.options, "dropout", 0.0) and not ENCODERS[config.encoder].has_fixed_features(config.options):
            return []
        message = f"the encoder {config.encoder!r} has no dropout; use its option dropout, or another method"
        return [OptionError(message, argument="uncertainty")]

    @classmethod
    def fit(cls, trained: Trained, options: Any) -> Self:
        del trained
        return cls(options)

    @property
    def draws(self) -> int:
        return self.options.draws

    def draw(self, model: Model, rows: Any, batch_size: int) -> Iterator[Tensor]:
        model = copy_model(model, ())  # because hooks on the model would also act on other predictions
        head = raw_head(model)
        generator = torch.Generator(model.device).manual_seed(model.config.seed)
        with _active(model, generator):
            passes = [model.row_features(rows, batch_size) for _ in range(self.draws)]
            for features in zip(*passes, strict=True):
                with evaluating(head):
                    logp_SBN = torch.stack([head.node_log_probs(h_BD) for h_BD in features])
                yield logp_SBN

    def state(self) -> dict[str, Tensor]:
        return {}

    @classmethod
    def restore(cls, model: Model, options: Any, state: dict[str, Tensor]) -> Self:
        del model, state
        return cls(options)


def _dropouts(model: Model) -> list[nn.Dropout]:
    return [module for module in model.modules() if isinstance(module, nn.Dropout) and module.p > 0]


@contextmanager
def _active(model: Model, generator: torch.Generator) -> Iterator[None]:
    """Inside the block the dropout layers drop features, with the random numbers of the generator."""

    def drop(module: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> Tensor:
        assert isinstance(module, nn.Dropout)
        (x,) = inputs
        is_kept = torch.rand(x.shape, generator=generator, device=x.device) >= module.p
        return x * is_kept / (1 - module.p)

    handles = [module.register_forward_hook(drop) for module in _dropouts(model)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
