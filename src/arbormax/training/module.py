"""The Lightning module: loss, measures, optimisers."""

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

from arbormax.data.batching import Inputs
from arbormax.functional import hxe_weights
from arbormax.metrics import NodeMetrics
from arbormax.model.network import Model
from arbormax.training.distributed import average_rows
from arbormax.training.optim import Together, clip_gradients


class TrainingModule(pl.LightningModule):
    """A model in training; `kind` says whether targets are classes or nodes, `weight` holds (C,) class weights."""

    def __init__(self, model: Model, kind: str, weight: Tensor | None = None) -> None:
        super().__init__()
        self.automatic_optimization = False  # half of what Lightning adds to the time of a small network's step
        self.model, self.kind = model, kind
        self.config = model.config
        self.register_buffer("class_weight", weight, persistent=False)
        config = self.config
        # Asked for before processes are joined, where some encoders have no sparse gradients.
        rare = {id(parameter) for parameter in model.encoder.sparse_parameters()}
        self.rare = [name for name, parameter in self.named_parameters() if id(parameter) in rare]
        head = [name for name, _ in self.named_parameters() if name.startswith("model.head.")]
        self.row_sparse = self.rare + (head if config.sparse_head else [])
        options = {"label_smoothing": config.label_smoothing, "gamma": config.gamma, "tau": config.tau}
        self.loss_options: dict[str, Any] = {name: value for name, value in options.items() if value}
        if config.hxe_alpha is not None:
            self.loss_options["node_weights"] = hxe_weights(model.taxonomy, config.hxe_alpha)
        self.leaves = torch.tensor(model.taxonomy.leaves)
        self.validated = NodeMetrics(model.taxonomy)
        self.valid_loss = MeanMetric(nan_strategy="disable")
        # at least two classes, says torchmetrics; the root is none of the labels
        self.label_f1 = MulticlassF1Score(max(model.taxonomy.num_nodes, 2), average="macro", validate_args=False)

    def __setattr__(self, name: str, value: Any) -> None:
        # Lightning notes the name of every hook here, some forty times a step, and torch looks at each with care.
        if name == "_current_fx_name":
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def on_fit_start(self) -> None:
        self.is_shared = self.trainer.world_size > 1
        # Lightning has hooks around it, for scaled gradients and several devices
        self.backward_is_plain = self.config.precision != "16-mixed" and not self.is_shared
        if self.is_shared:  # else all ranks would drop the same features
            draws = np.random.SeedSequence((self.config.seed, self.global_rank))
            torch.manual_seed(int(draws.generate_state(1, np.uint64)[0]))

    def training_step(self, batch: tuple[Inputs, Tensor] | tuple[Inputs, Tensor, float], _: int) -> None:
        optimiser, schedule = self.optimizers(), self.lr_schedulers()
        loss = self._loss(self.model.encoder(*batch[0]), batch[1])
        if len(batch) == 3:  # a share of what all devices have in this step
            loss = loss * batch[2]
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if (self.global_step + 1) % every == 0:  # the steps that Lightning writes down
            self.log("train/loss", loss.detach(), prog_bar=True, batch_size=len(batch[1]), sync_dist=self.is_shared)
        optimiser.zero_grad()  # type: ignore[union-attr]
        if self.backward_is_plain:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self.manual_backward(loss)
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
        self.valid_loss.update(loss.expand(len(target)))  # it forgets weights where it lets NaN through
        found = self.leaves[self.model.head.predict(features).cpu()]
        if self.kind == "class":
            self.validated.update(self.leaves[target.cpu()], found)
            return
        truth = target.cpu()
        self.validated.update(truth, found)
        tax = self.model.taxonomy
        at_depth = np.maximum(tax.ancestor_at(found.numpy(), tax.node_depth[truth.numpy()]), 0)
        self.label_f1.update(torch.from_numpy(at_depth).to(self.device), target)

    def on_train_epoch_start(self) -> None:
        loader = self.trainer.train_dataloader
        assert loader is not None
        loader.set_epoch(self.current_epoch)

    def on_validation_epoch_start(self) -> None:
        self.validated.reset()  # processes that were started together share what stood there
        self.label_f1.reset()
        self.valid_loss.reset()

    def on_validation_epoch_end(self) -> None:
        self.log("valid/loss", self.valid_loss.compute(), rank_zero_only=False)
        values = self.validated.compute()
        if self.kind == "node":  # over the labels, inner nodes among them, each at its own depth
            values = {**values, "macro_f1": self.label_f1.compute()}
        for name in ("macro_f1", "accuracy", "hf"):
            self.log(f"valid/{name}", float(values[name]), prog_bar=name == "macro_f1", rank_zero_only=False)

    def _loss(self, features: Tensor, target: Tensor) -> Tensor:
        # A mean that divides by the batch's own weights would take them out again, most of all in small batches.
        reduction = "mean" if self.class_weight is None else "none"
        loss: Tensor = self.model.head.loss(
            features, target, reduction, target_kind=self.kind, weight=self.class_weight, **self.loss_options
        )
        return loss if self.class_weight is None else loss.mean()

    def configure_optimizers(self) -> Any:
        config = self.config
        assert config.learning_rate is not None
        assert config.adam_epsilon is not None
        rare = [self.get_parameter(name) for name in self.rare]
        known = {id(parameter) for parameter in rare}
        encoder = [p for p in self.model.encoder.parameters() if id(p) not in known and p.requires_grad]
        head = list(self.model.head.parameters())
        sparse: list[dict[str, Any]] = [{"params": rare, "lr": config.learning_rate}] if rare else []
        groups: list[dict[str, Any]] = []
        if config.sparse_head:
            sparse.append({"params": head, "lr": config.head_learning_rate})
        elif config.head_learning_rate == config.learning_rate:  # one group is one kernel
            encoder = head + encoder
        else:
            groups.append({"params": head, "lr": config.head_learning_rate})
        if encoder:
            groups.append({"params": encoder, "lr": config.learning_rate})
        parts: list[Optimizer] = [torch.optim.SparseAdam(sparse, eps=config.adam_epsilon)] if sparse else []
        # AdamW without decay is Adam. A fused one would unscale gradients itself, after they were clipped.
        if groups:
            fused = config.precision != "16-mixed"
            dense = torch.optim.AdamW(groups, eps=config.adam_epsilon, weight_decay=config.weight_decay, fused=fused)
            parts.insert(0, dense)
        optimiser = parts[0] if len(parts) == 1 else Together(*parts)
        if config.schedule == "constant" and not config.warmup:
            return optimiser
        # Counted here: Lightning's own estimate sets up the loader too early to take its place up after a restart.
        steps = len(self.trainer.datamodule.train_dataloader()) * (config.epochs or 1)  # type: ignore[attr-defined]
        schedule = LambdaLR(optimiser, partial(self._rate, total=max(steps, 1)))
        return {"optimizer": optimiser, "lr_scheduler": schedule}

    def _rate(self, step: int, total: int) -> float:
        """The share of the learning rate at this step."""
        rising = int((self.config.warmup or 0.0) * total)
        if step < rising:
            return (step + 1) / (rising + 1)
        return 1.0 if self.config.schedule == "constant" else max(0.0, (total - step) / max(total - rising, 1))
