"""A trained text classifier: encoder, head and taxonomy, from texts to log-probabilities of every node.

B batch, N nodes, C classes, D features.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from arbormax.data.batching import Batches, Inputs
from arbormax.data.ragged import Ragged
from arbormax.encoders import Encoder, encoder_kind
from arbormax.errors import InputError, OptionError
from arbormax.heads import HEADS, TreeHead
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy

_CHUNK = 4096  # texts that are sorted by length together, so that a stream needs no more memory than this


class Model(nn.Module):
    """An encoder with a head on it, and the settings that made them."""

    def __init__(self, encoder: Encoder, taxonomy: Taxonomy, config: TrainConfig) -> None:
        super().__init__()
        self.encoder = encoder
        options = {"sparse": True} if config.sparse_head else {}
        self.head: TreeHead = HEADS[config.head](encoder.out_features, taxonomy, **options)
        self.config = config

    @classmethod
    def new(cls, texts: Sequence[str], taxonomy: Taxonomy, config: TrainConfig) -> Model:
        """An untrained model for these texts; the same seed gives the same weights."""
        with seeded(config.seed):
            encoder = encoder_kind(config.encoder).fit(texts, config.options)
            return cls(encoder, taxonomy, config)

    @property
    def taxonomy(self) -> Taxonomy:
        return self.head.taxonomy

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(self, *inputs: Tensor) -> Tensor:
        """(B, C) leaf log-probabilities of one collated batch."""
        return self.head(self.encoder(*inputs))  # type: ignore[no-any-return]

    def features(self, texts: Iterable[str], batch_size: int = 256) -> Iterator[Tensor]:
        """(B, D) features of the texts in their order, some at a time; the texts may be a stream without end."""
        if batch_size < 1:
            raise OptionError(f"a batch has at least one text, not {batch_size}")
        if isinstance(texts, str):
            raise InputError("expected many texts, found a single str: give a list of texts")
        stream = iter(texts)
        sort = self.encoder.sorts_by_length
        while chunk := list(islice(stream, _CHUNK if sort else batch_size)):
            with evaluating(self.encoder):
                rows = self.encoder.encode(chunk)
                parts = self._sorted(rows, batch_size) if sort else [self._encoded(self.encoder.collate(rows))]
            yield from parts

    def _sorted(self, rows: Ragged, batch_size: int) -> Sequence[Tensor]:
        """The features of rows that share their batches with others of their length, in the order of the rows."""
        batches = Batches(rows, np.arange(len(rows)), self.encoder.collate, batch_size, sort=True)
        parts = [(self._encoded(inputs), place) for inputs, place in batches]
        features, place = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
        return torch.split(features[place.argsort().to(self.device)], batch_size)

    def _encoded(self, inputs: Inputs) -> Tensor:
        features: Tensor = self.encoder(*(part.to(self.device) for part in inputs))
        return features

    def node_log_probs(self, texts: Iterable[str], batch_size: int = 256) -> Iterator[Tensor]:
        """(B, N) log-probabilities of every node, a batch at a time, in the order of the texts."""
        for features_BD in self.features(texts, batch_size):
            with evaluating(self.head):
                logp_BN = self.head.node_log_probs(features_BD)
            yield logp_BN


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No gradients and no dropout inside, the former mode afterwards."""
    was_training = model.training
    is_mixed = was_training or any(module.training for module in model.modules())  # to set a mode takes longer
    if is_mixed:
        model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        if is_mixed:
            model.train(was_training)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch draws from this seed inside, and goes on afterwards as if nothing had been."""
    with torch.random.fork_rng(range(torch.cuda.device_count())):  # named: torch warns where there are several
        torch.manual_seed(seed)
        yield
