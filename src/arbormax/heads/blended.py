"""A hierarchical softmax that one more row for each class corrects."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from arbormax.functional import leaf_log_probs
from arbormax.heads.base import SoftmaxGroup, SoftmaxOverLeaves
from arbormax.heads.hierarchical import HierarchicalSoftmax
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.edits.blended_rows import BlendedRows


class BlendedSoftmax(SoftmaxOverLeaves):
    """One softmax over all classes, whose logits are log-probabilities on the path plus the score of a row per class.

    The softmaxes of the parents know the tree, and the rows of the classes separate classes of different branches. The
    logit of a class is `path_share` times its log-probability in a `HierarchicalSoftmax`, plus the product of the
    features with its own row. Row j of the weight belongs to node j + 1, and row N - 1 + c to class c;
    (2C + P - 1)(D + 1) parameters. `path_share` is 1, or what the convex solver has fitted. The arguments are those of
    `TreeHead`.

    >>> import arbormax as am
    >>> tax = am.Taxonomy.from_nested({"animal": ["cat", "dog"], "plant": ["oak"]})
    >>> am.BlendedSoftmax(8, tax)(torch.zeros(8)).exp().tolist()
    [0.25, 0.25, 0.5]
    """

    supports_convex: ClassVar[bool] = True
    has_inner_rows: ClassVar[bool] = True
    edit_rows = BlendedRows

    path_share: Tensor  # (1,)

    def __init__(self, in_features: int, tax: Taxonomy, bias: bool = True, **options: Any) -> None:
        super().__init__(in_features, tax, bias, **options)
        self._sizes = [tax.num_nodes - 1, tax.num_leaves]
        self.register_buffer("path_share", torch.ones(1, device=self.device, dtype=self.dtype))

    @staticmethod
    def num_rows(tax: Taxonomy) -> int:
        return tax.num_nodes - 1 + tax.num_leaves

    def row_nodes(self) -> np.ndarray:
        return np.concatenate([super().row_nodes(), self.taxonomy.leaves])

    @staticmethod
    def class_rows(tax: Taxonomy) -> np.ndarray:
        return tax.num_nodes - 1 + np.arange(tax.num_leaves)

    @classmethod
    def softmax_groups(cls, tax: Taxonomy) -> list[SoftmaxGroup]:
        return HierarchicalSoftmax.softmax_groups(tax)

    def parts(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the (..., C) log-probabilities on the paths, and the (..., C) scores of the rows of the classes."""
        return self._split_scores(self._linear(h))

    def _split_scores(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        steps, classes = torch.split(scores, self._sizes, dim=-1)
        return leaf_log_probs(steps, self.taxonomy), classes

    def leaf_logits_from(self, scores: Tensor) -> Tensor:
        on_path, own = self._split_scores(scores)
        return self.path_share * on_path + own

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if "path_share" in self._buffers:
            self.path_share.fill_(1.0)
