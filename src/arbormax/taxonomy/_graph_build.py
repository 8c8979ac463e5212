"""From a draft to a validated graph, whose nodes are numbered level by level.

The level of a node is the length of its longest path from the root, so that edges lead from lower levels to higher
ones. The nodes of a level are in breadth-first order; a tree is numbered as `Taxonomy` numbers it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from arbormax.errors import check_choice
from arbormax.taxonomy._draft import (
    Draft,
    InnerClasses,
    check_cycles,
    check_nodes,
    find_classes,
    refuse_inner_class,
    to_array,
)
from arbormax.taxonomy.ancestry import ranges
from arbormax.taxonomy.labels import Label

if TYPE_CHECKING:
    from arbormax.taxonomy.graph import Graph

G = TypeVar("G", bound="Graph")


@dataclass(frozen=True, eq=False)
class _Nodes:
    """A graph whose nodes have the numbers of the input."""

    names: list[str]
    edges: np.ndarray  # (E, 2) parent and child; the edges of a child are in the order of its parents
    source: np.ndarray  # the number of each node in the input, -1 for an added root
    stops: list[int]
    texts: list[str | None] | None

    def children(self) -> tuple[np.ndarray, np.ndarray]:
        """The children of all nodes, by number, and where those of each node start."""
        parent_E, child_E = self.edges.T
        starts = np.concatenate(([0], np.cumsum(np.bincount(parent_E, minlength=len(self.names)))))
        return child_E[np.lexsort((child_E, parent_E))], starts


def assemble_graph(draft: Draft, kind: type[G], classes: Iterable[Label] | None, inner_classes: InnerClasses) -> G:
    """Return the graph of a draft, or raise one error with all defects."""
    check_choice("inner_classes", inner_classes, ("error", "stop"))
    several = {problem for *_, problem in draft.further}
    draft.problems = [problem for problem in draft.problems if problem not in several]
    parents = to_array(draft.parents)
    check_nodes(draft, parents)
    nodes, number = _merge_names(draft, parents)
    order = level_order(nodes)
    if len(order) < len(nodes.names):
        _find_cycles(draft, nodes, order)
    if len(nodes.names) < 2 and not draft.problems:
        draft.problems.append("the taxonomy is empty")
    draft.fail_on_problems()
    graph, rank = _build(kind, nodes, order)
    chosen = graph.leaves
    if draft.classes is not None:
        chosen = rank[list(dict.fromkeys(number[draft.classes].tolist()))]
    if classes is not None:
        chosen = find_classes(graph, draft, chosen, classes)
    inner = chosen[~graph.is_leaf[chosen]]
    if inner_classes == "error":
        for node in inner.tolist():
            refuse_inner_class(draft, graph.path(node), "")
    draft.fail_on_problems()
    return _with_stops(graph, chosen, inner) if len(inner) else graph.order_leaves(chosen)


def _merge_names(draft: Draft, parents: np.ndarray) -> tuple[_Nodes, np.ndarray]:
    """Return the nodes with one node for each name, and the node of each node of the draft."""
    count = len(parents)
    root = int(np.flatnonzero(parents == -1)[0]) if draft.has_root else -1
    alone = {root, *draft.stops}  # a stop leaf has the name of its inner node
    first: dict[str, int] = {}
    number = np.empty(count + 1, np.int64)  # the last entry is that of the parent -1, the root
    kept: list[int] = []
    for node, name in enumerate(draft.names):
        if node in alone or name not in first:
            number[node] = len(kept)
            if node not in alone:
                first[name] = len(kept)
            kept.append(node)
            continue
        number[node] = first[name]
        if draft.by_number:
            draft.problems.append(
                f"two nodes have the name {name!r}{draft.at(kept[first[name]], node)}; in a graph a name is a node: "
                "give them different names, or use one node with several parents"
            )
    number[count] = number[root] if draft.has_root else len(kept)  # -1 is also the parent of nodes with a wrong one
    names = [draft.names[node] for node in kept]
    texts: list[str | None] | None = None
    if draft.texts:
        texts = [None] * len(kept)
        for node in range(count):
            place = int(number[node])
            texts[place] = texts[place] or draft.texts.get(node)
    if not draft.has_root:
        names, kept = [*names, draft.root], [*kept, -1]
        texts = None if texts is None else [*texts, draft.texts.get(-1)]
    own = [(above, node) for node, above in enumerate(parents.tolist()) if node != root]
    edges = [*own, *((above, node) for above, node, _ in draft.further)]
    pairs = number[np.array(edges, np.int64).reshape(-1, 2)]
    _, first_pair = np.unique(pairs @ np.array([len(names), 1]), return_index=True)  # paths repeat edges
    stops = list(dict.fromkeys(number[draft.stops].tolist()))
    return _Nodes(names, pairs[np.sort(first_pair)], np.array(kept), stops, texts), number


def level_order(nodes: _Nodes) -> np.ndarray:
    """Return the nodes by level, without those in a cycle or below one."""
    child_E, starts = nodes.children()
    missing = np.bincount(child_E, minlength=len(nodes.names))  # parents whose level is not known yet
    level = np.flatnonzero(missing == 0)
    order = [level]
    while len(level):
        below = child_E[ranges(starts[level], starts[level + 1])]
        np.subtract.at(missing, below, 1)
        ready = below[missing[below] == 0]
        level = ready[np.sort(np.unique(ready, return_index=True)[1])]
        order.append(level)
    return np.concatenate(order)


def _build(kind: type[G], nodes: _Nodes, order: np.ndarray) -> tuple[G, np.ndarray]:
    """Return the graph with the nodes renumbered along `order`, and the new number of each node."""
    rank = np.full(len(nodes.names), -1, np.int64)
    rank[order] = np.arange(len(order))
    parent_E, child_E = rank[nodes.edges].T
    by_child = np.argsort(child_E, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(child_E, minlength=len(order)))))
    leaves = np.flatnonzero(np.bincount(parent_E, minlength=len(order)) == 0)
    leaves = leaves[np.argsort(order[leaves])]
    names = tuple(nodes.names[node] for node in order.tolist())
    texts = None if nodes.texts is None else tuple(nodes.texts[node] for node in order.tolist())
    stops = rank[np.array(nodes.stops, np.int64)]
    return kind(names, starts, parent_E[by_child], leaves, nodes.source[order], stops, texts), rank


def _with_stops(graph: G, chosen: np.ndarray, inner: np.ndarray) -> G:
    """Give every inner class a leaf below itself."""
    count = graph.num_nodes
    new = {node: count + place for place, node in enumerate(inner.tolist())}
    names = [*graph.names, *(graph.names[node] for node in new)]
    edges = np.concatenate((np.stack([graph.parent_list, graph.child_list]).T, np.array(list(new.items()))))
    source = np.concatenate((graph.source_index, np.full(len(new), -1)))
    texts = None if graph.given_texts is None else [*graph.given_texts, *(None for _ in new)]
    nodes = _Nodes(names, edges, source, [*graph.stops.tolist(), *new.values()], texts)
    stopped, rank = _build(type(graph), nodes, level_order(nodes))
    return stopped.order_leaves(rank[[new.get(node, node) for node in chosen.tolist()]])


def below(graph: G, node: int) -> G:
    """Return the part of a graph at and below a node, which becomes the root; classes keep their order."""
    kept = np.zeros(graph.num_nodes, bool)
    kept[node] = True
    starts, lists = graph.level_start.tolist(), graph.parent_list
    for first, stop in pairwise(starts[1:]):
        edges = slice(graph.parent_start[first], graph.parent_start[stop])
        np.logical_or.at(kept, graph.child_list[edges], kept[lists[edges]])
    old = np.flatnonzero(kept)
    number = np.full(graph.num_nodes, -1, np.int64)
    number[old] = np.arange(len(old))
    pairs = number[np.stack([lists, graph.child_list]).T]
    texts = None if graph.given_texts is None else [graph.given_texts[each] for each in old.tolist()]
    stops = number[graph.stops]
    nodes = _Nodes(
        [graph.names[each] for each in old.tolist()],
        pairs[(pairs >= 0).all(1)],
        graph.source_index[old],
        stops[stops >= 0].tolist(),
        texts,
    )
    part, rank = _build(type(graph), nodes, level_order(nodes))
    classes = number[graph.leaves]
    return part.order_leaves(rank[classes[classes >= 0]])


def _find_cycles(draft: Draft, nodes: _Nodes, reached: np.ndarray) -> None:
    is_reached = np.zeros(len(nodes.names), bool)
    is_reached[reached] = True
    parent_E, child_E = nodes.edges.T
    among = ~is_reached[parent_E]
    parents = np.full(len(nodes.names), -1, np.int64)
    parents[child_E[among]] = parent_E[among]  # a parent that is not reached, which leads up to a cycle
    source = nodes.source.tolist()
    named = replace(draft, names=nodes.names, parents=parents, where=lambda node: draft.where(source[node]))
    check_cycles(named, parents, reached)
