"""The details of an evaluation that a report shows: counts per node, confusions, calibration, answers per threshold.

n items, P pairs, S seeds. The details are numbers, names and a few short texts, ready for JSON. Except for the
predictions, memory depends on the tree and not on the number of items.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from arbormax.data.examples import Examples
from arbormax.metrics.probabilities import DEFAULT_THRESHOLDS
from arbormax.metrics.sums import FIXED
from arbormax.studies.evaluate import Evaluation
from arbormax.taxonomy import Graph, Taxonomy

FORMAT = 1
MAX_PAIRS = 2000  # confusions that are listed; the others are counted
QUOTED_PAIRS, QUOTES, QUOTE_LENGTH = 40, 3, 240  # pairs with example texts, texts per pair, and characters per text
THRESHOLDS = DEFAULT_THRESHOLDS[:-1]  # at 1, every answer is the root


class Details(TypedDict, total=False):
    """The part of a record that only a report reads."""

    format: int
    seeds: int  # trainings that are counted together
    items: dict[str, Any]  # count, digest of the examples, true and predicted nodes as packed text
    graph: dict[str, int]  # the numbers of nodes and edges, if the taxonomy is a graph and `tree` that of first parents
    tree: dict[str, Any]  # names, numbers of children, and items at or below each node: support, predicted, correct
    severity: list[int]  # mistakes by the height of the lowest common ancestor, from 1
    confusions: dict[str, Any]  # (P, 3) true node, predicted node, count; the costliest first, with example texts
    forks: dict[str, Any]  # (P, 3) true branch, branch taken instead, count
    calibration: list[dict[str, Any]]  # for each level: items, right items and summed confidence in each bin
    answers: dict[str, Any]  # for each threshold: items answered at each level, and how many of them are right
    command: str
    date: str
    versions: dict[str, str]
    config: dict[str, Any]
    probabilities: str  # which they are, of a model with uncertainty


def evaluation_details(examples: Examples, found: Evaluation, *, texts: bool = True) -> Details:
    """The details of an evaluation; without `texts` they quote no text."""
    known = Examples(examples.inputs, found.true)
    details = build_details(known, found.predicted, found.taxonomy, confidence=found.confidence, texts=texts)
    if found.taxonomy.is_graph:  # its levels are not those of the tree
        return details
    bins = (found.sums[name] for name in ("bin_count", "bin_right", "bin_confidence"))
    details["calibration"] = [
        {"count": n.tolist(), "right": r.tolist(), "confidence": np.round(c / FIXED, 4).tolist()}
        for n, r, c in zip(*bins, strict=True)
    ]
    names = {"answered": "answered", "right": "answered_right", "classes": "leaves", "classes_right": "leaves_right"}
    counts = {name: found.sums[own][: len(THRESHOLDS)].tolist() for name, own in names.items()}
    details["answers"] = {"thresholds": list(THRESHOLDS), **counts}
    return details


def build_details(
    examples: Examples,
    predicted: np.ndarray,
    tax: Taxonomy,
    *,
    confidence: np.ndarray | None = None,
    texts: bool = True,
) -> Details:
    """The details of predicted nodes (n,) with their probabilities (n,), or of (S, n) nodes of S seeds together.

    Those of a graph are of the tree in which every node keeps its first parent.
    """
    if isinstance(tax, Graph):
        tree, node_of = tax.to_tree_nodes()
        on_tree = Examples(examples.inputs, node_of[examples.nodes])
        details = build_details(on_tree, node_of[predicted], tree, confidence=confidence, texts=texts)
        details["graph"] = {"nodes": tax.num_nodes, "edges": tax.num_edges}
        return details
    predicted_Sn = np.atleast_2d(predicted)
    true_n, runs = examples.nodes, len(predicted_Sn)
    true, pred = np.tile(true_n, runs), predicted_Sn.ravel()
    meet = tax.lca(true, pred)
    wrong = np.flatnonzero(true != pred)
    cost = tax.height[meet[wrong]]
    pairs = _count_pairs(true[wrong], pred[wrong], cost, tax)
    true_branch, branch = (_branches(nodes[wrong], meet[wrong], tax) for nodes in (true, pred))
    forks = _count_pairs(true_branch, branch, cost, tax)
    confusions: dict[str, Any] = {
        "pairs": pairs[:MAX_PAIRS].tolist(),
        "all_pairs": len(pairs),
        "all_mistakes": len(wrong),
    }
    if texts and isinstance(examples.inputs, list):  # the rows of a feature matrix cannot be quoted
        confusions["examples"] = _quotes(examples.inputs, true, pred, pairs[:QUOTED_PAIRS], wrong, confidence)
    return {
        "format": FORMAT,
        "seeds": runs,
        "items": {
            "count": len(true_n),
            "digest": examples.digest(),
            "true": pack(true_n),
            "predicted": pack(predicted_Sn[0]),
        },
        "tree": {
            "fingerprint": tax.fingerprint,
            "names": [_encodable(name) for name in tax.names],
            "children": tax.num_children.tolist(),
            "support": _at_or_below(true, tax).tolist(),
            "predicted": _at_or_below(pred, tax).tolist(),
            "correct": _at_or_below(meet, tax).tolist(),
        },
        "severity": np.bincount(cost, minlength=tax.depth + 1)[1:].tolist(),
        "confusions": confusions,
        "forks": {"pairs": forks[:MAX_PAIRS].tolist(), "all_pairs": len(forks)},
    }


def pack(nodes: np.ndarray) -> str:
    """Node ids as text: compressed little-endian 32-bit numbers in base 64."""
    return base64.b64encode(zlib.compress(nodes.astype("<u4").tobytes(), 9)).decode("ascii")


def _at_or_below(nodes: np.ndarray, tax: Taxonomy) -> np.ndarray:
    """(N,) how many of the nodes are at or below each node of the tree."""
    return tax.sum_up(np.bincount(nodes, minlength=tax.num_nodes))


def _branches(nodes: np.ndarray, meet: np.ndarray, tax: Taxonomy) -> np.ndarray:
    """The child of `meet` at or above each node; `meet` itself, which has no branch, remains."""
    branch = tax.ancestor_at(nodes, tax.node_depth[meet] + 1)
    return np.where(branch < 0, nodes, branch)


def _count_pairs(first: np.ndarray, second: np.ndarray, cost: np.ndarray, tax: Taxonomy) -> np.ndarray:
    """(P, 3) distinct pairs of nodes with their counts, those with the largest total cost first."""
    keys, place, counts = np.unique(first * tax.num_nodes + second, return_index=True, return_counts=True)
    order = np.lexsort((keys, -counts, -counts * cost[place]))
    return np.stack([keys // tax.num_nodes, keys % tax.num_nodes, counts], axis=1)[order]


def _quotes(
    texts: Sequence[str],
    true: np.ndarray,
    pred: np.ndarray,
    pairs: np.ndarray,
    wrong: np.ndarray,
    confidence: np.ndarray | None,
) -> list[list[dict[str, Any]]]:
    """For each pair the texts of a few of its mistakes, those of the highest confidence first, each text once."""
    quotes: list[list[dict[str, Any]]] = []
    for one, other, _ in pairs.tolist():
        items = wrong[(true[wrong] == one) & (pred[wrong] == other)]
        if confidence is not None:
            items = items[np.argsort(-confidence[items], kind="stable")]
        chosen = list(dict.fromkeys((items % len(texts)).tolist()))[:QUOTES]
        quotes.append([{"text": shorten(texts[item])} for item in chosen])
        if confidence is not None:
            for quote, item in zip(quotes[-1], chosen, strict=True):
                quote["probability"] = round(float(confidence[item]), 4)
    return quotes


def shorten(text: str, length: int = QUOTE_LENGTH) -> str:
    """The text in one line of at most `length` characters."""
    line = " ".join(_encodable(text[: 4 * length]).split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def _encodable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")
