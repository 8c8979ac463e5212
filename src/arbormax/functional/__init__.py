"""Pure tensor functions: log-probabilities on a tree and the losses above them.

Logits have one column per non-root node, in node order: column j is node j + 1.
"""

from arbormax.functional.losses import flat_cross_entropy, hierarchical_cross_entropy
from arbormax.functional.probabilities import (
    flat_node_log_probs,
    leaf_log_probs,
    node_log_probs,
    shared_leaf_logits,
    sibling_log_softmax,
)
from arbormax.functional.siblings import conditional_log_probs, scale_siblings
from arbormax.functional.weights import hxe_weights, level_weights, parent_weights, sibling_log_priors

__all__ = [
    "conditional_log_probs",
    "flat_cross_entropy",
    "flat_node_log_probs",
    "hierarchical_cross_entropy",
    "hxe_weights",
    "leaf_log_probs",
    "level_weights",
    "node_log_probs",
    "parent_weights",
    "scale_siblings",
    "shared_leaf_logits",
    "sibling_log_priors",
    "sibling_log_softmax",
]
