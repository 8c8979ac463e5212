"""A head whose node log-probabilities are scaled within sibling groups."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from arbormax.errors import InputError
from arbormax.functional import flat_cross_entropy, scale_siblings
from arbormax.functional.index import tree_index
from arbormax.heads.base import TreeHead
from arbormax.taxonomy import Taxonomy

_TRAINING_OPTIONS = ("weight", "label_smoothing", "gamma", "node_weights", "tau", "path_weight")


class CalibratedHead(TreeHead):
    """The probabilities of another head, scaled within every sibling group: see `functional.scale_siblings`.

    A calibrated model has this head unless the scales could be written into the rows of its own. `scale` and `shift`
    are (M,), one value per non-root node.

    >>> import arbormax as am
    >>> tax = am.Taxonomy.from_nested({"animal": ["cat", "dog"], "plant": ["oak"]})
    >>> head = CalibratedHead(am.FlatSoftmax(8, tax), torch.ones(5), torch.zeros(5))
    >>> head(torch.zeros(8)).exp()
    tensor([0.3333, 0.3333, 0.3333], grad_fn=<ExpBackward0>)
    """

    sibling_options: ClassVar[bool] = True  # so that `compute_loss` receives all options, and refuses them
    path_options: ClassVar[bool] = True

    scale: Tensor
    shift: Tensor

    def __init__(self, base: TreeHead, scale: Tensor, shift: Tensor) -> None:
        nn.Module.__init__(self)  # the parameters are those of the other head
        width = base.taxonomy.num_nodes - 1
        if scale.shape != (width,) or shift.shape != (width,):
            found = f"{tuple(scale.shape)} and {tuple(shift.shape)}"
            raise InputError(f"expected scales and shifts of the shape ({width},), found {found}", argument="scale")
        self.base = base
        self.in_features, self.out_features = base.in_features, base.out_features
        self.taxonomy, self.init = base.taxonomy, base.init
        self.register_buffer("scale", scale.to(base.device, torch.float32))
        self.register_buffer("shift", shift.to(base.device, torch.float32))
        self.train(base.training)

    @staticmethod
    def num_rows(tax: object) -> int:
        raise NotImplementedError("a calibrated head has the rows of its base")

    def row_nodes(self) -> np.ndarray:
        return self.base.row_nodes()

    def node_log_probs(self, h: Tensor) -> Tensor:
        return scale_siblings(self.base.node_log_probs(h), self.scale, self.shift, self.taxonomy)

    def forward(self, h: Tensor) -> Tensor:
        logp = self.node_log_probs(h)
        return logp.index_select(-1, tree_index(self.taxonomy, logp.device).leaves)

    def compute_loss(self, h: Tensor, target: Tensor, **options: Any) -> Tensor:
        """Return the negative log-probability of the targets; a calibrated head is not trained and takes no options."""
        given = [options.pop(name) for name in _TRAINING_OPTIONS]
        if any(isinstance(value, Tensor) or value for value in given):
            raise InputError("options of the loss are for training; train the head below, `head.base`, and recalibrate")
        return flat_cross_entropy(self.forward(h), target, self.taxonomy, **options)

    def carry_to(self, base: TreeHead, node_map: np.ndarray) -> CalibratedHead:
        """Return the calibration of this head on a head whose taxonomy was edited, with the new number of each node."""
        scale = carry_values(self.scale.cpu().double().numpy(), node_map, base.taxonomy, 1.0)
        shift = carry_values(self.shift.cpu().double().numpy(), node_map, base.taxonomy, 0.0)
        return CalibratedHead(base, torch.from_numpy(scale), torch.from_numpy(shift))

    def reset_parameters(self) -> None:
        self.base.reset_parameters()

    def extra_repr(self) -> str:
        return ""

    @property
    def _values(self) -> Tensor:
        values: Tensor = self.base._values  # noqa: SLF001  # of the same base class
        return values

    def _check_fingerprint(self) -> None:
        self.base._check_fingerprint()  # noqa: SLF001

    def _write_fingerprint(self) -> None:
        self.base._write_fingerprint()  # noqa: SLF001


def carry_values(values: np.ndarray, node_map: np.ndarray, tax: Taxonomy, usual: float) -> np.ndarray:
    """Return (M,) values of the nodes of an edited taxonomy from those of the old one.

    A new node has the mean of its old siblings, or the usual value if there are none.
    """
    old = np.flatnonzero(node_map[1:] > 0) + 1
    carried = np.full(tax.num_nodes, np.nan)
    carried[node_map[old]] = values[old - 1]
    is_known, parent = ~np.isnan(carried), np.maximum(tax.parent, 0)
    count = np.bincount(parent[is_known], minlength=tax.num_nodes)
    total = np.bincount(parent[is_known], carried[is_known], minlength=tax.num_nodes)
    mean = np.where(count > 0, total / np.maximum(count, 1), usual)
    filled: np.ndarray = np.where(is_known, carried, mean[parent])[1:]
    return filled
