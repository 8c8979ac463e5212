"""A model as a Lightning module, with loss, measures and optimisers, and its encoded examples as a data module."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torchmetrics.aggregation import MeanMetric
from torchmetrics.classification import MulticlassF1Score

from arbormax.data.batching import Batches, Inputs, Shares
from arbormax.data.examples import Examples
from arbormax.errors import InputError
from arbormax.functional import hxe_weights
from arbormax.functional.checks import Reduction, TargetKind
from arbormax.metrics import NodeMetrics
from arbormax.model.network import Model
from arbormax.model.node_texts import is_tied, refresh_ties
from arbormax.taxonomy import Taxonomy
from arbormax.training.distributed import average_rows
from arbormax.training.optim import JointOptimizer, clip_gradients, rate_factor

_VALIDATION_BATCH = 256  # a larger batch is faster without gradients


class TrainingModule(pl.LightningModule):
    """A model in training; targets are classes or nodes, and `weight` contains (C,) class weights."""

    class_weight: Tensor | None

    def __init__(self, model: Model, kind: TargetKind, weight: Tensor | None = None, variational: Any = None) -> None:
        super().__init__()
        self.automatic_optimization = False  # saves half of Lightning's overhead per step
        self.model, self.kind = model, kind
        self.config = model.config
        self.is_tied = is_tied(model)
        self.variational = variational  # of a training for a distribution of the weights, see `Posterior.prepare`
        self.total_steps = 1
        self.register_buffer("class_weight", weight, persistent=False)
        # Asked before the process group exists: with several processes some encoders have no sparse gradients.
        sparse = {id(parameter) for parameter in model.encoder.sparse_parameters()}
        self.sparse_encoder = [name for name, parameter in self.named_parameters() if id(parameter) in sparse]
        head = [f"model.head.{name}" for name, _ in model.head.named_parameters(recurse=False)]  # no adapters
        self.row_sparse = self.sparse_encoder + (head if self.config.sparse_head else [])
        self.loss_options = self.config.loss_options
        if (alpha := self.loss_options.pop("hxe_alpha", None)) is not None:
            self.loss_options["node_weights"] = hxe_weights(model.taxonomy, alpha)
        self.leaves = torch.tensor(model.taxonomy.leaves)
        self.node_metrics = NodeMetrics(model.taxonomy)
        self.valid_loss = MeanMetric(nan_strategy="disable")
        # torchmetrics requires at least two classes; the root is never a label
        self.label_f1 = MulticlassF1Score(max(model.taxonomy.num_nodes, 2), average="macro", validate_args=False)

    def on_fit_start(self) -> None:
        self.is_shared = self.trainer.world_size > 1
        if self.is_shared:  # otherwise all ranks would drop the same features
            draws = np.random.SeedSequence((self.config.seed, self.global_rank))
            torch.manual_seed(int(draws.generate_state(1, np.uint64)[0]))

    def training_step(self, batch: tuple[Inputs, Tensor] | tuple[Inputs, Tensor, float], number: int) -> None:
        optimiser, schedule = self.optimizers(), self.lr_schedulers()
        if self.is_tied and number == 0:
            refresh_ties(self.model)
        if self.variational is not None:
            self.variational.draw_weights()
        compute_loss = self._loss if self.variational is None else self._variational_loss
        loss = compute_loss(self.model.encoder(*batch[0]), batch[1])
        if len(batch) == 3:  # the weight of this device's share of the step
            loss = loss * batch[2]
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if (self.global_step + 1) % every == 0:  # the steps that Lightning writes
            self.log("train/loss", loss.detach(), prog_bar=True, batch_size=len(batch[1]), sync_dist=self.is_shared)
        optimiser.zero_grad()  # type: ignore[union-attr]
        self.manual_backward(loss)
        if self.variational is not None:
            self.variational.finish_step(self._progress)
        if self.is_shared and self.row_sparse:
            average_rows([self.get_parameter(name) for name in self.row_sparse])
        optimiser.step()  # type: ignore[union-attr]
        if schedule is not None:
            schedule.step()  # type: ignore[union-attr]

    def on_before_optimizer_step(self, _: Optimizer) -> None:
        if self.config.clip is not None:
            clip_gradients(self.model.parameters(), self.config.clip)

    def validation_step(self, batch: tuple[Inputs, Tensor], _: int) -> None:
        inputs, target = batch
        features = self.model.encoder(*inputs)
        loss = self._loss(features, target)
        self.valid_loss.update(loss.expand(len(target)))  # MeanMetric ignores weights with nan_strategy="disable"
        if features.layout == torch.strided:  # the loss shows that a network has diverged
            features = features.nan_to_num()
        predicted = self.leaves[self.model.head.predict(features).cpu()]
        if self.kind == "class":
            self.node_metrics.update(self.leaves[target.cpu()], predicted)
            return
        truth = target.cpu()
        self.node_metrics.update(truth, predicted)
        labels = _at_label(self.model.taxonomy, predicted.numpy(), truth.numpy())
        self.label_f1.update(torch.from_numpy(labels).to(self.device), target)

    def on_train_epoch_start(self) -> None:
        loader = self.trainer.train_dataloader
        assert loader is not None
        loader.set_epoch(self.current_epoch)

    def on_validation_epoch_start(self) -> None:
        self.node_metrics.reset()  # spawned processes share the memory of the state before the first update
        self.label_f1.reset()
        self.valid_loss.reset()

    def on_validation_epoch_end(self) -> None:
        self.log("valid/loss", self.valid_loss.compute(), rank_zero_only=False)
        values = self.node_metrics.compute()
        if self.kind == "node":  # over all labels, inner nodes included, each at its own depth
            values = {**values, "macro_f1": self.label_f1.compute()}
        for name in ("macro_f1", "accuracy", "hf"):
            self.log(f"valid/{name}", float(values[name]), prog_bar=name == "macro_f1", rank_zero_only=False)

    def _loss(self, features: Tensor, target: Tensor) -> Tensor:
        return self.model.head.loss(features, target, **self._loss_arguments()).mean()

    def _variational_loss(self, features: Tensor, target: Tensor) -> Tensor:
        head, options = self.model.head, self._loss_arguments()
        loss: Tensor = self.variational.loss(
            head, features, lambda each: head.loss_from_logits(each, target, **options).mean(), self._progress
        )
        return loss

    def _loss_arguments(self) -> dict[str, Any]:
        # "mean" divides by the weights of the batch, which would cancel them, above all in small batches.
        reduction: Reduction = "mean" if self.class_weight is None else "none"
        return {"reduction": reduction, "target_kind": self.kind, "weight": self.class_weight, **self.loss_options}

    @property
    def _progress(self) -> float:
        """The share of the training that is done."""
        return self.global_step / self.total_steps

    def configure_optimizers(self) -> Any:
        config = self.config
        optimiser = self._optimiser()
        is_constant = config.schedule == "constant" and not config.warmup
        if is_constant and self.variational is None:
            return optimiser
        # Counted here: Lightning's estimate creates the loader before a resumed run has its position.
        steps = len(self.trainer.datamodule.train_dataloader()) * (self.trainer.max_epochs or 1)  # type: ignore[attr-defined]
        self.total_steps = max(steps, 1)
        if is_constant:
            return optimiser
        warmup = config.warmup or 0.0
        factor = partial(rate_factor, total=self.total_steps, schedule=config.schedule, warmup=warmup)
        schedule = LambdaLR(optimiser, factor)
        return {"optimizer": optimiser, "lr_scheduler": schedule}

    def _optimiser(self) -> Optimizer:
        """AdamW for dense parameters, SparseAdam for row-sparse ones, or both."""
        config = self.config
        assert config.learning_rate is not None
        assert config.adam_epsilon is not None
        sparse = [self.get_parameter(name) for name in self.sparse_encoder]
        sparse_ids = {id(parameter) for parameter in sparse}
        encoder = [p for p in self.model.encoder.parameters() if id(p) not in sparse_ids and p.requires_grad]
        head = list(self.model.head.parameters())
        head_rows = list(self.model.head.parameters(recurse=False))
        sparse_groups: list[dict[str, Any]] = [{"params": sparse, "lr": config.learning_rate}] if sparse else []
        groups: list[dict[str, Any]] = []
        if config.sparse_head:
            sparse_groups.append({"params": head_rows, "lr": config.head_learning_rate})
            head = head[len(head_rows) :]  # the adapters, whose gradients are dense
        if config.head_learning_rate == config.learning_rate:  # one group is one kernel
            encoder = head + encoder
        elif head:
            groups.append({"params": head, "lr": config.head_learning_rate})
        if encoder:
            groups.append({"params": encoder, "lr": config.learning_rate})
        if self.variational is not None:  # decay would raise small standard deviations
            deviations = {"params": list(self.variational.parameters()), "lr": config.head_learning_rate}
            groups.append({**deviations, "weight_decay": 0.0})
        parts: list[Optimizer] = []
        if groups:
            # AdamW without decay is Adam. A fused one would unscale 16-bit gradients after they are clipped.
            fused = config.precision != "16-mixed"
            decay = config.weight_decay
            parts.append(torch.optim.AdamW(groups, eps=config.adam_epsilon, weight_decay=decay, fused=fused))
        if sparse_groups:
            parts.append(torch.optim.SparseAdam(sparse_groups, eps=config.adam_epsilon))
        return parts[0] if len(parts) == 1 else JointOptimizer(*parts)


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


def _at_label(tax: Taxonomy, predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """(n,) the node above each predicted class that answers a label: the node at the depth of the label.

    In a graph it is the label itself if it is above the class, else the class.
    """
    if tax.is_graph:
        return np.asarray(np.where(tax.is_above(truth, predicted), truth, predicted))
    return np.asarray(np.maximum(tax.ancestor_at(predicted, tax.node_depth[truth]), 0))
