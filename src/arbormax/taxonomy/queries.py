"""What follows from the parents alone: sizes, levels, children, ancestors, distances, sums over subtrees.

N nodes, C classes (leaves), P parents (inner nodes, including the root).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from arbormax.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class Common(NamedTuple):
    """What pairs of nodes have in common."""

    shared: np.ndarray  # the number of nodes, without the root, that are at or above both
    deepest: np.ndarray  # the deepest node that is at or above both
    distance: np.ndarray  # the number of edges on the shortest way up from one and down to the other


class TreeQueries:
    """The queries of a taxonomy that need no names."""

    parent: np.ndarray  # (N,) int64, parent[0] == -1
    leaves: np.ndarray  # (C,) the node of each class, in class order

    @property
    def num_nodes(self) -> int:
        """N, including the root."""
        return len(self.parent)

    @property
    def num_leaves(self) -> int:
        """C, the number of classes."""
        return len(self.leaves)

    @property
    def num_parents(self) -> int:
        """P, the number of inner nodes, including the root."""
        return self.num_nodes - self.num_leaves

    @property
    def num_edges(self) -> int:
        """The number of pairs of a parent and a child: N - 1 in a tree."""
        return self.num_nodes - 1

    @property
    def edges(self) -> np.ndarray:
        """(N - 1, 2) parent and child of each edge: edge j leads to node j + 1."""
        return np.stack([self.parent[1:], np.arange(1, self.num_nodes)], axis=1)

    @property
    def first_parent(self) -> np.ndarray:
        """(N,) the parent of each node, -1 for the root; in a graph the one that the input lists first."""
        return self.parent

    @property
    def depth(self) -> int:
        """The number of levels below the root."""
        return len(self.level_start) - 2

    @cached_property
    def child_start(self) -> np.ndarray:
        """(N + 1,) the children of node i are `child_start[i]` to `child_start[i + 1]`, exclusive."""
        counts = np.bincount(self.parent[1:], minlength=self.num_nodes)
        return _frozen(np.concatenate(([1], 1 + np.cumsum(counts))))

    @cached_property
    def num_children(self) -> np.ndarray:
        """(N,) the number of children of each node."""
        return _frozen(np.diff(self.child_start))

    @cached_property
    def level_start(self) -> np.ndarray:
        """(depth + 2,) level d is `level_start[d]` to `level_start[d + 1]`, exclusive."""
        starts, first_child = [0, 1], self.child_start.tolist()
        while starts[-1] < self.num_nodes:
            starts.append(first_child[starts[-1]])
        return _frozen(np.array(starts, np.int64))

    @cached_property
    def node_depth(self) -> np.ndarray:
        """(N,) the depth of each node; the root's is 0."""
        return _frozen(np.repeat(np.arange(self.depth + 1), np.diff(self.level_start)))

    @property
    def ancestor_counts(self) -> np.ndarray:
        """(N,) the number of nodes at or above each node, without the root: its depth in a tree."""
        return self.node_depth

    @cached_property
    def class_of(self) -> np.ndarray:
        """(N,) the class id of each leaf, -1 for inner nodes."""
        classes = np.full(self.num_nodes, -1, np.int64)
        classes[self.leaves] = np.arange(self.num_leaves)
        return _frozen(classes)

    @cached_property
    def is_leaf(self) -> np.ndarray:
        """(N,) whether a node is a leaf."""
        return _frozen(self.num_children == 0)

    @cached_property
    def leaf_counts(self) -> np.ndarray:
        """(N,) the number of leaves at or below each node."""
        return _frozen(self.sum_up(np.ones(self.num_leaves, np.int64)))

    @cached_property
    def height(self) -> np.ndarray:
        """(N,) the number of edges from each node down to its deepest leaf."""
        heights = np.zeros(self.num_nodes, np.int64)
        for nodes in self._levels_upwards():
            np.maximum.at(heights, self.parent[nodes], heights[nodes] + 1)
        return _frozen(heights)

    def sum_up(self, values: ArrayLike) -> np.ndarray:
        """(N,) the sum of a value of each class (C,) or of each node (N,) over all that are at or below each node.

        >>> from arbormax import Taxonomy
        >>> Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]}).sum_up([1, 2, 4]).tolist()
        [7, 3, 4, 1, 2, 4]
        """
        totals = np.array(values)
        if totals.shape == (self.num_leaves,):
            per_class, totals = totals, np.zeros(self.num_nodes, totals.dtype)
            totals[self.leaves] = per_class
        elif totals.shape != (self.num_nodes,):
            raise InputError(
                f"expected one value for each of {self.num_leaves} classes or {self.num_nodes} nodes, "
                f"found shape {totals.shape}"
            )
        for nodes in self._levels_upwards():
            np.add.at(totals, self.parent[nodes], totals[nodes])
        return totals

    def _levels_upwards(self) -> Iterator[slice]:
        """Yield the nodes of each level below the root, deepest level first."""
        bounds = self.level_start.tolist()
        for level in range(self.depth, 0, -1):
            yield slice(bounds[level], bounds[level + 1])

    def parents(self, node: int) -> np.ndarray:
        """The parent of a node as an array; empty for the root."""
        node = self._node(node)
        return self.parent[node : node + 1] if node else self.parent[:0]

    def children(self, node: int) -> np.ndarray:
        """The children of a node, in order; empty for a leaf."""
        node = self._node(node)
        return np.arange(self.child_start[node], self.child_start[node + 1])

    def ancestors(self, node: int) -> np.ndarray:
        """The ancestors of a node, from the root down to its parent; empty for the root."""
        node, above = self._node(node), []
        parent = self.parent
        while (node := int(parent[node])) >= 0:
            above.append(node)
        return np.array(above[::-1], np.int64)

    @overload
    def lca(self, a: int, b: int) -> int: ...
    @overload
    def lca(self, a: np.ndarray, b: ArrayLike) -> np.ndarray: ...
    @overload
    def lca(self, a: ArrayLike, b: ArrayLike) -> np.ndarray | int: ...
    def lca(self, a: ArrayLike, b: ArrayLike) -> np.ndarray | int:
        """The deepest node that is at or above both; arrays are broadcast.

        >>> from arbormax import Taxonomy
        >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
        >>> tax.lca([3, 3], [4, 5]).tolist()
        [1, 0]
        """
        x, y = np.broadcast_arrays(self._nodes(a), self._nodes(b))
        while np.any(x != y):  # a node comes after its ancestors, so the later one of two is not above the other
            x, y = np.where(x > y, self.parent[x], x), np.where(y > x, self.parent[y], y)
        return x.copy() if x.shape else int(x)

    def common(self, a: np.ndarray, b: np.ndarray) -> Common:
        """What pairs of nodes, (P,) and (P,), have in common."""
        deepest = self.lca(a, b)
        shared = self.node_depth[deepest]
        return Common(shared, deepest, self.node_depth[a] + self.node_depth[b] - 2 * shared)

    def is_above(self, above: ArrayLike, below: ArrayLike) -> np.ndarray:
        """Whether each node of `above` is at or above the one of `below`; arrays are broadcast."""
        upper, lower = np.broadcast_arrays(self._nodes(above), self._nodes(below))
        return np.asarray(self.ancestor_at(lower, self.node_depth[upper]) == upper)

    @overload
    def distance(self, a: int, b: int) -> int: ...
    @overload
    def distance(self, a: np.ndarray, b: ArrayLike) -> np.ndarray: ...
    @overload
    def distance(self, a: ArrayLike, b: ArrayLike) -> np.ndarray | int: ...
    def distance(self, a: ArrayLike, b: ArrayLike) -> np.ndarray | int:
        """The number of edges between two nodes; arrays are broadcast."""
        left, right = self._nodes(a), self._nodes(b)
        between = self.node_depth[left] + self.node_depth[right] - 2 * self.node_depth[self.lca(left, right)]
        return between if between.shape else int(between)

    def ancestor_at(self, nodes: ArrayLike, depth: ArrayLike) -> np.ndarray:
        """The ancestor of each node at a depth: the node itself at its own depth, -1 at a greater one."""
        at, level = np.broadcast_arrays(self._nodes(nodes), np.asarray(depth, np.int64))
        if level.size and level.min() < 0:
            raise InputError(f"expected at least 0, found {level.min()}", argument="depth")
        found = at
        while np.any(below := self.node_depth[found] > level):
            found = np.where(below, self.parent[found], found)
        return np.where(self.node_depth[at] >= level, found, -1)

    def _node(self, node: int) -> int:
        number = int(node)
        if number != node or not 0 <= number < self.num_nodes:
            raise InputError(f"node ids run from 0 to {self.num_nodes - 1}, found {node!r}")
        return number

    def _nodes(self, nodes: ArrayLike) -> np.ndarray:
        array = np.asarray(nodes)
        if array.size == 0:
            return array.astype(np.int64)
        if array.dtype.kind not in "iu":
            raise InputError(f"node ids are whole numbers, found {array.dtype}")
        if array.min() < 0 or array.max() >= self.num_nodes:
            raise InputError(f"node ids run from 0 to {self.num_nodes - 1}, found {array.min()} to {array.max()}")
        return array.astype(np.int64)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
