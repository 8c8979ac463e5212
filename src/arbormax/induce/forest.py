"""Trees of numbered items under a limit of children and of levels, before they have names.

m items, K inner nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from arbormax.errors import OptionError

Split = Callable[[np.ndarray, int, int | None], list[np.ndarray]]
Halve = Callable[[np.ndarray, int], np.ndarray]


class Forest(NamedTuple):
    """A tree above m items; inner node 0 is its root, and a parent has a lower number than its children."""

    parent: np.ndarray  # (K,) the parent of each inner node, -1 for the root
    item_parent: np.ndarray  # (m,) the inner node directly above each item


@dataclass(frozen=True)
class Shape:
    """The largest tree that is allowed: children per inner node, children of the root, and levels below the root."""

    branching: int
    slots: int
    levels: int | None = None  # None: any number

    def check(self, items: int) -> None:
        """Raise an error if the items do not fit."""
        if self.levels is None or items <= self.slots * self.branching ** (self.levels - 1):
            return
        levels = _levels(items, self.slots, self.branching)
        raise OptionError(
            f"{items:,} classes do not fit below a node with {self.levels} level{'s' * (self.levels != 1)} and "
            f"{self.branching} children per node; they need {levels} levels",
            argument="depth",
        )


def grow(items: int, shape: Shape, split: Split) -> Forest:
    """Split the items from the root down until at most as many are left as a node may have children.

    `split(members, most, capacity)` divides members into 2 to `most` parts of at most `capacity` members each.
    """
    shape.check(items)
    parents = [-1]
    item_parent = np.zeros(items, np.int64)
    stack = [(0, np.arange(items), shape.slots, shape.levels)]
    while stack:
        node, members, most, levels = stack.pop()
        if len(members) <= most:
            item_parent[members] = node
            continue
        below = None if levels is None else levels - 1
        for part in split(members, most, None if below is None else shape.branching**below):
            if len(part) == 1:
                item_parent[part] = node
                continue
            stack.append((len(parents), part, shape.branching, below))
            parents.append(node)
    return Forest(np.array(parents, np.int64), item_parent)


def cut_dendrogram(order: np.ndarray, heights: np.ndarray, shape: Shape) -> Forest:
    """Cut a dendrogram: at its highest merges, or at the next ones where the levels would not suffice.

    `order` (m,) are the items from left to right, `heights` (m - 1,) where each is merged with the next.
    """

    def split(members: np.ndarray, most: int, capacity: int | None) -> list[np.ndarray]:
        start, stop = int(members[0]), int(members[-1]) + 1
        candidates = 1 + np.argsort(-heights[start : stop - 1], kind="stable")
        cuts = _choose_cuts(candidates, stop - start, most, capacity)
        return np.split(members, cuts)

    forest = grow(len(order), shape, split)
    item_parent = np.empty_like(forest.item_parent)
    item_parent[order] = forest.item_parent
    return Forest(forest.parent, item_parent)


def _choose_cuts(candidates: np.ndarray, length: int, most: int, capacity: int | None) -> list[int]:
    """Up to `most` - 1 cuts, the first possible candidates that leave no segment longer than the capacity."""
    if capacity is None:
        return sorted(candidates[: most - 1].tolist())
    cuts = [0, length]
    needed = -(-length // capacity)  # segments, if every one was full
    while len(cuts) <= most:
        before = len(cuts)
        for cut in candidates.tolist():
            place = int(np.searchsorted(cuts, cut))
            left, right = cuts[place - 1], cuts[place]
            if cut in (left, right):
                continue
            more = -(-(cut - left) // capacity) - (-(right - cut) // capacity) + (-(right - left) // capacity)
            if needed + more <= most:
                cuts.insert(place, cut)
                needed += more
                if len(cuts) > most:
                    break
        if len(cuts) == before:
            break
    return cuts[1:-1]


def balanced_parts(members: np.ndarray, most: int, branching: int, halve: Halve) -> list[np.ndarray]:
    """Parts of almost equal size, as few as the fewest levels below them allow.

    `halve(members, cut)` returns the members in an order in which the first `cut` of them are similar, and the others.
    """
    size = branching ** (_levels(len(members), most, branching) - 1)
    stack, parts = [(members, -(-len(members) // size))], []
    while stack:
        own, count = stack.pop()
        if count == 1:
            parts.append(own)
            continue
        left = count // 2
        cut = len(own) * left // count
        ordered = halve(own, cut)
        stack += [(ordered[cut:], count - left), (ordered[:cut], left)]
    return parts


def _levels(items: int, slots: int, branching: int) -> int:
    """The fewest levels below a node with this number of children."""
    levels, room = 1, slots
    while room < items:
        levels, room = levels + 1, room * branching
    return levels
