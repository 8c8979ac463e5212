"""Encoded examples as a Lightning data module."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch

from arbormax.data.batching import Batches, Shares
from arbormax.data.examples import Examples
from arbormax.errors import InputError
from arbormax.functional.checks import TargetKind
from arbormax.model.network import Model

_VALIDATION_BATCH = 256  # a larger batch is faster without gradients


class EncodedExamples(pl.LightningDataModule):
    """Training and validation examples, encoded once; each device reads its share of them."""

    def __init__(self, model: Model, kind: TargetKind, train: Examples, valid: Examples | None) -> None:
        super().__init__()
        self.encoder, self.config = model.encoder, model.config
        class_of = model.taxonomy.class_of
        self.parts = {
            name: (self.encoder.encode(part.inputs), class_of[part.nodes] if kind == "class" else part.nodes)
            for name, part in (("train", train), ("valid", valid))
            if part is not None
        }

    def train_dataloader(self) -> Batches:
        return self._batches("train", shuffle=True)

    def val_dataloader(self) -> Batches:
        return self._batches("valid", shuffle=False)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, _: int) -> tuple[Any, ...]:
        # Lightning's own method searches every object for tensors, which takes longer than a step of a small network.
        inputs, target, *weight = batch
        return tuple(tensor.to(device) for tensor in inputs), target.to(device), *weight

    def _batches(self, part: str, shuffle: bool) -> Batches:
        assert self.trainer is not None
        assert self.config.batch_size is not None
        rows, targets = self.parts[part]
        size, rank, ranks = self.config.batch_size, self.trainer.global_rank, self.trainer.world_size
        options: dict[str, Any] = {"sort": self.encoder.sorts_by_length, "seed": self.config.seed}
        if shuffle and ranks > 1:  # each batch has the examples of all devices, of which this one takes its share
            options |= {"shuffle": True, "share": rank, "shares": ranks}
            return Shares(rows, targets, self.encoder.collate, size * ranks, **options)
        if not shuffle:  # every device needs a batch: they wait for one another when they sum their measures
            if len(rows) < ranks:
                raise InputError(f"validation needs one example for each of {ranks} devices, found {len(rows)}")
            size = min(max(size, _VALIDATION_BATCH), len(rows) // ranks)
            options |= {"rank": rank, "ranks": ranks}
        return Batches(rows, targets, self.encoder.collate, size, shuffle=shuffle, **options)
