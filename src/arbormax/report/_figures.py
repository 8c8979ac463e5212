"""What the drawings of a run are made from: plain lists and numbers for the page's script."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from arbormax.report._fold import folded
from arbormax.report._runs import Run, Tree
from arbormax.report.svg import clean

MATRICES, WIDTH = 40, 18  # forks that can be looked at, and children shown of each


def drawings(run: Run, max_nodes: int) -> dict[str, Any]:
    """Everything the script draws of one run."""
    return {
        "name": name_of(run.name),
        "tree": tree_rows(run.tree, max_nodes),
        "matrices": matrices(run),
        "levels": run.tree.levels(),
        "severity": run.severity,
        "calibration": [_reliability(level) for level in run.calibration],
        "answers": None if run.answers is None else {key: _whole(table) for key, table in run.answers.items()},
        "curve": [dict(row) for row in run.curve],
        "best": run.training.get("best_epoch"),
        "texts": run.texts,
    }


def name_of(name: str, limit: int = 160) -> str:
    """A name in one line, cut where it is very long."""
    line = clean(name) or "(unnamed)"
    return line if len(line) <= limit else line[: limit - 1] + "…"


def tree_rows(tree: Tree, most: int) -> dict[str, list[Any]]:
    """The folded tree, a list for each property."""
    branches = folded(tree, most)
    names = [
        f"… {branch.more:,} more"
        if branch.more
        else "all classes"
        if branch.parent < 0
        else name_of(tree.tax.names[branch.node])
        for branch in branches
    ]
    return {
        "name": names,
        "parent": [branch.parent for branch in branches],
        "classes": [branch.classes for branch in branches],
        "hidden": [branch.hidden for branch in branches],
        "support": [branch.support for branch in branches],
        "predicted": [branch.predicted for branch in branches],
        "correct": [branch.correct for branch in branches],
    }


def fork_costs(run: Run) -> dict[int, tuple[int, int]]:
    """For each node where paths part: its mistakes and what they cost, the dearest first."""
    tax = run.tree.tax
    found: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for true, taken, number in run.forks.tolist():
        meet = int(tax.lca(true, taken))
        found[meet][0] += number
        found[meet][1] += number * int(tax.height[meet])
    return {node: (n, cost) for node, (n, cost) in sorted(found.items(), key=lambda row: (-row[1][1], row[0]))}


def matrices(run: Run) -> list[dict[str, Any]]:
    """For the nodes with the dearest mistakes: which child was right, which one was taken, how often."""
    tree, tax = run.tree, run.tree.tax
    forks: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for true, taken, number in run.forks.tolist():
        forks[int(tax.lca(true, taken))].append((true, taken, number))
    shown = []
    for node, (mistakes, cost) in list(fork_costs(run).items())[:MATRICES]:
        involved: dict[int, int] = defaultdict(int)
        for true, taken, number in forks[node]:
            involved[true] += number
            involved[taken] += number
        kept = sorted(sorted(involved, key=lambda child: (-involved[child], child))[:WIDTH])
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
                "label": name_of(tree.label(node)),
                "names": [name_of(tax.names[child]) if child != node else "(this node itself)" for child in kept],
                "cells": cells.tolist(),
                "outside": outside,
                "mistakes": mistakes,
                "cost": cost,
            }
        )
    return shown


def differences(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Differences of shares, in points, for the drawing with intervals."""
    wanted = {"accuracy": "accuracy", "macro_f1": "macro-F1", "hf": "hierarchical F"}
    return [
        {
            "label": f"{name_of(str(row['head']), 40)} − {name_of(str(row['baseline']), 40)}",
            "measure": wanted[row["measure"]],
            **{key: round(100 * float(row[key]), 3) for key in ("mean", "low", "high")},
        }
        for row in rows
        if row["measure"] in wanted
    ]


def _reliability(level: Any) -> dict[str, list[float]]:
    """The bins of one level that hold anything: mean confidence, share right, and how many."""
    count = level["count"]
    at = np.flatnonzero(count)
    return {
        "x": np.round(level["confidence"][at] / count[at], 4).tolist(),
        "y": np.round(level["right"][at] / count[at], 4).tolist(),
        "n": count[at].astype(int).tolist(),
    }


def _whole(table: np.ndarray) -> Any:
    """A list with whole numbers as such, which are shorter to write."""
    return table.astype(int).tolist() if (table == table.astype(int)).all() else table.tolist()
