"""The best prediction for a measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from arbormax._registry import Registry
from arbormax.decode import option_hint, option_names
from arbormax.decode._hf import node_probabilities
from arbormax.decode._risk import least_of_function
from arbormax.errors import OptionError
from arbormax.functional.threshold import check_node_log_probs, deepest_node
from arbormax.taxonomy import Taxonomy

METRICS: Registry[Callable[..., Tensor]] = Registry("metric")
METRICS.add("hf", "arbormax.decode._hf:hf", "expected hierarchical F of each item; option beta")
METRICS.add("tree_distance", "arbormax.decode._optimal:tree_distance", "expected number of edges to the truth")
METRICS.add("risk", "arbormax.decode._risk:risk", "expected cost; option costs")
METRICS.add("information", "arbormax.decode._information:information", "expected information; option lam")


def optimal(
    logp: Tensor,
    tax: Taxonomy,
    metric: str = "hf",
    beta: float | None = None,
    lam: float | None = None,
    costs: Any = None,
) -> Tensor:
    """Return the node with the best expectation of a measure, if the probabilities are right. The result is exact.

    | metric | the prediction |
    |---|---|
    | `"hf"` | the node with the largest mean hF over the classes; with `beta` above 1, recall counts more |
    | `"tree_distance"` | the node with the smallest mean number of edges to the class |
    | `"risk"` | the class or node with the smallest mean cost; by default the class nearest to the others |
    | `"information"` | the node with the largest P·(I + `lam`), I its information in bits, or its only child |

    `costs` are numbers with one row for each prediction and one column for each truth: classes × classes (the
    prediction is a class), nodes × classes, or nodes × nodes. Or they are a mapping from the label of every class to a
    mapping from the label of every true class to the cost, such as `DataFrame.to_dict("index")`. Or they are a function
    of arrays of node ids, `costs(predicted, true)`, such as `tax.distance`; it is called for all nodes against all
    classes.

    Args:
        logp: (..., N) node log-probabilities.
        tax: the taxonomy.
        metric: the measure.
        beta: weight of recall in `"hf"`; 1 by default.
        lam: bits that are added for any correct prediction in `"information"`; 0 by default.
        costs: the costs of `"risk"`.

    Returns:
        (...,) node ids, int64.

    >>> import torch
    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
    >>> logp = torch.tensor([[1.0, 0.6, 0.4, 0.3, 0.3, 0.4]]).log()
    >>> [optimal(logp, tax, metric).item() for metric in ("hf", "tree_distance", "risk", "information")]
    [3, 1, 3, 5]
    >>> optimal(logp, tax, "risk", costs=[[0, 1, 9], [1, 0, 9], [9, 9, 0]]).item()
    3
    """
    decoder = METRICS[METRICS.check(metric, argument="metric")]
    given = {name: value for name, value in (("beta", beta), ("lam", lam), ("costs", costs)) if value is not None}
    known = option_names(decoder)
    for name in given:
        if name not in known:
            hint = option_hint(name, METRICS)
            raise OptionError(f"the metric {metric!r} does not have this option{hint}", argument=name)
    return decoder(logp, tax, **given)


def tree_distance(logp: Tensor, tax: Taxonomy) -> Tensor:
    """Return the node with the smallest expected tree distance.

    In a tree, a step down pays where the child has P > 1/2; in a graph, all nodes are compared with all classes.
    """
    check_node_log_probs(logp, tax)
    if not tax.is_graph:
        return deepest_node(logp, tax, 0.5)
    best = least_of_function(node_probabilities(logp, tax), tax, tax.distance, np.arange(tax.num_nodes))
    return best.view(logp.shape[:-1])
