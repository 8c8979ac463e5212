"""The data of the figures of one run: plain lists and numbers for the script of the page.

N nodes.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arbormax.metrics import MEASURES
from arbormax.metrics.registry import shown_measures
from arbormax.report.markup import count, one_line
from arbormax.report.runs import Run, Tree

MAX_MATRICES, MAX_CHILDREN = 40, 18  # confusion matrices, and children in each
MIN_ITEMS = 20  # bins and levels with fewer items are omitted: their shares say little


def run_figures(run: Run, max_nodes: int) -> dict[str, Any]:
    """The data of all figures of one run."""
    return {
        "name": one_line(run.name),
        "tree": fold(run.tree, max_nodes),
        "matrices": confusion_matrices(run),
        "levels": [list(row) for row in levels_shown(run)],
        "severity": run.severity,
        "calibration": [_calibration_points(level) for level in run.calibration],
        "calibrated": {
            name: [_calibration_points(level) for level in side["levels"]]
            for name, side in (run.calibrated or {}).items()
            if name in ("before", "after")
        },
        "answers": None if run.answers is None else {key: _compact(table) for key, table in run.answers.items()},
        "curve": [dict(row) for row in run.curve],
        "best": run.training.get("best_epoch"),
        "texts": run.texts,
    }


def fold(tree: Tree, max_nodes: int) -> dict[str, list[Any]]:
    """At most `max_nodes` boxes, parents before children; the children with most texts stay open.

    Each property of the boxes is one list: name, position of the parent (-1 for the root), number of classes and of
    those that are not drawn, and test texts by truth, by prediction, and by both.
    """
    tax = tree.tax
    weight = tree.support + tree.predicted
    numbers = {
        "classes": tax.leaf_counts,
        "support": tree.support,
        "predicted": tree.predicted,
        "correct": tree.correct,
    }
    boxes: dict[str, list[Any]] = {key: [] for key in ("name", "parent", "hidden", *numbers)}

    def add(name: str, parent: int, nodes: np.ndarray) -> None:
        boxes["name"].append(name)
        boxes["parent"].append(parent)
        for key, values in numbers.items():
            boxes[key].append(int(values[nodes].sum()))
        is_leaf = len(nodes) == 1 and tax.is_leaf[nodes[0]]
        boxes["hidden"].append(0 if is_leaf else boxes["classes"][-1])

    add("all classes", -1, np.zeros(1, dtype=np.int64))
    queue = [(0, 0, 0)]  # negative weight, node, position of its box
    while queue and (room := max_nodes - len(boxes["name"])) > 1:
        _, node, place = heapq.heappop(queue)
        children = tax.children(node)
        # one node with very many children must not use up the whole budget
        share = room if tax.num_nodes <= max_nodes else max(2, min(room, max_nodes // 4))
        rest = children[:0]
        if len(children) > share:
            order = children[np.lexsort((children, -tax.leaf_counts[children], -weight[children]))]
            children, rest = np.sort(order[: share - 1]), order[share - 1 :]
        for child in children.tolist():
            heapq.heappush(queue, (-int(weight[child]), child, len(boxes["name"])))
            add(one_line(tax.names[child]), place, np.array([child]))
        if len(rest):
            add(f"… {len(rest):,} more", place, rest)
        if not tax.is_leaf[node]:
            boxes["hidden"][place] = 0
    return boxes


def confusion_matrices(run: Run) -> list[dict[str, Any]]:
    """Confusion matrices of the children of the nodes where paths diverge, those with the costliest mistakes first."""
    tree, tax = run.tree, run.tree.tax
    forks: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for true, taken, number in run.forks.tolist():
        forks[int(tax.lca(true, taken))].append((true, taken, number))
    mistakes = {node: sum(number for *_, number in rows) for node, rows in forks.items()}
    costs = {node: mistakes[node] * int(tax.height[node]) for node in forks}
    shown = []
    for node in sorted(forks, key=lambda node: (-costs[node], node))[:MAX_MATRICES]:
        involved: dict[int, int] = defaultdict(int)
        for true, taken, number in forks[node]:
            involved[true] += number
            involved[taken] += number
        kept = sorted(sorted(involved, key=lambda child: (-involved[child], child))[:MAX_CHILDREN])
        place = {child: at for at, child in enumerate(kept)}
        cells = np.zeros((len(kept), len(kept)), np.int64)
        for child, at in place.items():
            cells[at, at] = tree.correct[child] if child != node else 0
        outside = 0
        for true, taken, number in forks[node]:
            if true in place and taken in place:
                cells[place[true], place[taken]] = number
            else:
                outside += number
        shown.append(
            {
                "label": one_line(tree.label(node)),
                "names": [one_line(tax.names[child]) if child != node else "(the node itself)" for child in kept],
                "cells": cells.tolist(),
                "outside": outside,
                "texts": int(tree.support[node]),
                "mistakes": mistakes[node],
                "cost": costs[node],
            }
        )
    return shown


def levels_shown(run: Run) -> list[tuple[int, int, int]]:
    """The number of each level with enough texts, the texts that reach it, and those that are right there."""
    return [(at, n, right) for at, (n, right) in enumerate(run.tree.levels(), start=1) if n >= MIN_ITEMS]


def omitted(number: int, what: str) -> str:
    """A sentence about the bins or levels that a figure omits, empty for none."""
    return f" {count(number, what)} with fewer than {MIN_ITEMS} texts omitted." if number else ""


def enough(level: Mapping[str, np.ndarray]) -> np.ndarray:
    """The bins of a level that have enough items."""
    return np.flatnonzero(level["count"] >= MIN_ITEMS)


def difference_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Differences of shares in points, for the figure with intervals."""
    titles = {name: MEASURES[name].title for name in shown_measures("main") if MEASURES[name].unit == "share"}
    return [
        {
            "label": f"{one_line(str(row['head']), 40)} − {one_line(str(row['baseline']), 40)}",
            "measure": titles[row["measure"]],
            **{key: round(100 * float(row[key]), 3) for key in ("mean", "low", "high")},
            "verdict": MEASURES[row["measure"]].verdict(float(row["low"]), float(row["high"])),
        }
        for row in rows
        if row["measure"] in titles
    ]


def _calibration_points(level: Any) -> dict[str, list[float]]:
    """The bins of one level with enough items: mean confidence, accuracy, and number of items."""
    number, at = level["count"], enough(level)
    return {
        "x": np.round(level["confidence"][at] / number[at], 4).tolist(),
        "y": np.round(level["right"][at] / number[at], 4).tolist(),
        "n": number[at].astype(int).tolist(),
    }


def _compact(table: np.ndarray) -> Any:
    """A list with whole numbers as integers, which take fewer characters."""
    return table.astype(int).tolist() if (table == table.astype(int)).all() else table.tolist()
