"""The tree itself: immutable arrays in breadth-first order, and the questions one asks of them.

N nodes, C classes (leaves), P parents (inner nodes, the root among them).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from arbormax.errors import InputError, LabelError
from arbormax.taxonomy.labels import LabelIndex

if TYPE_CHECKING:
    import anytree
    import networkx
    from numpy.typing import ArrayLike

Label = str | Sequence[str]
InnerClasses = Literal["error", "stop"]


@dataclass(frozen=True, eq=False, repr=False)
class Taxonomy:
    """A rooted tree in breadth-first order: node 0 is the root and `parent[i] < i`.

    Siblings are one contiguous slice and so is every level. Make one with `from_nested`, `from_paths`,
    `from_edges`, `from_parents` or `load`; all of them check what they are given.

    >>> tax = Taxonomy.from_nested({"comp": ["graphics", {"sys": ["ibm", "mac"]}], "sci": ["med", "space"]})
    >>> tax.num_leaves, tax.num_nodes, tax.depth
    (5, 9, 3)
    >>> tax.path(tax.find("mac"))
    ('comp', 'sys', 'mac')
    """

    names: tuple[str, ...]
    parent: np.ndarray  # (N,) int64, parent[0] == -1
    leaves: np.ndarray  # (C,) the node of each class, in class order
    source_index: np.ndarray  # (N,) the caller's own number of each node, -1 where the caller had none
    stops: np.ndarray  # nodes that are virtual leaves, made by inner_classes="stop"
    scratch: dict[Any, Any] = field(default_factory=dict, init=False)  # what other modules derive and want to keep

    def __post_init__(self) -> None:
        for array in (self.parent, self.leaves, self.source_index, self.stops):
            array.flags.writeable = False

    # ---------------------------------------------------------------- builders

    @classmethod
    def from_nested(
        cls,
        tree: Mapping[str, Any] | Sequence[Any],
        *,
        classes: Iterable[Label] | None = None,
        inner_classes: InnerClasses = "error",
    ) -> Taxonomy:
        """The taxonomy of nested mappings and lists; a string is a leaf, a mapping's keys are inner nodes.

        A key whose value is empty (`None`, `{}`, `[]`) is a leaf too.

        >>> Taxonomy.from_nested({"animal": ["cat", {"bird": ["owl", "hen"]}]}).classes
        ('cat', 'owl', 'hen')
        """
        from arbormax.taxonomy import _build

        return _build.from_nested(tree, classes, inner_classes)

    @classmethod
    def from_paths(
        cls,
        paths: Iterable[Label],
        *,
        classes: Iterable[Label] | None = None,
        inner_classes: InnerClasses = "error",
    ) -> Taxonomy:
        """The taxonomy whose classes are these paths, in this order; a string is a '/'-path.

        >>> Taxonomy.from_paths([("comp", "graphics"), ("comp", "sys", "ibm"), "sci/med"]).classes
        ('graphics', 'ibm', 'med')
        """
        from arbormax.taxonomy import _build

        return _build.from_paths(paths, classes, inner_classes)

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[tuple[str | None, str]],
        *,
        root: str | None = None,
        classes: Iterable[Label] | None = None,
        inner_classes: InnerClasses = "error",
    ) -> Taxonomy:
        """The taxonomy of (parent, child) pairs. A name is one node here, so names cannot repeat.

        The one node that is nobody's child is the root. A parent of `None` stands for the root, and `root=`
        names a root that the edges leave out.

        >>> Taxonomy.from_edges([("root", "comp"), ("comp", "graphics"), ("comp", "sys")]).classes
        ('graphics', 'sys')
        """
        from arbormax.taxonomy import _build

        return _build.from_edges(edges, root, classes, inner_classes)

    @classmethod
    def from_parents(
        cls,
        parents: ArrayLike,
        names: Iterable[str] | None = None,
        *,
        classes: Iterable[Label] | None = None,
        inner_classes: InnerClasses = "error",
    ) -> Taxonomy:
        """The taxonomy of an array that gives each node's parent, -1 for the root; names default to the numbers.

        Several nodes with -1 hang below a root of their own, which `source_index` shows as -1.

        >>> tax = Taxonomy.from_parents([-1, 0, 0, 1], names=["root", "comp", "sci", "graphics"])
        >>> tax.classes
        ('sci', 'graphics')
        """
        from arbormax.taxonomy import _build

        return _build.from_parents(parents, names, classes, inner_classes)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,
        classes: Iterable[Label] | None = None,
        inner_classes: InnerClasses = "error",
        **options: Any,
    ) -> Taxonomy:
        """The taxonomy in a file. The suffix tells the format, `format=` says it outright.

        `.json`, `.yaml`, `.csv`, `.tsv`, `.txt`, `.taxonomy` (parent and its children), `.tree` (darknet) and `.nwk`
        (Newick); docs/taxonomy-files.md shows each with its options.
        """
        from arbormax.taxonomy import formats

        return formats.load(path, format, classes, inner_classes, options)

    def save(self, path: str | os.PathLike[str], *, format: str | None = None, lossy: bool = False) -> None:
        """Write the taxonomy to a file, whole or not at all; the suffix tells the format.

        JSON keeps everything. A format that cannot hold this taxonomy (its class order, names that repeat) is
        refused unless `lossy=True`.
        """
        from arbormax.taxonomy import formats

        formats.save(self, path, format, lossy)

    @classmethod
    def from_networkx(
        cls, graph: networkx.DiGraph, *, classes: Iterable[Label] | None = None, inner_classes: InnerClasses = "error"
    ) -> Taxonomy:
        """The taxonomy of a directed networkx graph whose edges run from parent to child.

        A node's name is its attribute `name`, or `str(node)`. Where every leaf has a `class_id` of its own, the classes
        are in that order.
        """
        from arbormax.taxonomy import _interop

        return _interop.from_networkx(graph, classes, inner_classes)

    def to_networkx(self) -> networkx.DiGraph:
        """A networkx graph of node ids, each with its `name` and, on leaves, its class id `class_id`."""
        from arbormax.taxonomy import _interop

        return _interop.to_networkx(self)

    @classmethod
    def from_anytree(
        cls, root: anytree.NodeMixin, *, classes: Iterable[Label] | None = None, inner_classes: InnerClasses = "error"
    ) -> Taxonomy:
        """The taxonomy below an anytree node, its root; `class_id` orders the classes where every leaf has one."""
        from arbormax.taxonomy import _interop

        return _interop.from_anytree(root, classes, inner_classes)

    def to_anytree(self) -> anytree.Node:
        """The root of an anytree copy; its nodes carry `node_id` and `class_id`."""
        from arbormax.taxonomy import _interop

        return _interop.to_anytree(self)

    # ------------------------------------------------------------------ sizes

    @property
    def num_nodes(self) -> int:
        """N, the root counted."""
        return len(self.names)

    @property
    def num_leaves(self) -> int:
        """C, the number of classes."""
        return len(self.leaves)

    @property
    def num_parents(self) -> int:
        """P, the number of inner nodes, the root counted."""
        return self.num_nodes - self.num_leaves

    @property
    def depth(self) -> int:
        """The number of levels below the root."""
        return len(self.level_start) - 2

    # ----------------------------------------------------------------- arrays

    @cached_property
    def child_start(self) -> np.ndarray:
        """(N + 1,) the children of node i are `child_start[i]` up to, not including, `child_start[i + 1]`."""
        counts = np.bincount(self.parent[1:], minlength=self.num_nodes)
        return _frozen(np.concatenate(([1], 1 + np.cumsum(counts))))

    @cached_property
    def num_children(self) -> np.ndarray:
        """(N,) the number of children of each node."""
        return _frozen(np.diff(self.child_start))

    @cached_property
    def level_start(self) -> np.ndarray:
        """(depth + 2,) level d is `level_start[d]` up to, not including, `level_start[d + 1]`."""
        starts, first_child = [0, 1], self.child_start.tolist()
        while starts[-1] < self.num_nodes:
            starts.append(first_child[starts[-1]])
        return _frozen(np.array(starts, np.int64))

    @cached_property
    def node_depth(self) -> np.ndarray:
        """(N,) the depth of each node; the root's is 0."""
        return _frozen(np.repeat(np.arange(self.depth + 1), np.diff(self.level_start)))

    @cached_property
    def class_of(self) -> np.ndarray:
        """(N,) the class id of each node, -1 off leaves."""
        classes = np.full(self.num_nodes, -1, np.int64)
        classes[self.leaves] = np.arange(self.num_leaves)
        return _frozen(classes)

    @cached_property
    def is_leaf(self) -> np.ndarray:
        """(N,) whether a node is a leaf."""
        return _frozen(self.num_children == 0)

    @cached_property
    def leaf_counts(self) -> np.ndarray:
        """(N,) the number of leaves at or below each node."""
        return _frozen(self.sum_up(np.ones(self.num_leaves, np.int64)))

    @cached_property
    def height(self) -> np.ndarray:
        """(N,) the number of steps from each node down to its deepest leaf."""
        heights = np.zeros(self.num_nodes, np.int64)
        self._fold_up(heights, lambda children, starts: 1 + np.maximum.reduceat(children, starts))
        return _frozen(heights)

    def sum_up(self, per_class: ArrayLike) -> np.ndarray:
        """(N,) the sum of a per-class value over the leaves at or below each node.

        >>> Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]}).sum_up([1, 2, 4]).tolist()
        [7, 3, 4, 1, 2, 4]
        """
        values = np.asarray(per_class)
        if values.shape != (self.num_leaves,):
            raise InputError(f"expected one value for each of {self.num_leaves} classes, found shape {values.shape}")
        totals = np.zeros(self.num_nodes, values.dtype)
        totals[self.leaves] = values
        self._fold_up(totals, np.add.reduceat)
        return totals

    def _fold_up(self, values: np.ndarray, fold: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
        """Fill the values of inner nodes from those of their children, deepest level first."""
        bounds, inner = self.level_start.tolist(), np.flatnonzero(self.num_children)
        splits = np.searchsorted(inner, self.level_start).tolist()
        for level in range(self.depth - 1, -1, -1):
            parents = inner[splits[level] : splits[level + 1]]
            start, stop = bounds[level + 1], bounds[level + 2]
            values[parents] = fold(values[start:stop], self.child_start[parents] - start)

    # ---------------------------------------------------------------- queries

    @cached_property
    def label_index(self) -> LabelIndex:
        """The index behind `classes`, `label` and `find`."""
        return LabelIndex(self)

    @property
    def classes(self) -> tuple[str, ...]:
        """The label of each class: the leaf's name, or its '/'-path where any other node has that name too."""
        return self.label_index.classes

    def label(self, node: int) -> str:
        """The label of a node, which `find` takes: its name, or its '/'-path where several nodes have that name.

        A node at the top level has a '/' before its name where the name alone is ambiguous. The root's label is ''.

        >>> tax = Taxonomy.from_nested({"sport": ["golf"], "news": ["sport"]})
        >>> [tax.label(node) for node in range(tax.num_nodes)]
        ['', '/sport', 'news', 'golf', 'news/sport']
        """
        return self.label_index.label(self._node(node))

    def find(self, label: Label, missing: int | None = None) -> int:
        """The node of a label.

        A tuple is a path of names from the root down. A string is a label of `classes`, else the name of exactly one
        node, else a '/'-path, in which '\\/' stands for a '/' inside a name. A name that several nodes have, be they
        leaves or inner nodes, is an error that lists them. With `missing`, such as -1, a label without a node returns
        that value instead of an error.
        """
        if missing is None:
            return self.label_index.find(label)
        node = self.label_index.seek(label)
        return node if node >= 0 else missing

    def find_many(self, labels: Iterable[Label]) -> np.ndarray:
        """The node of every label; all unknown labels are reported in one error, in its `problems`."""
        return self.label_index.find_many(labels)

    def encode(self, labels: Iterable[Label]) -> np.ndarray:
        """The class id of every label, for targets; the path of a class that has a stop leaf means that leaf.

        >>> tax = Taxonomy.from_nested({"a": ["x", "other"], "b": ["other"]})
        >>> tax.encode(["x", "b/other", ("a", "other")]).tolist()
        [0, 2, 1]
        """
        nodes = self.find_many(labels)
        stop_below = np.arange(self.num_nodes)
        stop_below[self.parent[self.stops]] = self.stops
        classes: np.ndarray = self.class_of[stop_below[nodes]]
        if (inner := np.flatnonzero(classes < 0)).size:
            paths = dict.fromkeys("/".join(self.path(node)) for node in nodes[inner[:8]])
            raise LabelError(
                f"{len(inner)} labels name inner nodes, not classes, such as {', '.join(map(repr, paths))}; "
                "for targets at inner nodes use find_many and target_kind='node'"
            )
        return classes

    def path(self, node: int) -> tuple[str, ...]:
        """The names from below the root down to a node; the root's path is empty."""
        node = self._node(node)
        return tuple(self.names[step] for step in (*self.ancestors(node).tolist()[1:], node) if step)

    def children(self, node: int) -> np.ndarray:
        """The children of a node, in order; empty for a leaf."""
        node = self._node(node)
        return np.arange(self.child_start[node], self.child_start[node + 1])

    def ancestors(self, node: int) -> np.ndarray:
        """The nodes above a node, from the root down to its parent; empty for the root."""
        node, above = self._node(node), []
        parent = self.parent
        while (node := int(parent[node])) >= 0:
            above.append(node)
        return np.array(above[::-1], np.int64)

    @overload
    def lca(self, a: int, b: int) -> int: ...
    @overload
    def lca(self, a: np.ndarray, b: ArrayLike) -> np.ndarray: ...
    @overload
    def lca(self, a: ArrayLike, b: ArrayLike) -> np.ndarray | int: ...
    def lca(self, a: ArrayLike, b: ArrayLike) -> np.ndarray | int:
        """The deepest node that is at or above both; arrays are broadcast.

        >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
        >>> tax.lca([3, 3], [4, 5]).tolist()
        [1, 0]
        """
        left, right = np.broadcast_arrays(self._nodes(a), self._nodes(b))
        shape, depths = left.shape, self.node_depth
        level = np.minimum(depths[left], depths[right]).ravel()
        x, y = self._lift(left.ravel(), level), self._lift(right.ravel(), level)
        rest = np.flatnonzero(x != y)
        while len(rest):
            xs, ys = x[rest], y[rest]
            xj, yj = self._jump[xs], self._jump[ys]
            far = xj != yj
            x[rest], y[rest] = np.where(far, xj, self.parent[xs]), np.where(far, yj, self.parent[ys])
            rest = rest[x[rest] != y[rest]]
        return x.reshape(shape) if shape else int(x[0])

    @overload
    def distance(self, a: int, b: int) -> int: ...
    @overload
    def distance(self, a: np.ndarray, b: ArrayLike) -> np.ndarray: ...
    @overload
    def distance(self, a: ArrayLike, b: ArrayLike) -> np.ndarray | int: ...
    def distance(self, a: ArrayLike, b: ArrayLike) -> np.ndarray | int:
        """The number of edges between two nodes; arrays are broadcast."""
        left, right = self._nodes(a), self._nodes(b)
        between = self.node_depth[left] + self.node_depth[right] - 2 * self.node_depth[self.lca(left, right)]
        return between if between.shape else int(between)

    def ancestor_at(self, nodes: ArrayLike, depth: ArrayLike) -> np.ndarray:
        """The node at a depth on the way to each node (itself where it stands there), -1 where it stands above."""
        at, level = np.broadcast_arrays(self._nodes(nodes), np.asarray(depth, np.int64))
        if level.size and level.min() < 0:
            raise InputError(f"a depth is at least 0, found {level.min()}")
        lifted = self._lift(at.ravel(), level.ravel()).reshape(at.shape)
        return np.where(self.node_depth[at] >= level, lifted, -1)

    @cached_property
    def _jump(self) -> np.ndarray:
        """(N,) a far ancestor of each node, so that any ancestor is O(log depth) steps away with O(N) memory."""
        jump, bounds = np.zeros(self.num_nodes, np.int64), self.level_start.tolist()
        lands = [0]  # the depth that a jump from each depth lands on
        for level in range(1, self.depth + 1):
            nodes = slice(bounds[level], bounds[level + 1])
            above = self.parent[nodes]
            once = lands[level - 1]
            twice = lands[once]
            even = level - 1 - once == once - twice
            lands.append(twice if even else level - 1)
            jump[nodes] = jump[jump[above]] if even else above
        return jump

    def _lift(self, nodes: np.ndarray, level: np.ndarray) -> np.ndarray:
        """The ancestor of each node at its level, or the node itself when it is not below that level."""
        nodes = nodes.copy()
        depths = self.node_depth
        below = np.flatnonzero(depths[nodes] > level)
        while len(below):
            jumped = self._jump[nodes[below]]
            nodes[below] = np.where(depths[jumped] >= level[below], jumped, self.parent[nodes[below]])
            below = below[depths[nodes[below]] > level[below]]
        return nodes

    def _node(self, node: int) -> int:
        number = int(node)
        if number != node or not 0 <= number < self.num_nodes:
            raise InputError(f"node ids run from 0 to {self.num_nodes - 1}, found {node!r}")
        return number

    def _nodes(self, nodes: ArrayLike) -> np.ndarray:
        array = np.asarray(nodes)
        if array.size == 0:
            return array.astype(np.int64)
        if array.dtype.kind not in "iu":
            raise InputError(f"node ids are whole numbers, found {array.dtype}")
        if array.min() < 0 or array.max() >= self.num_nodes:
            raise InputError(f"node ids run from 0 to {self.num_nodes - 1}, found {array.min()} to {array.max()}")
        return array.astype(np.int64)

    # ------------------------------------------------------------------- self

    def to_nested(self) -> dict[str, Any]:
        """Nested mappings, `{}` at the leaves."""
        nodes: list[dict[str, Any]] = [{} for _ in self.names]
        for node, parent in enumerate(self.parent.tolist()[1:], start=1):
            nodes[parent][self.names[node]] = nodes[node]
        return nodes[0]

    def render(self, *, counts: ArrayLike | None = None, max_lines: int = 80, max_children: int = 20) -> str:
        """The tree as text, with the number of classes below each node; large trees are folded.

        `counts` gives a number per class, such as its training rows, to be shown and summed up the tree.
        """
        from arbormax.taxonomy._render import render

        return render(self, counts, max_lines, max_children)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the tree, its names and its class order; the root's name does not count."""
        digest = hashlib.sha256(b"arbormax taxonomy 1")
        digest.update(np.array([self.num_nodes, self.num_leaves], "<i8").tobytes())
        digest.update(self.parent.astype("<i8").tobytes())
        digest.update(self.leaves.astype("<i8").tobytes())
        digest.update(np.fromiter(map(len, self.names[1:]), "<i8", self.num_nodes - 1).tobytes())
        digest.update("".join(self.names[1:]).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Taxonomy) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"<Taxonomy: {self.num_leaves:,} classes, {self.num_nodes:,} nodes, depth {self.depth}>"

    def __copy__(self) -> Taxonomy:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Taxonomy:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Taxonomy, (self.names, self.parent, self.leaves, self.source_index, self.stops)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
