"""The rows of a blended head after its tree was edited: those of its steps and of its classes are edited side by side.

D features, N nodes.
"""

from __future__ import annotations

import math

import numpy as np

from arbormax.taxonomy.edits.from_text import TextSimilarity
from arbormax.taxonomy.edits.plan import Edited
from arbormax.taxonomy.edits.rows import (
    ClassRows,
    HeadRows,
    NewRows,
    OldRows,
    SiblingRows,
    log_odds,
    log_sum_exp,
)
from arbormax.taxonomy.edits.steps import Edit
from arbormax.taxonomy.edits.working import WorkingTree
from arbormax.taxonomy.tree import Taxonomy


class BlendedRows(HeadRows):
    """One row for each node, which competes with its siblings, and one more for each class.

    An added class has its share among its siblings at the point, but unlike in other heads it may have more of it
    elsewhere: log-probabilities on the path are not convex.
    """

    def __init__(self, taxonomy: Taxonomy, old: OldRows, point: np.ndarray) -> None:
        self.taxonomy, self.path_share = taxonomy, old.path_share()
        self.steps = SiblingRows(taxonomy, old, point)
        self.classes = ClassRows(taxonomy, _LaterRows(old, taxonomy.num_nodes - 1), point)
        self.moved_nodes, self.merged_nodes = [], []

    @property
    def similarity(self) -> TextSimilarity | None:
        return self.steps.similarity

    @similarity.setter
    def similarity(self, similarity: TextSimilarity | None) -> None:
        self.steps.similarity = self.classes.similarity = similarity

    def added(self, tree: WorkingTree, node: int, parent: int, share: float | None) -> None:
        self.steps.added(tree, node, parent, share)
        if not tree.num_children(parent):  # the parent was added as a class, and its only child takes over its row
            self.classes.added(tree, node, parent, share)
            return
        leaves, on_path = self._path_scores(tree, parent)
        logits = self.path_share * on_path + self.classes.scores(leaves)
        top = log_sum_exp(logits)
        weight, _ = self.classes.total(leaves, np.exp(logits - top))
        # the step adds path_share times the log-odds of the share, so that all of it is these log-odds
        rest = (1 - self.path_share) * log_odds(share, len(tree.children(parent)))
        self.classes.fresh[node] = weight, top + rest - float(weight @ self.classes.point)
        self.classes.follow_text(tree, node, leaves)

    def _path_scores(self, tree: WorkingTree, parent: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the leaves below a parent, and their log-probabilities given the parent at the point."""
        leaves, found, above_scores = [], [], np.zeros(1)
        for nodes, above, is_leaf in tree.levels(parent):
            scores = self.steps.scores(nodes)
            order = np.argsort(above, kind="stable")
            starts = np.flatnonzero(np.diff(above[order], prepend=-1))
            totals = np.logaddexp.reduceat(scores[order], starts)
            total_of = np.zeros(len(above_scores))
            total_of[above[order][starts]] = totals
            above_scores = above_scores[above] + scores - total_of[above]
            leaves.append(nodes[is_leaf])
            found.append(above_scores[is_leaf])
        return np.concatenate(leaves), np.concatenate(found)

    def split(self, tree: WorkingTree, node: int, children: list[int], shares: tuple[float, ...] | None) -> None:
        self.steps.split(tree, node, children, shares)
        weight, bias = self.classes.row(node)
        shares = shares or (1.0,) * len(children)
        for child, share in zip(children, shares, strict=True):
            # the step adds path_share * log(share) to the logit, so that all of it is log(share)
            rest = (1 - self.path_share) * math.log(share / sum(shares))
            self.classes.fresh[child] = weight, bias + rest

    def moved(self, tree: WorkingTree, node: int, old: int, new: int, edit: Edit) -> None:
        self.steps.moved(tree, node, old, new, edit)
        self.classes.moved(tree, node, old, new, edit)
        self.moved_nodes = self.steps.moved_nodes

    def merge_rows(self, tree: WorkingTree, node: int, into: int) -> None:
        if tree.parents[node] != tree.parents[into]:
            return  # the rows are fitted
        pair = np.array([node, into])
        on_path = self.steps.scores(pair)  # relative to their siblings
        logits = self.path_share * on_path + self.classes.scores(pair)
        self.steps.merge_rows(tree, node, into)
        top = log_sum_exp(logits)
        weight, _ = self.classes.total(pair, np.exp(logits - top))
        bias = top - self.path_share * log_sum_exp(on_path) - float(weight @ self.classes.point)
        self.classes.fresh[into] = weight, bias

    def emptied(self, tree: WorkingTree, parent: int, removed: int | None) -> None:
        self.steps.emptied(tree, parent, removed)
        self.classes.emptied(tree, parent, removed)

    def finish(self, edited: Edited, rank: np.ndarray) -> NewRows:
        steps, classes = self.steps.finish(edited, rank), self.classes.finish(edited, rank)
        before, after = self.taxonomy.num_nodes - 1, edited.taxonomy.num_nodes - 1
        return NewRows(
            np.concatenate([steps.source, classes.source + before]),
            np.concatenate([steps.target, classes.target + after]),
            np.concatenate([steps.fresh, classes.fresh + after]),
            np.concatenate([steps.fresh_nodes, classes.fresh_nodes]),
            np.concatenate([steps.weight, classes.weight]),
            np.concatenate([steps.bias, classes.bias]),
            log_priors=None,
        )


class _LaterRows:
    """The rows of a head from one of them on."""

    def __init__(self, rows: OldRows, first: int) -> None:
        self._rows, self._first, self.in_features = rows, first, rows.in_features

    def weight(self, rows: np.ndarray) -> np.ndarray:
        return self._rows.weight(rows + self._first)

    def bias(self, rows: np.ndarray) -> np.ndarray:
        return self._rows.bias(rows + self._first)

    def log_priors(self) -> None:
        return None

    def path_share(self) -> float:
        return self._rows.path_share()
