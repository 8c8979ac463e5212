"""The rows of a head after its tree was edited: old rows are copied, new ones start from the prior of their parent.

The prior of a parent is the log-sum-exp of the logits below it. A new row is its tangent at one point of the features,
so the new class has its share of the probability at that point and at most that share elsewhere, because log-sum-exp is
convex. docs/edits.md derives it. D features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from arbormax.taxonomy.edits.from_text import TextSimilarity, choose_rows, row_factors
from arbormax.taxonomy.edits.plan import Edited
from arbormax.taxonomy.edits.steps import Edit, EditListener
from arbormax.taxonomy.edits.working import Levels, WorkingTree
from arbormax.taxonomy.tree import Taxonomy

_NUMBERS = 1 << 24  # numbers that are read together


class OldRows(Protocol):
    """The rows of the head before the edits, as float64."""

    in_features: int

    def weight(self, rows: np.ndarray) -> np.ndarray:
        """Return the (n, D) weights of these rows."""

    def bias(self, rows: np.ndarray) -> np.ndarray:
        """Return the (n,) biases of these rows; zeros for a head without a bias."""

    def log_priors(self) -> np.ndarray | None:
        """Return the (N - 1,) sibling log-priors, or None for a head without them."""

    def path_share(self) -> float:
        """Return the share of the path of a blended head; 1 for other heads."""


@dataclass(frozen=True)
class NewRows:
    """The rows of the new head: `target[i]` is old row `source[i]`, `fresh[j]` is `weight[j]` and `bias[j]`."""

    source: np.ndarray
    target: np.ndarray
    fresh: np.ndarray
    fresh_nodes: np.ndarray  # the nodes of the fresh rows
    weight: np.ndarray
    bias: np.ndarray
    log_priors: np.ndarray | None


class HeadRows(EditListener):
    """Follows the edits of a tree and computes the rows of a head; `fresh` contains the rows that are not old ones.

    A subclass describes one parametrisation, which a head names as its `edit_rows`.
    """

    splits_need_bias = True  # whether a split can keep the probability of the class only with a bias

    def __init__(self, taxonomy: Taxonomy, old: OldRows, point: np.ndarray) -> None:
        self.taxonomy, self.old, self.point = taxonomy, old, point
        self.fresh: dict[int, tuple[np.ndarray, float]] = {}  # node: (D,) weight, bias
        self.similarity: TextSimilarity | None = None  # of texts, if an encoder can compare them
        self.moved_nodes: list[int] = []  # old nodes whose scores among new siblings no row can keep exactly
        self.merged_nodes: list[int] = []  # nodes with a class merged into them, whose score is not linear
        self._row = self._row_numbers(taxonomy)

    def row_nodes(self, tax: Taxonomy) -> np.ndarray:
        """Return the node of every row of a head."""
        return np.arange(1, tax.num_nodes)

    def _row_numbers(self, tax: Taxonomy) -> np.ndarray:
        """(N,) the row of every node, -1 if it has none."""
        rows, nodes = np.full(tax.num_nodes, -1, np.int64), self.row_nodes(tax)
        rows[nodes] = np.arange(len(nodes))
        return rows

    # Reading

    def read(self, nodes: np.ndarray) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Yield the (n, D) weights and (n,) biases of the rows of nodes, part by part."""
        size = max(1, _NUMBERS // self.old.in_features)
        for start in range(0, len(nodes), size):
            place = slice(start, start + size)
            part = nodes[place]
            is_fresh = np.isin(part, list(self.fresh))
            weight, bias = np.empty((len(part), self.old.in_features)), np.empty(len(part))
            rows = self._row[part[~is_fresh]]
            weight[~is_fresh], bias[~is_fresh] = self.old.weight(rows), self.old.bias(rows)
            for position in np.flatnonzero(is_fresh).tolist():
                weight[position], bias[position] = self.fresh[int(part[position])]
            yield place, weight, bias

    def total(self, nodes: np.ndarray, factors: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the sum of the rows of nodes, each times its factor: (D,) weight and bias."""
        total_weight, total_bias = np.zeros(self.old.in_features), 0.0
        for place, weight, bias in self.read(nodes):
            total_weight += factors[place] @ weight
            total_bias += float(factors[place] @ bias)
        return total_weight, total_bias

    def row(self, node: int) -> tuple[np.ndarray, float]:
        """Return the (D,) weight and the bias of a node's row."""
        return self.total(np.array([node]), np.ones(1))

    def scores(self, nodes: np.ndarray) -> np.ndarray:
        """Return the (n,) logits of the rows of nodes at the point."""
        return np.concatenate([weight @ self.point + bias for _, weight, bias in self.read(nodes)])

    def tangent(self, levels: Levels) -> tuple[np.ndarray, float, int]:
        """Return the tangent at the point of the log-sum-exp of the leaves' logits, and the number of leaves.

        A leaf's logit is the sum of the rows on its path; d log Σ exp / d row is the probability below that row.
        """
        logits = [np.zeros(1)]
        for nodes, above, _ in levels:
            logits.append(logits[-1][above] + self.scores(nodes))
        found = np.concatenate([z[leaf] for z, (_, _, leaf) in zip(logits[1:], levels, strict=True)])
        top = log_sum_exp(found)
        below = np.zeros(0)
        weight = np.zeros(self.old.in_features)
        for level in range(len(levels) - 1, -1, -1):
            nodes, _, leaf = levels[level]
            share = np.where(leaf, np.exp(logits[level + 1] - top), 0.0)
            if level + 1 < len(levels):
                share = share + np.bincount(levels[level + 1][1], weights=below, minlength=len(nodes))
            weight, below = weight + self.total(nodes, share)[0], share
        return weight, top - float(weight @ self.point), len(found)

    # Writing

    def levels_below(self, tree: WorkingTree, parent: int, skip: int = -1) -> Levels:
        """Return the rows that compete below a parent, as levels whose rows are summed; without the leaf `skip`."""
        raise NotImplementedError

    def start(self, node: int, levels: Levels, share: float | None) -> None:
        """Give a node the tangent of these levels, shifted by the log-odds of its share."""
        weight, bias, count = self.tangent(levels)
        self.fresh[node] = weight, bias + log_odds(share, count)

    def start_at_zero(self, node: int, bias: float = 0.0) -> None:
        self.fresh[node] = np.zeros(self.old.in_features), bias

    def added(self, tree: WorkingTree, node: int, parent: int, share: float | None) -> None:
        if tree.num_children(parent):
            levels = self.levels_below(tree, parent)
            self.start(node, levels, share)
            self.follow_text(tree, node, levels[0][0])
        else:
            self.start_alone(node, parent)

    def merged(self, tree: WorkingTree, node: int, into: int) -> None:
        self.merged_nodes.append(into)
        self.merge_rows(tree, node, into)

    def merge_rows(self, tree: WorkingTree, node: int, into: int) -> None:
        """Give the class that stays the tangent of the log-sum-exp of both rows."""
        del tree
        self.fresh[into] = self.tangent(_one_level(np.array([node, into])))[:2]

    def start_alone(self, node: int, parent: int) -> None:
        """Give a node the row of an only child."""
        del parent
        self.start_at_zero(node)

    def follow_text(self, tree: WorkingTree, node: int, rivals: np.ndarray) -> None:
        """Turn the row of an added node towards rows with similar texts; it keeps its share at the point."""
        text, old_rivals = tree.texts[node], rivals[rivals < self.taxonomy.num_nodes]
        if self.similarity is None or text is None or node < self.taxonomy.num_nodes or not len(old_rivals):
            return
        nodes = choose_rows(self.row_nodes(self.taxonomy), old_rivals)
        factors = row_factors(*self.similarity(nodes, text), self.groups(nodes), np.isin(nodes, old_rivals))
        turn = self.total(nodes, factors)[0]
        weight, bias = self.fresh[node]
        self.fresh[node] = weight + turn, bias - float(turn @ self.point)

    def groups(self, nodes: np.ndarray) -> np.ndarray:
        """Return a number for each node; the rows of nodes with the same number compete."""
        parents: np.ndarray = self.taxonomy.parent[nodes]
        return parents

    def start_as_class(self, tree: WorkingTree, node: int) -> None:
        """Give a node that became a class the row of an added one."""
        above = tree.parents[node]
        levels = self.levels_below(tree, above, skip=node)
        while not any(leaf.any() for _, _, leaf in levels):
            above = tree.parents[above]
            levels = self.levels_below(tree, above, skip=node)
        self.start(node, levels, None)

    # Result

    def finish(self, edited: Edited, rank: np.ndarray) -> NewRows:
        """Return the rows of the new head; `rank` is the new number of every node of the working tree."""
        old_nodes, new_nodes = self.row_nodes(self.taxonomy), self.row_nodes(edited.taxonomy)
        moved_to = edited.node_map[old_nodes]
        is_copied = (moved_to >= 0) & ~np.isin(old_nodes, list(self.fresh))
        target = np.where(is_copied, self._row_numbers(edited.taxonomy)[moved_to], -1)
        source = np.flatnonzero(target >= 0)
        target = target[source]
        is_fresh = np.ones(len(new_nodes), bool)
        is_fresh[target] = False
        fresh = np.flatnonzero(is_fresh)
        started = {int(rank[node]): row for node, row in self.fresh.items() if rank[node] >= 0}
        zero = np.zeros(self.old.in_features), 0.0
        rows = [started.get(node, zero) for node in new_nodes[fresh].tolist()]
        weight = np.array([weight for weight, _ in rows]).reshape(-1, self.old.in_features)
        bias = np.array([bias for _, bias in rows])
        priors = self.new_priors(edited, rank, source, target)
        return NewRows(source, target, fresh, new_nodes[fresh], weight, bias, priors)

    def new_priors(self, edited: Edited, rank: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray | None:
        """Return the sibling log-priors of the new head, if it has any."""
        del edited, rank, source, target
        return None


class SiblingRows(HeadRows):
    """One softmax per parent: a new row competes with its siblings only."""

    splits_need_bias = False

    def __init__(self, taxonomy: Taxonomy, old: OldRows, point: np.ndarray) -> None:
        super().__init__(taxonomy, old, point)
        self.priors = old.log_priors()
        self.fresh_priors: dict[int, float] = {}

    def levels_below(self, tree: WorkingTree, parent: int, skip: int = -1) -> Levels:
        nodes = tree.children(parent)
        return _one_level(nodes[nodes != skip])

    def added(self, tree: WorkingTree, node: int, parent: int, share: float | None) -> None:
        super().added(tree, node, parent, share)
        if self.priors is None:
            return
        known = [self.prior(sibling) for sibling in tree.children(parent).tolist()]
        self.fresh_priors[node] = log_sum_exp(np.array(known)) + log_odds(share, len(known)) if known else 0.0

    def split(self, _tree: WorkingTree, _node: int, children: list[int], shares: tuple[float, ...] | None) -> None:
        biases = _log_shares(shares) if shares is not None else [0.0] * len(children)  # only their differences matter
        for child, bias in zip(children, biases, strict=True):
            self.start_at_zero(child, bias)
        self.fresh_priors |= dict(zip(children, biases, strict=True))

    def moved(self, tree: WorkingTree, node: int, _old: int, new: int, edit: Edit) -> None:
        before = self.fresh.get(node)
        self.added(tree, node, new, edit.share)
        if not edit.keep_row and edit.share is None and node < self.taxonomy.num_nodes:
            self.moved_nodes.append(node)
        if edit.keep_row:
            del self.fresh[node]
            if before is not None:
                self.fresh[node] = before

    def merge_rows(self, tree: WorkingTree, node: int, into: int) -> None:
        if tree.parents[node] != tree.parents[into]:
            return  # their scores belong to different softmaxes; the row is fitted
        super().merge_rows(tree, node, into)
        if self.priors is not None:
            self.fresh_priors[into] = log_sum_exp(np.array([self.prior(node), self.prior(into)]))

    def prior(self, node: int) -> float:
        assert self.priors is not None
        return self.fresh_priors[node] if node in self.fresh_priors else float(self.priors[node - 1])

    def new_priors(self, edited: Edited, rank: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray | None:
        if self.priors is None:
            return None
        values = np.zeros(edited.taxonomy.num_nodes - 1)
        values[target] = self.priors[source]
        for node, prior in self.fresh_priors.items():
            if rank[node] > 0:
                values[rank[node] - 1] = prior
        for parent in edited.touched.tolist():  # the priors of a group sum to one again
            group = edited.taxonomy.children(parent) - 1
            values[group] -= log_sum_exp(values[group])
        return values


class ClassRows(HeadRows):
    """One row per class: a new row competes with the classes below its parent; inner nodes have no rows."""

    def row_nodes(self, tax: Taxonomy) -> np.ndarray:
        return tax.leaves

    def groups(self, nodes: np.ndarray) -> np.ndarray:
        return np.zeros(len(nodes), np.int64)

    def levels_below(self, tree: WorkingTree, parent: int, skip: int = -1) -> Levels:
        nodes = tree.leaves_below(parent)
        return _one_level(nodes[nodes != skip])

    def start_alone(self, node: int, parent: int) -> None:
        self.fresh[node] = self.row(parent)  # the parent was added as a class, and its only child takes over its row

    def split(self, _tree: WorkingTree, node: int, children: list[int], shares: tuple[float, ...] | None) -> None:
        weight, bias = self.row(node)
        for child, offset in zip(children, _log_shares(shares or (1.0,) * len(children)), strict=True):
            self.fresh[child] = weight, bias + offset

    def emptied(self, tree: WorkingTree, parent: int, removed: int | None) -> None:
        if removed is not None:
            self.fresh[parent] = self.tangent(self.levels_below(tree, removed))[:2]
        else:
            self.start_as_class(tree, parent)


class PathRows(HeadRows):
    """A class's logit is the sum of the rows on its path: a new row competes with those sums below its parent."""

    def levels_below(self, tree: WorkingTree, parent: int, skip: int = -1) -> Levels:
        return tree.levels(parent, skip)

    def split(self, _tree: WorkingTree, _node: int, children: list[int], shares: tuple[float, ...] | None) -> None:
        for child, bias in zip(children, _log_shares(shares or (1.0,) * len(children)), strict=True):
            self.start_at_zero(child, bias)

    def moved(self, tree: WorkingTree, node: int, old: int, new: int, edit: Edit) -> None:
        if edit.keep_row:
            return
        self.fresh[node] = self._row_below(tree, node, old, new)

    def _row_below(self, tree: WorkingTree, node: int, old: int, new: int) -> tuple[np.ndarray, float]:
        """Return the row of a node below another parent with which no logit changes."""
        signs = dict.fromkeys(tree.ancestors(old), 1.0)  # add the rows of the old ancestors, subtract the new ones
        for n in tree.ancestors(new):
            signs[n] = signs.get(n, 0.0) - 1.0
        signs[node] = 1.0
        counted = {n: sign for n, sign in signs.items() if sign}
        return self.total(np.array(list(counted), np.int64), np.array(list(counted.values())))

    def merge_rows(self, tree: WorkingTree, node: int, into: int) -> None:
        self.fresh[node] = self._row_below(tree, node, tree.parents[node], tree.parents[into])
        super().merge_rows(tree, node, into)

    def emptied(self, tree: WorkingTree, parent: int, removed: int | None) -> None:
        if removed is None:
            self.start_as_class(tree, parent)
            return
        weight, bias = self.row(parent)
        alone = np.array([removed]), np.zeros(1, np.int64), np.array([not tree.num_children(removed)])
        more, offset, _ = self.tangent([alone, *tree.levels(removed)])
        self.fresh[parent] = weight + more, bias + offset


def log_sum_exp(values: np.ndarray) -> float:
    top = float(values.max())
    return top + math.log(np.exp(values - top).sum())


def log_odds(share: float | None, others: int) -> float:
    """Return the log-odds of a share against all others; by default the share of one among equals."""
    return -math.log(others) if share is None else math.log(share) - math.log1p(-share)


def _log_shares(shares: tuple[float, ...]) -> list[float]:
    total = sum(shares)
    return [math.log(share / total) for share in shares]


def _one_level(nodes: np.ndarray) -> Levels:
    return [(nodes, np.zeros(len(nodes), np.int64), np.ones(len(nodes), bool))] if len(nodes) else []
