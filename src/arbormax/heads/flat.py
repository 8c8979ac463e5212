"""One softmax over all classes, in the same interface."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from arbormax.functional.linear import linear
from arbormax.heads.base import SoftmaxOverLeaves, check_taxonomy
from arbormax.taxonomy import Taxonomy


class FlatSoftmax(SoftmaxOverLeaves):
    """A plain softmax layer that also gives node probabilities, by summing leaves; C(D + 1) parameters.

    Row c of the weight belongs to class c.

    >>> import arbormax as am, torch
    >>> tax = am.Taxonomy.from_nested({"animal": ["cat", "dog"], "plant": ["oak"]})
    >>> am.FlatSoftmax(8, tax).node_log_probs(torch.zeros(8)).exp().detach()
    tensor([1.0000, 0.6667, 0.3333, 0.3333, 0.3333, 0.3333])
    """

    def __init__(self, in_features: int, tax: Taxonomy, bias: bool = True, **options: Any) -> None:
        super().__init__(in_features, tax, check_taxonomy(tax).num_leaves, bias, **options)

    def leaf_logits(self, h: Tensor) -> Tensor:
        self._check_features(h)
        return linear(h, self.weight, self.bias)
