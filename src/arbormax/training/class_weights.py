"""Weights of the classes in the loss."""

from __future__ import annotations

import numpy as np
import torch

from arbormax.errors import OptionError
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy


def class_counts(nodes: np.ndarray, taxonomy: Taxonomy) -> np.ndarray:
    """(C,) the number of labels of each class; labels at inner nodes are not counted."""
    classes = taxonomy.class_of[nodes]
    return np.bincount(classes[classes >= 0], minlength=taxonomy.num_leaves)


def class_weights(config: TrainConfig, nodes: np.ndarray, taxonomy: Taxonomy) -> torch.Tensor | None:
    """(C,) weights of the classes, defined as scikit-learn's `class_weight`, or None."""
    if config.class_weight is None:
        return None
    weights = np.ones(taxonomy.num_leaves, dtype=np.float32)
    if config.class_weight == "balanced":
        counts = class_counts(nodes, taxonomy)
        seen = counts > 0
        weights[seen] = counts.sum() / (seen.sum() * counts[seen])
    else:
        weights[taxonomy.encode(list(config.class_weight))] = list(config.class_weight.values())
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise OptionError("expected weights of at least 0, one of them positive", argument="class_weight")
    return torch.from_numpy(weights)
