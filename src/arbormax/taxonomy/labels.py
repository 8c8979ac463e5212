"""Names, '/'-paths and labels: how a person points at a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from arbormax.errors import LabelError, did_you_mean

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

_LISTED = 8


def join_path(path: Iterable[str]) -> str:
    r"""The '/'-path of names; '/' and '\' inside a name are escaped by '\'.

    >>> print(join_path(["net", "TCP/IP"]))
    net/TCP\/IP
    """
    return "/".join(name.replace("\\", "\\\\").replace("/", "\\/") for name in path)


def split_path(text: str, separators: str = "/") -> list[str]:
    r"""The names of a '/'-path, the inverse of `join_path`.

    >>> split_path(r"net/TCP\/IP")
    ['net', 'TCP/IP']
    """
    if "\\" not in text and len(separators) == 1:
        return text.split(separators)
    names, current, escaped = [], [], False
    for char in text:
        if escaped:
            current.append(char if char in "\\" + separators else "\\" + char)
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in separators:
            names.append("".join(current))
            current = []
        else:
            current.append(char)
    names.append("".join(current) + ("\\" if escaped else ""))
    return names


def name_ids(names: Sequence[str]) -> tuple[dict[str, int], np.ndarray]:
    """A number for every distinct name, and each node's number."""
    ids: dict[str, int] = {}
    return ids, np.fromiter((ids.setdefault(name, len(ids)) for name in names), np.int64, len(names))


def _is_path(label: object) -> bool:
    return isinstance(label, (tuple, list)) and all(isinstance(name, str) for name in label)


class LabelIndex:
    """Looks labels up in one taxonomy; built at the first look-up."""

    def __init__(self, taxonomy: Taxonomy) -> None:
        self._tax = taxonomy
        self._ids, of_node = name_ids(taxonomy.names)
        self._by_name = np.argsort(of_node, kind="stable")
        self._name_start = np.searchsorted(of_node[self._by_name], np.arange(len(self._ids) + 1))
        edges = taxonomy.parent[1:] * len(self._ids) + of_node[1:]
        self._edge_order = np.argsort(edges, kind="stable") + 1
        self._edges = edges[self._edge_order - 1]

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """One distinct label per class: the leaf's name, or its '/'-path where that name repeats."""
        tax = self._tax
        names = [tax.names[node] for node in tax.leaves.tolist()]
        repeated = {name for name, count in Counter(names).items() if count > 1}
        # A name that holds a '/' may look just like another leaf's path, so this goes on until no two are alike; paths
        # never are, and every round makes more of them.
        while repeated:
            names = [
                join_path(tax.path(node)) if name in repeated else name
                for node, name in zip(tax.leaves.tolist(), names, strict=True)
            ]
            repeated = {name for name, count in Counter(names).items() if count > 1}
        return tuple(names)

    @cached_property
    def _class_of_label(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.classes)}

    def named(self, name: str) -> np.ndarray:
        """Every node of that name."""
        number = self._ids.get(name)
        if number is None:
            return np.empty(0, np.int64)
        return self._by_name[self._name_start[number] : self._name_start[number + 1]]

    def walk(self, path: Sequence[str]) -> int:
        """The node at a path of names, or -1."""
        node = 0
        for name in path:
            number = self._ids.get(name)
            if number is None:
                return -1
            key = node * len(self._ids) + number
            at = int(np.searchsorted(self._edges, key))
            if at == len(self._edges) or self._edges[at] != key:
                return -1
            node = int(self._edge_order[at])
        return node

    def seek(self, label: str | Sequence[str]) -> int:
        """The node that a label means, or -1."""
        if not isinstance(label, str):
            return self.walk(label) if _is_path(label) else -1
        number = self._class_of_label.get(label)
        if number is not None:
            return int(self._tax.leaves[number])
        named = self.named(label)
        return int(named[0]) if len(named) == 1 else self.walk(split_path(label))

    def find(self, label: str | Sequence[str]) -> int:
        node = self.seek(label)
        if node < 0:
            raise LabelError(self._why_not(label))
        return node

    def _why_not(self, label: str | Sequence[str], hints: bool = True) -> str:
        """Why no node is found, and what may have been meant: a comparison with every name."""
        if not isinstance(label, str):
            if _is_path(label):
                return f"no node has the path {tuple(label)!r}{self._hint_for_path(label) if hints else ''}"
            kind = type(label).__name__
            return f"a label is a string or a tuple of names from the root down, not {label!r} ({kind})"
        named = self.named(label)
        if len(named) > 1:
            paths = [join_path(self._tax.path(n)) for n in named[:_LISTED].tolist()]
            more = f", … and {len(named) - _LISTED} more" if len(named) > _LISTED else ""
            return f"{label!r} names {len(named)} nodes; use one of their paths: {', '.join(paths)}{more}"
        hint = ""
        if hints:
            path = split_path(label)
            hint = self._hint_for_path(path) if len(path) > 1 else did_you_mean(label, self._ids)
        return f"the taxonomy has no node {label!r}{hint}"

    def _hint_for_path(self, path: Sequence[str]) -> str:
        """Says where a path leaves the tree, and which child may have been meant there."""
        for length in range(len(path) - 1, -1, -1):
            node = self.walk(path[:length])
            if node >= 0:
                break
        children = [self._tax.names[child] for child in self._tax.children(node).tolist()]
        where = repr(join_path(path[:length])) if length else "the root"
        if not children:
            return f"; {where} is a leaf"
        return f"; {where} has no child {path[length]!r}{did_you_mean(path[length], children)}"

    def find_many(self, labels: Iterable[str | Sequence[str]]) -> np.ndarray:
        if isinstance(labels, str):
            raise LabelError(f"expected a list of labels, found the string {labels!r}")
        nodes: list[int] = []
        known: dict[str | Sequence[str], int] = {}
        wrong: dict[str | Sequence[str], tuple[str, list[int]]] = {}
        for position, label in enumerate(labels):
            key = tuple(label) if isinstance(label, list) else label
            node = known.get(key)
            if node is None:
                node = known[key] = self.seek(key)
            if node < 0:
                if key not in wrong:
                    wrong[key] = self._why_not(label, hints=len(wrong) < _LISTED), []
                wrong[key][1].append(position)
            nodes.append(node)
        if wrong:
            problems = [
                f"{message} (at {', '.join(map(str, at[:3]))}{', …' if len(at) > 3 else ''})"
                for message, at in wrong.values()
            ]
            lines = [f"  - {problem}" for problem in problems[:_LISTED]]
            if len(problems) > _LISTED:
                lines.append(f"  - … and {len(problems) - _LISTED} more")
            unknown = LabelError("\n".join([f"{nodes.count(-1)} labels cannot be found:", *lines]))
            unknown.problems = tuple(problems)
            raise unknown
        return np.array(nodes, np.int64)
