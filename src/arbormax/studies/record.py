"""What a report tells beyond a few measures: every node, every confusion, calibration, and answers by certainty.

n items, B batch, N nodes, L = depth + 1 levels, T thresholds. All of it is numbers, names and a few short texts, ready
for JSON; beside the predictions themselves, memory depends on the tree and not on the number of items.
"""

from __future__ import annotations

import base64
import json
import platform
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

from arbormax._version import __version__
from arbormax.data.examples import Examples
from arbormax.functional.threshold import stop_level
from arbormax.metrics.probabilities import LevelTable
from arbormax.metrics.sums import FIXED
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy

FORMAT = 1
PAIRS = 2000  # confusions that are listed; the others are counted
QUOTED, EXAMPLES, LETTERS = 40, 3, 240  # pairs with example texts, texts of each, and characters of a text
THRESHOLDS = tuple(step / 100 for step in range(100))


class Recorder:
    """Collects, batch by batch, what `details` needs of the probabilities."""

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.tax = taxonomy
        levels = taxonomy.depth + 1
        self.answered_TL = np.zeros((len(THRESHOLDS), levels), np.int64)
        self.right_TL = np.zeros((len(THRESHOLDS), levels), np.int64)
        self.classes_T2 = np.zeros((len(THRESHOLDS), 2), np.int64)  # answers that are a class, and the right ones
        self.bins: Mapping[str, np.ndarray] = {}
        self.sure: list[np.ndarray] = []

    def update(self, table: LevelTable, sure_B: np.ndarray) -> None:
        """Add a batch: the best node of every level, and the probability of the most probable leaf."""
        rows_B = np.arange(len(sure_B))
        for place, tau in enumerate(THRESHOLDS):
            level_B = stop_level(table.best, tau).numpy()
            right_B = table.right[rows_B, level_B]
            leaf_B = self.tax.is_leaf[table.nodes[rows_B, level_B]]
            levels = self.tax.depth + 1
            self.answered_TL[place] += np.bincount(level_B, minlength=levels)
            self.right_TL[place] += np.bincount(level_B[right_B], minlength=levels)
            self.classes_T2[place] += (leaf_B.sum(), (leaf_B & right_B).sum())
        self.sure.append(sure_B.astype(np.float32))

    def details(self, examples: Examples, predicted: np.ndarray, *, texts: bool = True) -> dict[str, Any]:
        """All details of the predictions that were recorded; without `texts` no text is among them."""
        sure = np.concatenate(self.sure)
        found = details(examples, predicted, self.tax, sure=sure, texts=texts)
        counts, right, confidence = (self.bins[name] for name in ("bin_count", "bin_right", "bin_confidence"))
        found["calibration"] = [
            {"count": n.tolist(), "right": r.tolist(), "confidence": np.round(c / FIXED, 4).tolist()}
            for n, r, c in zip(counts, right, confidence, strict=True)
        ]
        found["answers"] = {
            "thresholds": list(THRESHOLDS),
            "answered": self.answered_TL.tolist(),
            "right": self.right_TL.tolist(),
            "classes": self.classes_T2[:, 0].tolist(),
            "classes_right": self.classes_T2[:, 1].tolist(),
        }
        return found


def details(
    examples: Examples,
    predicted: np.ndarray,
    tax: Taxonomy,
    *,
    sure: np.ndarray | None = None,
    texts: bool = True,
) -> dict[str, Any]:
    """The details of predicted nodes (n,), or (S, n) of several seeds counted together; `sure` is their probability."""
    predicted_Sn = np.atleast_2d(predicted)
    true_n, runs = examples.nodes, len(predicted_Sn)
    true, pred = np.tile(true_n, runs), predicted_Sn.ravel()
    meet = tax.lca(true, pred)
    wrong = np.flatnonzero(true != pred)
    pairs, found = _confusions(true, pred, meet, wrong, tax)
    if texts:
        found["examples"] = _quotes(examples.inputs, true, pred, pairs[:QUOTED], wrong, sure)
    return {
        "format": FORMAT,
        "seeds": runs,
        "items": {
            "count": len(true_n),
            "digest": examples.digest(),
            "true": packed(true_n),
            "predicted": packed(predicted_Sn[0]),
        },
        "tree": {
            "fingerprint": tax.fingerprint,
            "names": [_plain(name) for name in tax.names],
            "children": tax.num_children.tolist(),
            "support": _at_or_below(true, tax).tolist(),
            "predicted": _at_or_below(pred, tax).tolist(),
            "correct": _at_or_below(meet, tax).tolist(),
        },
        "severity": np.bincount(tax.height[meet[wrong]], minlength=tax.depth + 1)[1:].tolist(),
        "confusions": found,
        "forks": _forks(true, pred, meet, wrong, tax),
    }


def origin(command: str, config: TrainConfig) -> dict[str, Any]:
    """Where details come from: the command, the settings, the versions and the time."""
    versions = {"arbormax": __version__, "torch": str(torch.__version__), "numpy": np.__version__}
    return {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {**versions, "python": platform.python_version()},
        "config": config.model_dump(mode="json"),
    }


def to_json(metrics: Mapping[str, Any]) -> str:
    """The measures as JSON that people can read: each part of the details is one long line at the end."""
    rest = {name: value for name, value in metrics.items() if name != "details"}
    text = json.dumps(rest, indent=2, ensure_ascii=False)
    if "details" not in metrics:
        return text + "\n"
    parts = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(part, ensure_ascii=False, separators=(',', ':'))}"
        for name, part in metrics["details"].items()
    )
    comma = "," if rest else ""
    return f'{text[:-1].rstrip()}{comma}\n  "details": {{\n{parts}\n  }}\n}}\n'


def packed(nodes: np.ndarray) -> str:
    """Node ids as text: little-endian 32-bit numbers, compressed, in base 64."""
    return base64.b64encode(zlib.compress(nodes.astype("<u4").tobytes(), 9)).decode("ascii")


def _at_or_below(nodes: np.ndarray, tax: Taxonomy) -> np.ndarray:
    """(N,) how many of the nodes stand at or below each node of the tree."""
    counts, bounds = np.bincount(nodes, minlength=tax.num_nodes), tax.level_start.tolist()
    for level in range(tax.depth, 0, -1):
        start, stop = bounds[level], bounds[level + 1]
        np.add.at(counts, tax.parent[start:stop], counts[start:stop])
    return counts


def _confusions(
    true: np.ndarray, pred: np.ndarray, meet: np.ndarray, wrong: np.ndarray, tax: Taxonomy
) -> tuple[np.ndarray, dict[str, Any]]:
    """(P, 3) the costliest pairs of true node, predicted node and count; and the same for JSON, with what is left out.

    A mistake costs the height of the lowest node above both.
    """
    rows = _counted(true[wrong], pred[wrong], tax.height[meet[wrong]], tax.num_nodes)
    kept = rows[:PAIRS]
    return kept, {"pairs": kept.tolist(), "all_pairs": len(rows), "all_mistakes": len(wrong)}


def _forks(true: np.ndarray, pred: np.ndarray, meet: np.ndarray, wrong: np.ndarray, tax: Taxonomy) -> dict[str, Any]:
    """The mistakes where the two paths part: the true branch, the one taken instead, and how often."""
    below = tax.node_depth[meet[wrong]] + 1

    def branch(nodes: np.ndarray) -> np.ndarray:
        at = tax.ancestor_at(nodes, below)
        return np.where(at < 0, nodes, at)  # a node that is the meeting point itself has no branch below it

    rows = _counted(branch(true[wrong]), branch(pred[wrong]), tax.height[meet[wrong]], tax.num_nodes)
    return {"pairs": rows[:PAIRS].tolist(), "all_pairs": len(rows)}


def _counted(first: np.ndarray, second: np.ndarray, cost: np.ndarray, nodes: int) -> np.ndarray:
    """(P, 3) distinct pairs with their counts, by summed cost, the dearest first."""
    keys, place, counts = np.unique(first * nodes + second, return_index=True, return_counts=True)
    order = np.lexsort((keys, -counts, -counts * cost[place]))
    return np.stack([keys // nodes, keys % nodes, counts], axis=1)[order]


def _quotes(
    texts: Sequence[str],
    true: np.ndarray,
    pred: np.ndarray,
    pairs: np.ndarray,
    wrong: np.ndarray,
    sure: np.ndarray | None,
) -> list[list[dict[str, Any]]]:
    """For each pair the texts of a few of its mistakes, the surest first, each text once."""
    quotes: list[list[dict[str, Any]]] = []
    for one, other, _ in pairs.tolist():
        items = wrong[(true[wrong] == one) & (pred[wrong] == other)]
        if sure is not None:
            items = items[np.argsort(-sure[items], kind="stable")]
        chosen = list(dict.fromkeys((items % len(texts)).tolist()))[:EXAMPLES]
        quotes.append(
            [
                {"text": shortened(texts[item])}
                if sure is None
                else {"text": shortened(texts[item]), "probability": round(float(sure[item]), 4)}
                for item in chosen
            ]
        )
    return quotes


def shortened(text: str, letters: int = LETTERS) -> str:
    """The text in one line, cut where it is long."""
    line = " ".join(_plain(text[: 4 * letters]).split())
    return line if len(line) <= letters else line[: letters - 1].rstrip() + "…"


def _plain(text: str) -> str:
    """Text that every encoding of Unicode can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
