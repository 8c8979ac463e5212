"""Classes with several parents: a directed acyclic graph of named nodes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from arbormax.errors import InputError, TaxonomyError
from arbormax.taxonomy import _build, _graph_build, _interop, formats
from arbormax.taxonomy._draft import Draft, InnerClasses
from arbormax.taxonomy._graph_build import assemble_graph
from arbormax.taxonomy.ancestry import GraphQueries, ranges
from arbormax.taxonomy.formats._texts import NodeTexts
from arbormax.taxonomy.labels import Label, LabelIndex
from arbormax.taxonomy.queries import Common
from arbormax.taxonomy.tree import Taxonomy

if TYPE_CHECKING:
    import networkx
    from numpy.typing import ArrayLike


class Graph(GraphQueries, Taxonomy):
    """A taxonomy whose nodes may have several parents: a directed acyclic graph with one root.

    A name is a node: the same name in several places, or on several paths, is one node with several parents. Nodes are
    numbered level by level, so that parents come before their children; the level of a node is the length of its
    longest path from the root. A graph in which every node has one parent is numbered as the `Taxonomy` is.

    The builders are those of `Taxonomy`. A child of several edges has several parents, a class may have several paths,
    and in nested mappings a name may occur in several places.

    It has what a `Taxonomy` has, except for what needs a tree, such as `parent`: that raises a `TaxonomyError`, and so
    do all features that need a tree. `to_tree` returns a tree for them.

    >>> graph = Graph.from_edges([("root", "pet"), ("root", "fish"), ("pet", "goldfish"), ("fish", "goldfish")])
    >>> graph.num_nodes, graph.num_edges, graph.classes
    (4, 4, ('goldfish',))
    >>> [graph.names[node] for node in graph.parents(graph.find("goldfish"))]
    ['pet', 'fish']
    >>> Graph.from_paths(["pet/goldfish", "fish/goldfish", "fish/cod"]).classes
    ('goldfish', 'cod')
    >>> Graph.from_nested({"pet": ["cat", "goldfish"], "fish": ["goldfish", "cod"]}).num_edges
    6
    """

    is_graph: ClassVar[bool] = True

    def __init__(
        self,
        names: tuple[str, ...],
        parent_start: np.ndarray,
        parent_list: np.ndarray,
        leaves: np.ndarray,
        source_index: np.ndarray,
        stops: np.ndarray,
        given_texts: NodeTexts | None = None,
    ) -> None:
        values: dict[str, Any] = {
            "names": names,
            "parent_start": parent_start,  # (N + 1,)
            "parent_list": parent_list,  # (E,) parents of node i: parent_list[parent_start[i] : parent_start[i + 1]]
            "leaves": leaves,
            "source_index": source_index,
            "stops": stops,
            "given_texts": given_texts,
            "scratch": {},
        }
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    # Builders

    @classmethod
    def from_draft(
        cls, draft: Draft, classes: Iterable[Label] | None = None, inner_classes: InnerClasses = "error"
    ) -> Self:
        return assemble_graph(draft, cls, classes, inner_classes)

    @classmethod
    def from_parents(
        cls,
        parents: ArrayLike | Sequence[int | Sequence[int]],
        names: Iterable[str] | None = None,
        *,
        classes: Iterable[Label] | None = None,
        inner_classes: InnerClasses = "error",
    ) -> Self:
        """Build a graph from the list of parents of each node; that of the root is empty, or -1.

        If several nodes have no parents, a root is added above them.

        >>> Graph.from_parents([[], [0], [0], [1, 2]], ["root", "pet", "fish", "goldfish"]).num_edges
        4
        """
        return cls.from_draft(_build.read_parent_lists(parents, names), classes, inner_classes)

    # Queries

    @property
    def parent(self) -> np.ndarray:  # type: ignore[override]  # a field of Taxonomy
        """(N,) the parents, if every node has one; an error if a node has several."""
        several = np.flatnonzero(np.diff(self.parent_start) > 1)
        if len(several):
            of = (
                f"{len(several):,} of its {self.num_nodes:,} nodes have" if len(several) > 1 else "one of its nodes has"
            )
            raise TaxonomyError(
                f"this needs a tree, and the taxonomy is a graph: {of} several parents, such as "
                f"{self.names[several[0]]!r}; graph.to_tree() keeps the first parent of each node"
            )
        return np.append(-1, self.parent_list)

    @cached_property
    def first_parent(self) -> np.ndarray:
        """(N,) the parent of each node that the input lists first, -1 for the root."""
        first = np.append(-1, self.parent_list[self.parent_start[1:-1]])
        first.flags.writeable = False
        return first

    @property
    def is_tree(self) -> bool:
        """Whether every node has one parent."""
        return self.num_edges == self.num_nodes - 1

    def parents(self, node: int) -> np.ndarray:
        """The parents of a node, in the order of the input; empty for the root."""
        node = self._node(node)
        return self.parent_list[self.parent_start[node] : self.parent_start[node + 1]]

    def children(self, node: int) -> np.ndarray:
        """The children of a node, ascending; empty for a leaf."""
        node = self._node(node)
        return self.edges[self.edge_start[node] : self.edge_start[node + 1], 1]

    def ancestors(self, node: int) -> np.ndarray:
        """All nodes above a node on any path, ascending, with the root; empty for the root."""
        found, level = {0} if self._node(node) else set(), {int(node)}
        while level := {int(above) for each in level for above in self.parents(each)} - found:
            found |= level
        return np.array(sorted(found), np.int64)

    def path(self, node: int) -> tuple[str, ...]:
        """Return the names on one path down to a node: the path of the first parents, which the input lists first."""
        node, steps = self._node(node), []
        while node > 0:
            steps.append(self.names[node])
            node = int(self.first_parent[node])
        return tuple(steps[::-1])

    def paths(self, node: int, limit: int = 1000) -> list[tuple[str, ...]]:
        """Return all paths down to a node; more than `limit` are an error.

        >>> Graph.from_paths(["pet/goldfish", "fish/goldfish"]).paths(3)
        [('pet', 'goldfish'), ('fish', 'goldfish')]
        """
        node = self._node(node)
        if self.path_counts[node] > limit:
            raise InputError(
                f"{self.names[node]!r} has {self.path_counts[node]:,.0f} paths, and the limit is {limit:,}",
                fix={"limit": int(min(self.path_counts[node], 2**53))},
            )
        return [tuple(self.names[step] for step in steps) for steps in self._walk_up(node)]

    def _walk_up(self, node: int) -> Iterator[list[int]]:
        stack = [(node, list[int]())]
        while stack:
            node, below = stack.pop()
            if node == 0:
                yield below
            stack += [(above, [node, *below]) for above in reversed(self.parents(node).tolist())]

    def common(self, a: np.ndarray, b: np.ndarray) -> Common:
        return self.ancestry.common(a, b)

    def is_above(self, above: ArrayLike, below: ArrayLike) -> np.ndarray:
        upper, lower = np.broadcast_arrays(self._nodes(above), self._nodes(below))
        return self.ancestry.contains(upper, lower)

    def lca(self, a: ArrayLike, b: ArrayLike) -> Any:
        """The deepest node that is at or above both; of several on one level, the one with the highest id."""
        return self._pairs(a, b).deepest[()]

    def distance(self, a: ArrayLike, b: ArrayLike) -> Any:
        """The number of edges on the shortest way from one node up to a common ancestor and down to the other."""
        return self._pairs(a, b).distance[()]

    def _pairs(self, a: ArrayLike, b: ArrayLike) -> Common:
        x, y = np.broadcast_arrays(self._nodes(a), self._nodes(b))
        found = self.common(x.ravel(), y.ravel())
        return Common(*(values.reshape(x.shape) for values in found))

    # Other forms

    def to_tree(self) -> Taxonomy:
        """Return a tree in which every node keeps the parent that the input lists first; the classes stay.

        An inner node all of whose children have another first parent is left out.

        >>> graph = Graph.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("b", "y")])
        >>> graph.to_tree().to_nested()
        {'a': {'x': {}}, 'b': {'y': {}}}
        """
        keeps = np.zeros(self.num_nodes, bool)
        keeps[self.leaves] = True
        bounds = self.level_start.tolist()
        for level in range(self.depth, 0, -1):
            nodes = slice(bounds[level], bounds[level + 1])
            np.logical_or.at(keeps, self.first_parent[nodes], keeps[nodes])
        old = np.flatnonzero(keeps)
        number = np.cumsum(keeps) - 1
        names = [self.names[node] for node in old.tolist()]
        tree = Taxonomy.from_parents(np.append(-1, number[self.first_parent[old[1:]]]), names)
        node_of = np.empty(len(old), np.int64)
        node_of[tree.source_index] = np.arange(len(old))
        texts = None if self.given_texts is None else tuple(self.given_texts[old[i]] for i in tree.source_index)
        leaves, stops = node_of[number[self.leaves]], node_of[number[self.stops]]
        return Taxonomy(tree.names, tree.parent, leaves, self.source_index[old[tree.source_index]], stops, texts)

    def unroll(self, limit: int = 1_000_000) -> tuple[Taxonomy, np.ndarray]:
        """Return the tree of all paths, and (M,) the node of the graph that each of its nodes is a copy of.

        A node has a copy for each of its paths; more than `limit` copies in all are an error.

        >>> tree, node_of = Graph.from_paths(["pet/goldfish", "fish/goldfish"]).unroll()
        >>> tree.to_nested(), node_of.tolist()
        ({'pet': {'goldfish': {}}, 'fish': {'goldfish': {}}}, [0, 1, 2, 3, 3])
        """
        copies = float(self.path_counts.sum())
        if copies > limit:
            raise InputError(
                f"the tree of all paths of this graph has {copies:,.0f} nodes, and the limit is {limit:,}; "
                "graph.to_tree() keeps one path of each node",
                fix={"limit": int(min(copies, 2**53))},
            )
        level = np.zeros(1, np.int64)
        nodes, parents = [level], [np.array([-1])]
        while len(level):
            above = np.arange(sum(map(len, nodes)) - len(level), sum(map(len, nodes)))
            starts, counts = self.edge_start[level], np.diff(self.edge_start)[level]
            parents.append(np.repeat(above, counts))
            level = self.edges[ranges(starts, starts + counts), 1]
            nodes.append(level)
        node_of = np.concatenate(nodes)
        tree = Taxonomy.from_parents(np.concatenate(parents), [self.names[node] for node in node_of.tolist()])
        return tree, node_of[tree.source_index]

    def below(self, label: Label | int) -> Self:
        """Return the part of the graph at and below a node, which becomes the root.

        >>> graph = Graph.from_paths(["animal/pet/goldfish", "animal/fish/goldfish", "plant/oak"])
        >>> graph.below("animal").names
        ('animal', 'pet', 'fish', 'goldfish')
        """
        node = self._node(label) if isinstance(label, (int, np.integer)) else self.find(label)
        if self.is_leaf[node]:
            raise InputError(f"{self.names[node]!r} is a leaf; expected a node with children", argument="label")
        return _graph_build.below(self, node)

    def to_nested(self) -> dict[str, Any]:
        """Return nested mappings, with `{}` at the leaves; a node with several parents is one mapping."""
        nodes: list[dict[str, Any]] = [{} for _ in self.names]
        for parent, child in self.edges.tolist():
            nodes[parent][self.names[child]] = nodes[child]
        return nodes[0]

    def to_networkx(self) -> networkx.DiGraph:
        return _interop.to_networkx(self)

    def order_leaves(self, leaves: np.ndarray) -> Self:
        """Return the same graph with its leaves in another order."""
        return type(self)(*self._state(leaves=leaves))

    def _with_given_texts(self, texts: NodeTexts) -> Self:
        return type(self)(*self._state(given_texts=texts))

    def _state(self, **changes: Any) -> tuple[Any, ...]:
        fields = ("names", "parent_start", "parent_list", "leaves", "source_index", "stops", "given_texts")
        return tuple(changes.get(name, getattr(self, name)) for name in fields)

    # Identity

    @cached_property
    def label_index(self) -> LabelIndex:
        return LabelIndex(self)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the graph, its names and its class order; the name of the root is ignored."""
        digest = hashlib.sha256(b"arbormax graph 1")
        digest.update(np.array([self.num_nodes, self.num_edges, self.num_leaves], "<i8").tobytes())
        digest.update(self.edges.astype("<i8").tobytes())
        digest.update(self.leaves.astype("<i8").tobytes())
        digest.update(np.fromiter(map(len, self.names[1:]), "<i8", self.num_nodes - 1).tobytes())
        digest.update("".join(self.names[1:]).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def __repr__(self) -> str:
        return (
            f"<Graph: {self.num_leaves:,} classes, {self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"depth {self.depth}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._state()


def load_taxonomy(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    classes: Iterable[Label] | None = None,
    inner_classes: InnerClasses = "error",
    texts: Mapping[Any, str] | str | os.PathLike[str] | None = None,
    **options: Any,
) -> Taxonomy:
    """Read a `Graph` from the file of a saved graph, or of an ontology with several parents, and else a `Taxonomy`.

    A table of edges is a tree, so that a second parent by mistake is an error: use `Graph.load`. The arguments are
    those of `Taxonomy.load`.
    """
    draft = formats.read_file(path, format, options)
    tax = (Graph if draft.is_graph else Taxonomy).from_draft(draft, classes, inner_classes)
    return tax if texts is None else tax.with_texts(texts)
