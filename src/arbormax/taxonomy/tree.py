"""The public class: an immutable tree of named nodes, with its builders, files and labels."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from arbormax.errors import LabelError, TaxonomyError
from arbormax.taxonomy import _build, _interop, formats
from arbormax.taxonomy._draft import Draft, InnerClasses, add_leaves, assemble, make_classes
from arbormax.taxonomy.formats._texts import NodeTexts, resolve_texts
from arbormax.taxonomy.labels import Label, LabelIndex
from arbormax.taxonomy.queries import TreeQueries
from arbormax.taxonomy.render import draw, outline

if TYPE_CHECKING:
    import anytree
    import networkx
    from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False, repr=False)
class Taxonomy(TreeQueries):
    """A rooted tree in breadth-first order: node 0 is the root and `parent[i] < i`.

    Siblings form one contiguous slice, and so does every level. Create a taxonomy with `from_nested`, `from_paths`,
    `from_edges`, `from_parents` or `load`, which validate their input.

    Every builder takes `classes`, the labels of all classes in the order of their ids; by default classes are numbered
    as the leaves appear. A class that has other classes below it is an error, unless `inner_classes="stop"`, which
    adds a leaf for it below itself.

    >>> tax = Taxonomy.from_nested({"comp": ["graphics", {"sys": ["ibm", "mac"]}], "sci": ["med", "space"]})
    >>> tax.num_leaves, tax.num_nodes, tax.depth
    (5, 9, 3)
    >>> tax.path(tax.find("mac"))
    ('comp', 'sys', 'mac')
    """

    names: tuple[str, ...]
    parent: np.ndarray  # (N,) int64, parent[0] == -1
    leaves: np.ndarray  # (C,) the node of each class, in class order
    source_index: np.ndarray  # (N,) the number of each node in the input, -1 for nodes that the input did not number
    stops: np.ndarray  # the leaves that inner_classes="stop" added
    given_texts: NodeTexts | None = None  # (N,) the texts that were given to nodes; None: no node has one
    is_graph: ClassVar[bool] = False  # whether nodes may have several parents
    scratch: dict[Any, Any] = field(default_factory=dict, init=False)  # values that other modules derive and cache

    def __post_init__(self) -> None:
        for array in (self.parent, self.leaves, self.source_index, self.stops):
            array.flags.writeable = False

    # Builders

    @classmethod
    def from_draft(
        cls, draft: Draft, classes: Iterable[Label] | None = None, inner_classes: InnerClasses = "error"
    ) -> Self:
        """Build a taxonomy from what a reader has filled in; all other builders call this one."""
        return assemble(draft, cls, classes, inner_classes)

    @classmethod
    def from_nested(
        cls,
        tree: Mapping[str, Any] | Sequence[Any],
        *,
        classes: Iterable[Label] | None = None,
        inner_classes: InnerClasses = "error",
    ) -> Self:
        """Build a taxonomy from nested mappings and lists: a string is a leaf, a key of a mapping is an inner node.

        A key whose value is empty (`None`, `{}`, `[]`) is a leaf.

        >>> Taxonomy.from_nested({"animal": ["cat", {"bird": ["owl", "hen"]}]}).classes
        ('cat', 'owl', 'hen')
        """
        return cls.from_draft(_build.add_nested(Draft(), tree), classes, inner_classes)

    @classmethod
    def from_paths(
        cls,
        paths: Iterable[Label],
        *,
        classes: Iterable[Label] | None = None,
        inner_classes: InnerClasses = "error",
    ) -> Self:
        """Build a taxonomy from the paths of its classes, in class order; a string is a '/'-path.

        >>> Taxonomy.from_paths([("comp", "graphics"), ("comp", "sys", "ibm"), "sci/med"]).classes
        ('graphics', 'ibm', 'med')
        """
        return cls.from_draft(_build.add_paths(Draft(), paths), classes, inner_classes)

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[tuple[str | None, str]],
        *,
        root: str | None = None,
        classes: Iterable[Label] | None = None,
        inner_classes: InnerClasses = "error",
    ) -> Self:
        """Build a taxonomy from (parent, child) pairs. Names must be unique here, because a name is a node.

        The only node without a parent is the root. A parent of `None` stands for the root. If the edges do not contain
        the root, give its name as `root`.

        >>> Taxonomy.from_edges([("root", "comp"), ("comp", "graphics"), ("comp", "sys")]).classes
        ('graphics', 'sys')
        """
        return cls.from_draft(_build.add_edges(Draft(), edges, root), classes, inner_classes)

    @classmethod
    def from_parents(
        cls,
        parents: ArrayLike,
        names: Iterable[str] | None = None,
        *,
        classes: Iterable[Label] | None = None,
        inner_classes: InnerClasses = "error",
    ) -> Self:
        """Build a taxonomy from the parent of each node, -1 for the root; names default to the node numbers.

        If several nodes have the parent -1, a root is added above them, with -1 in `source_index`.

        >>> tax = Taxonomy.from_parents([-1, 0, 0, 1], names=["root", "comp", "sci", "graphics"])
        >>> tax.classes
        ('sci', 'graphics')
        """
        return cls.from_draft(_build.read_parents(parents, names), classes, inner_classes)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Build a taxonomy from what `to_dict` returned."""
        return cls.from_draft(formats.read_flat(content.items(), Draft(source="taxonomy")))

    @classmethod
    def from_networkx(
        cls, graph: networkx.DiGraph, *, classes: Iterable[Label] | None = None, inner_classes: InnerClasses = "error"
    ) -> Self:
        """Build a taxonomy from a directed networkx graph with edges from parent to child.

        The name of a node is its attribute `name`, or `str(node)`. If every leaf has a different `class_id`, these ids
        give the class order.
        """
        return cls.from_draft(_interop.read_networkx(graph), classes, inner_classes)

    @classmethod
    def from_anytree(
        cls, root: anytree.NodeMixin, *, classes: Iterable[Label] | None = None, inner_classes: InnerClasses = "error"
    ) -> Self:
        """Build a taxonomy from the root of an anytree tree; `class_id` is used as in `from_networkx`."""
        return cls.from_draft(_interop.read_anytree(root), classes, inner_classes)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,
        classes: Iterable[Label] | None = None,
        inner_classes: InnerClasses = "error",
        texts: Mapping[Any, str] | str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Self:
        """Read a taxonomy from a file. The suffix determines the format, unless `format` names one.

        `texts` are the texts of nodes as in `with_texts`. docs/taxonomy-files.md describes every format with its
        options.
        """
        tax = cls.from_draft(formats.read_file(path, format, options), classes, inner_classes)
        return tax if texts is None else tax.with_texts(texts)

    def save(self, path: str | os.PathLike[str], *, format: str | None = None, lossy: bool = False) -> None:
        """Write the taxonomy to a file, completely or not at all; the suffix determines the format.

        JSON stores everything. A format that cannot store this taxonomy, for example its class order or repeated names,
        is an error unless `lossy=True`.
        """
        formats.write_file(self, path, format, lossy)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the JSON file that `save` writes, which stores everything.

        >>> Taxonomy.from_nested({"a": ["x", "y"]}).to_dict()["nodes"]
        [['a', 0], ['x', 1], ['y', 1]]
        """
        return formats.to_dict(self)

    def to_nested(self) -> dict[str, Any]:
        """Return nested mappings, with `{}` at the leaves."""
        nodes: list[dict[str, Any]] = [{} for _ in self.names]
        for node, parent in enumerate(self.parent.tolist()[1:], start=1):
            nodes[parent][self.names[node]] = nodes[node]
        return nodes[0]

    def to_networkx(self) -> networkx.DiGraph:
        """Return a networkx graph of the node ids with the attributes `name` and, for leaves, `class_id`."""
        return _interop.to_networkx(self)

    def to_anytree(self) -> anytree.Node:
        """Return the root of an anytree copy; its nodes have the attributes `node_id` and `class_id`."""
        return _interop.to_anytree(self)

    # Texts

    def with_texts(self, texts: Mapping[Any, str] | str | os.PathLike[str]) -> Self:
        """Return the same taxonomy with texts for nodes, such as descriptions; other nodes keep what they had.

        `texts` maps labels or paths to texts, or is a file: a table of code, title and description, or a JSON mapping.
        Texts are saved with the taxonomy and are not part of its fingerprint.

        >>> tax = Taxonomy.from_nested({"bird": ["owl", "hen"]}).with_texts({"owl": "a bird that hunts at night"})
        >>> tax.texts
        ('root', 'bird', 'a bird that hunts at night', 'hen')
        """
        if isinstance(texts, (str, os.PathLike)):
            return self._with_given_texts(resolve_texts(self, formats.read_texts(texts), os.path.basename(texts)))
        if not isinstance(texts, Mapping):
            found = type(texts).__name__
            raise TaxonomyError(f"expected a mapping from labels or paths to texts, found {found}", argument="texts")
        entries = [(label, text, "") for label, text in texts.items()]
        return self._with_given_texts(resolve_texts(self, entries, None))

    def _with_given_texts(self, texts: NodeTexts) -> Self:
        return replace(self, given_texts=texts)

    def with_classes(self, nodes: ArrayLike) -> Self:
        """Return the taxonomy with these inner nodes as further classes, each with a leaf below itself.

        >>> tax = Taxonomy.from_nested({"bird": ["owl", "hen"]})
        >>> tax.with_classes([tax.find("bird")]).classes
        ('owl', 'hen', 'bird')
        """
        return make_classes(self, np.unique(np.asarray(nodes, np.int64)))

    def with_leaves(self, parents: ArrayLike, names: Sequence[str]) -> tuple[Self, np.ndarray]:
        """Return the taxonomy with new leaves below inner nodes, and the new numbers of the old nodes and the leaves.

        >>> tax = Taxonomy.from_nested({"bird": ["owl", "hen"]})
        >>> grown, number = tax.with_leaves([1], ["crow"])
        >>> grown.classes, number.tolist()
        (('owl', 'hen', 'crow'), [0, 1, 2, 3, 4])
        """
        return add_leaves(self, np.asarray(parents, np.int64), names)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The text of each node, or its name if it was given none.

        An inner class and its stop leaf stand for the same thing, so each takes the text of the other.
        """
        given = list(self.given_texts or (None,) * self.num_nodes)
        for stop, inner in zip(self.stops.tolist(), self.first_parent[self.stops].tolist(), strict=True):
            given[stop], given[inner] = given[stop] or given[inner], given[inner] or given[stop]
        return tuple(text or name for text, name in zip(given, self.names, strict=True))

    @property
    def has_texts(self) -> bool:
        """Whether any node was given a text."""
        return self.given_texts is not None and any(self.given_texts)

    # Labels

    @cached_property
    def label_index(self) -> LabelIndex:
        """The index behind `classes`, `label` and `find`."""
        return LabelIndex(self)

    @property
    def classes(self) -> tuple[str, ...]:
        """The label of each class: the leaf's name, or its '/'-path if any other node has that name too."""
        return self.label_index.classes

    def label(self, node: int) -> str:
        """Return a label of a node for `find`: its name, or its '/'-path if several nodes have that name.

        If the name of a node at the top level is ambiguous, its label begins with '/'. The label of the root is ''.

        >>> tax = Taxonomy.from_nested({"sport": ["golf"], "news": ["sport"]})
        >>> [tax.label(node) for node in range(tax.num_nodes)]
        ['', '/sport', 'news', 'golf', 'news/sport']
        """
        return self.label_index.label(self._node(node))

    def find(self, label: Label, missing: int | None = None) -> int:
        """Return the node of a label.

        A tuple is a path of names from the root down. A string is a label in `classes`, else the name of exactly one
        node, else a '/'-path, in which '\\/' stands for a '/' inside a name, else a path such as
        `"sport > golf"`. A name that several nodes share, leaves or inner nodes, is an error that lists them. If
        `missing` is given, such as -1, it is returned instead of an error.
        """
        if missing is None:
            return self.label_index.find(label)
        node = self.label_index.seek(label)
        return node if node >= 0 else missing

    def find_many(self, labels: Iterable[Label]) -> np.ndarray:
        """Return the node of every label; one error reports all unknown labels, in its `problems`."""
        return self.label_index.find_many(labels)

    def encode(self, labels: Iterable[Label]) -> np.ndarray:
        """Return the class id of every label; the path of an inner node with a stop leaf means that leaf.

        >>> tax = Taxonomy.from_nested({"a": ["x", "other"], "b": ["other"]})
        >>> tax.encode(["x", "b/other", ("a", "other")]).tolist()
        [0, 2, 1]
        """
        nodes = self.find_many(labels)
        stop_below = np.arange(self.num_nodes)
        stop_below[self.first_parent[self.stops]] = self.stops
        classes: np.ndarray = self.class_of[stop_below[nodes]]
        if (inner := np.flatnonzero(classes < 0)).size:
            paths = dict.fromkeys("/".join(self.path(node)) for node in nodes[inner[:8]])
            raise LabelError(
                f"{len(inner)} labels name inner nodes, not classes, such as {', '.join(map(repr, paths))}; "
                "for targets at inner nodes use find_many and target_kind='node'"
            )
        return classes

    def path(self, node: int) -> tuple[str, ...]:
        """Return the names from below the root down to a node; the path of the root is empty."""
        node = self._node(node)
        return tuple(self.names[step] for step in (*self.ancestors(node).tolist()[1:], node) if step)

    def render(self, *, counts: ArrayLike | None = None, max_lines: int = 80, max_children: int = 20) -> str:
        """Return the tree as text, with the number of classes below each node; large trees are folded.

        `counts` is a number per class, such as its training items; the sums are shown at every node.
        """
        totals = None if counts is None else self.sum_up(counts)
        root = outline(self, totals=totals, max_lines=max_lines, max_children=max_children)
        return "\n".join(guides + branch.text for branch, guides, _ in draw(root))

    # Identity

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the tree, its names and its class order; the name of the root is ignored."""
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

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.names, self.parent, self.leaves, self.source_index, self.stops, self.given_texts)
