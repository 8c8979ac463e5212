"""Heads and losses by plain recursion over one item at a time, in Python floats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from arbormax import Taxonomy
from oracles import ancestors_of, children_of, leaves_below


def log_softmax(values: Sequence[float]) -> list[float]:
    top = max(values)
    total = top + math.log(sum(math.exp(value - top) for value in values))
    return [value - total for value in values]


def conditionals(logits: Sequence[float], tax: Taxonomy) -> list[float]:
    """Log-probability of every node given its parent; logits has one value per non-root node."""
    cond = [0.0] * tax.num_nodes
    for parent in range(tax.num_nodes):
        below = children_of(tax, parent)
        if below:
            for child, value in zip(below, log_softmax([logits[child - 1] for child in below]), strict=True):
                cond[child] = value
    return cond


def node_log_probs(logits: Sequence[float], tax: Taxonomy) -> list[float]:
    cond = conditionals(logits, tax)

    def logp(node: int) -> float:
        return 0.0 if node == 0 else cond[node] + logp(int(tax.parent[node]))

    return [logp(node) for node in range(tax.num_nodes)]


def flat_node_log_probs(leaf_logits: Sequence[float], tax: Taxonomy) -> list[float]:
    logp = log_softmax(leaf_logits)
    return [
        math.log(sum(math.exp(logp[int(tax.class_of[leaf])]) for leaf in leaves_below(tax, node)))
        for node in range(tax.num_nodes)
    ]


def shared_leaf_logits(logits: Sequence[float], tax: Taxonomy) -> list[float]:
    def total(node: int) -> float:
        return 0.0 if node == 0 else logits[node - 1] + total(int(tax.parent[node]))

    return [total(int(leaf)) for leaf in tax.leaves]


def loss(
    logits: Sequence[float],
    node: int,
    tax: Taxonomy,
    *,
    weight: Sequence[float] | None = None,
    label_smoothing: float = 0.0,
    gamma: float = 0.0,
    node_weights: Sequence[float] | None = None,
    log_priors: Sequence[float] | None = None,
    tau: float = 0.0,
) -> tuple[float, float]:
    """The loss of one item times its weight, and that weight."""
    if log_priors is not None:
        logits = [value + tau * prior for value, prior in zip(logits, log_priors, strict=True)]
    cond = conditionals(logits, tax)
    below = leaves_below(tax, node)
    item_weight = 1.0 if weight is None else sum(weight[int(tax.class_of[leaf])] for leaf in below) / len(below)
    total = 0.0
    while node:
        siblings = children_of(tax, int(tax.parent[node]))
        mean = sum(cond[sibling] for sibling in siblings) / len(siblings)
        entropy = -(1 - label_smoothing) * cond[node] - label_smoothing * mean
        focus = (-math.expm1(cond[node])) ** gamma if gamma else 1.0
        total += (1.0 if node_weights is None else node_weights[node]) * focus * entropy
        node = int(tax.parent[node])
    return item_weight * total, item_weight


def flat_loss(
    leaf_logits: Sequence[float],
    node: int,
    tax: Taxonomy,
    *,
    weight: Sequence[float] | None = None,
    label_smoothing: float = 0.0,
    path_weight: float | Sequence[float] = 0.0,
) -> tuple[float, float]:
    """The loss of one item of a softmax over all classes times its weight, and that weight."""
    logp = flat_node_log_probs(leaf_logits, tax)
    below = leaves_below(tax, node)
    item_weight = 1.0 if weight is None else sum(weight[int(tax.class_of[leaf])] for leaf in below) / len(below)
    if node == 0:
        return 0.0, item_weight
    shares = {}
    for ancestor in ancestors_of(tax, node)[1:]:  # without the root
        level = len(ancestors_of(tax, ancestor))
        shares[ancestor] = 1.0 if isinstance(path_weight, float) else path_weight[level - 1]
    total = path_weight if isinstance(path_weight, float) else sum(path_weight)
    if sum(shares.values()) == 0:
        shares, total = {}, 0.0
    entropy = -(1 - total) * logp[node]
    for ancestor, share in shares.items():
        entropy -= total * share / sum(shares.values()) * logp[ancestor]
    spread = -sum(logp[int(leaf)] for leaf in tax.leaves) / tax.num_leaves
    return item_weight * ((1 - label_smoothing) * entropy + label_smoothing * spread), item_weight
