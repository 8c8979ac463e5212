"""One softmax over all classes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from arbormax.functional import flat_cross_entropy, flat_node_log_probs
from arbormax.heads.base import SoftmaxGroup, SoftmaxOverLeaves
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.edits.rows import ClassRows


class FlatSoftmax(SoftmaxOverLeaves):
    """A plain softmax layer that also returns node probabilities, as sums over leaves; C(D + 1) parameters.

    Row c of the weight belongs to class c. The arguments are those of `TreeHead`.

    >>> import arbormax as am, torch
    >>> tax = am.Taxonomy.from_nested({"animal": ["cat", "dog"], "plant": ["oak"]})
    >>> am.FlatSoftmax(8, tax).node_log_probs(torch.zeros(8)).exp().detach()
    tensor([1.0000, 0.6667, 0.3333, 0.3333, 0.3333, 0.3333])
    """

    supports_convex: ClassVar[bool] = True
    supports_graph: ClassVar[bool] = True
    has_logits: ClassVar[bool] = True
    edit_rows = ClassRows

    @staticmethod
    def num_rows(tax: Taxonomy) -> int:
        return tax.num_leaves

    def row_nodes(self) -> np.ndarray:
        return self.taxonomy.leaves

    @staticmethod
    def class_rows(tax: Taxonomy) -> np.ndarray:
        return np.arange(tax.num_leaves)

    @classmethod
    def softmax_groups(cls, tax: Taxonomy) -> list[SoftmaxGroup]:
        return [SoftmaxGroup(tax.leaves, cls.class_rows(tax))]

    def leaf_logits_from(self, scores: Tensor) -> Tensor:
        return scores

    def logits(self, h: Tensor) -> Tensor:
        return self._linear(h)

    def from_logits(self, logits: Tensor) -> Tensor:
        return flat_node_log_probs(logits, self.taxonomy)

    def loss_from_logits(self, logits: Tensor, target: Tensor, **options: Any) -> Tensor:
        return flat_cross_entropy(logits, target, self.taxonomy, **options)
