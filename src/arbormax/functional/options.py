"""The options of the losses and what they do to a batch: checks, losses of steps, weights and reduction.

B batch, M columns, N nodes, C classes, K steps of a path.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from arbormax.errors import OptionError, check_choice
from arbormax.functional.checks import Reduction, TargetKind, check_ids, check_target, check_weights
from arbormax.functional.graphs import GraphIndex, graph_leaf_means
from arbormax.functional.index import NodeIndex, TreeIndex, leaf_means


class Targets(NamedTuple):
    """The targets of a batch."""

    ids: Tensor  # (B,) class or node ids, a valid one also for ignored items
    ignored: Tensor  # (B,) which items are ignored


@dataclass(frozen=True, eq=False, kw_only=True)
class LossOptions:
    """The options of `hierarchical_cross_entropy`, where they are described."""

    reduction: Reduction = "mean"
    target_kind: TargetKind = "class"
    ignore_index: int = -100
    weight: Tensor | None = None
    label_smoothing: float = 0.0
    gamma: float = 0.0
    node_weights: Tensor | None = None
    log_priors: Tensor | None = None
    tau: float = 0.0

    def check(self, index: NodeIndex, dtype: torch.dtype) -> LossOptions:
        """Return the options with weights in the precision of the loss, or raise if one is wrong."""
        check_choice("reduction", self.reduction, get_args(Reduction))
        check_choice("target_kind", self.target_kind, get_args(TargetKind))
        if not 0.0 <= self.label_smoothing <= 1.0:
            raise OptionError(
                f"expected a number from 0 to 1, found {self.label_smoothing}", argument="label_smoothing"
            )
        if not self.gamma >= 0.0:
            raise OptionError(f"expected a number of at least 0, found {self.gamma}", argument="gamma")
        if self.tau and self.log_priors is None:
            raise OptionError("log_priors is missing: tau adjusts the logits by the priors of siblings", argument="tau")
        weight, node_weights, device = self.weight, self.node_weights, index.leaves.device
        if weight is not None:
            weight = check_weights(weight, index.num_leaves, "weight", device, dtype)
        if node_weights is not None:
            node_weights = check_weights(node_weights, index.num_nodes, "node_weights", device, dtype)
        return replace(self, weight=weight, node_weights=node_weights)

    @property
    def changes_steps(self) -> bool:
        """Whether the loss of a step is more than its negative log-probability."""
        return bool(self.label_smoothing or self.gamma) or self.node_weights is not None

    def limit(self, index: NodeIndex) -> int:
        """Return the number of valid target ids."""
        return index.num_leaves if self.target_kind == "class" else index.num_nodes

    def targets(self, target: Tensor, batch: torch.Size, index: NodeIndex) -> Targets:
        """Return the checked targets of a batch with these leading dimensions."""
        row_B = check_target(target, batch, self.target_kind)
        return Targets(*check_ids(row_B, self.limit(index), self.target_kind, self.ignore_index))

    def target_nodes(self, targets: Targets, index: NodeIndex) -> Tensor:
        """Return the (B,) nodes of the targets, the root for ignored items."""
        nodes_B = index.leaves.index_select(0, targets.ids) if self.target_kind == "class" else targets.ids
        return nodes_B.masked_fill(targets.ignored, 0)

    def offset(self, dtype: torch.dtype) -> Tensor | None:
        """Return what is added to the (M,) logits: tau times the log-priors."""
        return self.tau * self.log_priors.to(dtype) if self.tau and self.log_priors is not None else None

    def step_losses(self, logp_BK: Tensor, mean_BK: Tensor | None, nodes_BK: Tensor) -> Tensor:
        """Return the (B, K) losses of the steps.

        Args:
            logp_BK: the log-probability of each step's node given its parent.
            mean_BK: with label smoothing, the mean log-probability of its sibling group.
            nodes_BK: with node weights, the node of each step.
        """
        loss_BK = -logp_BK
        if self.label_smoothing and mean_BK is not None:
            loss_BK = (1.0 - self.label_smoothing) * loss_BK - self.label_smoothing * mean_BK
        if self.gamma:
            rest_BK = -torch.expm1(logp_BK)
            # A power below one has an infinite slope at zero, where the loss is flat: both must be zero.
            certain_BK = rest_BK <= 0
            loss_BK = loss_BK * rest_BK.masked_fill(certain_BK, 1.0).pow(self.gamma).masked_fill(certain_BK, 0.0)
        if self.node_weights is not None:
            loss_BK = loss_BK * self.node_weights[nodes_BK]
        return loss_BK

    def reduce(self, loss: Tensor, targets: Targets, batch: torch.Size, index: NodeIndex) -> Tensor:
        """Return the weighted and reduced losses.

        `loss` is (B,), 0 for ignored items; or the sum of all losses, if they are neither weighted nor returned.
        """
        weight_B = self._item_weights(targets, index)
        if weight_B is not None:
            loss = loss * weight_B
        if self.reduction == "none":
            return loss.reshape(batch)
        if loss.dim():
            loss = loss.sum()
        if self.reduction == "sum":
            return loss
        return loss / ((~targets.ignored).sum() if weight_B is None else weight_B.sum())

    def _item_weights(self, targets: Targets, index: NodeIndex) -> Tensor | None:
        if self.weight is None:
            return None
        if self.target_kind == "class":
            return self.weight[targets.ids].masked_fill(targets.ignored, 0.0)
        if isinstance(index, GraphIndex):
            weight_N = graph_leaf_means(index, self.weight)
        else:
            assert isinstance(index, TreeIndex)
            weight_N = leaf_means(index, self.weight)
        return weight_N[targets.ids].masked_fill(targets.ignored, 0.0)
