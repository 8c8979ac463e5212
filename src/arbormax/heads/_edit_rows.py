"""The rows of a head while its tree is edited: untouched ones are carried over, new ones start from the parent's prior.

The prior of a parent is the log-sum-exp of the logits below it. A new row is its tangent at one point of the features,
so that the new class has its share there and nowhere more (log-sum-exp is convex). docs/edits.md has the mathematics.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.heads.base import TreeHead
from arbormax.heads.hierarchical import HierarchicalSoftmax
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy._edit import Edit, Edited, Follower
from arbormax.taxonomy._working import WorkingTree

Levels = list[tuple[np.ndarray, np.ndarray, np.ndarray]]  # nodes, places of their parents one level up, leaves
_CHUNK = 1 << 16  # rows that are read together


class Rows(Follower):
    """The rows of a head while its tree is edited; those not in `fresh` are the old head's."""

    def __init__(self, head: TreeHead, point: np.ndarray | None) -> None:
        self.head, self.point = head, point
        self.weight = head.weight.detach()
        self.bias = None if head.bias is None else head.bias.detach()
        self.wide = torch.promote_types(self.weight.dtype, torch.float32)
        self.fresh: dict[int, tuple[Tensor, float]] = {}  # node: (D,) weight, bias

    def place(self, nodes: np.ndarray) -> np.ndarray:
        """The old head's rows of old nodes."""
        return nodes - 1

    # ------------------------------------------------------------------- reading

    def total(self, nodes: np.ndarray, factors: np.ndarray) -> tuple[Tensor, float]:
        """The sum of the rows of these nodes, each times its factor: (D,) weight and bias."""
        weight, bias = torch.zeros(self.head.in_features, dtype=self.wide, device=self.weight.device), 0.0
        is_fresh = self._is_fresh(nodes)
        for node, factor in zip(nodes[is_fresh].tolist(), factors[is_fresh].tolist(), strict=True):
            weight = weight + factor * self.fresh[node][0].to(self.wide)
            bias += factor * self.fresh[node][1]
        old, factors = self.place(nodes[~is_fresh]), factors[~is_fresh]
        for start in range(0, len(old), _CHUNK):
            rows = torch.from_numpy(old[start : start + _CHUNK]).to(self.weight.device)
            times = torch.from_numpy(factors[start : start + _CHUNK]).to(device=rows.device, dtype=self.wide)
            weight = weight + times @ self.weight[rows].to(self.wide)
            if self.bias is not None:
                bias += float(times @ self.bias[rows].to(self.wide))
        return weight, bias

    def scores(self, nodes: np.ndarray) -> np.ndarray:
        """(n,) float64 logits of these nodes' rows at the point."""
        found = np.empty(len(nodes))
        is_fresh = self._is_fresh(nodes)
        for place in np.flatnonzero(is_fresh).tolist():
            weight, bias = self.fresh[int(nodes[place])]
            found[place] = bias + self.at_point(weight)
        found[~is_fresh] = self._old_scores(self.place(nodes[~is_fresh]))
        return found

    def at_point(self, weight: Tensor) -> float:
        return 0.0 if self.point is None else float(weight.cpu().double().numpy() @ self.point)

    def _is_fresh(self, nodes: np.ndarray) -> np.ndarray:
        return np.isin(nodes, np.fromiter(self.fresh, np.int64, len(self.fresh)))

    def _old_scores(self, rows: np.ndarray) -> np.ndarray:
        index = torch.from_numpy(rows).to(self.weight.device)
        found = np.zeros(len(rows)) if self.bias is None else self.bias[index].cpu().double().numpy()
        if self.point is None:
            return found
        parts = [(self.weight[part].cpu().double().numpy() @ self.point) for part in torch.split(index, _CHUNK)]
        return found + np.concatenate(parts) if parts else found

    def tangent(self, levels: Levels) -> tuple[Tensor, float, int]:
        """The tangent at the point of the log-sum-exp of the leaves' logits, and the number of leaves.

        A leaf's logit is the sum of the rows on the way to it; d log Σ exp / d row is the probability below that row.
        """
        logits = [np.zeros(1)]
        for nodes, above, _ in levels:
            logits.append(logits[-1][above] + self.scores(nodes))
        found = np.concatenate([z[leaf] for z, (_, _, leaf) in zip(logits[1:], levels, strict=True)])
        top = log_sum_exp(found)
        below = np.zeros(0)
        weight: Tensor | float = 0.0
        for place in range(len(levels) - 1, -1, -1):
            nodes, _, leaf = levels[place]
            share = np.where(leaf, np.exp(logits[place + 1] - top), 0.0)
            if place + 1 < len(levels):
                share = share + np.bincount(levels[place + 1][1], weights=below, minlength=len(nodes))
            weight, below = weight + self.total(nodes, share)[0], share
        assert isinstance(weight, Tensor)
        return weight, top - self.at_point(weight), len(found)

    # ------------------------------------------------------------------- writing

    def levels_below(self, tree: WorkingTree, parent: int) -> Levels:
        """What competes below a parent, as levels whose rows are summed."""
        raise NotImplementedError

    def start(self, tree: WorkingTree, node: int, parent: int, share: float | None) -> None:
        """Give a node below a parent that has children its row: the tangent, moved by the log-odds of its share."""
        weight, bias, count = self.tangent(self.levels_below(tree, parent))
        self.fresh[node] = weight, bias + log_odds(share, count)

    def nothing(self, node: int, bias: float = 0.0) -> None:
        self.fresh[node] = torch.zeros(self.head.in_features, dtype=self.wide, device=self.weight.device), bias

    def added(self, tree: WorkingTree, node: int, parent: int, share: float | None) -> None:
        if tree.num_children(parent):
            self.start(tree, node, parent, share)
        else:
            self.nothing(node)

    def start_as_class(self, tree: WorkingTree, node: int) -> None:
        """Give a node that is a class from now on the row of one that was added."""
        above = tree.parent(node)
        levels = without(self.levels_below(tree, above), node)
        while above and not levels:
            above = tree.parent(above)
            levels = without(self.levels_below(tree, above), node)
        weight, bias, count = self.tangent(levels)
        self.fresh[node] = weight, bias + log_odds(None, count)

    # -------------------------------------------------------------------- result

    def carried(self, edited: Edited) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the old head that are carried over, and where to."""
        stay = edited.node_map.copy()
        stay[0] = -1
        stay[[node for node in self.fresh if node < len(stay)]] = -1
        old = np.flatnonzero(stay >= 0)
        return self.place(old), stay[old] - 1

    def carry_over(self, edited: Edited, rank: np.ndarray) -> tuple[TreeHead, np.ndarray]:
        """The new head, and the nodes of its new rows."""
        new = self.empty_head(edited.taxonomy)
        source, target = self.carried(edited)
        is_open = np.ones(len(new.weight), bool)
        is_open[target] = False
        fresh = self.nodes_of(edited.taxonomy, np.flatnonzero(is_open))
        if not new.weight.is_meta:
            started = {int(rank[node]): row for node, row in self.fresh.items() if rank[node] >= 0}
            with torch.no_grad():
                self._fill(new, source, target, np.flatnonzero(is_open), [started[node] for node in fresh.tolist()])
                self.fill_others(new, edited, rank, source, target)
        return new, fresh

    def empty_head(self, tax: Taxonomy) -> TreeHead:
        """A head for the new taxonomy that is in all else like the old one."""
        old = self.head
        options: dict[str, Any] = {"sparse": old.sparse} if isinstance(old, HierarchicalSoftmax) else {}
        options |= {"device": old.weight.device, "dtype": old.weight.dtype, "init": "zeros"}
        kind: Any = type(old)
        new: TreeHead = kind(old.in_features, tax, bias=old.bias is not None, **options)
        new.init = old.init
        new.train(old.training)
        for name, parameter in new.named_parameters():
            parameter.requires_grad_(old.get_parameter(name).requires_grad)
        return new

    def nodes_of(self, _: Taxonomy, rows: np.ndarray) -> np.ndarray:
        """The nodes of the new head's rows."""
        return rows + 1

    def _fill(
        self,
        new: TreeHead,
        source: np.ndarray,
        target: np.ndarray,
        is_open: np.ndarray,
        started: list[tuple[Tensor, float]],
    ) -> None:
        for start in range(0, len(source), _CHUNK):
            from_rows, to_rows = (
                torch.from_numpy(rows[start : start + _CHUNK]).to(self.weight.device) for rows in (source, target)
            )
            new.weight.index_copy_(0, to_rows, self.weight[from_rows])
            if new.bias is not None and self.bias is not None:
                new.bias.index_copy_(0, to_rows, self.bias[from_rows])
        if not started:
            return
        open_rows = torch.from_numpy(is_open).to(self.weight.device)
        new.weight.index_copy_(0, open_rows, torch.stack([weight for weight, _ in started]).to(new.weight.dtype))
        if new.bias is not None:
            biases = torch.tensor([bias for _, bias in started], dtype=torch.float64)
            new.bias.index_copy_(0, open_rows, biases.to(new.bias.dtype).to(new.bias.device))

    def fill_others(
        self, new: TreeHead, edited: Edited, rank: np.ndarray, source: np.ndarray, target: np.ndarray
    ) -> None:
        """Fill what a head keeps beside its rows."""


class HierarchicalRows(Rows):
    """A softmax per parent: a new row competes with its siblings alone."""

    def __init__(self, head: HierarchicalSoftmax, point: np.ndarray | None) -> None:
        super().__init__(head, point)
        self.priors = None
        if head.log_priors.device.type != "meta" and bool(head.log_priors.any()):
            self.priors = head.log_priors.detach().cpu().double().numpy()
        self.fresh_priors: dict[int, float] = {}

    def levels_below(self, tree: WorkingTree, parent: int) -> Levels:
        nodes = tree.children(parent)
        return [(nodes, np.zeros(len(nodes), np.int64), np.ones(len(nodes), bool))]

    def added(self, tree: WorkingTree, node: int, parent: int, share: float | None) -> None:
        super().added(tree, node, parent, share)
        if self.priors is None:
            return
        known = [self.prior(sibling) for sibling in tree.children(parent).tolist()]
        self.fresh_priors[node] = log_sum_exp(np.array(known)) + log_odds(share, len(known)) if known else 0.0

    def split(self, _tree: WorkingTree, _node: int, children: list[int], shares: tuple[float, ...] | None) -> None:
        biases = log_shares(shares) if shares is not None else [0.0] * len(children)  # only their differences count
        for child, bias in zip(children, biases, strict=True):
            self.nothing(child, bias)
        self.fresh_priors |= dict(zip(children, biases, strict=True))

    def moved(self, tree: WorkingTree, node: int, _old: int, new: int, edit: Edit) -> None:
        kept = self.fresh.get(node)
        self.added(tree, node, new, edit.share)
        if edit.keep_row:
            del self.fresh[node]
            if kept is not None:
                self.fresh[node] = kept

    def prior(self, node: int) -> float:
        assert self.priors is not None
        return self.fresh_priors[node] if node in self.fresh_priors else float(self.priors[node - 1])

    def fill_others(
        self, new: TreeHead, edited: Edited, rank: np.ndarray, source: np.ndarray, target: np.ndarray
    ) -> None:
        if self.priors is None:
            return
        assert isinstance(new, HierarchicalSoftmax)
        values = np.zeros(len(new.log_priors))
        values[target] = self.priors[source]
        for node, prior in self.fresh_priors.items():
            if rank[node] > 0:
                values[rank[node] - 1] = prior
        for parent in edited.touched.tolist():  # the shares of a group sum to one again
            group = edited.taxonomy.children(parent) - 1
            values[group] -= log_sum_exp(values[group])
        new.log_priors.copy_(torch.from_numpy(values))


class FlatRows(Rows):
    """One row per class: a new row competes with the classes below its parent, and inner nodes have none."""

    def place(self, nodes: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.head.taxonomy.class_of[nodes]
        return found

    def nodes_of(self, tax: Taxonomy, rows: np.ndarray) -> np.ndarray:
        found: np.ndarray = tax.leaves[rows]
        return found

    def levels_below(self, tree: WorkingTree, parent: int) -> Levels:
        nodes = tree.leaves_below(parent)
        return [(nodes, np.zeros(len(nodes), np.int64), np.ones(len(nodes), bool))]

    def row(self, node: int) -> tuple[Tensor, float]:
        return self.total(np.array([node]), np.ones(1))

    def added(self, tree: WorkingTree, node: int, parent: int, share: float | None) -> None:
        if tree.num_children(parent):
            self.start(tree, node, parent, share)
        else:  # the parent was a class of this edit, and all it had goes to its only child
            self.fresh[node] = self.row(parent)

    def split(self, _tree: WorkingTree, node: int, children: list[int], shares: tuple[float, ...] | None) -> None:
        weight, bias = self.row(node)
        for child, offset in zip(children, log_shares(shares or (1.0,) * len(children)), strict=True):
            self.fresh[child] = weight, bias + offset

    def emptied(self, tree: WorkingTree, parent: int, removed: int | None) -> None:
        if removed is not None:
            self.fresh[parent] = self.tangent(self.levels_below(tree, removed))[:2]
        else:
            self.start_as_class(tree, parent)

    def carried(self, edited: Edited) -> tuple[np.ndarray, np.ndarray]:
        stay = np.flatnonzero(edited.class_map >= 0)
        return stay, edited.class_map[stay]


class SharedRows(Rows):
    """A class's logit is the sum of the rows on its path: a new row competes with those sums below its parent."""

    def levels_below(self, tree: WorkingTree, parent: int) -> Levels:
        return tree.levels(parent)

    def split(self, _tree: WorkingTree, _node: int, children: list[int], shares: tuple[float, ...] | None) -> None:
        for child, bias in zip(children, log_shares(shares or (1.0,) * len(children)), strict=True):
            self.nothing(child, bias)

    def moved(self, tree: WorkingTree, node: int, old: int, new: int, edit: Edit) -> None:
        if edit.keep_row:
            return
        # what the ancestors gave and give, so that no class's logit changes
        signs = dict.fromkeys(tree.ancestors(old), 1.0)
        for n in tree.ancestors(new):
            signs[n] = signs.get(n, 0.0) - 1.0
        signs[node] = 1.0
        counted = {n: sign for n, sign in signs.items() if sign}
        self.fresh[node] = self.total(np.array(list(counted), np.int64), np.array(list(counted.values())))

    def emptied(self, tree: WorkingTree, parent: int, removed: int | None) -> None:
        if removed is None:
            self.start_as_class(tree, parent)
            return
        weight, bias = self.total(np.array([parent]), np.ones(1))
        alone = np.array([removed]), np.zeros(1, np.int64), np.array([not tree.num_children(removed)])
        more, offset, _ = self.tangent([alone, *tree.levels(removed)])
        self.fresh[parent] = weight + more, bias + offset


def log_sum_exp(values: np.ndarray) -> float:
    top = float(values.max())
    return top + math.log(np.exp(values - top).sum())


def log_odds(share: float | None, others: int) -> float:
    """Of a share against all others; unless given it is the share of one among its equals."""
    return -math.log(others) if share is None else math.log(share) - math.log1p(-share)


def log_shares(shares: tuple[float, ...]) -> list[float]:
    total = sum(shares)
    return [math.log(share / total) for share in shares]


def without(levels: Levels, node: int) -> Levels:
    """The levels without a leaf of the first one."""
    nodes, above, leaf = levels[0]
    stays = nodes != node
    first = nodes[stays], above[stays], leaf[stays]
    if not stays.any():
        return []
    if len(levels) == 1:
        return [first]
    below, parents, is_leaf = levels[1]
    return [first, (below, (np.cumsum(stays) - 1)[parents], is_leaf), *levels[2:]]
