"""A growing set of nodes for each item, from its most probable class up to the root.

B items, N nodes, C classes, W nodes of a set.
"""

from __future__ import annotations

import numpy as np

from arbormax.taxonomy import Taxonomy


class LeafOrder:
    """The leaves from left to right, in which the leaves below a node are one interval."""

    def __init__(self, tax: Taxonomy) -> None:
        self.taxonomy = tax
        before = np.cumsum(tax.leaf_counts) - tax.leaf_counts
        self.start = np.zeros(tax.num_nodes, np.int64)
        for level in range(1, tax.depth + 1):
            nodes = np.arange(tax.level_start[level], tax.level_start[level + 1])
            parent = tax.parent[nodes]
            self.start[nodes] = self.start[parent] + before[nodes] - before[tax.child_start[parent]]
        self.stop = self.start + tax.leaf_counts
        self.leaves = tax.leaves[np.argsort(self.start[tax.leaves], kind="stable")]

    def contains(self, upper: np.ndarray, lower: np.ndarray) -> np.ndarray:
        """Whether all leaves below `lower` are below `upper`; -1 contains nothing and is in nothing."""
        inside = (self.start[upper] <= self.start[lower]) & (self.stop[lower] <= self.stop[upper])
        return np.asarray(inside & (upper >= 0) & (lower >= 0))

    def covers(self, nodes_BW: np.ndarray, true_B: np.ndarray) -> np.ndarray:
        """(B,) whether the nodes of each set, none below another, together contain all leaves of a true node."""
        true_B1, counts = true_B[:, None], self.taxonomy.leaf_counts
        inside = np.where(self.contains(true_B1, nodes_BW), counts[nodes_BW], 0).sum(1)
        return np.asarray(self.contains(nodes_BW, true_B1).any(1) | (inside == counts[true_B]))


class GrowingSets:
    """A set of at most W nodes for each of B items, which grows by `step` until it is the root.

    It starts as the most probable class. A step replaces a node by its parent, with which other nodes of the set may
    merge, or adds the most probable class outside the set if there are fewer than W nodes. It chooses what gains most
    probability for each further class. With one node the steps are those of the path to the root.
    """

    def __init__(self, p_BN: np.ndarray, order: LeafOrder, size: int) -> None:
        tax = order.taxonomy
        self.order, self.p, self.size = order, p_BN, size
        self.open = p_BN[:, order.leaves].copy()  # (B, C) probabilities of the classes outside the set, -1 inside
        self.nodes = np.full((len(p_BN), size), -1, np.int64)
        # ties go to the first class, as in `decode.leaf`
        self.nodes[:, 0] = tax.leaves[p_BN[:, tax.leaves].argmax(1)]
        self.mass = self.p[np.arange(len(p_BN)), self.nodes[:, 0]]
        self._close(np.arange(len(p_BN)), self.nodes[:, 0])

    def keep(self, items: np.ndarray) -> None:
        """Continue with some of the items alone."""
        self.p, self.open, self.nodes, self.mass = (each[items] for each in (self.p, self.open, self.nodes, self.mass))

    @property
    def is_root(self) -> np.ndarray:
        return np.asarray(self.nodes[:, 0] == 0)

    def contains(self, nodes_B: np.ndarray) -> np.ndarray:
        """(B,) whether the set of each item contains all classes of a node."""
        return self.order.covers(self.nodes, nodes_B)

    def step(self) -> None:
        """Let every set grow, except those that are the root."""
        tax, rows = self.order.taxonomy, np.arange(len(self.nodes))
        above = np.where(self.nodes > 0, tax.parent[self.nodes], -1)
        inside = self.order.contains(above[:, :, None], self.nodes[:, None, :])  # (B, W, W) nodes below each parent
        p_BW = np.where(self.nodes >= 0, np.take_along_axis(self.p, np.maximum(self.nodes, 0), 1), 0.0)
        leaves_BW = np.where(self.nodes >= 0, tax.leaf_counts[self.nodes], 0)
        gain = np.take_along_axis(self.p, np.maximum(above, 0), 1) - (inside * p_BW[:, None, :]).sum(2)
        cost = tax.leaf_counts[above] - (inside * leaves_BW[:, None, :]).sum(2)
        rate = np.where(cost > 0, np.maximum(gain, 0.0) / np.maximum(cost, 1), np.inf)
        rate = np.where(above >= 0, rate, -1.0)
        chosen = rate.argmax(1)
        best = rate[rows, chosen]
        free = (self.nodes < 0).argmax(1)
        next_B = self.open.argmax(1)
        has_room = (self.nodes[rows, free] < 0) & (self.open[rows, next_B] > 0) & ~self.is_root
        adds = has_room & (self.open[rows, next_B] >= best)
        lifts = ~adds & ~self.is_root
        self._add(rows[adds], free[adds], self.order.leaves[next_B[adds]])
        self._lift(rows[lifts], chosen[lifts], above[rows, chosen][lifts])

    def _add(self, rows: np.ndarray, free: np.ndarray, leaf: np.ndarray) -> None:
        self.nodes[rows, free] = leaf
        self.mass[rows] += self.p[rows, leaf]
        self._close(rows, leaf)

    def _lift(self, rows: np.ndarray, place: np.ndarray, above: np.ndarray) -> None:
        merged = self.order.contains(above[:, None], self.nodes[rows])
        self.nodes[rows] = np.where(merged, -1, self.nodes[rows])
        self.nodes[rows, place] = above
        self.nodes[rows] = -np.sort(-self.nodes[rows], axis=1) if self.size > 1 else self.nodes[rows]
        p = np.where(self.nodes[rows] >= 0, self.p[rows[:, None], np.maximum(self.nodes[rows], 0)], 0.0)
        # the sum of the same probabilities in another order may be lower by rounding
        self.mass[rows] = np.maximum(self.mass[rows], p.sum(1))
        self._close(rows, above)

    def _close(self, rows: np.ndarray, nodes: np.ndarray) -> None:
        if self.size == 1:
            return  # no class is ever added
        place = np.arange(self.open.shape[1])
        inside = (place >= self.order.start[nodes][:, None]) & (place < self.order.stop[nodes][:, None])
        self.open[rows] = np.where(inside, -1.0, self.open[rows])
