"""The tree between two edits, in plain Python structures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from arbormax.errors import did_you_mean
from arbormax.taxonomy.labels import Label, join_path, listing, path_of_label, path_with_arrows
from arbormax.taxonomy.tree import Taxonomy

REMOVED = -2  # the parent of a removed node

Levels = list[tuple[np.ndarray, np.ndarray, np.ndarray]]  # nodes, positions of their parents one level up, leaves


class EditError(Exception):
    """An edit is impossible; the message says why. Callers see it as a problem of a `TaxonomyError`."""

    def __init__(self, message: str, **fix: object) -> None:
        super().__init__(message)
        self.fix = fix


class WorkingTree:
    """Nodes 0 to N - 1 are those of the taxonomy; new nodes follow."""

    def __init__(self, tax: Taxonomy) -> None:
        self.tax = tax
        self.stops = set(tax.stops.tolist())
        self.new_classes: list[int] = []  # nodes that became classes, in that order
        self.merged: dict[int, int] = {}  # merged classes, and those that they were merged into
        self.log: list[str] = []  # one line for each edit
        self.names = list(tax.names)
        self.texts: list[str | None] = list(tax.given_texts or (None,) * tax.num_nodes)
        self.parents: list[int] = tax.parent.tolist()
        starts = tax.child_start.tolist()
        # the children of each node by name, in order
        self._children = [{tax.names[child]: child for child in range(first, stop)} for first, stop in pairwise(starts)]
        self._named: dict[str, set[int]] = {}
        for node, name in enumerate(tax.names):
            self._named.setdefault(name, set()).add(node)
        self.changed_groups: set[int] = set()  # the nodes that have lost or gained children

    # Queries

    def was_class(self, node: int) -> bool:
        """Whether a node is a class of the old taxonomy."""
        return node < self.tax.num_nodes and bool(self.tax.is_leaf[node])

    def was_inner(self, node: int) -> bool:
        """Whether a node is an inner node of the old taxonomy."""
        return node < self.tax.num_nodes and not self.tax.is_leaf[node]

    def num_children(self, node: int) -> int:
        return len(self._children[node])

    def children(self, node: int) -> np.ndarray:
        return np.array(list(self._children[node].values()), np.int64)

    def child(self, node: int, name: str) -> int | None:
        """Return the child with a name, or None."""
        return self._children[node].get(name)

    def levels(self, node: int, skip: int = -1) -> Levels:
        """Return the levels below a node, without the leaf `skip`."""
        levels, above = [], [node]
        while children := [
            (child, at) for at, n in enumerate(above) for child in self._children[n].values() if child != skip
        ]:
            nodes, positions = np.array(children, np.int64).T
            above = nodes.tolist()
            levels.append((nodes, positions, np.array([not self._children[n] for n in above])))
        return levels

    def leaves_below(self, node: int) -> np.ndarray:
        """Return the leaves at or below a node."""
        parts = [nodes[leaf] for nodes, _, leaf in self.levels(node)]
        return np.concatenate(parts) if parts else np.array([node])

    def ancestors(self, node: int) -> Iterator[int]:
        """Yield the node, then its ancestors without the root."""
        while node > 0:
            yield node
            node = self.parents[node]

    def path(self, node: int) -> list[str]:
        return [self.names[step] for step in self.ancestors(node)][::-1]

    def quoted_path(self, node: int) -> str:
        return repr(join_path(self.path(node))) if node else "the root"

    # Labels

    def find(self, label: Label) -> int:
        """Return the node of a label, as `Taxonomy.find`; a name that is also another node's path is an error."""
        if not isinstance(label, str):
            if not isinstance(label, (tuple, list)) or not all(isinstance(name, str) for name in label):
                raise EditError(f"a label is a string or a tuple of names from the root down, not {label!r}")
            node, hint = self._walk(label)
            if node is None:
                raise EditError(f"no node has the path {tuple(label)!r}{hint}")
            return node
        named, path = self._meant(label), path_of_label(label)
        node, hint = self._walk(path)
        if node is not None and path == [label] and not self._children[node]:
            return node  # a class at the top level, whose path is its name
        if len(named) == 1:
            if node not in (None, named[0]) and len(path) > 1:
                raise EditError(f"{label!r} is the name of one node and the path of another; give a tuple of names")
            return named[0]
        if named:
            raise EditError(f"{label!r} names several nodes; use a path: {listing(self._spellings(label))}")
        if node is None and (arrows := path_with_arrows(label)):
            path, (node, hint) = arrows, self._walk(arrows)
        if node is None and label != self.names[0]:
            hint = hint if len(path) > 1 else did_you_mean(label, self._named, spell=self._spellings)
            raise EditError(f"the taxonomy has no node {label!r}{hint}")
        return node or 0

    def _meant(self, name: str) -> list[int]:
        """Return the nodes that a name may mean, as in `LabelIndex`."""
        nodes = [
            node
            for node in sorted(self._named.get(name, ()))
            if node and self.parents[[*self.ancestors(node)][-1]] != REMOVED
        ]
        hidden = {self.parents[node] for node in nodes if node in self.stops}
        return [node for node in nodes if node not in hidden]

    def _spellings(self, name: str) -> list[str]:
        """Return the labels of the nodes that a name may mean: the name of one node, the paths of several."""
        named = self._meant(name)
        paths = [join_path(self.path(node)) for node in named]
        top = [self.parents[node] == 0 for node in named]
        return [name] if len(named) == 1 else [f"/{path}" if at else path for path, at in zip(paths, top, strict=True)]

    def _walk(self, path: Sequence[str]) -> tuple[int | None, str]:
        """Return the node at a path of names, or None and a hint where the path leaves the tree."""
        node = 0
        for name in path:
            children = self._children[node]
            if name not in children:
                where = self.quoted_path(node)
                hint = f" has no child {name!r}{did_you_mean(name, children)}" if children else " is a leaf"
                return None, f"; {where}{hint}"
            node = children[name]
        return node, ""

    def merged_into(self, node: int) -> int:
        """Return the class that now stands for a merged one; a class that was not merged is itself."""
        while node in self.merged:
            node = self.merged[node]
        return node

    # Changes

    def create(self, name: str, text: str | None = None) -> int:
        node = len(self.names)
        self.names.append(name)
        self.texts.append(text and text.strip())
        self.parents.append(REMOVED)
        self._children.append({})
        self._named.setdefault(name, set()).add(node)
        return node

    def attach(self, node: int, parent: int) -> None:
        self.parents[node] = parent
        self._children[parent][self.names[node]] = node
        self.changed_groups.add(parent)

    def detach(self, node: int) -> None:
        parent = self.parents[node]
        del self._children[parent][self.names[node]]
        self.parents[node] = REMOVED
        self.changed_groups.add(parent)

    def rename(self, node: int, name: str) -> None:
        before = self.names[node]
        self._named[before].discard(node)
        self._named.setdefault(name, set()).add(node)
        self.names[node] = name
        if node:  # in the same position among its siblings
            siblings = self._children[self.parents[node]]
            self._children[self.parents[node]] = {self.names[child]: child for child in siblings.values()}
