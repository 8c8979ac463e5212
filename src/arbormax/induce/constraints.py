"""Constraints on an induced tree: classes that stay together, and a partial tree that is kept on top.

C classes, m items, K inner nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arbormax.errors import LabelError, OptionError, did_you_mean
from arbormax.induce.forest import Forest, Shape
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.labels import listing

Cluster = Callable[[np.ndarray, Shape], Forest]


def read_together(together: Iterable[Sequence[str]], classes: Sequence[str], branching: int) -> np.ndarray:
    """(C,) the item of each class: sets of classes that stay together are one item, numbered by their first class."""
    number = {label: at for at, label in enumerate(classes)}
    first = list(range(len(classes)))  # of the set that each class belongs to, by way of other classes

    def find(at: int) -> int:
        while first[at] != at:
            at = first[at]
        return at

    unknown: list[str] = []
    for labels in [together] if isinstance(together, str) else together:
        if isinstance(labels, str):
            raise OptionError(f"expected lists of classes, found the string {labels!r}", argument="together")
        if len(labels) < 2:
            raise OptionError(f"expected at least two classes in a list, found {list(labels)!r}", argument="together")
        known = [number[label] for label in labels if label in number]
        unknown += [
            f"{label!r} is not a class{did_you_mean(str(label), number)}" for label in labels if label not in number
        ]
        for at in known[1:]:
            low, high = sorted((find(known[0]), find(at)))
            first[high] = low
    if unknown:
        message = unknown[0] if len(unknown) == 1 else f"{len(unknown)} labels are not classes:"
        raise LabelError(message, unknown, argument="together")
    items = np.unique([find(at) for at in range(len(classes))], return_inverse=True)[1]
    largest = int(np.bincount(items).max())
    if largest > branching and largest > 1:
        raise OptionError(
            f"{largest} classes are to stay under one parent, which has at most {branching} children",
            argument="together",
            fix={"branching": largest},
        )
    return np.asarray(items, np.int64)


@dataclass(frozen=True, eq=False)
class Top:
    """The inner nodes of the partial tree on top, and where each class is."""

    parent: np.ndarray  # (K,) -1 for the root
    names: tuple[str, ...]  # (K,)
    node_of_class: np.ndarray  # (C,) the lowest node of the partial tree above each class


def read_top(top: Any, classes: Sequence[str]) -> Top:
    """The partial tree: its leaves are classes, its inner nodes are kept. Other classes are below its root."""
    if top is None:
        return Top(np.array([-1]), ("root",), np.zeros(len(classes), np.int64))
    tree = top if isinstance(top, Taxonomy) else _build(top)
    number = {label: at for at, label in enumerate(classes)}
    unknown = [label for label in tree.classes if label not in number]
    if unknown:
        problems = [f"{label!r} is not a class of the data{did_you_mean(label, number)}" for label in unknown]
        raise LabelError(f"the leaves of the tree on top are classes; {problems[0]}", problems, argument="top")
    inner = np.flatnonzero(~tree.is_leaf)
    if ambiguous := [tree.names[node] for node in inner[1:].tolist() if tree.names[node] in number]:
        raise LabelError(
            f"an inner node of the tree on top has the name of a class, {ambiguous[0]!r}; rename it",
            argument="top",
        )
    rank = np.full(tree.num_nodes, -1)
    rank[inner] = np.arange(len(inner))
    node_of_class = np.zeros(len(classes), np.int64)
    node_of_class[[number[label] for label in tree.classes]] = rank[tree.parent[tree.leaves]]
    parent = np.where(inner == 0, -1, rank[tree.parent[inner]])
    return Top(parent, tuple(tree.names[node] for node in inner.tolist()), node_of_class)


def _build(top: Any) -> Taxonomy:
    if isinstance(top, (Mapping, list, tuple)):
        return Taxonomy.from_nested(top)
    raise OptionError(f"expected a Taxonomy or nested mappings, found {type(top).__name__}", argument="top")


@dataclass(frozen=True, eq=False)
class Skeleton:
    """The inner nodes of the whole tree, with the names that are given, and the node above each class."""

    parent: np.ndarray  # (K,) -1 for the root
    names: list[str]  # (K,) an empty string where no name is given
    class_parent: np.ndarray  # (C,)


def build_skeleton(
    top: Top, item_of_class: np.ndarray, cluster: Cluster, branching: int, depth: int | None, classes: Sequence[str]
) -> Skeleton:
    """Cluster the items below each node of the tree on top, and join all parts."""
    _check_sets(top, item_of_class, classes)
    parents = [top.parent]
    names = [*top.names]
    first_class = np.unique(item_of_class, return_index=True)[1]
    item_node = top.node_of_class[first_class]  # of the tree on top
    is_set = np.bincount(item_of_class) > 1
    item_parent = item_node.copy()
    inner_children = np.bincount(top.parent[1:], minlength=len(top.parent))
    level = _levels(top.parent)
    for node in range(len(top.parent)):
        own = np.flatnonzero(item_node == node)
        if not len(own):
            continue
        set_level = int(is_set[own].any() and len(own) + inner_children[node] > 1)
        levels = None if depth is None else depth - int(level[node]) - set_level
        if levels is not None and levels < 1:
            reason = "sets of classes that stay together need" if levels + set_level else "the tree on top needs"
            raise OptionError(f"{reason} more levels than {depth}", argument="depth")
        forest = _cluster_below(own, branching, branching - int(inner_children[node]), levels, cluster)
        offset = len(names) - 1  # the root of the forest is the node itself
        below = forest.parent[1:]
        parents.append(np.where(below == 0, node, below + offset))
        item_parent[own] = np.where(forest.item_parent == 0, node, forest.item_parent + offset)
        names += [""] * len(below)
    class_parent = item_parent[item_of_class]
    for item in np.flatnonzero(is_set).tolist():
        siblings = np.count_nonzero(item_parent == item_parent[item]) > 1 or _has_child(parents, int(item_parent[item]))
        if siblings:  # otherwise the set is alone below its parent already
            parents.append(item_parent[[item]])
            class_parent[item_of_class == item] = len(names)
            names.append("")
    return Skeleton(np.concatenate(parents), names, class_parent)


def _cluster_below(own: np.ndarray, branching: int, slots: int, levels: int | None, cluster: Cluster) -> Forest:
    if slots >= 2 or len(own) == 1:
        return cluster(own, Shape(branching, max(slots, 1), levels))
    # the node has no room for several children beside those of the tree on top: its classes get a node of their own
    forest = cluster(own, Shape(branching, branching, None if levels is None else levels - 1))
    return Forest(np.concatenate([[-1, 0], forest.parent[1:] + 1]), forest.item_parent + 1)


def _has_child(parents: list[np.ndarray], node: int) -> bool:
    return any((part == node).any() for part in parents)


def _levels(parent: np.ndarray) -> np.ndarray:
    level = np.zeros(len(parent), np.int64)
    for node in range(1, len(parent)):  # the partial tree is small
        level[node] = level[parent[node]] + 1
    return level


def _check_sets(top: Top, item_of_class: np.ndarray, classes: Sequence[str]) -> None:
    """Raise an error for classes that stay together, but are below different nodes of the tree on top."""
    order = np.argsort(item_of_class, kind="stable")
    same = item_of_class[order][1:] == item_of_class[order][:-1]
    differ = same & (top.node_of_class[order][1:] != top.node_of_class[order][:-1])
    if differ.any():
        at = int(np.flatnonzero(differ)[0])
        pair = listing(classes[number] for number in order[at : at + 2].tolist())
        raise OptionError(f"{pair} have different parents in the tree on top", argument="together")
