"""Readers of Python values: nested mappings, paths, edges and a parents array, each read into a draft."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Any

import numpy as np

from arbormax.errors import OptionError, TaxonomyError, did_you_mean
from arbormax.taxonomy._draft import Draft, in_brackets
from arbormax.taxonomy.labels import join_path, listing, split_path

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


DESCRIPTION = "description"  # the key or column with the text of a node


@dataclass(frozen=True, slots=True)
class Scalar:
    """A name, number or null in a file, with its line."""

    value: Any
    line: int


class Items(list[Any]):
    """A list in a file, with the line where it begins."""

    def __init__(self, items: Iterable[Any], line: int) -> None:
        super().__init__(items)
        self.line = line


class Pairs(Items):
    """The keys and values of a mapping in a file, where a key may be repeated."""

    def __init__(self, content: Sequence[Any], line: int) -> None:
        super().__init__(zip(content[::2], content[1::2], strict=True), line)


def add_nested(draft: Draft, tree: Any) -> Draft:
    """Fill a draft from nested mappings and lists: Python's, or those of a file, which know their lines."""
    lines: list[int] = []  # 0: unknown
    draft.where = lambda node: f"line {lines[node]}" if lines[node] else ""
    value, line = _with_line(tree)
    if not isinstance(value, (Mapping, list, tuple)):
        place = in_brackets(f"line {line}" * bool(line))
        raise draft.fail(f"a nested taxonomy is a mapping or a list, not {type(value).__name__}{place}")

    # A stack instead of recursion, so that depth has no limit.
    stack: list[tuple[str, int, Any]] = [("value", -1, tree)]
    open_containers: set[int] = set()  # to detect a container that contains itself
    while stack:
        kind, parent, item = stack.pop()
        if kind == "close":
            open_containers.remove(id(item))
            continue
        below: Any = None
        if kind == "entry":
            item, below = item
        value, line = _with_line(item)
        text, text_line = _with_line(below)
        if value == DESCRIPTION and text is not None and not isinstance(text, (Mapping, list, tuple)):
            draft.describe(parent, text, f"line {text_line}" if text_line else "")
            continue
        if isinstance(value, str):
            node = draft.add(value, parent)
            lines.append(line)
            if text is not None:
                stack.append(("value", node, below))
        elif kind == "value" and isinstance(value, (Mapping, list, tuple)):
            if id(value) in open_containers:
                draft.problems.append(f"cycle: the value of {draft.below(parent)} contains itself")
                continue
            open_containers.add(id(value))
            stack.append(("close", parent, value))
            if isinstance(value, (Mapping, Pairs)):
                pairs = list(value.items()) if isinstance(value, Mapping) else value
                stack += [("entry", parent, pair) for pair in reversed(pairs)]
            else:
                stack += [("value", parent, entry) for entry in reversed(value)]
        else:
            place = f"line {line}" if line else f"below {draft.below(parent)}"
            draft.problems.append(_not_a_string(value, place))
    return draft


def _with_line(item: Any) -> tuple[Any, int]:
    return (item.value, item.line) if isinstance(item, Scalar) else (item, getattr(item, "line", 0))


def add_paths(
    draft: Draft,
    paths: Iterable[Any],
    place: Callable[[int], str] = "paths[{}]".format,
    texts: Sequence[str] | None = None,
) -> Draft:
    """Fill a draft from the paths of classes; `place` describes the place of the path with a number.

    `texts` are descriptions of the ends of the paths. A path with one may also end at an inner node.
    """
    if isinstance(paths, (str, Mapping)):
        raise TaxonomyError(f"expected a list of paths, found {type(paths).__name__}", argument="paths")
    nodes: dict[tuple[int, str], int] = {}
    first_path: list[int] = []  # the first path that contains each node
    class_path: dict[int, int] = {}
    draft.where = lambda node: place(class_path.get(node, first_path[node]))
    draft.classes = []
    for number, path in enumerate(paths):
        steps = split_path(path) if isinstance(path, str) else path
        if not isinstance(steps, (list, tuple)) or not steps or not all(isinstance(name, str) for name in steps):
            draft.problems.append(f"a path is a tuple of names, found {path!r} ({place(number)})")
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
                f"the class {join_path(steps)!r} is repeated ({place(class_path[node])} and {place(number)})"
            )
        else:
            class_path[node] = number
            draft.classes.append(node)
            if texts is not None:
                draft.describe(node, texts[number])
    return draft


def add_edges(
    draft: Draft,
    edges: Iterable[Any],
    root: str | None,
    place: Callable[[int], str] = "edges[{}]".format,
    texts: Sequence[str] | None = None,
) -> Draft:
    """Fill a draft from (parent, child) pairs; `place` describes the place of the pair with a number.

    `texts` are descriptions of the children.
    """
    ids: dict[str, int] = {}
    edge_of: dict[int, int] = {}  # the edge from which a node has its parent
    first_edge: list[int] = []
    top: set[int] = set()  # nodes whose parent is explicitly None
    further: dict[tuple[int, int], str] = {}  # the second and later parents of nodes
    draft.where = lambda node: place(edge_of.get(node, first_edge[node]))

    def node_of(name: str, number: int) -> int:
        if name not in ids:
            ids[name] = draft.add(name, -1)
            first_edge.append(number)
        return ids[name]

    for number, edge in enumerate(edges):
        is_pair = not isinstance(edge, str) and isinstance(edge, Sequence) and len(edge) == 2
        if not is_pair or not all(name is None or isinstance(name, str) for name in edge):
            draft.problems.append(f"an edge is a pair (parent, child) of names, found {edge!r} ({place(number)})")
            continue
        parent, child = edge
        if child is None:
            draft.problems.append(f"an edge without a child: {edge!r} ({place(number)})")
            continue
        if any(not name or name.isspace() for name in edge if name is not None):
            draft.problems.append(f"empty name in the edge {edge!r} ({place(number)})")
            continue
        above = -1 if parent is None else node_of(parent, number)
        below = node_of(child, number)
        if below in edge_of:
            before = draft.parents[below]
            both = " and ".join(dict.fromkeys((place(edge_of[below]), place(number))))
            if before == above or (above, below) in further:
                draft.problems.append(f"the edge {edge!r} is repeated ({both})")
            else:
                old, new = ("the root" if n < 0 else repr(draft.names[n]) for n in (before, above))
                problem = (
                    f"node {child!r} has two parents, {old} and {new} ({both}); a taxonomy is a tree: remove one of "
                    "the two edges, use paths if two nodes share this name, or read several parents with am.Graph"
                )
                draft.problems.append(problem)
                further[above, below] = problem
                if texts is not None and below not in draft.texts:
                    draft.describe(below, texts[number])
            continue
        edge_of[below] = number
        draft.parents[below] = above
        if texts is not None:
            draft.describe(below, texts[number])
        if above < 0:
            top.add(below)
    draft.further = [(above, below, problem) for (above, below), problem in further.items()]
    _set_root(draft, ids, top, root)
    return draft


def _set_root(draft: Draft, ids: dict[str, int], top: set[int], root: str | None) -> None:
    """Choose the root of a list of edges; `top` are the nodes whose parent is explicitly None."""
    orphans = [node for node, parent in enumerate(draft.parents) if parent == -1 and node not in top]
    if root is not None and (not root or root.isspace()):
        draft.problems.append(f"empty name of the root: {root!r}")
        return
    if root is not None and root not in ids:
        draft.root = root  # not in the edges: it becomes the parent of every node without one
        return
    found = ids[root] if root is not None else orphans[0] if len(orphans) == 1 and not top else None
    if found in top:  # an edge with an empty parent for the root itself
        top.remove(found)
    elif found is not None and found not in orphans:
        draft.problems.append(f"the root {root!r} has a parent{draft.at(found)}")
        return
    lost = [node for node in orphans if node != found]
    if lost:
        draft.problems.append(
            f"{listing(draft.names[node] for node in lost)} {'has' if len(lost) == 1 else 'have'} no parent"
            f"{draft.at(*lost[:8])}; only the root may have none. If these nodes are the top level, give them the "
            "parent None (in a file, an empty cell), or name the root"
        )
        draft.fix["root"] = "root"
    elif found is not None:
        draft.has_root = True
        for node in top:
            draft.parents[node] = found


def read_parents(parents: ArrayLike, names: Iterable[str] | None) -> Draft:
    array = np.asarray(parents)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TaxonomyError(
            f"expected a list of integers, found {array.dtype} of shape {array.shape}", argument="parents"
        )
    labels = [str(i) for i in range(len(array))] if names is None else list(names)
    if len(labels) != len(array):
        raise TaxonomyError(f"expected {len(array)} names, one for each parent, found {len(labels)}", argument="names")
    wrong = [i for i, name in enumerate(labels) if not isinstance(name, str)]
    if wrong:
        raise TaxonomyError(_not_a_string(labels[wrong[0]], f"names[{wrong[0]}]"))
    draft = Draft(labels, array.astype(np.int64), where=lambda node: f"parents[{node}]", by_number=True)
    draft.has_root = np.count_nonzero(draft.parents == -1) == 1
    return draft


def read_parent_lists(parents: Any, names: Iterable[str] | None) -> Draft:
    """Fill a draft from the parents of each node: lists of node numbers, or single numbers, -1 for none."""
    lists: list[Any] = [[entry] if isinstance(entry, (int, np.integer)) else list(entry) for entry in parents]
    wrong = [i for i, entry in enumerate(lists) if not all(isinstance(node, (int, np.integer)) for node in entry)]
    if wrong:
        raise TaxonomyError(
            f"expected a list of node numbers for each node, found {short_repr(lists[wrong[0]])} (parents[{wrong[0]}])",
            argument="parents",
        )
    draft = read_parents(np.array([entry[0] if entry else -1 for entry in lists], np.int64), names)
    return add_parents(draft, lists)


def add_parents(draft: Draft, parents: Sequence[Sequence[int]]) -> Draft:
    """Add the second and later parents of each node to a draft that has the first ones."""
    for node, above in enumerate(parents):
        for place, parent in enumerate(above[1:], start=1):
            name = draft.names[node]
            if not 0 <= parent < len(parents):
                wrong = f"the parent of {name!r} is {parent}, but nodes are numbered from 0 to {len(parents) - 1}"
                draft.problems.append(wrong + draft.at(node))
            elif parent in above[:place]:
                draft.problems.append(f"the parent {parent} of {name!r} is repeated{draft.at(node)}")
            else:
                draft.further.append((parent, node, ""))
    return draft


def add_terms(
    draft: Draft,
    terms: Sequence[tuple[str, Sequence[str], str]],
    texts: Sequence[str],
    places: Sequence[str],
    root: str | None,
) -> Draft:
    """Fill a draft from the terms of an ontology: name, keys of the parents and key of each.

    `texts` and `places` are the text and the place of each term. `root` is the name or key of the term whose
    descendants are kept; by default all are, and the only term without a parent is the root.
    """
    number = {key: term for term, (_, _, key) in enumerate(terms)}
    parents = [[number[above] for above in keys if above in number] for _, keys, _ in terms]
    kept = list(range(len(terms)))
    if root is not None:
        top = [term for term, (name, _, key) in enumerate(terms) if root in (name, key)]
        if len(top) != 1:
            hint = did_you_mean(root, (name for name, _, _ in terms))
            raise OptionError(f"expected the name or the id of a term, found {root!r}{hint}", argument="root")
        kept = _descendants(parents, top[0])
    place = {term: node for node, term in enumerate(kept)}
    own = [[place[above] for above in parents[term] if above in place] for term in kept]
    draft.where = lambda node: places[kept[node]]
    draft.by_number = True
    draft.names = [terms[term][0] for term in kept]
    draft.parents = [above[0] if above else -1 for above in own]
    draft.has_root = sum(not above for above in own) == 1
    for node, term in enumerate(kept):
        draft.describe(node, texts[term])
    add_parents(draft, own)
    draft.is_graph = bool(draft.further)
    return draft


def _descendants(parents: Sequence[Sequence[int]], top: int) -> list[int]:
    """Return a node and all nodes below it, the top first and then by number."""
    children: list[list[int]] = [[] for _ in parents]
    for node, above in enumerate(parents):
        for parent in above:
            children[parent].append(node)
    found, stack = {top}, [top]
    while stack:
        new = [child for child in children[stack.pop()] if child not in found]
        found.update(new)
        stack += new
    return [top, *sorted(found - {top})]


def _not_a_string(value: Any, place: str) -> str:
    if isinstance(value, Items):
        return f"a name is a string, found a {'mapping' if isinstance(value, Pairs) else 'list'} ({place})"
    return f"a name is a string, found {short_repr(value)} of type {type(value).__name__} ({place})"
