"""From a tree as it was read to a checked one in breadth-first order.

Every builder and every file reader fills a `Draft`: nodes in the caller's own numbering, where each stands in the
input, and the defects met on the way. `assemble` looks for the rest, tells all of them in one error, and puts the tree
in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from arbormax.errors import LabelError, OptionError, TaxonomyError
from arbormax.taxonomy.labels import join_path, name_ids
from arbormax.taxonomy.tree import InnerClasses, Label, Taxonomy

ROOT = "root"


@dataclass
class Draft:
    """A tree as it was read: node i is the i-th that the input named."""

    names: list[str] = field(default_factory=list)
    parents: list[int] | np.ndarray = field(default_factory=list)  # -1: no parent
    where: Callable[[int], str] = lambda _: ""  # "line 3" or "edges[2]" for a node, "" where that says nothing
    source: str | None = None  # the file's name
    classes: list[int] | None = None  # the nodes that are classes, in class order; None: the leaves, as they appear
    has_root: bool = False  # whether the one node without a parent is the root; else one is made above them all
    root: str = ROOT  # the name of the root that is made
    stops: list[int] = field(default_factory=list)  # leaves that are virtual already, as our own files tell
    problems: list[str] = field(default_factory=list)

    def add(self, name: str, parent: int) -> int:
        self.names.append(name)
        self.parents.append(parent)  # type: ignore[union-attr]  # a list while it is being filled
        return len(self.names) - 1

    def at(self, *nodes: int) -> str:
        places = [place for place in dict.fromkeys(self.where(node) for node in nodes) if place]
        return f" ({' and '.join(places)})" if places else ""

    def fail_on_problems(self) -> None:
        if self.problems:
            prefix = f"{self.source}: " if self.source else ""
            if len(self.problems) == 1:
                raise TaxonomyError(prefix + self.problems[0], self.problems)
            raise TaxonomyError(f"{prefix}the taxonomy has {len(self.problems)} defects:", self.problems)

    def path(self, node: int) -> list[str]:
        """The names from below the root down to a node; a cycle, which a draft may hold, is cut."""
        steps: list[str] = []
        while node >= 0 and len(steps) < 64:
            above = int(self.parents[node])
            if above >= 0 or not self.has_root:
                steps.append(self.names[node])
            node = above
        return steps[::-1]

    def below(self, node: int) -> str:
        path = self.path(node)
        return repr(join_path(path)) if path else "the root"


def assemble(draft: Draft, classes: Iterable[Label] | None, inner_classes: InnerClasses) -> Taxonomy:
    """The taxonomy of a draft, or one error with all its defects."""
    if inner_classes not in ("error", "stop"):
        raise OptionError(f"inner_classes is 'error' or 'stop', not {inner_classes!r}")
    names, parents, source = draft.names, np.array(draft.parents, np.int64), np.arange(len(draft.names))
    _check_nodes(draft, parents)
    if not draft.has_root:
        names, source = [*names, draft.root], np.append(source, -1)
        parents = np.append(np.where(parents == -1, len(parents), parents), -1)
    order = _breadth_first(parents)
    if len(order) < len(parents):
        _check_cycles(draft, parents, order)
    if len(parents) < 2 and not draft.problems:
        draft.problems.append("there is no class at all")
    if draft.classes and inner_classes == "error":
        inner = np.zeros(len(parents), bool)
        inner[parents[parents >= 0]] = True
        draft.problems += [_inner_class(draft.path(node), draft.at(node)) for node in draft.classes if inner[node]]
    draft.fail_on_problems()
    tax = _ordered(names, parents, source, order, draft.stops)
    return _with_classes(tax, draft, classes, inner_classes)


def _check_nodes(draft: Draft, parents: np.ndarray) -> None:
    """Names and parents that cannot be; a parent that does not exist is put to -1 so that the search can go on."""
    draft.problems += [
        f"empty name{draft.at(node)}" for node, name in enumerate(draft.names) if not name or name.isspace()
    ]
    for node in np.flatnonzero((parents < -1) | (parents >= len(parents))).tolist():
        draft.problems.append(
            f"an edge to nowhere: the parent of {draft.names[node]!r} is {parents[node]}, but nodes run from 0 to "
            f"{len(parents) - 1}{draft.at(node)}"
        )
        parents[node] = -1
    if len(set(draft.names)) == len(draft.names):
        return
    ids, name_id = name_ids(draft.names)
    siblings = (parents + 1) * len(ids) + name_id
    order = np.argsort(siblings, kind="stable")
    again = np.flatnonzero(siblings[order[1:]] == siblings[order[:-1]])
    for first, second in zip(order[again].tolist(), order[again + 1].tolist(), strict=True):
        if not draft.names[first].strip():
            continue  # told already as an empty name
        draft.problems.append(
            f"{draft.names[first]!r} is repeated below {draft.below(int(parents[first]))}{draft.at(first, second)}; "
            "siblings need names of their own"
        )


def _check_cycles(draft: Draft, parents: np.ndarray, reached: np.ndarray) -> None:
    seen = np.zeros(len(parents), bool)
    seen[reached] = True
    above = parents.tolist()
    for start in np.flatnonzero(~seen).tolist():
        steps, node = [], start
        while not seen[node]:
            seen[node] = True
            steps.append(node)
            node = above[node]
        if node in set(steps):
            loop = steps[steps.index(node) :]
            shown = [repr(draft.names[n]) for n in (*loop[:8], loop[0])]
            if len(loop) > 8:
                shown[-1:] = [f"… {len(loop) - 8} more …", shown[-1]]
            draft.problems.append(f"cycle: {' → '.join(shown)} (each has the next as parent){draft.at(*loop[:3])}")


def _breadth_first(parents: np.ndarray) -> np.ndarray:
    """The nodes in breadth-first order, siblings as they were numbered; nodes that hang in a cycle are left out."""
    if parents[0] == -1 and np.all(parents[1:] < np.arange(1, len(parents))) and np.all(np.diff(parents) >= 0):
        return np.arange(len(parents))  # it is in that order already
    by_parent = np.argsort(parents, kind="stable")
    starts = np.searchsorted(parents[by_parent], np.arange(len(parents) + 1)).tolist()
    children = by_parent.tolist()
    order = children[: starts[0]]
    for node in order:  # the list grows while it is read
        order += children[starts[node] : starts[node + 1]]
    return np.array(order, np.int64)


def _ordered(
    names: Sequence[str], parents: np.ndarray, source: np.ndarray, order: np.ndarray, stops: Sequence[int] = ()
) -> Taxonomy:
    """A taxonomy with its nodes renumbered along `order` and its leaves as they appear in the source."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    parent = np.append(-1, rank[parents[order[1:]]])
    is_leaf = np.bincount(parent[1:], minlength=len(order)) == 0
    leaves = rank[np.flatnonzero(is_leaf[rank])]
    return Taxonomy(
        tuple(names[node] for node in order.tolist()), parent, leaves, source[order], rank[np.array(stops, np.int64)]
    )


def _with_classes(tax: Taxonomy, draft: Draft, labels: Iterable[Label] | None, inner_classes: InnerClasses) -> Taxonomy:
    """The same tree with the classes that the draft or the caller names, in their order."""
    if draft.classes is None:
        chosen = tax.leaves
    else:
        rank = np.empty(len(draft.names), np.int64)
        rank[tax.source_index[tax.source_index >= 0]] = np.flatnonzero(tax.source_index >= 0)
        chosen = rank[np.array(draft.classes, np.int64)]
    if labels is not None:
        chosen = _resolve(tax, draft, chosen, labels)
    inner = chosen[~tax.is_leaf[chosen]]
    if len(inner) and inner_classes == "error":
        draft.problems += [_inner_class(tax.path(node), "") for node in inner.tolist()]
    draft.fail_on_problems()
    if not len(inner):
        return tax if chosen is tax.leaves else replace(tax, leaves=chosen)
    return _with_stops(tax, chosen, inner)


def _resolve(tax: Taxonomy, draft: Draft, allowed: np.ndarray, labels: Iterable[Label]) -> np.ndarray:
    """The nodes that `classes=` names, which must be all classes of the input, each once."""
    chosen: dict[int, int] = {}
    if isinstance(labels, str):
        raise OptionError(f"classes is a list of labels, not the string {labels!r}")
    for number, label in enumerate(labels):
        try:
            node = tax.find(label)
        except LabelError as error:
            draft.problems.append(f"{error} (classes[{number}])")
            continue
        if node == 0:
            draft.problems.append(f"the root cannot be a class (classes[{number}])")
        elif node in chosen:
            draft.problems.append(
                f"{label!r} is named twice as a class (classes[{chosen[node]}] and classes[{number}])"
            )
        else:
            chosen[node] = number
    missing = [node for node in allowed.tolist() if node not in chosen]
    if missing and not draft.problems:
        listed = ", ".join(repr(join_path(tax.path(node))) for node in missing[:8]) + (
            ", …" if len(missing) > 8 else ""
        )
        draft.problems.append(f"classes leaves out {len(missing)} of {len(allowed)} classes: {listed}")
    return np.array(list(chosen), np.int64)


def _with_stops(tax: Taxonomy, chosen: np.ndarray, inner: np.ndarray) -> Taxonomy:
    """Give every inner class a virtual leaf below itself, its last child, that bears its name."""
    names, new = list(tax.names), {}
    for node in inner.tolist():
        taken = {tax.names[child] for child in tax.children(node).tolist()}
        name = tax.names[node]
        while name in taken:
            name += " (itself)"
        new[node] = len(names)
        names.append(name)
    parents = np.concatenate((tax.parent, inner))
    order = _breadth_first(parents)
    source = np.concatenate((tax.source_index, np.full(len(inner), -1)))
    stopped = _ordered(names, parents, source, order, [*tax.stops.tolist(), *new.values()])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return replace(stopped, leaves=rank[[new.get(node, node) for node in chosen.tolist()]])


def _inner_class(path: Iterable[str], place: str) -> str:
    mend = "inner_classes='stop' gives it a leaf of its own"
    return f"{join_path(path)!r} is a class and has classes below it{place}; {mend}"


def listing(names: Iterable[str], most: int = 8) -> str:
    """`'a', 'b', …`: the first few names, quoted."""
    shown = [repr(name) for name in names]
    return ", ".join(shown[:most]) + (", …" if len(shown) > most else "")
