"""The list of edits that a user builds, and the result of applying it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from arbormax.errors import TaxonomyError
from arbormax.taxonomy._draft import breadth_first, build_ordered
from arbormax.taxonomy.edits.patch import read_patch
from arbormax.taxonomy.edits.steps import Edit, EditListener, Emptied, apply_edits
from arbormax.taxonomy.edits.working import REMOVED, WorkingTree
from arbormax.taxonomy.labels import Label, join_path
from arbormax.taxonomy.tree import Taxonomy


@dataclass(frozen=True, eq=False)
class Edited:
    """The result of edits: the new taxonomy and the new number of every old node and class.

    Attributes:
        taxonomy: the new taxonomy.
        node_map: (N,) the new number of every old node, -1 if it was removed; that of the other class for a merged one.
        class_map: (C,) the new number of every old class, -1 if it is not a class any more.
        touched: the nodes of the new taxonomy whose children changed, or got other rows in the head.
        changed: a summary in words.
        head: the new head, if a head was edited.
        model: the module or classifier whose head was replaced, if one was edited.
        new_rows: the nodes whose rows in the head are new or were fitted; all others were copied bit for bit.
        row_map: (R,) the old row of each row of the new head, -1 for new rows.
        kept: for each node (its new number) that was moved or has a class merged into it and whose predictions the head
            cannot keep exactly, the share of them that stay the same, if it was measured.
        merged: the old class of each merged one, and the new number of the class that it was merged into.
    """

    taxonomy: Taxonomy
    node_map: np.ndarray
    class_map: np.ndarray
    touched: np.ndarray
    changed: str
    head: Any = None
    model: Any = None
    new_rows: np.ndarray | None = None
    row_map: np.ndarray | None = None
    kept: Mapping[int, float] = field(default_factory=dict)
    merged: Mapping[int, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Edited: {self.taxonomy!r}>"


class TaxonomyEdits:
    """A list of edits; `done` applies all of them or, after an error, none.

    Edits are applied in the order in which they are given. Each refers to the tree after the edits before it.

    >>> tax = Taxonomy.from_nested({"mammal": ["cat", "cow"], "bird": [], "fish": []})
    >>> edits = TaxonomyEdits(tax).add("dog", under="mammal").split("bird", ["owl", "duck"]).remove("fish")
    >>> edits.done().taxonomy.classes
    ('cat', 'cow', 'dog', 'owl', 'duck')
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self._taxonomy = taxonomy
        self._edits: list[Edit] = []

    def add(self, name: str, under: Label, *, share: float | None = None, text: str | None = None) -> Self:
        """Add a class below a node; `under=()` is the root. `share` is its initial share of its parent's probability.

        `text` describes the class; if a model is edited, the row of the class starts from it. Later edits may give an
        added node children; use `split` for a class that existed before.
        """
        return self._append(Edit("add", name, under, share=share, text=text), f"{name!r}, under={under!r}")

    def remove(self, node: Label, *, emptied: Emptied = "error") -> Self:
        """Remove a node and its descendants.

        `emptied` decides about a parent that loses its last child: it becomes a `"class"`, or `"remove"` removes it.
        """
        return self._append(Edit("remove", node, emptied=emptied), f"{node!r}")

    def move(
        self,
        node: Label,
        under: Label,
        *,
        keep_row: bool = False,
        share: float | None = None,
        emptied: Emptied = "error",
    ) -> Self:
        """Move a node and its descendants to another parent; `keep_row` keeps the row of the node itself too."""
        edit = Edit("move", node, under, share=share, keep_row=keep_row, emptied=emptied)
        return self._append(edit, f"{node!r}, under={under!r}")

    def merge(self, node: Label, into: Label, *, emptied: Emptied = "error") -> Self:
        """Merge a class into another one, which gets its items; `node` is removed.

        >>> tax = Taxonomy.from_nested({"mammal": ["cat", "kitten", "cow"]})
        >>> edited = TaxonomyEdits(tax).merge("kitten", into="cat").done()
        >>> edited.taxonomy.classes, edited.class_map.tolist()
        (('cat', 'cow'), [0, 0, 1])
        """
        return self._append(Edit("merge", node, into, emptied=emptied), f"{node!r}, into={into!r}")

    def split(self, leaf: Label, names: Iterable[str], *, shares: Iterable[float] | None = None) -> Self:
        """Split a class into children, which start with equal shares of its probability or with `shares`."""
        children = tuple(names) if not isinstance(names, str) else ()
        given = None if shares is None else tuple(float(share) for share in shares)
        return self._append(Edit("split", leaf, names=children, shares=given), f"{leaf!r}, {list(children)!r}")

    def rename(self, node: Label, name: str) -> Self:
        """Rename a node."""
        return self._append(Edit("rename", node, names=(name,)), f"{node!r}, {name!r}")

    def apply(self, patch: Mapping[str, Any] | str | os.PathLike[str]) -> Self:
        """Add the edits of a patch: a file of `arbormax taxonomy refine`, or its content.

        >>> tax = Taxonomy.from_nested({"mammal": ["cat", "owl"], "bird": ["hen"]})
        >>> move = {"kind": "move", "node": ["mammal", "owl"], "under": ["bird"]}
        >>> patch = {"format": "arbormax taxonomy patch 1", "edits": [move]}
        >>> TaxonomyEdits(tax).apply(patch).done().taxonomy.path(4)
        ('bird', 'owl')
        """
        for number, edit in enumerate(read_patch(patch, self._taxonomy)):
            arguments = dict(edit)
            kind = arguments.pop("kind")
            getattr(self, kind)(**arguments)
            self.described(f"edit {number} of the patch, {self._edits[-1]}")
        return self

    def described(self, spelling: str) -> Self:
        """Spell the last edit like this in error messages."""
        self._edits[-1] = replace(self._edits[-1], spelling=spelling)
        return self

    def done(self) -> Edited:
        """Apply the edits; one error reports every edit that is impossible."""
        return map_merged(build(self._apply())[0], self._taxonomy)

    def _append(self, edit: Edit, arguments: str) -> Self:
        self._edits.append(replace(edit, spelling=f"{edit.kind}({arguments})"))
        return self

    def _apply(self, listener: EditListener | None = None, further_problems: Sequence[str] = ()) -> WorkingTree:
        tree = WorkingTree(self._taxonomy)
        problems, fix = apply_edits(tree, self._edits, listener)
        problems += further_problems
        if len(problems) == 1:
            raise TaxonomyError(problems[0], problems, fix=fix)
        if problems:
            raise TaxonomyError(f"no edit was applied, because of {len(problems)} defects:", problems, fix=fix)
        return tree


def build(tree: WorkingTree) -> tuple[Edited, np.ndarray]:
    """Return the edited taxonomy in breadth-first order, and the new number of every node of the working tree.

    Siblings and classes keep their order; new ones come last.
    """
    tax = tree.tax
    parents = np.array([node if parent == REMOVED else parent for node, parent in enumerate(tree.parents)], np.int64)
    order = breadth_first(parents)
    source = np.concatenate((tax.source_index, np.full(len(parents) - tax.num_nodes, -1)))
    stops = tax.stops[np.isin(tax.stops, order)]
    edited, rank = build_ordered(
        Taxonomy, tree.names, parents, source, order, stops, tree.texts if any(tree.texts) else None
    )
    is_leaf = (rank >= 0) & edited.is_leaf[rank]
    stays = is_leaf[tax.leaves]
    new = [node for node in dict.fromkeys(tree.new_classes) if is_leaf[node] and not tree.was_class(node)]
    edited = replace(edited, leaves=rank[np.concatenate((tax.leaves[stays], np.array(new, np.int64)))])
    class_map = np.full(tax.num_leaves, -1, np.int64)
    class_map[stays] = np.arange(np.count_nonzero(stays))
    touched = np.array(sorted(rank[p] for p in tree.changed_groups if rank[p] >= 0 and not is_leaf[p]), np.int64)
    changed = _summary(tree, edited, touched)
    merged = {node: int(rank[tree.merged_into(node)]) for node in tree.merged if node < tax.num_nodes}
    return Edited(edited, rank[: tax.num_nodes].copy(), class_map, touched, changed, merged=merged), rank


def map_merged(edited: Edited, old: Taxonomy) -> Edited:
    """The edits with merged classes mapped to the classes that they were merged into."""
    if not edited.merged:
        return edited
    node_map, class_map, tax = edited.node_map.copy(), edited.class_map.copy(), edited.taxonomy
    for node, now in edited.merged.items():
        node_map[node] = now
        if now >= 0:
            class_map[old.class_of[node]] = tax.class_of[now]
    return replace(edited, node_map=node_map, class_map=class_map)


def _summary(tree: WorkingTree, edited: Taxonomy, touched: np.ndarray) -> str:
    tax, most = tree.tax, 50
    groups = [repr(join_path(edited.path(p))) if p else "the root" for p in touched[:8].tolist()]
    lines = [
        " → ".join(f"{each.num_leaves:,} classes, {each.num_nodes:,} nodes" for each in (tax, edited)),
        *(f"  {line}" for line in tree.log[:most]),
        *([f"  … and {len(tree.log) - most:,} more edits"] if len(tree.log) > most else []),
        f"changed sibling groups: {', '.join(groups) or 'none'}" + (", …" if len(touched) > 8 else ""),
    ]
    return "\n".join(lines)
