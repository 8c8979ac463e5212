"""Bayes by Backprop: a Gaussian for every weight of the head and of the LSTMs (Blundell et al. 2015).

The means are the weights of the model, and the standard deviations are softplus(ρ). The loss of a step is that of one
draw plus the divergence from the prior, divided by the number of training items. The head draws its logits, one by one
for each item (the local reparameterisation of Kingma et al. 2015), an LSTM one set of weights for each step.

S draws, B batch, D features, M rows, N nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

from arbormax.encoders import ENCODERS
from arbormax.errors import OptionError
from arbormax.heads import TreeHead
from arbormax.model.draws import raw_head
from arbormax.model.network import Model, evaluating
from arbormax.model.posterior import DrawsOptions, Posterior, Trained
from arbormax.model.settings import TrainConfig
from arbormax.uncertainty.copies import copy_model
from arbormax.uncertainty.noise import standard_normals


class BayesOptions(DrawsOptions):
    prior_std: float = Field(1.0, gt=0, description="standard deviation of the prior of the head's weights")
    lstm_prior_std: float = Field(0.1, gt=0, description="standard deviation of the prior of the other weights")
    initial_std: float = Field(0.02, gt=0, description="standard deviation of every weight before training")
    kl_weight: float = Field(
        0.03,
        ge=0,
        description="factor of the divergence from the prior; 1 is Bayesian and underfits with few texts, less is a "
        "cold posterior",
    )
    annealing: float = Field(
        0.5, ge=0, le=1, description="share of the steps during which the factor of the divergence rises from zero"
    )


class BayesByBackprop(Posterior):
    """Independent Gaussians over the weights of the head and of the LSTMs, which are trained instead of the weights."""

    Options = BayesOptions
    needs_logits = True
    trains = True
    options: BayesOptions

    def __init__(self, options: BayesOptions, stds: dict[str, Tensor]) -> None:
        super().__init__(options)
        self.stds = stds

    @classmethod
    def problems(cls, config: TrainConfig) -> list[OptionError]:
        encoder, argument = ENCODERS[config.encoder], "uncertainty"
        problems = []
        if encoder.bayesian_parts is None or encoder.has_sparse_features(config.options):
            takes_texts = encoder.takes_texts
            names = tuple(
                name
                for name in ENCODERS
                if ENCODERS[name].bayesian_parts is not None and ENCODERS[name].takes_texts == takes_texts
            )
            message = f"'bbb' is not possible with encoder {config.encoder!r}"
            problems.append(OptionError(message, argument=argument, fix={"encoder": names}))
        for name in ("adapter", "sparse_head"):
            if getattr(config, name):
                problems.append(OptionError(f"'bbb' cannot be combined with {name}", argument=argument))
        if config.names == "tied":
            problems.append(OptionError("'bbb' cannot be combined with names='tied'", argument=argument))
        if config.precision == "16-mixed":
            problems.append(OptionError("'bbb' needs gradients that are not scaled", argument="precision"))
        return problems

    @classmethod
    def prepare(cls, model: Model, options: Any, items: int) -> Variational:
        return Variational(model, options, items)

    @classmethod
    def fit(cls, trained: Trained, options: Any) -> Self:
        assert isinstance(trained.prepared, Variational)
        return cls(options, trained.prepared.stds())

    @property
    def draws(self) -> int:
        return self.options.draws

    def draw(self, model: Model, rows: Any, batch_size: int) -> Iterator[Tensor]:
        head, device = raw_head(model), model.device
        generator = torch.Generator(device).manual_seed(model.config.seed)
        stds = {name: self.stds[name].to(device) for name in sorted(self.stds)}  # the order in which noise is drawn
        weight, bias = stds.pop("head.weight"), stds.pop("head.bias", None)
        normal_SM = standard_normals(self.draws, len(weight), generator)
        for features in self._features(model, rows, batch_size, stds, generator):
            with evaluating(head):
                drawn = zip(features, normal_SM, strict=True)
                logits = [head.logits(h_BD) + logit_stds(h_BD, weight, bias) * normal_M for h_BD, normal_M in drawn]
                logp_SBN = torch.stack([head.from_logits(each) for each in logits])
            yield logp_SBN

    def _features(
        self, model: Model, rows: Any, batch_size: int, stds: dict[str, Tensor], generator: torch.Generator
    ) -> Iterator[list[Tensor]]:
        """S features of each batch, each with another draw of the weights of the encoder."""
        if not stds:
            yield from ([h_BD] * self.draws for h_BD in model.row_features(rows, batch_size))
            return
        sampled = copy_model(model, stds)
        passes = []
        for _ in range(self.draws):
            with torch.no_grad():
                for name, std in stds.items():
                    noise = torch.randn(std.shape, generator=generator, device=std.device, dtype=std.dtype)
                    sampled.get_parameter(name).copy_(model.get_parameter(name) + std * noise)
            passes.append(list(sampled.row_features(rows, batch_size)))
        yield from map(list, zip(*passes, strict=True))

    def state(self) -> dict[str, Tensor]:
        return self.stds

    @classmethod
    def restore(cls, model: Model, options: Any, state: dict[str, Tensor]) -> Self:
        del model
        return cls(options, state)


def logit_stds(h_BD: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(B, M) the standard deviations of the logits of each item, for these of the rows."""
    variance = linear(h_BD.square(), weight.square(), None if bias is None else bias.square())
    # at a variance of zero the square root has no gradient
    return variance.clamp(min=1e-16).sqrt()


class Variational(nn.Module):
    """The standard deviations of a model in training, and what they add to a step."""

    def __init__(self, model: Model, options: BayesOptions, items: int) -> None:
        super().__init__()
        self.options, self.items = options, items
        encoder = ENCODERS[model.config.encoder]
        parts = tuple(f"encoder.{part}." for part in encoder.bayesian_parts or ())
        names = [name for name, _ in model.named_parameters() if name.startswith(parts)] if parts else []
        self.sampled = {name: model.get_parameter(name) for name in names}
        self.exact = {f"head.{name}": value for name, value in model.head.named_parameters(recurse=False)}
        # softplus(rho) is the standard deviation
        start = math.log(math.expm1(options.initial_std))
        self.rho = nn.ParameterDict(
            {_key(name): torch.full_like(value, start) for name, value in (self.sampled | self.exact).items()}
        )
        self._noise: dict[str, Tensor] = {}
        self._means: dict[str, Tensor] = {}

    def std(self, name: str) -> Tensor:
        return softplus(self.rho[_key(name)])

    def stds(self) -> dict[str, Tensor]:
        """The standard deviation of every weight, by its name in the model."""
        return {name: self.std(name).detach().cpu() for name in self.sampled | self.exact}

    @torch.no_grad()
    def draw_weights(self) -> None:
        """Replace the weights of the encoder by a draw; `finish_step` restores the means."""
        for name, weight in self.sampled.items():
            self._noise[name], self._means[name] = torch.randn_like(weight), weight.clone()
            weight.add_(self.std(name) * self._noise[name])

    def loss(self, head: TreeHead, h_BD: Tensor, loss: Callable[[Tensor], Tensor], progress: float) -> Tensor:
        """The loss of one draw of the logits plus the share of the divergence that belongs to the head."""
        bias = self.std("head.bias") if "head.bias" in self.exact else None
        std = logit_stds(h_BD, self.std("head.weight"), bias)
        found = loss(head.logits(h_BD) + std * torch.randn_like(std))
        divergence = [gaussian_divergence(mean, self.std(name), self._prior(name)) for name, mean in self.exact.items()]
        return found + self._factor(progress) * torch.stack(divergence).sum()

    @torch.no_grad()
    def finish_step(self, progress: float) -> None:
        """Turn the gradients of the drawn weights into those of means and deviations, and restore the means."""
        factor = self._factor(progress)
        for name, weight in self.sampled.items():
            rho, mean, std, prior = self.rho[_key(name)], self._means[name], self.std(name), self._prior(name)
            gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
            slope = rho.sigmoid()  # of softplus
            rho.grad = (gradient * self._noise[name] + factor * (std / prior**2 - 1 / std)) * slope
            weight.grad = gradient + factor * mean / prior**2
            weight.copy_(mean)

    def _prior(self, name: str) -> float:
        return self.options.prior_std if name in self.exact else self.options.lstm_prior_std

    def _factor(self, progress: float) -> float:
        """The factor of the divergence at this share of the training."""
        rise = min(1.0, progress / self.options.annealing) if self.options.annealing else 1.0
        return self.options.kl_weight * rise / self.items


def gaussian_divergence(mean: Tensor, std: Tensor, prior: float) -> Tensor:
    """The Kullback-Leibler divergence of N(mean, std²) from N(0, prior²), summed over the weights."""
    ratio = std / prior
    return (ratio.square() + (mean / prior).square() - 1).sum() / 2 - ratio.log().sum()


def _key(name: str) -> str:
    return name.replace(".", "/")  # a dot is not possible in the name of a parameter
