"""A tree folded to a maximum number of nodes: the parts with most test texts stay open.

N nodes.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from arbormax.report.markup import one_line
from arbormax.report.runs import Tree


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
