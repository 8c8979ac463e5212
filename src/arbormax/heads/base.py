"""What every head shares: parameters, the taxonomy's fingerprint, and the questions asked of leaf log-probabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import index
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from arbormax.errors import InputError, OptionError, TaxonomyError
from arbormax.functional import flat_cross_entropy, flat_node_log_probs
from arbormax.functional.best import top_classes
from arbormax.functional.checks import Reduction, TargetKind, check_choice, check_width
from arbormax.functional.index import tree_index
from arbormax.functional.threshold import check_tau, level_best, stop_level
from arbormax.taxonomy import Taxonomy

Init = Literal["zeros", "paper", "torch"]


class TreeHead(nn.Module, ABC):
    """A network's last layer that knows the class taxonomy; takes the place of an `nn.Linear` with C outputs.

    Calling it gives (..., C) leaf log-probabilities, which are normalised: `F.cross_entropy(head(h), y)` equals
    `head.loss(h, y)`.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None
    fingerprint: Tensor
    _verified: tuple[Tensor]  # the fingerprint that was last found to be this taxonomy's

    def __init__(
        self,
        in_features: int,
        tax: Taxonomy,
        rows: int,
        bias: bool = True,
        init: Init = "paper",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if in_features < 1:
            raise InputError(f"in_features is at least 1, not {in_features}")
        check_choice("init", init, get_args(Init))
        if not isinstance(bias, bool):
            raise OptionError("bias is True or False; to start from values of your own, copy them into head.bias")
        self.in_features = in_features
        self.out_features = tax.num_leaves  # kept: a compiler would read it off the taxonomy's numpy arrays
        self.taxonomy = tax
        self.init = init
        self.weight = nn.Parameter(torch.empty(rows, in_features, device=device, dtype=dtype))
        if bias:
            self.bias = nn.Parameter(torch.empty(rows, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.register_buffer("fingerprint", torch.empty(0))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start anew: `zeros`, `paper` (uniform in ±0.1, no bias, as the paper's code) or `torch` (as `nn.Linear`)."""
        bound = {"zeros": 0.0, "paper": 0.1, "torch": self.in_features**-0.5}[self.init]
        nn.init.uniform_(self.weight, -bound, bound) if bound else nn.init.zeros_(self.weight)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound) if self.init == "torch" else nn.init.zeros_(self.bias)
        self._sign()

    @abstractmethod
    def forward(self, h: Tensor) -> Tensor:
        """(..., C) leaf log-probabilities in class order, from (..., D) features."""

    @abstractmethod
    def node_log_probs(self, h: Tensor) -> Tensor:
        """(..., N) log-probability of every node, from (..., D) features."""

    def predict(self, h: Tensor) -> Tensor:
        """(...,) the class of the most probable leaf over the whole tree."""
        return self.forward(h).argmax(-1)

    def predict_nodes(self, h: Tensor, tau: float = 0.5) -> Tensor:
        """(...,) the deepest node with P > tau: `decode.threshold` of `node_log_probs`."""
        tau = check_tau(tau)
        best_BL, nodes_BL = level_best(self.node_log_probs(h), self.taxonomy)
        return nodes_BL.gather(-1, stop_level(best_BL, tau).unsqueeze(-1)).squeeze(-1)

    @property
    def searches(self) -> bool:
        """Whether the tree is so large that `predict`, `predict_nodes` and `topk` leave most of it out."""
        return False

    def topk(self, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """(..., k) log-probabilities of the k most probable leaves, falling, and their classes; ties by class order."""
        return top_classes(self.forward(h), self._checked_k(k))

    def _checked_k(self, k: Any) -> int:
        try:
            number = index(k)
        except TypeError:
            raise OptionError(f"k is a whole number, not {k!r}") from None
        if not 1 <= number <= self.out_features:
            raise OptionError(f"k lies between 1 and the {self.out_features} classes, not {k}")
        return number

    def _check_features(self, h: Tensor) -> None:
        check_width(h, self.in_features, "the features that this head was made for")
        self._verify()

    def _verify(self) -> None:
        # Loaders that set tensors directly go past load_state_dict, so a new tensor is looked at once.
        if self._verified[0] is not self._buffers["fingerprint"] and not torch.compiler.is_compiling():
            self._refuse_foreign(self.fingerprint)
            self._verified = (self.fingerprint,)

    def _sign(self) -> None:
        """Mark the weights as this taxonomy's, and have its index ready where they are."""
        own = torch.tensor(list(bytes.fromhex(self.taxonomy.fingerprint)), dtype=torch.uint8, device="cpu")
        self.fingerprint = own.to(self.weight.device)
        self._verified = (self.fingerprint,)
        if self.weight.device.type != "meta":
            tree_index(self.taxonomy, self.weight.device)

    def _refuse_foreign(self, found: Tensor) -> None:
        if found.device.type == "meta":
            return
        theirs = bytes(found.flatten().tolist()).hex()
        if theirs != self.taxonomy.fingerprint:
            raise TaxonomyError(
                f"these weights belong to another taxonomy: its fingerprint is {theirs[:12]}…, this head's "
                f"{self.taxonomy.fingerprint[:12]}…; build the head with the taxonomy that was saved beside them"
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        if (found := state_dict.get(prefix + "fingerprint")) is not None:
            self._refuse_foreign(found)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _apply(self, fn: Any, recurse: bool = True) -> TreeHead:
        self._verify()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        # `to_empty` leaves garbage behind; the fingerprint is known.
        self._sign()
        return self

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, taxonomy={self.taxonomy!r}, bias={self.bias is not None}"


class SoftmaxOverLeaves(TreeHead):
    """A head with one softmax over all classes; node probabilities are sums over leaves."""

    @abstractmethod
    def leaf_logits(self, h: Tensor) -> Tensor:
        """(..., C) logits of the softmax, from (..., D) features."""

    def forward(self, h: Tensor) -> Tensor:
        logits = self.leaf_logits(h)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)

    def node_log_probs(self, h: Tensor) -> Tensor:
        return flat_node_log_probs(self.leaf_logits(h), self.taxonomy)

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
        **sibling_options: Any,
    ) -> Tensor:
        """The negative log-probability of each target: see `arbormax.functional.flat_cross_entropy`."""
        refuse_sibling_options(type(self).__name__, sibling_options)
        return flat_cross_entropy(
            self._training_logits(h),
            target,
            self.taxonomy,
            reduction=reduction,
            target_kind=target_kind,
            ignore_index=ignore_index,
            weight=weight,
            label_smoothing=label_smoothing,
        )

    def _training_logits(self, h: Tensor) -> Tensor:
        return self.leaf_logits(h)


def check_taxonomy(tax: Taxonomy) -> Taxonomy:
    if not isinstance(tax, Taxonomy):
        raise InputError(f"the taxonomy is an arbormax.Taxonomy, not {type(tax).__name__}")
    return tax


def refuse_sibling_options(head: str, options: dict[str, Any]) -> None:
    known = {"gamma", "node_weights", "tau"}
    for name in options:
        if name not in known:
            raise TypeError(f"{head}.loss() got an unexpected keyword argument {name!r}")
    given = [name for name, value in options.items() if value is not None and not isinstance(value, (int, float))]
    given += [name for name, value in options.items() if isinstance(value, (int, float)) and value]
    if given:
        raise OptionError(
            f"{', '.join(sorted(given))}: options that speak of siblings need a softmax per sibling group, so "
            f"HierarchicalSoftmax; with {head} use F.cross_entropy(head(h), y, …) for torch's own options"
        )
