"""Validates and applies edits, one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from arbormax.taxonomy.edits.working import EditError, WorkingTree
from arbormax.taxonomy.labels import Label, listing

Emptied = Literal["error", "class", "remove"]


@dataclass(frozen=True)
class Edit:
    """One edit as the user gave it."""

    kind: Literal["add", "remove", "move", "merge", "split", "rename"]
    node: Label
    under: Label = ()
    names: tuple[Any, ...] = ()
    share: float | None = None
    shares: tuple[float, ...] | None = None
    keep_row: bool = False
    emptied: str = "error"
    text: Any = None  # the text of an added node
    spelling: str = ""  # what messages call it

    def __str__(self) -> str:
        return self.spelling


class EditListener:
    """Called during each edit, such as by the rows of a head."""

    def added(self, tree: WorkingTree, node: int, parent: int, share: float | None) -> None:
        """A node is about to be attached to a parent."""

    def split(self, tree: WorkingTree, node: int, children: list[int], shares: tuple[float, ...] | None) -> None:
        """A leaf has been given these children."""

    def moved(self, tree: WorkingTree, node: int, old: int, new: int, edit: Edit) -> None:
        """A node has been detached from its old parent and is about to be attached to the new one."""

    def merged(self, tree: WorkingTree, node: int, into: int) -> None:
        """A class is about to be merged into another one."""

    def emptied(self, tree: WorkingTree, parent: int, removed: int | None) -> None:
        """A parent has become a class: its last child was removed, or has moved away (None)."""


def apply_edits(
    tree: WorkingTree, edits: Iterable[Edit], listener: EditListener | None
) -> tuple[list[str], dict[str, object]]:
    """Apply the edits that are possible; returns a problem for each of the others, and arguments that would help."""
    problems: list[str] = []
    fix: dict[str, object] = {}
    steps = {"add": _add, "remove": _remove, "move": _move, "merge": _merge, "split": _split, "rename": _rename}
    for edit in edits:
        try:
            tree.log.append(steps[edit.kind](tree, edit, listener or EditListener()))
        except EditError as error:
            problems.append(f"{edit}: {error}")
            fix |= error.fix
    return problems, fix


def _add(tree: WorkingTree, edit: Edit, listener: EditListener) -> str:
    parent = _new_parent(tree, edit)
    _check_name(tree, edit.node, parent)
    _check_share(tree, edit.share, parent)
    if edit.text is not None and (not isinstance(edit.text, str) or not edit.text.strip()):
        raise EditError(f"a text is a string that is not empty, found {edit.text!r}")
    node = tree.create(edit.node, edit.text)  # type: ignore[arg-type]  # checked to be a name
    listener.added(tree, node, parent, edit.share)
    tree.attach(node, parent)
    tree.new_classes.append(node)
    return f"added {tree.quoted_path(node)}"


def _split(tree: WorkingTree, edit: Edit, listener: EditListener) -> str:
    node = tree.find(edit.node)
    if node in tree.stops:
        above = tree.quoted_path(tree.parents[node])
        raise EditError(f"it is the leaf of the inner class {above}; add the classes under {above}")
    if tree.num_children(node):
        raise EditError(f"{tree.quoted_path(node)} is an inner node; only a class can be split. Add classes under it")
    if not edit.names:
        raise EditError("expected a list of at least one name")
    for position, name in enumerate(edit.names):
        _check_name(tree, name, node)
        if name in edit.names[:position]:
            raise EditError(f"the name {name!r} is repeated")
    if edit.shares is not None:
        if len(edit.shares) != len(edit.names):
            raise EditError(f"expected {len(edit.names)} shares, one for each name, found {len(edit.shares)}")
        if not all(share > 0 for share in edit.shares) or not math.isclose(sum(edit.shares), 1, rel_tol=1e-6):
            raise EditError(f"expected positive shares that sum to 1, found {list(edit.shares)}")
    children = [tree.create(name) for name in edit.names]
    for child in children:
        tree.attach(child, node)
    tree.new_classes += children
    listener.split(tree, node, children, edit.shares)
    return f"split {tree.quoted_path(node)} into {listing(edit.names)}"


def _remove(tree: WorkingTree, edit: Edit, listener: EditListener) -> str:
    node = tree.find(edit.node)
    if node == 0:
        raise EditError("the root cannot be removed")
    _check_emptied(tree, node, edit.emptied)
    line, parent = f"removed {tree.quoted_path(node)}", tree.parents[node]
    if edit.emptied == "remove" and _empties_inner_node(tree, parent):
        top = _top_of_chain(tree, node)
        if tree.parents[top] == 0 and tree.num_children(0) == 1:
            raise EditError("no class would be left")
        line += f" and its parents up to {tree.quoted_path(top)}" if top != node else ""
        tree.detach(top)
        return line
    if parent == 0 and tree.num_children(0) == 1:
        raise EditError("no class would be left")
    tree.detach(node)
    return line + _become_class(tree, parent, node, listener)


def _move(tree: WorkingTree, edit: Edit, listener: EditListener) -> str:
    node = tree.find(edit.node)
    if node in tree.stops:
        node = tree.parents[node]
    if node == 0:
        raise EditError("the root cannot be moved")
    new, old = _new_parent(tree, edit), tree.parents[node]
    if node in tree.ancestors(new):
        raise EditError(f"cycle: {tree.quoted_path(new)} is the node itself or below it")
    if new == old:
        raise EditError(f"{tree.quoted_path(new)} is its parent already")
    _check_name(tree, tree.names[node], new)
    _check_share(tree, edit.share, new)
    if edit.share is not None and edit.keep_row:
        raise EditError("a kept row cannot have a new share; give one of share and keep_row")
    _check_emptied(tree, node, edit.emptied)
    line, empties = f"moved {tree.quoted_path(node)} to ", _empties_inner_node(tree, old)
    tree.detach(node)
    listener.moved(tree, node, old, new, edit)
    tree.attach(node, new)
    line += tree.quoted_path(node)
    if edit.emptied == "remove" and empties and not tree.num_children(old):
        top = _top_of_chain(tree, old)
        line += f" and removed {tree.quoted_path(top)}"
        tree.detach(top)
        return line
    return line + _become_class(tree, old, None, listener)


def _merge(tree: WorkingTree, edit: Edit, listener: EditListener) -> str:
    node, into = tree.find(edit.node), tree.find(edit.under)
    for each in (node, into):
        if tree.num_children(each) or each in tree.stops:
            raise EditError(f"{tree.quoted_path(each)} is an inner node; only a class can be merged with another")
    if node == into:
        raise EditError("a class cannot be merged into itself")
    _check_emptied(tree, node, edit.emptied)
    line, parent = f"merged {tree.quoted_path(node)} into {tree.quoted_path(into)}", tree.parents[node]
    listener.merged(tree, node, into)
    tree.merged[node] = into
    if edit.emptied == "remove" and _empties_inner_node(tree, parent):
        top = _top_of_chain(tree, node)
        line += f" and removed {tree.quoted_path(tree.parents[node] if top == node else top)}"
        tree.detach(top)
        return line
    tree.detach(node)
    return line + _become_class(tree, parent, None, listener)


def _rename(tree: WorkingTree, edit: Edit, _: EditListener) -> str:
    node, name = tree.find(edit.node), edit.names[0]
    if node in tree.stops:
        node = tree.parents[node]
    before = tree.quoted_path(node)
    _check_name(tree, name, tree.parents[node] if node else None)
    stop = tree.child(node, tree.names[node])
    if stop is not None and stop in tree.stops:  # a stop leaf has the name of its parent
        _check_name(tree, name, node)
        tree.rename(stop, name)
    tree.rename(node, name)
    return f"renamed {before} to {tree.quoted_path(node)}"


def _become_class(tree: WorkingTree, parent: int, removed: int | None, listener: EditListener) -> str:
    """Make a parent that has no children left a class."""
    if tree.num_children(parent):
        return ""
    if tree.was_inner(parent):
        listener.emptied(tree, parent, removed)
        tree.new_classes.append(parent)
    return f"; {tree.quoted_path(parent)} is a class now"


def _new_parent(tree: WorkingTree, edit: Edit) -> int:
    """Return the node under which the edit attaches another."""
    parent = tree.find(edit.under)
    if parent in tree.stops:
        parent = tree.parents[parent]
    if tree.was_class(parent) and not tree.num_children(parent):
        raise EditError(f"{tree.quoted_path(parent)} is a class without children; split it instead")
    return parent


def _check_name(tree: WorkingTree, name: Any, parent: int | None) -> None:
    if not isinstance(name, str) or not name.strip():
        raise EditError(f"a name is a string that is not empty, found {name!r}")
    if parent is not None and tree.child(parent, name) is not None:
        raise EditError(f"{tree.quoted_path(parent)} already has a child {name!r}; siblings must have different names")


def _check_share(tree: WorkingTree, share: float | None, parent: int) -> None:
    if share is None:
        return
    if not isinstance(share, (int, float)) or not 0 < share < 1:
        raise EditError(f"expected a share between 0 and 1, found {share!r}")
    if not tree.num_children(parent):
        raise EditError("an only child has probability one and takes no share; give shares to its later siblings")


def _check_emptied(tree: WorkingTree, node: int, emptied: str) -> None:
    if emptied not in ("error", "class", "remove"):
        raise EditError(f"expected emptied to be 'error', 'class' or 'remove', found {emptied!r}")
    parent = tree.parents[node]
    if emptied == "error" and _empties_inner_node(tree, parent):
        path = tree.quoted_path(parent)
        raise EditError(f"it is the last child of {path}; make {path} a class, or remove it too", emptied="class")


def _empties_inner_node(tree: WorkingTree, parent: int) -> bool:
    """Whether a parent would lose its last child, and neither is nor was a class."""
    return parent != 0 and tree.num_children(parent) == 1 and tree.was_inner(parent)


def _top_of_chain(tree: WorkingTree, node: int) -> int:
    """Return the highest ancestor that would be empty without this node."""
    while (parent := tree.parents[node]) != 0 and tree.num_children(parent) == 1:
        node = parent
    return node
