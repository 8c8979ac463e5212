"""One softmax over all classes, whose logits are sums along the path."""

from __future__ import annotations

from torch import Tensor

from arbormax.functional import shared_leaf_logits
from arbormax.heads.base import SoftmaxOverLeaves
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.edits.rows import PathRows


class SharedSoftmax(SoftmaxOverLeaves):
    """A softmax in which siblings share parameters: the logit of a class is the sum of the logits on its path.

    Row j of the weight belongs to node j + 1; (C + P - 1)(D + 1) parameters. The arguments are those of `TreeHead`.
    """

    edit_rows = PathRows

    @staticmethod
    def num_rows(tax: Taxonomy) -> int:
        return tax.num_nodes - 1

    def leaf_logits(self, h: Tensor) -> Tensor:
        return shared_leaf_logits(self._linear(h), self.taxonomy)
