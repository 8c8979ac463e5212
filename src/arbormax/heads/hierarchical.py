"""One softmax per parent: the head of the paper."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from arbormax.errors import OptionError, check_choice
from arbormax.functional import (
    hierarchical_cross_entropy,
    leaf_log_probs,
    node_log_probs,
    sibling_log_priors,
)
from arbormax.functional.best import best_leaves, deepest_nodes
from arbormax.functional.checks import find_non_finite, is_transformed, mark_items
from arbormax.functional.graphs import refuse_graph
from arbormax.functional.index import tree_index
from arbormax.functional.linear import adapt_levels, level_logits
from arbormax.functional.path_tree import path_tree, step_tree
from arbormax.functional.paths import linear_cross_entropy, path_log_probs, prefers_paths, prefers_search
from arbormax.functional.threshold import check_tau
from arbormax.heads.base import SoftmaxGroup, TreeHead, check_taxonomy
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.edits.rows import SiblingRows

_CLASSES_PER_RESULT = 50  # with fewer classes for each of the k results, a search leaves out too little
_SCORES = 1 << 26  # numbers of a (B, N) matrix in memory at one time


class LevelAdapters(nn.Module):
    """From (..., D) features to (..., K, D) features of each level: `h + up_k gelu(down_k h + shift_k)`.

    The second layer starts at zero, so that all levels start with the features themselves; 2DR + R parameters for each
    of K levels.

    >>> LevelAdapters(8, levels=3, width=2)(torch.ones(5, 8)).shape
    torch.Size([5, 3, 8])
    """

    def __init__(
        self,
        in_features: int,
        levels: int,
        width: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(levels, width, in_features, device=device, dtype=dtype))
        self.shift = nn.Parameter(torch.empty(levels, width, device=device, dtype=dtype))
        self.up = nn.Parameter(torch.empty(levels, in_features, width, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the parameters again: every level has the features themselves."""
        nn.init.normal_(self.down, std=self.down.shape[-1] ** -0.5)
        nn.init.zeros_(self.shift)
        nn.init.zeros_(self.up)

    def forward(self, h: Tensor) -> Tensor:
        return adapt_levels(h, self.down, self.shift, self.up)


class HierarchicalSoftmax(TreeHead):
    """One softmax over the children of every parent, all from the same features.

    P(leaf) is the product of the conditional probabilities on its path. Row j of the weight belongs to node j + 1;
    (C + P - 1)(D + 1) parameters.

    With a `Graph`, row j belongs to `graph.edges[j]`, and P(node) is the sum over all paths to the node, computed
    exactly; `sparse`, `adapter` and `impl="triton"` need a tree.

    Args:
        in_features: D, the size of the features.
        tax: the taxonomy.
        bias: whether the layer has a bias.
        sparse: whether `loss` gives weight and bias sparse gradients with the rows on the paths, for
            `torch.optim.SparseAdam`, SGD or Adagrad.
        impl: the implementation of the path kernels: `"torch"`, `"triton"` (on a GPU), or `"auto"` for the faster of
            those that are available. With `"triton"` the loss uses paths also on small trees, which is faster in a
            captured CUDA graph.
        adapter: the width of a residual adapter for each level, or 0 for none. With adapters the rows of a level meet
            `h + MLP(h)` of that level, so that an inner node is more than one linear row for all classes below it. They
            start as the identity.
        options: `init`, `device` and `dtype`, as in `TreeHead`.

    >>> import arbormax as am
    >>> tax = am.Taxonomy.from_nested({"animal": ["cat", "dog"], "plant": ["oak"]})
    >>> head = am.HierarchicalSoftmax(8, tax)
    >>> head(torch.zeros(2, 8)).exp().tolist()
    [[0.25, 0.25, 0.5], [0.25, 0.25, 0.5]]
    >>> head.loss(torch.zeros(2, 8), torch.tensor([0, 2])).item()  # doctest: +ELLIPSIS
    1.039...
    """

    supports_graph: ClassVar[bool] = True
    sibling_options: ClassVar[bool] = True
    supports_sparse: ClassVar[bool] = True
    supports_adapter: ClassVar[bool] = True
    supports_convex: ClassVar[bool] = True
    has_inner_rows: ClassVar[bool] = True
    has_logits: ClassVar[bool] = True
    edit_rows = SiblingRows

    log_priors: Tensor

    def __init__(
        self,
        in_features: int,
        tax: Taxonomy,
        bias: bool = True,
        sparse: bool = False,
        impl: Literal["auto", "torch", "triton"] = "auto",
        adapter: int = 0,
        **options: Any,
    ) -> None:
        check_choice("impl", impl, ("auto", "torch", "triton"))
        if sparse and options.get("sparse_weight"):
            raise OptionError("sparse gradients need a dense weight", argument="sparse", fix={"sparse_weight": False})
        if isinstance(adapter, bool) or not isinstance(adapter, int) or adapter < 0:
            raise OptionError(f"expected a width of at least 0, found {adapter!r}", argument="adapter")
        if adapter and impl == "triton":
            raise OptionError("the Triton kernels do not support adapters", argument="impl", fix={"impl": "auto"})
        if adapter and options.get("sparse_weight"):
            raise OptionError("adapters need a dense weight", argument="adapter", fix={"sparse_weight": False})
        if check_taxonomy(tax).is_graph:
            _refuse_path_options(sparse=sparse, impl=impl == "triton", adapter=adapter)
        self.sparse, self.impl, self.adapter = sparse, impl, adapter
        super().__init__(in_features, tax, bias, **options)
        self.adapters: LevelAdapters | None = None
        if adapter:
            self.adapters = LevelAdapters(in_features, tax.depth, adapter, self.device, self.dtype)
        self.register_buffer("log_priors", torch.zeros(self.num_rows(tax), device=self.device, dtype=self.dtype))

    @staticmethod
    def num_rows(tax: Taxonomy) -> int:
        return tax.num_edges

    @classmethod
    def softmax_groups(cls, tax: Taxonomy) -> list[SoftmaxGroup]:
        refuse_graph(tax, "the convex solver of this head")
        groups = (tax.children(parent) for parent in np.flatnonzero(tax.num_children).tolist())
        return [SoftmaxGroup(nodes, nodes - 1) for nodes in groups]

    @torch.no_grad()
    def scale_rows(self, scale: Tensor, shift: Tensor) -> bool:
        if self.bias is None and bool(shift.any()):
            return False
        scale_M, shift_M = scale.to(self._values), shift.to(self._values)
        if self.sparse_weight is None:
            self.weight.mul_(scale_M[:, None])
        else:
            self.sparse_weight.values.mul_(scale_M[self.sparse_weight.rows.long()])
        if self.bias is not None:
            self.bias.mul_(scale_M).add_(shift_M)
        return True

    def forward(self, h: Tensor) -> Tensor:
        return leaf_log_probs(self._logits(h), self.taxonomy)

    def node_log_probs(self, h: Tensor) -> Tensor:
        return node_log_probs(self._logits(h), self.taxonomy)

    def leaf_log_probs_from(self, scores: Tensor) -> Tensor:
        return leaf_log_probs(scores, self.taxonomy)

    def logits(self, h: Tensor) -> Tensor:
        return self._logits(h)

    def from_logits(self, logits: Tensor) -> Tensor:
        return node_log_probs(logits, self.taxonomy)

    def loss_from_logits(self, logits: Tensor, target: Tensor, **options: Any) -> Tensor:
        if options.get("tau"):
            self._check_priors()
            options["log_priors"] = self.log_priors
        return hierarchical_cross_entropy(logits, target, self.taxonomy, **options)

    def compute_loss(self, h: Tensor, target: Tensor, **options: Any) -> Tensor:
        self._check_features(h)
        if options["tau"]:
            self._check_priors()
            options["log_priors"] = self.log_priors
        if self.sparse_weight is not None or self.taxonomy.is_graph:
            return hierarchical_cross_entropy(self._linear(h), target, self.taxonomy, **options)
        return linear_cross_entropy(
            self._level_features(h),
            self.weight,
            self.bias,
            target,
            self.taxonomy,
            sparse=self.sparse,
            impl=self.impl,
            per_level=self.adapters is not None,
            **options,
        )

    def set_priors(self, class_counts: ArrayLike | Tensor, smoothing: float = 0.0) -> None:
        """Store the number of training items of each class, for the `tau` of the loss; saved with the weights.

        Args:
            class_counts: (C,) counts: a list, an array, or a tensor on any device.
            smoothing: added to every count.
        """
        self.log_priors.copy_(sibling_log_priors(class_counts, self.taxonomy, smoothing))

    def path_log_probs(self, h: Tensor, nodes: Tensor) -> Tensor:
        self._check_features(h)
        if not self._can_search(h):
            return super().path_log_probs(h, nodes)
        features, per_level = self._level_features(h), self.adapters is not None
        return path_log_probs(features, self.weight, self.bias, nodes, self.taxonomy, self.impl, per_level=per_level)

    @property
    def searches(self) -> bool:
        if self.sparse_weight is not None or self.taxonomy.is_graph:
            return False
        return prefers_search(tree_index(self.taxonomy, self.device))

    def topk(self, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k most probable classes.

        On a large tree the search skips branches that cannot contain one of them, and the result has no gradients.

        Returns:
            (..., k) log-probabilities in descending order and (..., k) classes; ties are in class order.
        """
        self._check_features(h)
        k = self._check_k(k)
        if k * _CLASSES_PER_RESULT > self.out_features or not self._can_search(h):
            return super().topk(h, k)
        invalid, features = find_non_finite(h), h.reshape(-1, self.in_features)
        with torch.no_grad():
            level_features = self._level_features(features)
            logp, classes, is_open = best_leaves(level_features, self.weight, self.bias, self.taxonomy, k)
            for items in self._split(is_open):
                logp[items], classes[items] = super().topk(features[items], k)
        logp, classes = logp.view(*h.shape[:-1], k), classes.view(*h.shape[:-1], k)
        return mark_items(logp, invalid, torch.nan), mark_items(classes, invalid, -1)

    def predict(self, h: Tensor) -> Tensor:
        self._check_features(h)
        return self.topk(h, 1)[1].squeeze(-1) if self._can_search(h) else super().predict(h)

    def predict_nodes(self, h: Tensor, tau: float = 0.5) -> Tensor:
        """Return the deepest node with P > tau, (...,): `decode.threshold` of `node_log_probs`, up to rounding.

        On a large tree only the children of nodes that pass are scored, unless tau is so small that most pass.
        """
        self._check_features(h)
        tau = check_tau(tau)
        if not self._can_search(h):
            return super().predict_nodes(h, tau)
        invalid, features = find_non_finite(h), h.reshape(-1, self.in_features)
        with torch.no_grad():
            level_features = self._level_features(features)
            nodes, is_open = deepest_nodes(level_features, self.weight, self.bias, self.taxonomy, tau)
            for items in self._split(is_open):
                nodes[items] = super().predict_nodes(features[items], tau)
        return mark_items(nodes.view(h.shape[:-1]), invalid, -1)

    def _split(self, chosen_B: Tensor) -> tuple[Tensor, ...]:
        """Return the chosen items in parts whose scores of all nodes fit in memory; no part if none is chosen."""
        items = chosen_B.nonzero().squeeze(1)
        return torch.split(items, max(1, _SCORES // self.taxonomy.num_nodes)) if len(items) else ()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._has_priors = False
        if "log_priors" in self._buffers:
            self.log_priors.zero_()
        if "adapters" in self._modules:
            cast(LevelAdapters, self.adapters).reset_parameters()

    def extra_repr(self) -> str:
        adapter = f", adapter={self.adapter}" if self.adapter else ""
        return super().extra_repr() + (", sparse=True" if self.sparse else "") + adapter

    def _write_fingerprint(self) -> None:
        super()._write_fingerprint()
        if self.taxonomy.is_graph:
            return
        device = self.device
        by_paths = self.sparse or self.impl == "triton"
        if device.type != "meta" and (by_paths or prefers_paths(tree_index(self.taxonomy, device))):
            path_tree(self.taxonomy, device)
            if self.adapter:
                step_tree(self.taxonomy, device)

    def _can_search(self, h: Tensor) -> bool:
        is_eager = not torch.compiler.is_compiling() and not is_transformed()
        is_dense = h.layout == torch.strided and h.numel() > 0
        return is_eager and is_dense and self.searches

    def _logits(self, h: Tensor) -> Tensor:
        if self.adapters is None:
            return self._linear(h)
        self._check_features(h)
        return level_logits(self._level_features(h), self.weight, self.bias, self.taxonomy)

    def _level_features(self, h: Tensor) -> Tensor:
        """Return (..., K, D) features of each level, or without adapters the (..., D) features themselves."""
        if self.adapters is None:
            return h
        if h.layout != torch.strided:
            raise OptionError("adapters need dense features, found a sparse tensor", argument="adapter")
        features: Tensor = self.adapters(h)
        return features

    def _check_priors(self) -> None:
        # Checked once, because the result has to come back from the device.
        if self._has_priors or torch.compiler.is_compiling() or self.log_priors.device.type == "meta":
            return
        if not bool(self.log_priors.any()) and int(self.taxonomy.num_children.max()) > 1:
            raise OptionError("the class frequencies are missing: call head.set_priors(class_counts)", argument="tau")
        self._has_priors = True


def _refuse_path_options(**options: object) -> None:
    for name, value in options.items():
        if value:
            raise OptionError("needs a tree, and the taxonomy is a graph: use graph.to_tree()", argument=name)
