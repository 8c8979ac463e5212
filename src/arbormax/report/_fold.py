"""A tree cut down to what can be looked at: the parts with most test texts open, the others folded.

N nodes.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from arbormax.report._runs import Tree


@dataclass(frozen=True)
class Branch:
    """What is drawn as one node: a node, or `more` siblings folded into one."""

    node: int  # the first of them where several are folded
    parent: int  # place in the list, -1 for the root
    more: int = 0  # siblings folded, 0 for a node of its own
    classes: int = 1
    hidden: int = 0  # classes below that are not drawn
    support: int = 0
    predicted: int = 0
    correct: int = 0


def folded(tree: Tree, most: int) -> list[Branch]:
    """At most `most` branches, parents before children; every node's children have most texts first in what is kept."""
    tax = tree.tax
    weight = tree.support + tree.predicted
    opened: dict[int, np.ndarray] = {}
    room, queue = most - 1, [(-int(weight[0]), 0)]
    while queue and room > 1:
        _, node = heapq.heappop(queue)
        count = int(tax.num_children[node])
        if not count:
            continue
        # a node with very many children may not take all the room from the others
        share = room if tax.num_nodes <= most else max(2, min(room, most // 4))
        start = int(tax.child_start[node])
        children = np.arange(start, start + count)
        if count > share:
            heavy = np.lexsort((children, -tax.leaf_counts[children], -weight[children]))[: share - 1]
            children = np.sort(children[heavy])
        opened[node] = children
        room -= len(children) + (count > len(children))
        for child in children.tolist():
            heapq.heappush(queue, (-int(weight[child]), child))
    return _listed(tree, opened)


def _listed(tree: Tree, opened: dict[int, np.ndarray]) -> list[Branch]:
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
