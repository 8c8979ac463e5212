"""One softmax over all classes, whose logits are sums along the path."""

from __future__ import annotations

import torch
from torch import Tensor

from arbormax.functional import shared_leaf_logits
from arbormax.functional.index import tree_index
from arbormax.functional.linear import linear
from arbormax.functional.probabilities import leaf_rows, small_paths
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
        self._check_features(h)
        return shared_leaf_logits(linear(h, self.weight, self.bias), self.taxonomy)

    def _training_logits(self, h: Tensor) -> Tensor:
        # The rows are summed before the product: one pass over the weights, not one over the logits of each item.
        self._check_features(h)
        index = tree_index(self.taxonomy, self.weight.device)
        if (matrix_CM := small_paths(self.weight, index)) is not None and h.layout is torch.strided:
            return linear(h, self.weight, self.bias) @ matrix_CM.t()
        bias = None if self.bias is None else leaf_rows(self.bias.unsqueeze(1), index).squeeze(1)
        return linear(h, leaf_rows(self.weight, index), bias)
