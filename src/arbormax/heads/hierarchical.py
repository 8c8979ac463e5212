"""One softmax per parent: the paper's head."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from arbormax.errors import OptionError
from arbormax.functional import (
    hierarchical_cross_entropy,
    leaf_log_probs,
    node_log_probs,
    sibling_log_priors,
)
from arbormax.functional.best import at_once, best_leaves, deepest_nodes
from arbormax.functional.checks import Reduction, TargetKind, check_choice, is_transformed
from arbormax.functional.index import tree_index
from arbormax.functional.linear import linear
from arbormax.functional.losses import usual_loss
from arbormax.functional.path_tree import path_tree
from arbormax.functional.paths import path_cross_entropy, path_log_probs, prefers_paths, prefers_search
from arbormax.functional.threshold import check_tau
from arbormax.heads.base import TreeHead
from arbormax.taxonomy import Taxonomy

_DEEP = 50  # classes for each of the k asked for, below which a search has little to leave out
_ITEMS = 256  # whose deepest nodes are looked for together
_SCORES = 1 << 26  # of all nodes for some items, in memory at once


class HierarchicalSoftmax(TreeHead):
    """One softmax over the children of every parent, all fed by the same features.

    P(leaf) is the product of the conditionals on its path; (C + P - 1)(D + 1) parameters. Row j of the weight belongs
    to node j + 1. With `sparse`, `loss` gives the weight and the bias gradients on the rows of the paths alone, for
    `torch.optim.SparseAdam`, SGD or Adagrad. `impl` is who computes the paths of a large tree: `torch`, or `triton` on
    a GPU; `auto` is the faster of those that can. With `triton` the loss goes by paths on a small tree, too: faster in
    a captured CUDA graph, where launches cost nothing.

    >>> import arbormax as am
    >>> tax = am.Taxonomy.from_nested({"animal": ["cat", "dog"], "plant": ["oak"]})
    >>> head = am.HierarchicalSoftmax(8, tax)
    >>> head(torch.zeros(2, 8)).exp().tolist()
    [[0.25, 0.25, 0.5], [0.25, 0.25, 0.5]]
    >>> head.loss(torch.zeros(2, 8), torch.tensor([0, 2])).item()  # doctest: +ELLIPSIS
    1.039...
    """

    sibling_options: ClassVar[bool] = True
    supports_sparse: ClassVar[bool] = True

    log_priors: Tensor

    def __init__(
        self,
        in_features: int,
        tax: Taxonomy,
        bias: bool = True,
        sparse: bool = False,
        impl: Literal["auto", "torch", "triton"] = "auto",
        **options: Any,
    ) -> None:
        self.sparse = sparse
        check_choice("impl", impl, ("auto", "torch", "triton"))
        self.impl = impl
        super().__init__(in_features, tax, bias, **options)
        self.register_buffer("log_priors", torch.zeros_like(self.weight[:, 0]).detach())

    @staticmethod
    def num_rows(tax: Taxonomy) -> int:
        return tax.num_nodes - 1

    _is_small: bool  # whether the loss has a quicker way on this tree and device

    def forward(self, h: Tensor) -> Tensor:
        return leaf_log_probs(self._logits(h), self.taxonomy)

    def node_log_probs(self, h: Tensor) -> Tensor:
        return node_log_probs(self._logits(h), self.taxonomy)

    def loss(
        self,
        h: Tensor,
        target: Tensor,
        reduction: Reduction = "mean",
        ignore_index: int = -100,
        *,
        target_kind: TargetKind = "class",
        weight: Tensor | None = None,
        label_smoothing: float = 0.0,
        gamma: float = 0.0,
        node_weights: Tensor | None = None,
        tau: float = 0.0,
    ) -> Tensor:
        """The log losses on each target's path: see `arbormax.functional.hierarchical_cross_entropy`.

        `tau` adjusts the logits by the priors that `set_priors` was given.
        """
        logits = None
        is_plain = weight is None and node_weights is None and not (label_smoothing or gamma or tau)
        if is_plain and reduction == "mean" and target_kind == "class" and self._is_small:
            logits = self._quick_logits(h)
            if logits is not None:
                mean = usual_loss(logits, target, ignore_index, tree_index(self.taxonomy, h.device))
                if mean is not None:
                    return mean
        self._check_features(h)
        if tau:
            self._check_priors()
        options: dict[str, Any] = {
            "reduction": reduction,
            "target_kind": target_kind,
            "ignore_index": ignore_index,
            "weight": weight,
            "label_smoothing": label_smoothing,
            "gamma": gamma,
            "node_weights": node_weights,
            "log_priors": self.log_priors if tau else None,
            "tau": tau,
        }
        if self.sparse and h.layout != torch.strided:
            raise OptionError("sparse=True takes dense features: with sparse ones every row has a gradient")
        if h.layout == torch.strided and self._goes_by_paths(h):
            given = (h, self.weight, self.bias, target, self.taxonomy)
            return path_cross_entropy(*given, sparse=self.sparse, impl=self.impl, **options)
        logits = linear(h, self.weight, self.bias) if logits is None else logits
        return hierarchical_cross_entropy(logits, target, self.taxonomy, **options)

    def _quick_logits(self, h: Tensor) -> Tensor | None:
        """The logits of eager code on a small tree, where each look at the module costs as much as a kernel.

        None where anything is unusual; then the general way finds the words.
        """
        own = self._parameters
        if self._verified[0] is not self._buffers["fingerprint"] or torch.compiler.is_compiling():
            return None
        try:
            return F.linear(h, own["weight"], own["bias"]) if h.layout is torch.strided else None  # type: ignore[arg-type]
        except (AttributeError, KeyError, RuntimeError, TypeError):
            return None

    def path_log_probs(self, h: Tensor, nodes: Tensor) -> Tensor:
        if h.layout != torch.strided or not self._searches(h):
            return super().path_log_probs(h, nodes)
        self._check_features(h)
        return path_log_probs(h, self.weight, self.bias, nodes, self.taxonomy, impl=self.impl)

    def topk(self, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """(..., k) log-probabilities of the k most probable leaves, falling, and their classes; ties by class order.

        On a large tree only the branches that may hold one of them are looked at, and the answer has no gradients.
        """
        self._check_features(h)
        k = self._check_k(k)
        if h.layout == torch.strided and not torch.compiler.is_compiling():
            features = h.reshape(-1, h.shape[-1])
            if len(features) and k * _DEEP <= self.out_features and self._searches(h):
                with torch.no_grad():
                    size = at_once(features, self.weight, self.taxonomy, k)
                    parts = [self._searched(part, k) for part in torch.split(features, size)]
                    logp, classes = parts[0] if len(parts) == 1 else map(torch.cat, zip(*parts, strict=True))
                return logp.view(*h.shape[:-1], k), classes.view(*h.shape[:-1], k)
        return super().topk(h, k)

    def _searched(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        logp, classes, is_left = best_leaves(features, self.weight, self.bias, self.taxonomy, k)
        if bool(is_left.any()):
            size = max(1, _SCORES // self.taxonomy.num_nodes)
            for part in torch.split(is_left.nonzero().squeeze(1), size):
                logp[part], classes[part] = super().topk(features[part], k)
        return logp, classes

    def predict(self, h: Tensor) -> Tensor:
        self._check_features(h)
        if torch.compiler.is_compiling() or not self._searches(h):
            return super().predict(h)
        return self.topk(h, 1)[1].squeeze(-1)

    def predict_nodes(self, h: Tensor, tau: float = 0.5) -> Tensor:
        """(...,) the deepest node with P > tau: `decode.threshold` of `node_log_probs`, but for rounding.

        On a large tree only the children of nodes that pass are looked at, unless tau is so small that most do.
        """
        self._check_features(h)
        tau = check_tau(tau)
        if h.layout != torch.strided or torch.compiler.is_compiling() or not self._searches(h):
            return super().predict_nodes(h, tau)
        features = h.reshape(-1, h.shape[-1])
        nodes = [self._descended(part, tau) for part in torch.split(features, _ITEMS)]
        return torch.cat(nodes).view(h.shape[:-1])

    def _descended(self, features: Tensor, tau: float) -> Tensor:
        found = deepest_nodes(features, self.weight, self.bias, self.taxonomy, tau)
        if found is not None:
            return found
        at_once = max(1, _SCORES // self.taxonomy.num_nodes)
        with torch.no_grad():
            parts = [super(HierarchicalSoftmax, self).predict_nodes(p, tau) for p in torch.split(features, at_once)]
        return torch.cat(parts)

    @property
    def searches(self) -> bool:
        return prefers_search(tree_index(self.taxonomy, self.weight.device))

    def set_priors(self, class_counts: ArrayLike | Tensor, smoothing: float = 0.0) -> None:
        """Remember each class's number of training items, for the `tau` of the loss; saved with the weights."""
        priors = sibling_log_priors(class_counts, self.taxonomy, smoothing)
        self.log_priors.copy_(priors)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._primed = False
        if "log_priors" in self._buffers:
            self.log_priors.zero_()

    def extra_repr(self) -> str:
        return super().extra_repr() + (", sparse=True" if self.sparse else "")

    def _write_fingerprint(self) -> None:
        super()._write_fingerprint()
        device = self.weight.device
        is_free = device.type == "cpu" and not self._insists
        self._is_small = is_free and tree_index(self.taxonomy, device).class_levels is not None
        if device.type != "meta" and (self._insists or prefers_paths(tree_index(self.taxonomy, device))):
            path_tree(self.taxonomy, device)

    @property
    def _insists(self) -> bool:
        """Whether the loss goes by paths, however small the tree."""
        return self.sparse or self.impl == "triton"

    def _goes_by_paths(self, h: Tensor) -> bool:
        if is_transformed():
            return False
        return self.sparse or self._insists or prefers_paths(tree_index(self.taxonomy, h.device))

    def _searches(self, h: Tensor) -> bool:
        return prefers_search(tree_index(self.taxonomy, h.device)) and not is_transformed()

    def _logits(self, h: Tensor) -> Tensor:
        """(..., M) logits, in memory with the batch as the inner dimension, as the functions like it."""
        self._check_features(h)
        if h.layout != torch.strided:
            return linear(h, self.weight, self.bias)
        features_DB = h.reshape(-1, h.shape[-1]).t()
        if self.bias is None:
            logits_MB = self.weight @ features_DB
        else:
            logits_MB = torch.addmm(self.bias.unsqueeze(1), self.weight, features_DB)
        return logits_MB.t().reshape(*h.shape[:-1], logits_MB.shape[0])

    def _check_priors(self) -> None:
        # Looked at once, as the answer has to come back from the device.
        if self._primed or torch.compiler.is_compiling() or self.log_priors.device.type == "meta":
            return
        if not bool(self.log_priors.any()) and int(self.taxonomy.num_children.max()) > 1:
            raise OptionError("tau needs the training frequencies: call head.set_priors(class_counts) first")
        self._primed = True
