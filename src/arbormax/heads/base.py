"""The base classes of all heads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from operator import index
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from arbormax.errors import InputError, OptionError, TaxonomyError, check_choice, did_you_mean
from arbormax.functional import flat_cross_entropy, flat_node_log_probs
from arbormax.functional.best import top_classes
from arbormax.functional.checks import Reduction, TargetKind, check_width, find_non_finite, mark_items
from arbormax.functional.graphs import node_index, refuse_graph, steps_to
from arbormax.functional.linear import linear
from arbormax.functional.paths import check_nodes
from arbormax.functional.threshold import check_tau, deepest_node
from arbormax.heads.sparse import SparseWeight
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.edits.rows import HeadRows

Init = Literal["zeros", "paper", "torch"]


class SoftmaxGroup(NamedTuple):
    """The nodes that compete in one softmax, and their rows."""

    nodes: np.ndarray
    rows: np.ndarray


class TreeHead(nn.Module, ABC):
    """The last layer of a network, which knows the taxonomy; it replaces an `nn.Linear` with C outputs.

    Calling a head returns (..., C) leaf log-probabilities. They are normalised, so `F.cross_entropy(head(h), y)`
    equals `head.loss(h, y)`.

    A subclass implements `num_rows`, `forward`, `node_log_probs` and `compute_loss`.

    Args:
        in_features: D, the size of the features.
        tax: the taxonomy; a `Graph` for heads that support it.
        bias: whether the layer has a bias.
        init: how the parameters start: `"zeros"`, `"paper"` (weights uniform in ±0.1, bias zero) or `"torch"` (as
            `nn.Linear`).
        device: where the parameters are created.
        dtype: their type.
        sparse_weight: whether the weight is stored as a `SparseWeight`, which contains its values other than zero; it
            starts without values, whatever `init` is.
    """

    sibling_options: ClassVar[bool] = False  # whether `loss` takes gamma, node_weights and tau
    path_options: ClassVar[bool] = False  # whether `loss` takes path_weight
    supports_sparse: ClassVar[bool] = False  # whether the constructor takes sparse=True
    supports_adapter: ClassVar[bool] = False  # whether the constructor takes adapter=WIDTH
    supports_convex: ClassVar[bool] = False  # whether `softmax_groups` returns groups that can be trained alone
    has_inner_rows: ClassVar[bool] = False  # whether inner nodes have rows that the convex solver trains
    supports_graph: ClassVar[bool] = False  # whether the taxonomy may be a Graph
    has_logits: ClassVar[bool] = False  # whether `logits` and `from_logits` are implemented
    edit_rows: ClassVar[type[HeadRows] | None] = None  # how `am.edit` computes its rows; None: it cannot be edited

    weight: nn.Parameter  # None with sparse_weight=True
    bias: nn.Parameter | None
    sparse_weight: SparseWeight | None
    fingerprint: Tensor
    _verified: tuple[Tensor]  # the fingerprint tensor that was last found to match the taxonomy

    def __init__(
        self,
        in_features: int,
        tax: Taxonomy,
        bias: bool = True,
        *,
        init: Init = "paper",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        sparse_weight: bool = False,
        **unknown: Any,
    ) -> None:
        super().__init__()
        for name in unknown:
            hint = did_you_mean(name, ("bias", "init", "device", "dtype", "sparse_weight"))
            raise OptionError(f"{type(self).__name__} does not take this argument{hint}", argument=name)
        if in_features < 1:
            raise InputError(f"expected at least 1 feature, found {in_features}", argument="in_features")
        check_choice("init", init, get_args(Init))
        if not isinstance(bias, bool):
            raise OptionError("expected True or False; to set initial values, copy them to head.bias", argument="bias")
        if not self.supports_graph:
            refuse_graph(check_taxonomy(tax), type(self).__name__)
        rows = self.num_rows(check_taxonomy(tax))
        self.in_features = in_features
        self.out_features = tax.num_leaves  # stored, because a compiler cannot trace the taxonomy's numpy arrays
        self.taxonomy = tax
        self.init = init
        self.sparse_weight = None
        if sparse_weight:
            self.register_parameter("weight", None)
            self.sparse_weight = SparseWeight(rows, in_features, device, dtype)
        else:
            self.weight = nn.Parameter(torch.empty(rows, in_features, device=device, dtype=dtype))
        if bias:
            self.bias = nn.Parameter(torch.empty(rows, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.register_buffer("fingerprint", torch.empty(0))
        self.reset_parameters()

    @staticmethod
    @abstractmethod
    def num_rows(tax: Taxonomy) -> int:
        """Return the number of rows of the weight for this taxonomy."""

    def row_nodes(self) -> np.ndarray:
        """Return the node of each row of the weight; by default there is one row for each edge, that is, its child."""
        return self.taxonomy.edges[:, 1]

    @staticmethod
    def class_rows(tax: Taxonomy) -> np.ndarray:
        """Return the row that separates each class from the others; by default that of its node."""
        refuse_graph(tax, "copying the rows of classes")
        return tax.leaves - 1

    def rows_from(self, vectors: Tensor) -> Tensor:
        """Return the rows for which a node's score is the product of the features with its vector, (N, D) by node."""
        return vectors.index_select(0, torch.tensor(self.row_nodes(), device=vectors.device))

    @classmethod
    def softmax_groups(cls, tax: Taxonomy) -> list[SoftmaxGroup]:
        """Return the nodes and rows of each softmax, of a head whose logits are products with single rows."""
        raise NotImplementedError

    def logits(self, h: Tensor) -> Tensor:
        """Return the (..., M) products of the features with the rows, from which the probabilities follow."""
        raise NotImplementedError

    def from_logits(self, logits: Tensor) -> Tensor:
        """Return the (..., N) log-probabilities of all nodes, from (..., M) products with the rows."""
        raise NotImplementedError

    def loss_from_logits(self, logits: Tensor, target: Tensor, **options: Any) -> Tensor:
        """Return `loss` of products with the rows; `options` are those of `loss` that the head supports."""
        raise NotImplementedError

    def row_scores(self, h: Tensor) -> Tensor:
        """Return the (..., R) products of the features with all rows, plus the bias."""
        return self._linear(h)

    def leaf_log_probs_from(self, scores: Tensor) -> Tensor:
        """Return the (..., C) log-probabilities of the classes, from the (..., R) `row_scores` of a head."""
        raise NotImplementedError

    def scale_rows(self, scale: Tensor, shift: Tensor) -> bool:
        """Scale the probabilities within sibling groups by changing the rows, if the head's form allows it.

        Args:
            scale: (M,) factors, equal for siblings.
            shift: (M,) values that are added to the logits.

        Returns:
            Whether the head could do so; by default it cannot, and is unchanged.
        """
        del scale, shift
        return False

    @abstractmethod
    def forward(self, h: Tensor) -> Tensor:
        """Return (..., C) leaf log-probabilities in class order, from (..., D) features."""

    @abstractmethod
    def node_log_probs(self, h: Tensor) -> Tensor:
        """Return (..., N) log-probabilities of all nodes, from (..., D) features."""

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
        path_weight: float | Sequence[float] = 0.0,
    ) -> Tensor:
        """Return the negative log-probability of the targets, class ids or node ids.

        The options are described in `arbormax.functional.hierarchical_cross_entropy` and `flat_cross_entropy`.
        `gamma`, `node_weights` and `tau` act on sibling groups, `tau` with the priors that `set_priors` has stored, and
        `path_weight` on sums over leaves; a head without them raises an `OptionError`.
        """
        siblings = {"gamma": gamma, "node_weights": node_weights, "tau": tau}
        refuse_options(self, path_weight, **siblings)
        return self.compute_loss(
            h,
            target,
            reduction=reduction,
            ignore_index=ignore_index,
            target_kind=target_kind,
            weight=weight,
            label_smoothing=label_smoothing,
            **(siblings if self.sibling_options else {}),
            **({"path_weight": path_weight} if self.path_options else {}),
        )

    def compute_loss(self, h: Tensor, target: Tensor, **options: Any) -> Tensor:
        """Return the loss; `options` are those of `loss` that this head supports."""
        raise NotImplementedError

    def set_priors(self, class_counts: ArrayLike | Tensor, smoothing: float = 0.0) -> None:
        """Store the number of training items of each class, for the `tau` of the loss."""
        del class_counts, smoothing
        raise OptionError(f"{type(self).__name__} has no sibling priors; only HierarchicalSoftmax has")

    def path_log_probs(self, h: Tensor, nodes: Tensor) -> Tensor:
        """Return the log-probability of each node on the path to the given nodes.

        Args:
            h: (..., D) features.
            nodes: (...,) node ids.

        Returns:
            (..., K) log-probabilities, where K is the depth of the tree; 0 past the end of a path. In a graph it is
            the path of the first parents.
        """
        nodes_B = check_nodes(nodes, h.shape[:-1], self.taxonomy)
        logp_BN = self.node_log_probs(h).reshape(-1, self.taxonomy.num_nodes)
        path_BK = torch.stack(steps_to(self.taxonomy, nodes_B), dim=-1)
        # past the end of a path stands the root, whose log-probability is 0
        return logp_BN.gather(1, path_BK).view(*nodes.shape, path_BK.shape[1])

    def predict(self, h: Tensor) -> Tensor:
        """Return the class of the most probable leaf, (...,).

        Features with NaN or infinite values are an error. On a GPU and in compiled code, which cannot raise one without
        waiting, such items have the class -1; likewise in `topk` and `predict_nodes`.
        """
        invalid = self._find_invalid(h)
        return mark_items(self.forward(h).argmax(-1), invalid, -1)

    def predict_nodes(self, h: Tensor, tau: float = 0.5) -> Tensor:
        """Return the deepest node with P > tau, (...,): `decode.threshold` applied to `node_log_probs`."""
        tau, invalid = check_tau(tau), self._find_invalid(h)
        return mark_items(deepest_node(self.node_log_probs(h), self.taxonomy, tau), invalid, -1)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self._values.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters."""
        return self._values.dtype

    @property
    def _values(self) -> Tensor:
        return self.weight if self.sparse_weight is None else self.sparse_weight.values

    @property
    def searches(self) -> bool:
        """Whether `predict`, `predict_nodes` and `topk` search the tree instead of scoring all nodes."""
        return False

    def topk(self, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k most probable classes.

        Returns:
            (..., k) log-probabilities in descending order and (..., k) classes; ties are in class order.
        """
        k, invalid = self._check_k(k), self._find_invalid(h)
        logp, classes = top_classes(self.forward(h), k)
        return mark_items(logp, invalid, torch.nan), mark_items(classes, invalid, -1)

    def reset_parameters(self) -> None:
        """Initialise the parameters again, as `init` says."""
        bound = {"zeros": 0.0, "paper": 0.1, "torch": self.in_features**-0.5}[self.init]
        if self.sparse_weight is None:
            nn.init.uniform_(self.weight, -bound, bound) if bound else nn.init.zeros_(self.weight)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound) if self.init == "torch" else nn.init.zeros_(self.bias)
        self._write_fingerprint()

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, taxonomy={self.taxonomy!r}, bias={self.bias is not None}"

    def _check_k(self, k: Any) -> int:
        try:
            number = index(k)
        except TypeError:
            raise OptionError(f"expected an integer, found {k!r}", argument="k") from None
        if not 1 <= number <= self.out_features:
            raise OptionError(f"expected 1 to {self.out_features}, the number of classes, found {k}", argument="k")
        return number

    def _linear(self, h: Tensor) -> Tensor:
        """Return the (..., M) products of the features with the rows, plus the bias."""
        self._check_features(h)
        if self.sparse_weight is None:
            return linear(h, self.weight, self.bias)
        logits: Tensor = self.sparse_weight(h, self.bias)
        return logits

    def _find_invalid(self, h: Tensor) -> Tensor | None:
        self._check_features(h)
        return find_non_finite(h)

    def _check_features(self, h: Tensor) -> None:
        check_width(h, self.in_features, "the in_features of this head")
        self._check_fingerprint()

    def _check_fingerprint(self) -> None:
        # Some loaders set tensors without load_state_dict, so a new tensor is checked when it is first used.
        if self._verified[0] is not self.fingerprint and not torch.compiler.is_compiling():
            self._refuse_other_taxonomy(self.fingerprint)
            self._verified = (self.fingerprint,)

    def _write_fingerprint(self) -> None:
        """Store the taxonomy's fingerprint beside the weights, and build its index on their device."""
        own = torch.tensor(list(bytes.fromhex(self.taxonomy.fingerprint)), dtype=torch.uint8, device="cpu")
        self.fingerprint = own.to(self.device)
        self._verified = (self.fingerprint,)
        if self.device.type != "meta":
            node_index(self.taxonomy, self.device)

    def _refuse_other_taxonomy(self, fingerprint: Tensor) -> None:
        if fingerprint.device.type == "meta":
            return
        if fingerprint.dtype != torch.uint8:
            raise TaxonomyError(
                f"these weights do not belong to a head: expected a fingerprint of bytes, found {fingerprint.dtype}; "
                "load weights that a head of arbormax has saved"
            )
        found = bytes(fingerprint.flatten().tolist()).hex()
        if found != self.taxonomy.fingerprint:
            raise TaxonomyError(
                f"these weights belong to another taxonomy: its fingerprint is {found[:12]}…, this head's is "
                f"{self.taxonomy.fingerprint[:12]}…; build the head with the taxonomy that was saved with the weights"
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        if (found := state_dict.get(prefix + "fingerprint")) is not None:
            self._refuse_other_taxonomy(found)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _apply(self, fn: Any, recurse: bool = True) -> TreeHead:
        self._check_fingerprint()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._write_fingerprint()  # `to_empty` leaves the buffer uninitialised
        return self


class SoftmaxOverLeaves(TreeHead):
    """A head with one softmax over all classes; the probability of a node is the sum over its leaves."""

    path_options: ClassVar[bool] = True

    def leaf_logits(self, h: Tensor) -> Tensor:
        """Return the (..., C) logits of the softmax, from (..., D) features."""
        return self.leaf_logits_from(self._linear(h))

    def leaf_logits_from(self, scores: Tensor) -> Tensor:
        """Return the (..., C) logits of the softmax, from the (..., R) `row_scores`."""
        raise NotImplementedError

    def leaf_log_probs_from(self, scores: Tensor) -> Tensor:
        return _log_softmax(self.leaf_logits_from(scores))

    def forward(self, h: Tensor) -> Tensor:
        return _log_softmax(self.leaf_logits(h))

    def node_log_probs(self, h: Tensor) -> Tensor:
        return flat_node_log_probs(self.leaf_logits(h), self.taxonomy)

    def compute_loss(self, h: Tensor, target: Tensor, **options: Any) -> Tensor:
        return flat_cross_entropy(self.leaf_logits(h), target, self.taxonomy, **options)


def _log_softmax(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def check_taxonomy(tax: Taxonomy) -> Taxonomy:
    if not isinstance(tax, Taxonomy):
        raise InputError(f"expected an arbormax.Taxonomy, found {type(tax).__name__}", argument="tax")
    return tax


def refuse_options(
    head: TreeHead, path_weight: float | Sequence[float] = 0.0, **siblings: Tensor | float | None
) -> None:
    """Raise if an option of the loss is set that the head does not support."""
    used = [name for name, value in siblings.items() if isinstance(value, Tensor) or value]
    if used and not head.sibling_options:
        raise OptionError(
            f"{', '.join(sorted(used))}: this option acts on sibling groups, which {type(head).__name__} does not "
            "have; use HierarchicalSoftmax"
        )
    if not head.path_options and (not isinstance(path_weight, (int, float)) or path_weight):
        raise OptionError(
            f"acts on sums over leaves, which {type(head).__name__} does not have; its loss already has one term for "
            "each step of the path: use node_weights=functional.level_weights(tax, weights), FlatSoftmax or "
            "SharedSoftmax",
            argument="path_weight",
        )
