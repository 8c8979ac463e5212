"""The ancestors of all nodes of a graph in one array, and what follows for pairs of nodes.

N nodes, C classes, E edges, A entries: one for each node below the root and each node at or above it.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from arbormax.errors import InputError, TaxonomyError
from arbormax.taxonomy.queries import Common

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

MOST_ENTRIES = 1 << 28  # entries of the array of all ancestors
_CHUNK = 1 << 22  # entries of pairs that are compared together


class Ancestry:
    """The ancestors of every node: a node, the nodes above it and the shortest way to each; without the root."""

    def __init__(self, parent_start: np.ndarray, parent_list: np.ndarray, level_start: np.ndarray) -> None:
        count = len(parent_start) - 1
        self.start = np.zeros(count + 1, np.int64)  # the entries of node i are start[i] to start[i + 1]
        self.above = np.zeros(count, np.int64)  # (A,) ascending for each node
        self.steps = np.zeros(count, np.int64)  # (A,) edges on the shortest way up
        self.root_steps = np.zeros(count, np.int64)  # (N,) edges on the shortest way to the root
        levels = level_start.tolist()
        for first, stop in pairwise(levels[1:]):
            starts = parent_start[first : stop + 1]
            self._add_level(first, stop, np.diff(starts), parent_list[starts[0] : starts[-1]])
        self.above, self.steps = self.above[: self.start[-1]], self.steps[: self.start[-1]]

    def _add_level(self, first: int, stop: int, counts: np.ndarray, parents_E: np.ndarray) -> None:
        node_E = np.repeat(np.arange(stop - first), counts)
        self.root_steps[first:stop] = np.minimum.reduceat(self.root_steps[parents_E] + 1, np.cumsum(counts) - counts)
        sizes = self.start[parents_E + 1] - self.start[parents_E]
        entries = ranges(self.start[parents_E], self.start[parents_E + 1])
        own = np.arange(stop - first)
        node = np.concatenate((own, np.repeat(node_E, sizes)))
        above = np.concatenate((own + first, self.above[entries]))
        steps = np.concatenate((np.zeros_like(own), self.steps[entries] + 1))
        order = np.lexsort((steps, above, node))
        node, above, steps = node[order], above[order], steps[order]
        is_first = np.append(True, (np.diff(node) != 0) | (np.diff(above) != 0))  # the shortest of several ways
        node, above, steps = node[is_first], above[is_first], steps[is_first]
        used = int(self.start[first])
        total = used + len(node)
        if total > MOST_ENTRIES:
            raise TaxonomyError(
                f"the nodes of this graph have more than {MOST_ENTRIES:,} ancestors together, the limit for measures "
                "and sums over nodes; use a part of the graph, graph.below(node), or a tree, graph.to_tree()"
            )
        if total > len(self.above):
            size = max(total, 2 * len(self.above))
            self.above, self.steps = (
                np.concatenate((old[:used], np.zeros(size - used, np.int64))) for old in (self.above, self.steps)
            )
        self.above[used:total], self.steps[used:total] = above, steps
        self.start[first + 1 : stop + 1] = used + np.cumsum(np.bincount(node, minlength=stop - first))

    @cached_property
    def nodes(self) -> np.ndarray:
        """(A,) the node of each entry."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    @cached_property
    def counts(self) -> np.ndarray:
        """(N,) the number of nodes at or above each node, without the root."""
        return np.diff(self.start)

    @cached_property
    def _keys(self) -> np.ndarray:
        return self.nodes * (len(self.start) - 1) + self.above

    def contains(self, above: np.ndarray, below: np.ndarray) -> np.ndarray:
        """Whether each node of `above` is the root, or at or above the one of `below`."""
        keys = below * (len(self.start) - 1) + above
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.asarray((above == 0) | (self._keys[place] == keys))

    def common(self, a: np.ndarray, b: np.ndarray) -> Common:
        """What pairs of nodes have in common, (P,) and (P,).

        Of several common ancestors on one level, the one with the highest id counts as the deepest.
        """
        shared, deepest = np.zeros(len(a), np.int64), np.zeros(len(a), np.int64)
        way = self.root_steps[a] + self.root_steps[b]
        bounds = np.cumsum(self.counts[a])
        first = 0
        while first < len(a):
            done = bounds[first - 1] if first else 0
            stop = max(first + 1, int(np.searchsorted(bounds, done + _CHUNK, side="right")))
            x = a[first:stop]
            entry_x = ranges(self.start[x], self.start[x + 1])
            pair = np.repeat(np.arange(first, stop), self.counts[x])
            keys = b[pair] * (len(self.start) - 1) + self.above[entry_x]
            entry_y = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            found = self._keys[entry_y] == keys
            pair, entry_x, entry_y = pair[found], entry_x[found], entry_y[found]
            shared[first:stop] = np.bincount(pair - first, minlength=stop - first)
            np.maximum.at(deepest, pair, self.above[entry_x])
            np.minimum.at(way, pair, self.steps[entry_x] + self.steps[entry_y])
            first = stop
        return Common(shared, deepest, way)


def ranges(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Return the numbers of several ranges, one after the other.

    >>> ranges(np.array([0, 5]), np.array([2, 8])).tolist()
    [0, 1, 5, 6, 7]
    """
    sizes = stops - starts
    return np.repeat(stops - np.cumsum(sizes), sizes) + np.arange(sizes.sum())


class GraphQueries:
    """The queries of a graph that need no names."""

    parent_start: np.ndarray  # (N + 1,) the parents of node i are parent_list[parent_start[i] : parent_start[i + 1]]
    parent_list: np.ndarray  # (E,) in the order of the input
    leaves: np.ndarray  # (C,)
    depth: int
    num_leaves: int

    @property
    def num_nodes(self) -> int:
        """N, including the root."""
        return len(self.parent_start) - 1

    @property
    def num_edges(self) -> int:
        """E, the number of pairs of a parent and a child."""
        return len(self.parent_list)

    @cached_property
    def child_list(self) -> np.ndarray:
        """(E,) the child of each entry of `parent_list`."""
        return frozen(np.repeat(np.arange(self.num_nodes), np.diff(self.parent_start)))

    @cached_property
    def edges(self) -> np.ndarray:
        """(E, 2) parent and child of each edge, sorted: the order of the logits of a hierarchical softmax."""
        order = np.lexsort((self.child_list, self.parent_list))
        return frozen(np.stack([self.parent_list, self.child_list], axis=1)[order])

    @cached_property
    def edge_start(self) -> np.ndarray:
        """(N + 1,) the edges of parent i are `edges[edge_start[i] : edge_start[i + 1]]`."""
        return frozen(np.concatenate(([0], np.cumsum(self.num_children))))

    @cached_property
    def num_children(self) -> np.ndarray:
        """(N,) the number of children of each node."""
        return frozen(np.bincount(self.parent_list, minlength=self.num_nodes))

    @cached_property
    def node_depth(self) -> np.ndarray:
        """(N,) the level of each node: the number of edges on its longest path from the root."""
        return frozen(np.repeat(np.arange(self.depth + 1), np.diff(self.level_start)))

    @cached_property
    def level_start(self) -> np.ndarray:
        """(depth + 2,) level d is `level_start[d]` to `level_start[d + 1]`, exclusive."""
        # a level ends before the first node that has a parent in it
        last_parent = np.maximum.accumulate(np.maximum.reduceat(self.parent_list, self.parent_start[1:-1]))
        starts = [0, 1]
        while starts[-1] < self.num_nodes:
            starts.append(1 + int(np.searchsorted(last_parent, starts[-1])))
        return frozen(np.array(starts, np.int64))

    @cached_property
    def ancestry(self) -> Ancestry:
        """The ancestors of all nodes in one array."""
        return Ancestry(self.parent_start, self.parent_list, self.level_start)

    @property
    def ancestor_counts(self) -> np.ndarray:
        """(N,) the number of nodes at or above each node, without the root."""
        return self.ancestry.counts

    @cached_property
    def path_counts(self) -> np.ndarray:
        """(N,) float64 the number of paths from the root to each node."""
        counts = np.zeros(self.num_nodes)
        counts[0] = 1
        for first, stop in pairwise(self.level_start[1:]):
            starts = self.parent_start[first : stop + 1]
            parents = self.parent_list[starts[0] : starts[-1]]
            counts[first:stop] = np.add.reduceat(counts[parents], starts[:-1] - starts[0])
        return frozen(counts)

    @cached_property
    def height(self) -> np.ndarray:
        """(N,) the number of edges on the longest path from each node down to a leaf."""
        heights = np.zeros(self.num_nodes, np.int64)
        for first, stop in zip(self.level_start[-2:0:-1], self.level_start[:1:-1], strict=True):
            entries = slice(self.parent_start[first], self.parent_start[stop])
            np.maximum.at(heights, self.parent_list[entries], heights[self.child_list[entries]] + 1)
        return frozen(heights)

    def sum_up(self, values: ArrayLike) -> np.ndarray:
        """(N,) the sum of a value of each class (C,) or of each node (N,) over all that are at or below each node.

        A node that is below another one on several paths counts once.
        """
        given = np.array(values)
        if given.shape == (self.num_leaves,):
            per_class, given = given, np.zeros(self.num_nodes, given.dtype)
            given[self.leaves] = per_class
        elif given.shape != (self.num_nodes,):
            raise InputError(
                f"expected one value for each of {self.num_leaves} classes or {self.num_nodes} nodes, "
                f"found shape {given.shape}"
            )
        totals = np.zeros(self.num_nodes, given.dtype)
        np.add.at(totals, self.ancestry.above, given[self.ancestry.nodes])
        totals[0] = given.sum()
        return totals


def frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
