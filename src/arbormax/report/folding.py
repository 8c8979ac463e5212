"""A tree folded to a maximum number of nodes: the parts with most test texts stay open.

N nodes.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from arbormax.report.runs import Tree


@dataclass(frozen=True)
class Branch:
    """One drawn box: a node, or `more` siblings folded into one."""

    node: int  # the first one if several are folded
    parent: int  # position in the list, -1 for the root
    more: int = 0  # number of folded siblings, 0 for a single node
    classes: int = 1
    hidden: int = 0  # classes below that are not drawn
    support: int = 0
    predicted: int = 0
    correct: int = 0


def fold(tree: Tree, max_nodes: int) -> list[Branch]:
    """At most `max_nodes` branches, parents before children; the children with most texts stay open."""
    tax = tree.tax
    weight = tree.support + tree.predicted
    opened: dict[int, np.ndarray] = {}
    room, queue = max_nodes - 1, [(-int(weight[0]), 0)]
    while queue and room > 1:
        _, node = heapq.heappop(queue)
        count = int(tax.num_children[node])
        if not count:
            continue
        # one node with very many children must not use up the whole budget
        share = room if tax.num_nodes <= max_nodes else max(2, min(room, max_nodes // 4))
        start = int(tax.child_start[node])
        children = np.arange(start, start + count)
        if count > share:
            heavy = np.lexsort((children, -tax.leaf_counts[children], -weight[children]))[: share - 1]
            children = np.sort(children[heavy])
        opened[node] = children
        room -= len(children) + (count > len(children))
        for child in children.tolist():
            heapq.heappush(queue, (-int(weight[child]), child))
    return _branches(tree, opened)


def _branches(tree: Tree, opened: dict[int, np.ndarray]) -> list[Branch]:
    tax = tree.tax
    branches: list[Branch] = []
    stack = [(0, -1)]
    while stack:
        node, parent = stack.pop()
        kept = opened.get(node)
        place = len(branches)
        classes = int(tax.leaf_counts[node])
        inner = not bool(tax.is_leaf[node])
        counts = (int(tree.support[node]), int(tree.predicted[node]), int(tree.correct[node]))
        branches.append(Branch(node, parent, 0, classes, classes if inner and kept is None else 0, *counts))
        if kept is None:
            continue
        stack.extend((child, place) for child in kept[::-1].tolist())
        start, stop = int(tax.child_start[node]), int(tax.child_start[node + 1])
        rest = np.setdiff1d(np.arange(start, stop), kept, assume_unique=True)
        if len(rest):
            hidden = int(tax.leaf_counts[rest].sum())
            sums = (int(row[rest].sum()) for row in (tree.support, tree.predicted, tree.correct))
            branches.append(Branch(int(rest[0]), place, len(rest), hidden, hidden, *sums))
    return branches
