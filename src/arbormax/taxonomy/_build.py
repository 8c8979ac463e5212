"""The builders: nested mappings, paths, edges and a parents array, each read into a draft."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arbormax.errors import TaxonomyError
from arbormax.taxonomy._draft import Draft, assemble, listing
from arbormax.taxonomy.labels import join_path, split_path
from arbormax.taxonomy.tree import InnerClasses, Label, Taxonomy

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def from_nested(tree: Any, classes: Iterable[Label] | None, inner_classes: InnerClasses) -> Taxonomy:
    draft = Draft()
    if not isinstance(tree, Mapping) and not _is_list(tree):
        raise TaxonomyError(f"a nested taxonomy is a mapping or a list, not {type(tree).__name__}")

    # A stack keeps the order of reading without recursion, so that depth has no limit.
    stack: list[tuple[str, int, Any]] = [("value", -1, tree)]
    around: set[int] = set()  # the containers we stand in, to catch one that holds itself
    while stack:
        kind, parent, item = stack.pop()
        if kind == "leave":
            around.remove(id(item))
        elif kind == "entry":
            name, value = item
            if not isinstance(name, str):
                draft.problems.append(_not_a_string(name, f"below {draft.below(parent)}"))
                continue
            node = draft.add(name, parent)
            if value is not None:
                stack.append(("value", node, value))
        elif isinstance(item, str):
            draft.add(item, parent)
        elif isinstance(item, Mapping) or _is_list(item):
            if id(item) in around:
                draft.problems.append(f"cycle: what stands below {draft.below(parent)} holds itself")
                continue
            around.add(id(item))
            stack.append(("leave", parent, item))
            if isinstance(item, Mapping):
                stack += [("entry", parent, pair) for pair in reversed(list(item.items()))]
            else:
                stack += [("value", parent, value) for value in reversed(item)]
        else:
            draft.problems.append(_not_a_string(item, f"below {draft.below(parent)}"))
    return assemble(draft, classes, inner_classes)


def from_paths(paths: Iterable[Label], classes: Iterable[Label] | None, inner_classes: InnerClasses) -> Taxonomy:
    if isinstance(paths, (str, Mapping)):
        raise TaxonomyError(f"paths are a list of tuples of names, not {type(paths).__name__}")
    draft = Draft()
    add_paths(draft, paths, lambda number: f"paths[{number}]")
    return assemble(draft, classes, inner_classes)


def add_paths(draft: Draft, paths: Iterable[Any], place: Callable[[int], str]) -> None:
    """Fill a draft from class paths; `place` says where the path of a number stands."""
    nodes: dict[tuple[int, str], int] = {}
    first_path: list[int] = []  # the path in which each node first stands
    class_path: dict[int, int] = {}
    draft.where = lambda node: place(class_path.get(node, first_path[node]))
    draft.classes = []
    for number, path in enumerate(paths):
        steps = split_path(path) if isinstance(path, str) else path
        if not _is_list(steps):
            draft.problems.append(f"a path is a tuple of names, found {path!r} ({place(number)})")
            continue
        wrong = [name for name in steps if not isinstance(name, str)]
        if wrong or not len(steps):
            draft.problems.append(
                _not_a_string(wrong[0], place(number)) if wrong else f"an empty path ({place(number)})"
            )
            continue
        if any(not name or name.isspace() for name in steps):
            draft.problems.append(f"empty name in the path {join_path(steps)!r} ({place(number)})")
            continue
        node = -1
        for name in steps:
            child = nodes.get((node, name))
            if child is None:
                child = nodes[node, name] = draft.add(name, node)
                first_path.append(number)
            node = child
        if node in class_path:
            draft.problems.append(
                f"{join_path(steps)!r} is named twice as a class ({place(class_path[node])} and {place(number)})"
            )
        else:
            class_path[node] = number
            draft.classes.append(node)


def from_edges(
    edges: Iterable[Any], root: str | None, classes: Iterable[Label] | None, inner_classes: InnerClasses
) -> Taxonomy:
    draft = Draft()
    add_edges(draft, edges, lambda number: f"edges[{number}]", root)
    return assemble(draft, classes, inner_classes)


def add_edges(draft: Draft, edges: Iterable[Any], place: Callable[[int], str], root: str | None) -> None:
    """Fill a draft from (parent, child) pairs; `place` says where the pair of a number stands."""
    ids: dict[str, int] = {}
    edge_of: dict[int, int] = {}  # the edge that gave a node its parent
    first_edge: list[int] = []
    top: set[int] = set()  # nodes whose parent is outright None
    draft.where = lambda node: place(edge_of.get(node, first_edge[node]))

    def node_of(name: str, number: int) -> int:
        if name not in ids:
            ids[name] = draft.add(name, -1)
            first_edge.append(number)
        return ids[name]

    for number, edge in enumerate(edges):
        if isinstance(edge, str) or not isinstance(edge, Sequence) or len(edge) != 2:
            draft.problems.append(f"an edge is a pair (parent, child), found {edge!r} ({place(number)})")
            continue
        parent, child = edge
        wrong = [name for name in edge if not isinstance(name, str)]
        if child is None or (wrong and wrong != [None]):
            draft.problems.append(
                f"an edge to nowhere, {edge!r} ({place(number)})"
                if child is None
                else _not_a_string(wrong[0], place(number))
            )
            continue
        if any(not name or name.isspace() for name in edge if name is not None):
            draft.problems.append(f"empty name in the edge {edge!r} ({place(number)})")
            continue
        above = -1 if parent is None else node_of(parent, number)
        below = node_of(child, number)
        if below in edge_of:
            before = draft.parents[below]
            both = " and ".join(dict.fromkeys((place(edge_of[below]), place(number))))
            if before == above:
                draft.problems.append(f"the edge {edge!r} stands twice ({both})")
            else:
                old, new = ("the root" if n < 0 else repr(draft.names[n]) for n in (before, above))
                draft.problems.append(
                    f"node {child!r} has two parents, {old} and {new} ({both}); "
                    "a taxonomy is a tree: remove one of the two edges, or write paths if two nodes share this name"
                )
            continue
        edge_of[below] = number
        draft.parents[below] = above
        if above < 0:
            top.add(below)
    _settle_root(draft, ids, top, root)


def _settle_root(draft: Draft, ids: dict[str, int], top: set[int], root: str | None) -> None:
    """Say which node of an edge list is the root; `top` are the nodes whose parent was given as None."""
    orphans = [node for node, parent in enumerate(draft.parents) if parent == -1 and node not in top]
    if root is not None and (not root or root.isspace()):
        draft.problems.append(f"empty name: the root cannot be called {root!r}")
        return
    if root is not None and root not in ids:
        draft.root = root  # a name that the edges leave out: everything without a parent hangs below it
        return
    home = ids[root] if root is not None else orphans[0] if len(orphans) == 1 and not top else None
    if home in top:  # the file's own row for its root, with an empty parent
        top.remove(home)
    elif home is not None and home not in orphans:
        draft.problems.append(f"the root {root!r} has a parent{draft.at(home)}")
        return
    lost = [node for node in orphans if node != home]
    if lost:
        draft.problems.append(
            f"edges from nowhere: {listing(draft.names[node] for node in lost)} {'has' if len(lost) == 1 else 'have'} "
            f"no parent{draft.at(*lost[:8])}, and only the root may have none; if these are the top of the tree, give "
            "their parent as None (an empty cell in a file) or name a root above them with root="
        )
    elif home is not None:
        draft.has_root = True
        for node in top:
            draft.parents[node] = home


def from_parents(
    parents: ArrayLike, names: Iterable[str] | None, classes: Iterable[Label] | None, inner_classes: InnerClasses
) -> Taxonomy:
    array = np.asarray(parents)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TaxonomyError(f"parents are one row of whole numbers, found {array.dtype} of shape {array.shape}")
    labels = [str(i) for i in range(len(array))] if names is None else list(names)
    if len(labels) != len(array):
        raise TaxonomyError(f"{len(array)} parents but {len(labels)} names")
    wrong = [i for i, name in enumerate(labels) if not isinstance(name, str)]
    if wrong:
        raise TaxonomyError(_not_a_string(labels[wrong[0]], f"names[{wrong[0]}]"))
    draft = Draft(labels, array.astype(np.int64), where=lambda node: f"parents[{node}]")
    draft.has_root = np.count_nonzero(draft.parents == -1) == 1
    return assemble(draft, classes, inner_classes)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _not_a_string(value: Any, place: str) -> str:
    return f"a name is a string, found {value!r} of type {type(value).__name__} ({place})"
