"""Why a model gives its answer: the probability of every step, what else was possible, and the words that mattered.

N nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch

from arbormax.errors import InputError, OptionError
from arbormax.model.contributions import contributions
from arbormax.model.network import Model
from arbormax.model.predict import Decoding, NodeNames
from arbormax.taxonomy import Taxonomy


def explain(
    model: Model,
    text: str,
    *,
    decoding: Decoding = Decoding(),  # noqa: B008 - frozen
    siblings: int = 5,
    words: bool = True,
    node: int | None = None,
) -> dict[str, Any]:
    """The answer for one text and its reasons, as plain values for JSON.

    `steps` go from below the root to the answer, which `decoding` chooses unless `node` says it, and on to the most
    probable leaf below it; `stopped_at` of them lead to the answer. `nodes` are those steps with the best `siblings`
    children at each, parents first; `hidden` children are not listed. `words` of a step say what each of `tokens` adds
    to log P(node | parent): positive spoke for the step, negative against it.
    """
    if not isinstance(text, str):
        raise InputError(f"expected one text as a str, found {type(text).__name__}")
    if siblings < 1:
        raise OptionError(f"siblings is the number of children to show at each step, at least 1; found {siblings}")
    tax = model.taxonomy
    if node is not None and not 0 <= node < tax.num_nodes:
        raise OptionError(f"node lies between 0 and {tax.num_nodes - 1:,}, not {node}")
    logp_1N = next(iter(model.node_log_probs([text]))).cpu()
    answer = int(decoding.nodes(logp_1N, tax)) if node is None else node
    logp_N = logp_1N[0].double().numpy()
    names = NodeNames(tax)
    steps = names.steps(_best_leaf(logp_N, tax, answer))
    tokens, values_ST, method = contributions(model, text, steps) if words else ([], np.zeros((len(steps), 0)), None)
    return {
        "label": names.label(answer),
        "node": answer,
        "path": list(names.path(answer)),
        "probability": math.exp(logp_N[answer]),
        "nodes": list(_relevant(logp_N, names, steps, siblings)),
        "steps": [
            {
                "node": step,
                "name": tax.names[step],
                "label": names.label(step),
                "probability": math.exp(logp_N[step]),
                "conditional": _conditional(logp_N, tax, step),
                "words": values_ST[place].tolist(),
            }
            for place, step in enumerate(steps)
        ],
        "stopped_at": len(names.steps(answer)),
        "tokens": [{"text": text[start:end], "start": start, "end": end} for start, end in tokens],
        "words_method": method,
    }


def _best_leaf(logp_N: np.ndarray, tax: Taxonomy, node: int) -> int:
    """The most probable leaf at or below a node; ties by class order, as the decoder has them."""
    first, behind = node, node + 1  # the nodes below on one level, which stand side by side
    leaves: list[np.ndarray] = []
    while first < behind:
        level = np.arange(first, behind)
        leaves.append(level[tax.is_leaf[level]])
        first, behind = int(tax.child_start[first]), int(tax.child_start[behind])
    below = np.concatenate(leaves)
    below = below[np.argsort(tax.class_of[below])]
    return int(below[np.argmax(logp_N[below])])


def _relevant(logp_N: np.ndarray, names: NodeNames, steps: list[int], siblings: int) -> Iterator[dict[str, Any]]:
    """The root, and the best children of the root and of every step, the next step always among them."""
    tax, path = names.taxonomy, [0, *steps]
    shown = {parent: _shown(logp_N, tax, parent, step, siblings) for parent, step in pairwise(path)}
    for node in chain([0], *shown.values()):
        listed = shown.get(node, [])
        children = np.exp(logp_N[tax.child_start[node] : tax.child_start[node + 1]])
        children[np.array(listed, dtype=np.int64) - tax.child_start[node]] = 0.0
        yield {
            "node": node,
            "name": tax.names[node],
            "label": names.label(node),
            "parent": int(tax.parent[node]) if node else None,
            "depth": int(tax.node_depth[node]),
            "probability": math.exp(logp_N[node]),
            "conditional": _conditional(logp_N, tax, node),
            "on_path": node in path,
            "classes": int(tax.leaf_counts[node]),
            "children": len(children),
            "hidden": len(children) - len(listed),
            "hidden_probability": min(1.0, float(children.sum())),
        }


def _shown(logp_N: np.ndarray, tax: Taxonomy, parent: int, step: int, siblings: int) -> list[int]:
    """The best children of a parent, falling, the step always among them."""
    first = int(tax.child_start[parent])
    values = torch.from_numpy(logp_N[first : tax.child_start[parent + 1]])
    best = [first + place for place in values.topk(min(siblings, len(values))).indices.tolist()]
    if step not in best:
        best[-1] = step
    return sorted(best, key=lambda node: (-logp_N[node], node))


def _conditional(logp_N: np.ndarray, tax: Taxonomy, node: int) -> float:
    """P(node | parent), at most one whatever the rounding; the root's is one."""
    return math.exp(min(0.0, logp_N[node] - logp_N[tax.parent[node]])) if node else 1.0
