"""Huffman's tree: frequent classes are near the root.

m items.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from arbormax.induce.forest import Forest, Shape

if TYPE_CHECKING:
    from arbormax.induce.items import Items


def group_by_frequency(items: Items, chosen: np.ndarray, shape: Shape) -> Forest:
    """Join the rarest classes first, so that the mean depth of an example is as low as the shape allows."""
    shape.check(len(chosen))
    counts = items.counts[chosen]
    least = 0  # a class counts at least this much: with equal counts the tree has the fewest levels
    forest, levels = _join(counts, shape)
    while shape.levels is not None and levels > shape.levels:
        least = max(1, 2 * least)
        forest, levels = _join(np.maximum(counts, least), shape)
    return forest


def _join(weights: np.ndarray, shape: Shape) -> tuple[Forest, int]:
    """The tree of these weights and its number of levels."""
    count = len(weights)
    heap = [(int(weight), 0, item) for item, weight in enumerate(weights.tolist())]  # weight, levels below, number
    heapq.heapify(heap)
    parent: list[int] = [-1] * count
    size = (count - shape.slots) % (shape.branching - 1) + 1 if count > shape.slots else 0
    size = shape.branching if size == 1 else size
    while len(heap) > shape.slots:
        children = [heapq.heappop(heap) for _ in range(min(size, len(heap)))]
        number = len(parent)
        for _, _, child in children:
            parent[child] = number
        parent.append(-1)
        heapq.heappush(heap, (sum(c[0] for c in children), 1 + max(c[1] for c in children), number))
        size = shape.branching
    top = 1 + max(entry[1] for entry in heap)
    # the inner nodes were numbered from the bottom up; the root comes first
    rank = {node: len(parent) - node for node in range(count, len(parent))}
    above = np.array([rank.get(node, 0) for node in parent], np.int64)
    inner = np.concatenate([[-1], above[count:][::-1]]).astype(np.int64)
    return Forest(inner, above[:count]), top
