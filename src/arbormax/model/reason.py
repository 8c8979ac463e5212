"""Why a prediction stops above the classes, in one sentence.

N nodes.
"""

from __future__ import annotations

import numpy as np

from arbormax.taxonomy import Taxonomy

_SHARE = 0.9  # of the node's probability: the children that have it together are named
_NAMED = 3  # children at most
_COUNTS = {2: "two children share", 3: "three children share"}


def stop_reason(tax: Taxonomy, node: int, logp_N: np.ndarray, condition: str | None = None) -> str | None:
    """Why a prediction stops at a node, from the log-probabilities of all nodes; None for a class.

    `condition` is what was asked for, such as "a threshold of 50 %".

    >>> tax = Taxonomy.from_nested({"a": ["x", "y", "w"], "b": ["z"]})
    >>> stop_reason(tax, 1, np.log([1, 0.95, 0.05, 0.43, 0.48, 0.04, 0.05]))
    'The prediction stops at a (95 %), because two children share 91 %: y 48 %, x 43 %.'
    """
    first, stop = int(tax.child_start[node]), int(tax.child_start[node + 1])
    if first == stop:
        return None
    values = np.exp(logp_N[first:stop].astype(np.float64))
    total = float(np.exp(np.float64(logp_N[node])))
    named = np.argsort(-values, kind="stable")[:_NAMED].tolist()
    # rounding may make the sum larger than the probability of the parent
    sums = np.minimum(np.cumsum(values[named]), total)
    enough = np.flatnonzero(sums >= _SHARE * total)
    names = [f"{tax.names[first + place]} {_percent(values[place])}" for place in named]
    if stop - first == 1:
        because = f"{tax.names[first]} is its only child"
    elif not enough.size:
        because = f"{_percent(total)} are spread over {len(values):,} children, of which the best is {names[0]}"
    elif enough[0] == 0:
        because = f"its best child has only {_percent(values[named[0]])}: {tax.names[first + named[0]]}"
    else:
        count = int(enough[0]) + 1
        because = f"{_COUNTS[count]} {_percent(sums[count - 1])}: {', '.join(names[:count])}"
    where = f"{tax.names[node]} ({_percent(total)})" if node else "the root"
    start = f"With {condition}, the prediction" if condition else "The prediction"
    return f"{start} stops at {where}, because {because}."


def _percent(probability: float) -> str:
    if 0 < probability < 0.005:
        return "< 1 %"
    return "> 99 %" if 0.995 <= probability < 1 else f"{100 * probability:.0f} %"
