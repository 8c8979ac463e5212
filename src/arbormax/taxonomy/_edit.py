"""Edits of a taxonomy: what is asked for, whether it can be, and the tree that comes out.

Edits are applied in their order to a `WorkingTree`, which holds only what differs from the old taxonomy, so that an
edit costs as much as it touches. Old nodes keep their numbers there, new ones follow; `build` puts all in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from arbormax.errors import TaxonomyError
from arbormax.taxonomy._draft import breadth_first
from arbormax.taxonomy._working import Refused, WorkingTree
from arbormax.taxonomy.labels import Label, join_path, listing
from arbormax.taxonomy.tree import Taxonomy

Emptied = Literal["error", "class", "remove"]


@dataclass(frozen=True)
class Edit:
    """One edit, as it was asked for."""

    kind: Literal["add", "remove", "move", "split", "rename"]
    node: Label
    under: Label = ()
    names: tuple[Any, ...] = ()
    share: float | None = None
    shares: tuple[float, ...] | None = None
    keep_row: bool = False
    emptied: str = "error"

    def __str__(self) -> str:
        told = {
            "add": f"{self.node!r}, under={self.under!r}",
            "move": f"{self.node!r}, under={self.under!r}",
            "split": f"{self.node!r}, {list(self.names)!r}",
            "rename": f"{self.node!r}, {self.names[0]!r}" if self.names else "",
            "remove": f"{self.node!r}",
        }
        return f"{self.kind}({told[self.kind]})"


class Follower:
    """What follows the edits one by one; a head's rows do. The tree is as it stands when the edit is half made."""

    def added(self, tree: WorkingTree, node: int, parent: int, share: float | None) -> None:
        """A node is about to hang below the parent."""

    def split(self, tree: WorkingTree, node: int, children: list[int], shares: tuple[float, ...] | None) -> None:
        """A leaf has got these children."""

    def moved(self, tree: WorkingTree, node: int, old: int, new: int, edit: Edit) -> None:
        """A node hangs no more below its old parent and is about to hang below the new one."""

    def emptied(self, tree: WorkingTree, parent: int, removed: int | None) -> None:
        """A parent has become a class: its last child was removed, or has moved away (None)."""


@dataclass(frozen=True, eq=False)
class Edited:
    """What came out: the new taxonomy, how the old numbers read in it, and where they were given a head.

    `node_map` (N,) and `class_map` (C,) give the new number of every old node and class, -1 where it is gone.
    `touched` are the nodes of the new taxonomy whose group of children is not what it was. `new_rows` are the nodes
    whose row in the head is new; all others were carried over bit for bit. `changed` tells all of it in words.
    """

    taxonomy: Taxonomy
    node_map: np.ndarray
    class_map: np.ndarray
    touched: np.ndarray
    changed: str
    head: Any = None
    model: Any = None
    new_rows: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"<Edited: {self.taxonomy!r}>"


class TaxonomyEdits:
    """A list of edits to come; `done` makes them, all or none.

    Edits are made in the order in which they are given, and each speaks of the tree as the ones before have left it.

    >>> tax = Taxonomy.from_nested({"mammal": ["cat", "cow"], "bird": [], "fish": []})
    >>> edits = TaxonomyEdits(tax).add("dog", under="mammal").split("bird", ["owl", "duck"]).remove("fish")
    >>> edits.done().taxonomy.classes
    ('cat', 'cow', 'dog', 'owl', 'duck')
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self._taxonomy = taxonomy
        self._edits: list[Edit] = []

    def add(self, name: str, under: Label, *, share: float | None = None) -> Self:
        """Add a class below a node; `under=()` is the root. `share` is what it starts with of its parent's probability.

        A node that was added may get children by later edits; below an old class use `split`.
        """
        return self._append(Edit("add", name, under, share=share))

    def remove(self, node: Label, *, emptied: Emptied = "error") -> Self:
        """Remove a node and all below it.

        `emptied` says what becomes of a parent that loses its last child: a `"class"`, or `"remove"` it as well.
        """
        return self._append(Edit("remove", node, emptied=emptied))

    def move(
        self,
        node: Label,
        under: Label,
        *,
        keep_row: bool = False,
        share: float | None = None,
        emptied: Emptied = "error",
    ) -> Self:
        """Move a node and all below it to another parent; `keep_row` carries its own row over too."""
        return self._append(Edit("move", node, under, share=share, keep_row=keep_row, emptied=emptied))

    def split(self, leaf: Label, names: Iterable[str], *, shares: Iterable[float] | None = None) -> Self:
        """Split a class into children, which start with equal shares of it or with those given."""
        listed = tuple(names) if not isinstance(names, str) else ()
        given = None if shares is None else tuple(float(share) for share in shares)
        return self._append(Edit("split", leaf, names=listed, shares=given))

    def rename(self, node: Label, name: str) -> Self:
        """Give a node another name."""
        return self._append(Edit("rename", node, names=(name,)))

    def done(self) -> Edited:
        """Make the edits; one error tells all that cannot be."""
        return build(self._checked())[0]

    def _append(self, edit: Edit) -> Self:
        self._edits.append(edit)
        return self

    def _checked(self, more: Sequence[str] = ()) -> WorkingTree:
        tree, problems = apply(self._taxonomy, self._edits)
        problems += more
        if len(problems) == 1:
            raise TaxonomyError(problems[0], problems)
        if problems:
            raise TaxonomyError(f"these edits cannot be made, and nothing was; {len(problems)} defects:", problems)
        return tree


def apply(tax: Taxonomy, edits: Iterable[Edit], follower: Follower | None = None) -> tuple[WorkingTree, list[str]]:
    """The tree after the edits, and what is wrong with those that could not be made."""
    tree, problems = WorkingTree(tax), []
    steps = {"add": _add, "remove": _remove, "move": _move, "split": _split, "rename": _rename}
    for edit in edits:
        try:
            tree.told.append(steps[edit.kind](tree, edit, follower or Follower()))
        except Refused as error:
            problems.append(f"{edit}: {error}")
    return tree, problems


def _add(tree: WorkingTree, edit: Edit, follower: Follower) -> str:
    parent = _home(tree, edit)
    _check_name(tree, edit.node, parent)
    _check_share(tree, edit.share, parent)
    node = tree.create(edit.node)  # type: ignore[arg-type]  # checked to be a name
    follower.added(tree, node, parent, edit.share)
    tree.attach(node, parent)
    tree.born.append(node)
    return f"added {tree.told_path(node)}"


def _split(tree: WorkingTree, edit: Edit, follower: Follower) -> str:
    node = tree.find(edit.node)
    if node in tree.stops:
        above = tree.told_path(tree.parent(node))
        raise Refused(f"it is the leaf that stands for {above} as a class; add the classes under {above}")
    if tree.num_children(node):
        raise Refused(f"{tree.told_path(node)} is an inner node, and only a class can be split; add classes under it")
    if not edit.names:
        raise Refused("give a list of at least one name to split it into")
    for place, name in enumerate(edit.names):
        _check_name(tree, name, node)
        if name in edit.names[:place]:
            raise Refused(f"the name {name!r} is given twice")
    if edit.shares is not None:
        if len(edit.shares) != len(edit.names):
            raise Refused(f"{len(edit.names)} names but {len(edit.shares)} shares")
        if not all(share > 0 for share in edit.shares) or not math.isclose(sum(edit.shares), 1, rel_tol=1e-6):
            raise Refused(f"shares are above 0 and sum to 1, found {list(edit.shares)}")
    children = [tree.create(name) for name in edit.names]
    for child in children:
        tree.attach(child, node)
    tree.born += children
    follower.split(tree, node, children, edit.shares)
    return f"split {tree.told_path(node)} into {listing(edit.names)}"


def _remove(tree: WorkingTree, edit: Edit, follower: Follower) -> str:
    node = tree.find(edit.node)
    if node == 0:
        raise Refused("the root cannot be removed")
    _check_emptied(tree, node, edit.emptied)
    told, parent = f"removed {tree.told_path(node)}", tree.parent(node)
    if edit.emptied == "remove" and _would_decide(tree, parent):
        top = _top_of_chain(tree, node)
        if tree.parent(top) == 0 and tree.num_children(0) == 1:
            raise Refused("that would leave no class at all")
        told += f" and with it {tree.told_path(top)}" if top != node else ""
        tree.detach(top)
        return told
    if parent == 0 and tree.num_children(0) == 1:
        raise Refused("that would leave no class at all")
    tree.detach(node)
    return told + _made_class(tree, parent, node, follower)


def _move(tree: WorkingTree, edit: Edit, follower: Follower) -> str:
    node = tree.find(edit.node)
    if node in tree.stops:
        node = tree.parent(node)
    if node == 0:
        raise Refused("the root cannot be moved")
    home, old = _home(tree, edit), tree.parent(node)
    if tree.is_at_or_above(node, home):
        raise Refused(f"cycle: {tree.told_path(home)} lies in what is to be moved")
    if home == old:
        raise Refused(f"it is there already: its parent is {tree.told_path(home)}")
    _check_name(tree, tree.name(node), home)
    _check_share(tree, edit.share, home)
    if edit.share is not None and edit.keep_row:
        raise Refused("share= is for a new row and keep_row=True keeps the old one; give one of them")
    _check_emptied(tree, node, edit.emptied)
    told, decides = f"moved {tree.told_path(node)} to ", _would_decide(tree, old)
    tree.detach(node)
    follower.moved(tree, node, old, home, edit)
    tree.attach(node, home)
    told += tree.told_path(node)
    if edit.emptied == "remove" and decides and not tree.num_children(old):
        top = _top_of_chain(tree, old)
        told += f" and removed {tree.told_path(top)}"
        tree.detach(top)
        return told
    return told + _made_class(tree, old, None, follower)


def _rename(tree: WorkingTree, edit: Edit, _: Follower) -> str:
    node, name = tree.find(edit.node), edit.names[0]
    if node in tree.stops:
        node = tree.parent(node)
    before = tree.told_path(node)
    if node:
        _check_name(tree, name, tree.parent(node))
    elif not isinstance(name, str) or not name.strip():
        raise Refused(f"a name is a string that is not empty, found {name!r}")
    stop = tree.child(node, tree.name(node))
    if stop is not None and stop in tree.stops:  # it bears its parent's name
        _check_name(tree, name, node)
        tree.rename(stop, name)
    tree.rename(node, name)
    return f"renamed {before} to {tree.told_path(node)}"


def _made_class(tree: WorkingTree, parent: int, removed: int | None, follower: Follower) -> str:
    """Tells that a parent without children is a class from now on, if it is one."""
    if tree.num_children(parent):
        return ""
    if tree.was_inner(parent):
        follower.emptied(tree, parent, removed)
        tree.born.append(parent)
    return f"; {tree.told_path(parent)} is a class now"


def _home(tree: WorkingTree, edit: Edit) -> int:
    """The node that the edit hangs something below."""
    home = tree.find(edit.under)
    if home in tree.stops:
        home = tree.parent(home)
    if tree.was_class(home) and not tree.num_children(home):
        raise Refused(f"{tree.told_path(home)} is a class and has nothing below it; split it to give it children")
    return home


def _check_name(tree: WorkingTree, name: Any, parent: int) -> None:
    if not isinstance(name, str) or not name.strip():
        raise Refused(f"a name is a string that is not empty, found {name!r}")
    if tree.child(parent, name) is not None:
        raise Refused(f"{tree.told_path(parent)} has a child {name!r} already; siblings need names of their own")


def _check_share(tree: WorkingTree, share: float | None, parent: int) -> None:
    if share is None:
        return
    if not isinstance(share, (int, float)) or not 0 < share < 1:
        raise Refused(f"a share lies between 0 and 1, found {share!r}")
    if not tree.num_children(parent):
        raise Refused("an only child has probability one and can have no share; give shares to the ones that follow")


def _check_emptied(tree: WorkingTree, node: int, emptied: str) -> None:
    if emptied not in ("error", "class", "remove"):
        raise Refused(f"emptied is 'error', 'class' or 'remove', found {emptied!r}")
    parent = tree.parent(node)
    if emptied == "error" and _would_decide(tree, parent):
        told = tree.told_path(parent)
        raise Refused(
            f"it is the last child of {told}; say emptied='class' to make {told} a class, or emptied='remove' to "
            "remove that as well"
        )


def _would_decide(tree: WorkingTree, parent: int) -> bool:
    """Whether someone has to say what a parent is without its last child: not a node that is or was a class."""
    return parent != 0 and tree.num_children(parent) == 1 and tree.was_inner(parent)


def _top_of_chain(tree: WorkingTree, node: int) -> int:
    """The highest node that would have nothing left below it without this one."""
    while (parent := tree.parent(node)) != 0 and tree.num_children(parent) == 1:
        node = parent
    return node


def build(tree: WorkingTree) -> tuple[Edited, np.ndarray]:
    """The edited taxonomy in breadth-first order, and the new number of every node of the working tree.

    Siblings and classes keep their order, new ones come last.
    """
    tax, parents = tree.tax, tree.parents()
    order = breadth_first(parents)
    rank = np.full(len(parents), -1, np.int64)
    rank[order] = np.arange(len(order))
    parent = np.append(-1, rank[parents[order[1:]]])
    is_leaf = np.zeros(len(parents), bool)
    is_leaf[order] = np.bincount(parent[1:], minlength=len(order)) == 0
    stay = is_leaf[tax.leaves] & (rank[tax.leaves] >= 0)
    known = tax.leaves[stay]
    born = [n for n in dict.fromkeys(tree.born) if is_leaf[n] and not tree.was_class(n)]
    names = tree.names()
    source = np.concatenate((tax.source_index, np.full(len(parents) - tax.num_nodes, -1)))
    stops = tax.stops[is_leaf[tax.stops]]
    edited = Taxonomy(
        tuple(map(names.__getitem__, order.tolist())),
        parent,
        rank[np.concatenate((known, np.array(born, np.int64)))],
        source[order],
        rank[stops],
    )
    class_map = np.full(tax.num_leaves, -1, np.int64)
    class_map[stay] = np.arange(len(known))
    touched = np.array(sorted(rank[p] for p in tree.changed_groups() if rank[p] >= 0 and not is_leaf[p]), np.int64)
    groups = [repr(join_path(edited.path(p))) if p else "the root" for p in touched[:8].tolist()]
    lines = [
        f"{tax.num_leaves:,} classes in {tax.num_nodes:,} nodes became {edited.num_leaves:,} in {edited.num_nodes:,}",
        *(f"  {told}" for told in tree.told[:50]),
        *([f"  … and {len(tree.told) - 50:,} more edits"] if len(tree.told) > 50 else []),
        f"groups of siblings that changed: {', '.join(groups) or 'none'}" + (", …" if len(touched) > 8 else ""),
    ]
    return Edited(edited, rank[: tax.num_nodes].copy(), class_map, touched, "\n".join(lines)), rank
