"""A tree that is being edited: the old taxonomy and the differences from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from arbormax.errors import did_you_mean
from arbormax.taxonomy.labels import Label, join_path, path_of_label
from arbormax.taxonomy.tree import Taxonomy

_GONE = -2
_LISTED = 8


class EditError(Exception):
    """An edit is impossible; the message says why. Callers see it as a problem of a `TaxonomyError`."""

    def __init__(self, message: str, **fix: object) -> None:
        super().__init__(message)
        self.fix = fix


class WorkingTree:
    """Stores only what differs from the old taxonomy, so an edit costs as much as it changes.

    Nodes 0 to N - 1 are those of the taxonomy; new nodes follow.
    """

    def __init__(self, tax: Taxonomy) -> None:
        self.tax, self.index = tax, tax.label_index
        self.stops = set(tax.stops.tolist())
        self.new_classes: list[int] = []  # nodes that became classes, in that order
        self.log: list[str] = []  # one line for each edit
        self._size = tax.num_nodes
        self._names: dict[int, str] = {}  # names of new and renamed nodes
        self._parents: dict[int, int] = {}  # parents of new, moved and removed nodes
        self._lost: dict[int, set[int]] = {}  # old children that a node has lost
        self._gained: dict[int, dict[int, None]] = {}  # children that it has gained, in order
        self._by_name: dict[str, dict[int, None]] = {}  # new and renamed nodes
        self._by_edge: dict[tuple[int, str], int] = {}  # new, moved and renamed children

    # Queries

    def name(self, node: int) -> str:
        return self._names[node] if node in self._names else self.tax.names[node]

    def parent(self, node: int) -> int:
        return self._parents[node] if node in self._parents else int(self.tax.parent[node])

    def was_class(self, node: int) -> bool:
        """Whether a node is a class of the old taxonomy."""
        return node < self.tax.num_nodes and bool(self.tax.is_leaf[node])

    def was_inner(self, node: int) -> bool:
        """Whether a node is an inner node of the old taxonomy."""
        return node < self.tax.num_nodes and not self.tax.is_leaf[node]

    def num_children(self, node: int) -> int:
        old = int(self.tax.num_children[node]) if node < self.tax.num_nodes else 0
        return old - len(self._lost.get(node, ())) + len(self._gained.get(node, ()))

    def children(self, node: int) -> np.ndarray:
        return self.below(np.array([node]))[0]

    def below(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the children of several nodes, and for each child the position of its parent in `nodes`."""
        starts = self.tax.child_start
        at = np.flatnonzero(nodes < self.tax.num_nodes)
        first, counts = starts[nodes[at]], self.tax.num_children[nodes[at]]
        position = np.repeat(at, counts)
        offset = np.arange(len(position)) - np.repeat(np.cumsum(counts) - counts, counts)
        children = np.repeat(first, counts) + offset
        if self._lost:
            stays = ~np.isin(children, np.fromiter((n for n in self._parents if n < self.tax.num_nodes), np.int64))
            children, position = children[stays], position[stays]
        _, places, _ = np.intersect1d(nodes, np.fromiter(self._gained, np.int64), return_indices=True)
        found = [(child, place) for place in places.tolist() for child in self._gained[int(nodes[place])]]
        if found:
            more_children, more_position = np.array(found, np.int64).T
            children, position = np.append(children, more_children), np.append(position, more_position)
        return children, position

    def levels(self, node: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return the levels below a node: nodes, positions of their parents one level up, whether they are leaves."""
        found, nodes, above = [], *self.below(np.array([node]))
        while len(nodes):
            children, position = self.below(nodes)
            leaf = np.bincount(position, minlength=len(nodes)) == 0
            found.append((nodes, above, leaf))
            nodes, above = children, position
        return found

    def leaves_below(self, node: int) -> np.ndarray:
        """Return the leaves at or below a node."""
        parts = [nodes[leaf] for nodes, _, leaf in self.levels(node)]
        return np.concatenate(parts) if parts else np.array([node])

    def ancestors(self, node: int) -> Iterator[int]:
        """Yield the node, then its ancestors without the root."""
        while node > 0:
            yield node
            node = self.parent(node)

    def is_at_or_above(self, node: int, other: int) -> bool:
        return node == 0 or any(step == node for step in self.ancestors(other))

    def child(self, node: int, name: str) -> int | None:
        """Return the child with a name, or None."""
        found = self._by_edge.get((node, name))
        if found is not None or node >= self.tax.num_nodes:
            return found
        child = self.index.child(node, name)
        return None if child < 0 or child in self._parents or child in self._names else child

    def quoted_path(self, node: int) -> str:
        steps = [self.name(step) for step in self.ancestors(node)]
        return repr(join_path(steps[::-1])) if node else "the root"

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
        named, path = self._named(label), path_of_label(label)
        node, hint = self._walk(path)
        is_top_class = node is not None and path == [label] and not self.num_children(node)  # its path is its name
        best = named[0] if len(named) == 1 else node if is_top_class else None
        if best is not None:
            if node is not None and best != node and len(path) > 1:
                raise EditError(f"{label!r} is the name of one node and the path of another; give a tuple of names")
            return best
        if named:
            more = ", …" if len(named) > _LISTED else ""
            raise EditError(
                f"{label!r} names several nodes; use a path: {', '.join(map(self._label, named[:_LISTED]))}{more}"
            )
        if node is not None:
            return node
        if label == self.name(0):
            return 0
        if len(path) == 1:
            hint = did_you_mean(label, [*self.index.names, *self._by_name])
        raise EditError(f"the taxonomy has no node {label!r}{hint}")

    def _label(self, node: int) -> str:
        return self.quoted_path(node) if self.parent(node) else repr("/" + join_path([self.name(node)]))

    def _named(self, name: str) -> list[int]:
        """Return the nodes that a name may mean, as in `LabelIndex`; of very many, only the first."""
        candidates = [n for n in self.index.named(name).tolist() if n not in self._names]
        candidates += self._by_name.get(name, ())
        hidden = {0, *(self.parent(node) for node in candidates if node in self.stops)}
        found: list[int] = []
        for node in candidates:
            if node not in hidden and self._exists(node):
                found.append(node)
                if len(found) > _LISTED:
                    break
        return found

    def _exists(self, node: int) -> bool:
        while node > 0:
            node = self.parent(node)
        return node != _GONE

    def _walk(self, path: Sequence[str]) -> tuple[int | None, str]:
        """Return the node at a path of names, or None and a hint where the path leaves the tree."""
        node = 0
        for name in path:
            child = self.child(node, name)
            if child is None:
                names = [self.name(other) for other in self.children(node)[:100_000].tolist()]
                if not names:
                    return None, f"; {self.quoted_path(node)} is a leaf"
                return None, f"; {self.quoted_path(node)} has no child {name!r}{did_you_mean(name, names)}"
            node = child
        return node, ""

    # Changes

    def create(self, name: str) -> int:
        node = self._size
        self._size += 1
        self._names[node], self._parents[node] = name, _GONE
        self._by_name.setdefault(name, {})[node] = None
        return node

    def attach(self, node: int, parent: int) -> None:
        self._parents[node] = parent
        self._gained.setdefault(parent, {})[node] = None
        self._by_edge[parent, self.name(node)] = node

    def detach(self, node: int) -> None:
        parent = self.parent(node)
        if node in self._gained.get(parent, ()):
            del self._gained[parent][node]
        else:
            self._lost.setdefault(parent, set()).add(node)
        self._by_edge.pop((parent, self.name(node)), None)
        self._parents[node] = _GONE

    def rename(self, node: int, name: str) -> None:
        parent, before = self.parent(node), self.name(node)
        self._by_name.get(before, {}).pop(node, None)
        self._by_edge.pop((parent, before), None)
        self._names[node] = name
        self._by_name.setdefault(name, {})[node] = None
        if node:
            self._by_edge[parent, name] = node

    # Result

    def changed_groups(self) -> set[int]:
        """Return the nodes that have lost or gained children."""
        return {parent for changed in (self._lost, self._gained) for parent, nodes in changed.items() if nodes}

    def parents(self) -> np.ndarray:
        """Return the parent of every node, old and new; a removed node is its own parent."""
        found = np.append(self.tax.parent, np.empty(self._size - self.tax.num_nodes, np.int64))
        for node, parent in self._parents.items():
            found[node] = node if parent == _GONE else parent
        return found

    def names(self) -> list[str]:
        found = [*self.tax.names, *[""] * (self._size - self.tax.num_nodes)]
        for node, name in self._names.items():
            found[node] = name
        return found
