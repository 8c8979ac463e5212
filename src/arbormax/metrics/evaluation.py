"""Every measure in one call.

B items, N nodes, C classes, k ranks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from arbormax.metrics.inputs import node_pairs, scored_nodes
from arbormax.metrics.probabilities import DEFAULT_THRESHOLDS, check_positive, check_thresholds, log_prob_sums
from arbormax.metrics.registry import measure_values, node_sums
from arbormax.metrics.sums import Items, Sums
from arbormax.taxonomy import Taxonomy

KS = (1, 5, 20)


def evaluate(
    true_nodes: Any,
    pred_nodes: Any,
    tax: Taxonomy,
    log_probs: Any = None,
    *,
    ks: Iterable[int] = KS,
    bins: int = 15,
    thresholds: Any = DEFAULT_THRESHOLDS,
) -> dict[str, Any]:
    """Every measure of predictions against the truth, as plain numbers ready for JSON.

    Truth and prediction are node ids (...,) in lists, numpy arrays or tensors, or lists of labels: strings or paths, as
    `tax.find` takes them. Both may name inner nodes. Log-probabilities (..., N) of all nodes add `nll`,
    `ece`, `operating_curve_area` and `hierarchical_distance@k` for each k of `ks` up to C. `arbormax.metrics.MEASURES`
    lists all measures with their definitions. A mean over nothing is 0, or None in a list over levels.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
    >>> values = evaluate([3, 4, 5, 5], [3, 3, 5, 2], tax)
    >>> values["accuracy"], values["hp"], values["mistake_severity"], values["level_accuracy"]
    (0.5, 0.8571428571428571, 1.0, [1.0, 0.5])
    >>> evaluate(["x", "y", "z", "z"], ["x", ("a", "x"), "z", "b"], tax) == values
    True
    """
    ks = [check_positive(k, "ks") for k in ks]
    bins, taus = check_positive(bins, "bins"), check_thresholds(thresholds)
    sums = Sums(tax, node_sums(Items(*node_pairs(true_nodes, pred_nodes, tax), tax)))
    if log_probs is not None:
        logp_BN, true_B = scored_nodes(log_probs, true_nodes, tax)
        found = log_prob_sums(logp_BN, true_B, tax, max(ks, default=0), bins, taus)
        sums.update(found, thresholds=np.array(taus))
    return measure_values(sums, ks)
