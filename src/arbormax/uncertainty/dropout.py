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
        encoder = ENCODERS[config.encoder]
        if getattr(config.options, "dropout", 0.0) and not encoder.has_fixed_features(config.options):
            return []
        if "dropout" in encoder.Options.model_fields:
            needed = "needs a dropout above 0 and features that are trained"
            return [OptionError(f"'dropout' {needed}", argument="uncertainty")]
        names = tuple(
            name
            for name in ENCODERS
            if "dropout" in ENCODERS[name].Options.model_fields and ENCODERS[name].takes_texts == encoder.takes_texts
        )
        message = f"'dropout' is not possible with encoder {config.encoder!r}"
        return [OptionError(message, argument="uncertainty", fix={"encoder": names})]

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
        masks = _Masks(torch.Generator(model.device).manual_seed(model.config.seed))
        with masks.active(model):
            passes = [masks.use(number, model.row_features(rows, batch_size)) for number in range(self.draws)]
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


class _Masks:
    """Which features each draw drops: the same ones for all items, so that a draw is one network."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator, self._number = generator, 0
        self._kept: dict[tuple[int, nn.Module, int], Tensor] = {}

    def use(self, number: int, passes: Iterator[Tensor]) -> Iterator[Tensor]:
        """The batches of a pass, computed with the masks of this draw."""
        while True:
            self._number = number
            if (found := next(passes, None)) is None:
                return
            yield found

    @contextmanager
    def active(self, model: Model) -> Iterator[None]:
        """Inside the block the dropout layers drop features."""
        layers = [module for module in model.modules() if isinstance(module, nn.Dropout) and module.p > 0]
        handles = [module.register_forward_hook(self._drop) for module in layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _drop(self, module: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> Tensor:
        assert isinstance(module, nn.Dropout)
        (x,) = inputs
        key = self._number, module, x.shape[-1]
        if key not in self._kept:
            draw = torch.rand(x.shape[-1], generator=self._generator, device=x.device)
            self._kept[key] = (draw >= module.p) / (1 - module.p)
        return x * self._kept[key].to(x)
