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

from arbormax.data.batching import Batches
from arbormax.encoders import Encoder, encoder_kind
from arbormax.errors import InputError, OptionError
from arbormax.heads import FlatSoftmax, HierarchicalSoftmax, SharedSoftmax
from arbormax.heads.base import TreeHead
from arbormax.taxonomy import Taxonomy
from arbormax.training.config import TrainConfig

HEADS: dict[str, type[TreeHead]] = {
    "hierarchical": HierarchicalSoftmax,
    "flat": FlatSoftmax,
    "shared": SharedSoftmax,
}
_CHUNK = 4096  # texts that are sorted by length together, so that a stream needs no more memory than this


class TextModel(nn.Module):
    """An encoder with a head on it, and the settings that made them."""

    def __init__(self, encoder: Encoder, taxonomy: Taxonomy, config: TrainConfig) -> None:
        super().__init__()
        self.encoder = encoder
        options = {"sparse": True} if config.sparse_head else {}
        self.head: TreeHead = HEADS[config.head](encoder.out_features, taxonomy, **options)  # type: ignore[arg-type]
        self.config = config

    @classmethod
    def new(cls, texts: Sequence[str], taxonomy: Taxonomy, config: TrainConfig) -> TextModel:
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
            with evaluating(self):
                rows = self.encoder.encode(chunk)
                batches = Batches(rows, np.arange(len(chunk)), self.encoder.collate, batch_size, sort=sort)
                parts = [(self.encoder(*(t.to(self.device) for t in inputs)), place) for inputs, place in batches]
            if not sort:
                yield parts[0][0]
                continue
            features, place = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
            yield from torch.split(features[place.argsort().to(self.device)], batch_size)

    def node_log_probs(self, texts: Iterable[str], batch_size: int = 256) -> Iterator[Tensor]:
        """(B, N) log-probabilities of every node, a batch at a time, in the order of the texts."""
        for features_BD in self.features(texts, batch_size):
            with evaluating(self):
                logp_BN = self.head.node_log_probs(features_BD)
            yield logp_BN


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No gradients and no dropout inside, the former mode afterwards."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch draws from this seed inside, and goes on afterwards as if nothing had been."""
    with torch.random.fork_rng(range(torch.cuda.device_count())):  # named: torch warns where there are several
        torch.manual_seed(seed)
        yield
