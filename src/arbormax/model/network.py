"""A classifier: an encoder and a head, from texts or feature matrices to log-probabilities of every node.

B batch, N nodes, C classes, D features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from arbormax.data.batching import Batches, Inputs
from arbormax.data.ragged import Ragged
from arbormax.encoders import ENCODERS, Encoder
from arbormax.errors import InputError, OptionError
from arbormax.heads import HEADS, TreeHead
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy

if TYPE_CHECKING:
    from arbormax.model.calibration import Calibration, Coverage
    from arbormax.model.posterior import Posterior
    from arbormax.taxonomy.edits import Edited

ModelInputs = Any  # an iterable of texts, or a feature matrix: a float32 array or a scipy matrix in CSR form
CHUNK = 4096  # texts that are encoded together, which bounds the memory that a stream needs


class Model(nn.Module):
    """An encoder, a head on top of it, and the settings they were trained with."""

    def __init__(self, encoder: Encoder, taxonomy: Taxonomy, config: TrainConfig) -> None:
        super().__init__()
        self.encoder = encoder
        options: dict[str, Any] = {"sparse": True} if config.sparse_head else {}
        if config.adapter:
            options["adapter"] = config.adapter
        if config.solver == "convex" and encoder.has_sparse_features(encoder.options):
            options["sparse_weight"] = True
        self.head: TreeHead = HEADS[config.head](encoder.out_features, taxonomy, **options)
        self.config = config
        self.calibration: Calibration | None = None  # set by `arbormax.model.calibration.apply_calibration`
        self.coverage: Coverage | None = None
        self.posterior: Posterior | None = None  # of a model with uncertainty
        self.row_counts: np.ndarray | None = None  # (R,) training examples at or below the node of each row of the head

    @classmethod
    def new(cls, inputs: ModelInputs, taxonomy: Taxonomy, config: TrainConfig) -> Model:
        """An untrained model for these training inputs; the same seed gives the same weights.

        If the texts of nodes are used, the encoder learns their words, too.
        """
        if config.uses_names and ENCODERS[config.encoder].takes_texts:
            inputs = [*inputs, *taxonomy.texts[1:]]
        with seeded(config.seed):
            encoder = ENCODERS[config.encoder].fit(inputs, config.options)
            return cls(encoder, taxonomy, config)

    @classmethod
    def new_with_rows(cls, inputs: ModelInputs, taxonomy: Taxonomy, config: TrainConfig) -> tuple[Model, Ragged | None]:
        """An untrained model for exactly these inputs, and their rows if the encoder knows them from its training."""
        with seeded(config.seed):
            encoder, rows = ENCODERS[config.encoder].fit_encode(inputs, config.options)
            return cls(encoder, taxonomy, config), rows

    @property
    def taxonomy(self) -> Taxonomy:
        return self.head.taxonomy

    @property
    def device(self) -> torch.device:
        return self.head.device

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def follow_edit(self, edited: Edited) -> None:
        """Carry the calibration over to an edited taxonomy; what belongs to the old one is removed."""
        self.coverage = self.posterior = None
        if self.row_counts is not None:
            rows = edited.row_map
            self.row_counts = None if rows is None else np.where(rows >= 0, self.row_counts[rows], 0)
        if self.calibration is not None:
            self.calibration = self.calibration.carry_to(edited.node_map, edited.taxonomy)

    def count_rows(self, nodes: np.ndarray) -> np.ndarray:
        """(R,) the number of these labels at or below the node of each row of the head."""
        counts = np.bincount(nodes, minlength=self.taxonomy.num_nodes)
        found: np.ndarray = self.taxonomy.sum_up(counts)[self.head.row_nodes()]
        return found

    def forward(self, *inputs: Tensor) -> Tensor:
        """(B, C) leaf log-probabilities of one collated batch."""
        return self.head(self.encoder(*inputs))  # type: ignore[no-any-return]

    def features(self, inputs: ModelInputs, batch_size: int = 256) -> Iterator[Tensor]:
        """(B, D) features of the inputs in their order, a batch at a time.

        The inputs are texts, possibly an infinite stream, or a feature matrix.
        """
        if batch_size < 1:
            raise OptionError(f"expected at least 1, found {batch_size}", argument="batch_size")
        if isinstance(inputs, str):
            raise InputError("expected a list of texts, found a single string")
        for chunk in input_chunks(inputs, max(batch_size, CHUNK)):
            with evaluating(self.encoder):
                rows = self.encoder.encode(chunk)
            yield from self.row_features(rows, batch_size)

    def row_features(self, rows: Any, batch_size: int = 256) -> Iterator[Tensor]:
        """(B, D) features of rows that the encoder has made, in their order, a batch at a time."""
        if self.encoder.sorts_by_length:
            yield from self._sorted_features(rows, batch_size)
            return
        for start in range(0, len(rows), batch_size):
            items = np.arange(start, min(start + batch_size, len(rows)))
            with evaluating(self.encoder):
                features = self._features(self.encoder.collate(rows.take(items)))
            yield features

    def _sorted_features(self, rows: Ragged, batch_size: int) -> Sequence[Tensor]:
        """The features in the order of the rows, computed in batches of rows of similar length."""
        batches = Batches(rows, np.arange(len(rows)), self.encoder.collate, batch_size, sort=True)
        with evaluating(self.encoder):
            parts = [(self._features(batch), place) for batch, place in batches]
            features, place = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
            return torch.split(features[place.argsort().to(self.device)], batch_size)

    def _features(self, batch: Inputs) -> Tensor:
        features: Tensor = self.encoder(*(part.to(self.device) for part in batch))
        return features

    def leaf_log_probs(self, inputs: ModelInputs, batch_size: int = 256) -> Iterator[Tensor]:
        """(B, C) log-probabilities of every class, a batch at a time, in the order of the inputs."""
        for features_BD in self.features(inputs, batch_size):
            with evaluating(self.head):
                logp_BC = self.head(features_BD)
            yield logp_BC

    def node_log_probs(self, inputs: ModelInputs, batch_size: int = 256) -> Iterator[Tensor]:
        """(B, N) log-probabilities of every node, a batch at a time, in the order of the inputs.

        They are those of the weights: see `arbormax.model.draws.predicted_log_probs` for a model with a posterior.
        """
        for features_BD in self.features(inputs, batch_size):
            with evaluating(self.head):
                logp_BN = self.head.node_log_probs(features_BD)
            yield logp_BN


def input_chunks(inputs: ModelInputs, size: int) -> Iterator[Any]:
    """The inputs, some at a time."""
    if hasattr(inputs, "shape") and len(inputs.shape) == 2:
        yield from (inputs[start : start + size] for start in range(0, inputs.shape[0], size))
        return
    stream = iter(inputs)
    while chunk := list(islice(stream, size)):
        yield chunk


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Disable gradients and dropout inside the block, and restore the mode afterwards."""
    was_training = model.training
    is_mixed = was_training or any(module.training for module in model.modules())  # setting the mode takes longer
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
    """Seed torch's random numbers inside the block, and restore their state afterwards."""
    with torch.random.fork_rng(range(torch.cuda.device_count())):  # torch warns without a list of several devices
        torch.manual_seed(seed)
        yield
