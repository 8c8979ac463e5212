"""From a tree as it was read to a validated one in breadth-first order.

Every builder and every file reader fills a `Draft`: the nodes as the input numbers them, their places in the input, and
the defects found so far. `assemble` looks for further defects, raises all of them in one error, and orders the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from arbormax.errors import LabelError, OptionError, TaxonomyError, check_choice
from arbormax.taxonomy.labels import Label, join_path, listing

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

T = TypeVar("T", bound="Taxonomy")
InnerClasses = Literal["error", "stop"]

ROOT = "root"
_MAX_NAME = 10_000  # characters; longer ones come from files that are not taxonomies


def in_brackets(*places: str) -> str:
    """Return " (line 3 and line 5)" for the places that are known and different, "" without any."""
    known = [place for place in dict.fromkeys(places) if place]
    return f" ({' and '.join(known)})" if known else ""


@dataclass
class Draft:
    """A tree as it was read: node i is the i-th node of the input."""

    names: list[str] = field(default_factory=list)
    parents: list[int] | np.ndarray = field(default_factory=list)  # -1: no parent
    further: list[tuple[int, int, str]] = field(default_factory=list)  # (parent, node, its entry in problems or "")
    is_graph: bool = False  # whether the input says that nodes may have several parents
    by_number: bool = False  # whether nodes are identified by numbers, so that two of the same name are two nodes
    where: Callable[[int], str] = lambda _: ""  # the place of a node in the input, such as "line 3" or "edges[2]"
    source: str | None = None  # the name of the file
    classes: list[int] | None = None  # the nodes that are classes, in class order; None: the leaves as they appear
    has_root: bool = False  # whether the only node without a parent is the root; otherwise a root is added
    root: str = ROOT  # the name of an added root
    stops: list[int] = field(default_factory=list)  # leaves that inner_classes="stop" added before the tree was saved
    texts: dict[int, str] = field(default_factory=dict)  # the texts of nodes
    problems: list[str] = field(default_factory=list)
    fix: dict[str, object] = field(default_factory=dict)  # arguments that would remove a defect

    def add(self, name: str, parent: int) -> int:
        self.names.append(name)
        self.parents.append(parent)  # type: ignore[union-attr]  # a list while it is being filled
        return len(self.names) - 1

    def describe(self, node: int, text: object, place: str = "") -> None:
        """Set the text of a node; -1 is a root that will be added."""
        if isinstance(text, str) and node not in self.texts:
            if text.strip():
                self.texts[node] = text.strip()
            return
        of, at = f"the description of {self.below(node)}", in_brackets(place)
        what = "is repeated"
        if not isinstance(text, str):
            what = f"is a string, found {short_repr(text)} of type {type(text).__name__}"
        self.problems.append(f"{of} {what}{at}")

    def at(self, *nodes: int) -> str:
        return in_brackets(*map(self.where, nodes))

    def fail(self, problem: str, **fix: object) -> TaxonomyError:
        """Return the error of a defect that makes all other defects irrelevant."""
        return TaxonomyError(f"{self.source}: {problem}" if self.source else problem, [problem], fix=fix)

    def fail_on_problems(self) -> None:
        if len(self.problems) == 1:
            raise self.fail(self.problems[0], **self.fix)
        if self.problems:
            prefix = f"{self.source}: " if self.source else ""
            message = f"{prefix}the taxonomy has {len(self.problems)} defects:"
            raise TaxonomyError(message, self.problems, fix=self.fix)

    def path(self, node: int) -> list[str]:
        """Return the names from below the root down to a node; the last 64 in a cycle."""
        steps: list[str] = []
        while 0 <= node < len(self.names) and len(steps) < 64:
            above = int(self.parents[node])
            if above >= 0 or not self.has_root:
                steps.append(self.names[node])
            node = above
        return steps[::-1]

    def below(self, node: int) -> str:
        path = self.path(node)
        return repr(join_path(path)) if path else "the root"


def assemble(draft: Draft, kind: type[T], classes: Iterable[Label] | None, inner_classes: InnerClasses) -> T:
    """Return the taxonomy of a draft, or raise one error with all defects."""
    check_choice("inner_classes", inner_classes, ("error", "stop"))
    names, parents, source = draft.names, to_array(draft.parents), np.arange(len(draft.names))
    texts = [draft.texts.get(node) for node in range(len(names))] if draft.texts else None
    _refuse_further(draft)
    check_nodes(draft, parents)
    if not draft.has_root:
        names, source = [*names, draft.root], np.append(source, -1)
        parents = np.append(np.where(parents == -1, len(parents), parents), -1)
        texts = None if texts is None else [*texts, draft.texts.get(-1)]
    order = breadth_first(parents)
    if len(order) < len(parents):
        check_cycles(draft, parents, order)
    if len(parents) < 2 and not draft.problems:
        draft.problems.append("the taxonomy is empty")
    if draft.classes and inner_classes == "error":
        inner = np.zeros(len(parents), bool)
        inner[parents[parents >= 0]] = True
        # the row of an inner node with a description only describes it
        draft.classes = [node for node in draft.classes if not (inner[node] and node in draft.texts)]
        for node in draft.classes:
            if inner[node]:
                refuse_inner_class(draft, draft.path(node), draft.at(node))
    draft.fail_on_problems()
    tax, rank = build_ordered(kind, names, parents, source, order, draft.stops, texts)
    chosen = tax.leaves if draft.classes is None else rank[np.array(draft.classes, np.int64)]
    return _with_classes(tax, chosen, draft, classes, inner_classes)


def _refuse_further(draft: Draft) -> None:
    """Report the nodes with several parents that the reader has not reported."""
    draft.problems += [
        f"node {draft.names[node]!r} has several parents{draft.at(node)}; a taxonomy is a tree: keep one of them, or "
        "read several parents with am.Graph"
        for node in dict.fromkeys(node for _, node, problem in draft.further if not problem)
    ]


def to_array(parents: Sequence[int] | np.ndarray) -> np.ndarray:
    try:
        return np.array(parents, np.int64)
    except OverflowError:  # a file may contain any number; those outside of the tree are reported later
        return np.array([min(max(parent, -2), len(parents)) for parent in parents], np.int64)


def check_nodes(draft: Draft, parents: np.ndarray) -> None:
    """Find invalid names and parents; an invalid parent becomes -1, so that the other checks can go on."""
    draft.problems += [
        f"empty name{draft.at(node) or f' (below {draft.below(int(draft.parents[node]))})'}"
        for node, name in enumerate(draft.names)
        if not name or name.isspace()
    ]
    draft.problems += [
        f"the name {name[:40]!r}… has {len(name):,} characters, more than {_MAX_NAME:,}{draft.at(node)}"
        for node, name in enumerate(draft.names)
        if len(name) > _MAX_NAME
    ]
    is_wrong = (parents < -1) | (parents >= len(parents))
    if draft.has_root:  # only one node may have no parent
        is_wrong[np.flatnonzero(parents == -1)[1:]] = True
    for node in np.flatnonzero(is_wrong).tolist():
        draft.problems.append(
            f"the parent of {draft.names[node]!r} is {parents[node]}, but nodes are numbered from 0 to "
            f"{len(parents) - 1}{draft.at(node)}"
        )
        parents[node] = -1
    if len(set(draft.names)) == len(draft.names):
        return
    seen: dict[tuple[int, str], int] = {}
    for node, edge in enumerate(zip(parents.tolist(), draft.names, strict=True)):
        if edge in seen and edge[1].strip():  # an empty name was reported above
            draft.problems.append(
                f"{edge[1]!r} is repeated below {draft.below(edge[0])}{draft.at(seen[edge], node)}; siblings must have "
                "different names"
            )
        seen[edge] = node


def check_cycles(draft: Draft, parents: np.ndarray, reached: np.ndarray) -> None:
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
            draft.problems.append(f"cycle: {' → '.join(shown)} (the parent of each is the next){draft.at(*loop[:3])}")


def breadth_first(parents: np.ndarray) -> np.ndarray:
    """Return the nodes in breadth-first order, siblings by number, without nodes that have no root."""
    if parents[0] == -1 and np.all(parents[1:] < np.arange(1, len(parents))) and np.all(np.diff(parents) >= 0):
        return np.arange(len(parents))  # already in order
    by_parent = np.argsort(parents, kind="stable")
    starts = np.searchsorted(parents[by_parent], np.arange(len(parents) + 1)).tolist()
    children = by_parent.tolist()
    order = children[: starts[0]]
    for node in order:  # the loop appends to the list that it reads
        order += children[starts[node] : starts[node + 1]]
    return np.array(order, np.int64)


def build_ordered(
    kind: type[T],
    names: Sequence[str],
    parents: np.ndarray,
    source: np.ndarray,
    order: np.ndarray,
    stops: Sequence[int] | np.ndarray,
    texts: Sequence[str | None] | None = None,
) -> tuple[T, np.ndarray]:
    """Return a taxonomy whose nodes are renumbered along `order`, and the new number of each node, -1 if it has none.

    Its classes are the leaves in their old order.
    """
    rank = np.full(len(parents), -1, np.int64)
    rank[order] = np.arange(len(order))
    parent = np.append(-1, rank[parents[order[1:]]])
    leaves = np.flatnonzero(np.bincount(parent[1:], minlength=len(order)) == 0)
    leaves = leaves[np.argsort(order[leaves])]
    ordered = tuple(names[node] for node in order.tolist())
    given = None if texts is None else tuple(texts[node] for node in order.tolist())
    return kind(ordered, parent, leaves, source[order], rank[np.array(stops, np.int64)], given), rank


def _with_classes(
    tax: T, chosen: np.ndarray, draft: Draft, labels: Iterable[Label] | None, inner_classes: InnerClasses
) -> T:
    """Return the same tree with the chosen classes, in the order of `labels` if there are any."""
    if labels is not None:
        chosen = find_classes(tax, draft, chosen, labels)
    inner = chosen[~tax.is_leaf[chosen]]
    if inner_classes == "error":
        for node in inner.tolist():
            refuse_inner_class(draft, tax.path(node), "")
    draft.fail_on_problems()
    return _with_stops(tax, chosen, inner) if len(inner) else replace(tax, leaves=chosen)


def find_classes(tax: Taxonomy, draft: Draft, allowed: np.ndarray, labels: Iterable[Label]) -> np.ndarray:
    """Return the nodes of `classes=`, which must contain every class of the input once."""
    chosen: dict[int, int] = {}
    if isinstance(labels, str):
        raise OptionError(f"expected a list of labels, found the string {labels!r}", argument="classes")
    for number, label in enumerate(labels):
        try:
            node = tax.find(label)
        except LabelError as error:
            draft.problems.append(f"{error} (classes[{number}])")
            continue
        if node == 0:
            draft.problems.append(f"the root cannot be a class (classes[{number}])")
        elif node in chosen:
            draft.problems.append(f"the class {label!r} is repeated (classes[{chosen[node]}] and classes[{number}])")
        else:
            chosen[node] = number
    missing = [join_path(tax.path(node)) for node in allowed.tolist() if node not in chosen]
    if missing and not draft.problems:
        draft.problems.append(f"classes lacks {len(missing)} of {len(allowed)} classes: {listing(missing)}")
    return np.array(list(chosen), np.int64)


def _with_stops(tax: T, chosen: np.ndarray, inner: np.ndarray) -> T:
    """Give every inner class a leaf, its last child, with the same name."""
    names = []
    for node in inner.tolist():
        taken = {tax.names[child] for child in tax.children(node).tolist()}
        names.append(tax.names[node])
        while names[-1] in taken:
            names[-1] += " (itself)"
    stopped, rank = add_leaves(tax, inner, names)
    new = {node: tax.num_nodes + place for place, node in enumerate(inner.tolist())}
    stops = np.concatenate((stopped.stops, rank[tax.num_nodes :]))
    return replace(stopped, leaves=rank[[new.get(node, node) for node in chosen.tolist()]], stops=stops)


def make_classes(tax: T, nodes: np.ndarray) -> T:
    """Return the taxonomy with these inner nodes as further classes, after the others."""
    own = tax.parent[tax.stops]  # these are classes already
    inner = np.setdiff1d(nodes[~tax.is_leaf[nodes]], np.append(own, 0))
    return _with_stops(tax, np.concatenate((tax.leaves, inner)), inner) if len(inner) else tax


def add_leaves(tax: T, parents: np.ndarray, names: Sequence[str]) -> tuple[T, np.ndarray]:
    """Return the taxonomy with new leaves below inner nodes, and the new number of each old node and each new leaf.

    The new leaves are the last classes.
    """
    above = np.concatenate((tax.parent, parents))
    source = np.concatenate((tax.source_index, np.full(len(names), -1)))
    texts = None if tax.given_texts is None else [*tax.given_texts, *(None for _ in names)]
    order = breadth_first(above)
    grown, rank = build_ordered(type(tax), [*tax.names, *names], above, source, order, tax.stops, texts)
    return replace(grown, leaves=rank[[*tax.leaves.tolist(), *range(tax.num_nodes, len(above))]]), rank


def refuse_inner_class(draft: Draft, path: Iterable[str], place: str) -> None:
    draft.problems.append(f"the class {join_path(path)!r} has other classes below it{place}")
    draft.fix["inner_classes"] = "stop"
