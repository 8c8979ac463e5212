"""Names, '/'-paths and labels of nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from arbormax.errors import LabelError, did_you_mean

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

Label = str | Sequence[str]  # a name or '/'-path, or a path of names from the root down

_LISTED = 8


def join_path(path: Iterable[str]) -> str:
    r"""Return the '/'-path of names; '/' and '\' inside a name are escaped by '\'.

    >>> print(join_path(["net", "TCP/IP"]))
    net/TCP\/IP
    """
    return "/".join(name.replace("\\", "\\\\").replace("/", "\\/") for name in path)


def split_path(text: str, separator: str = "/", escapes: Mapping[str, str] | None = None) -> list[str]:
    r"""The names of a path, the inverse of `join_path`; `escapes` maps further letters after a '\' to characters.

    >>> split_path(r"net/TCP\/IP")
    ['net', 'TCP/IP']
    """
    if "\\" not in text:
        return text.split(separator)
    names, known = [""], {**(escapes or {}), "\\": "\\", separator: separator}
    for piece in re.findall(r"\\.|[^\\]|\\", text):
        if piece == separator:
            names.append("")
        else:
            names[-1] += known.get(piece[1:], piece)
    return names


def listing(names: Iterable[str], most: int = 8) -> str:
    """Return `'a', 'b', …`: the first few names, quoted."""
    shown = [repr(name) for name in names]
    return ", ".join(shown[:most]) + (", …" if len(shown) > most else "")


def path_of_label(label: str) -> list[str]:
    """The names of a '/'-path; a '/' before the first name is optional.

    >>> path_of_label("news/sport"), path_of_label("/news")
    (['news', 'sport'], ['news'])
    """
    path = split_path(label)
    return path[1:] if len(path) > 1 and not path[0] else path


def _is_path(label: object) -> bool:
    return isinstance(label, (tuple, list)) and all(isinstance(name, str) for name in label)


class LabelIndex:
    """Finds the nodes of labels in one taxonomy.

    The root's name does not count: only its own label may be that name. A stop leaf has the name of the inner node that
    it stands for; the two count as one, and the name means the leaf.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self._tax = taxonomy
        names, stops = taxonomy.names, taxonomy.stops.tolist()
        inner = taxonomy.parent[stops].tolist()
        hidden = {0, *(node for node, stop in zip(inner, stops, strict=True) if names[node] == names[stop])}
        self._meant: dict[str, list[int]] = {}  # the nodes that a name may mean
        for node, name in enumerate(names):
            if node not in hidden:
                self._meant.setdefault(name, []).append(node)
        edges = zip(taxonomy.parent.tolist(), names, strict=True)
        self._children = {edge: node for node, edge in enumerate(edges)}

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """One distinct label per class: the leaf's name, or its '/'-path where another node has that name too."""
        tax = self._tax
        labels = [
            tax.names[leaf] if len(self._meant[tax.names[leaf]]) == 1 else join_path(tax.path(leaf))
            for leaf in tax.leaves.tolist()
        ]
        # A name that contains a '/' may equal the path of another leaf. The loop ends because paths are distinct and
        # every round replaces names by paths.
        while repeated := {label for label, count in Counter(labels).items() if count > 1}:
            labels = [
                join_path(tax.path(leaf)) if label in repeated else label
                for leaf, label in zip(tax.leaves.tolist(), labels, strict=True)
            ]
        return tuple(labels)

    @cached_property
    def _class_of_label(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.classes)}

    def label(self, node: int) -> str:
        """The shortest string that `find` resolves to a node; '' for the root."""
        tax = self._tax
        if node == 0:
            return ""
        if tax.class_of[node] >= 0:
            return str(self.classes[tax.class_of[node]])
        name, path = tax.names[node], tax.path(node)
        return name if self.seek(name) == node else join_path(path) if len(path) > 1 else f"/{join_path(path)}"

    def walk(self, path: Sequence[str]) -> int:
        """The node at a path of names, or -1."""
        node = 0
        for name in path:
            node = self._children.get((node, name), -1)
            if node < 0:
                break
        return node

    def seek(self, label: Label) -> int:
        """The node of a label, or -1."""
        if not isinstance(label, str):
            return self.walk(label) if _is_path(label) else -1
        number = self._class_of_label.get(label)
        if number is not None:
            return int(self._tax.leaves[number])
        if named := self._meant.get(label):
            return named[0] if len(named) == 1 else -1
        node = self.walk(path_of_label(label))
        return 0 if node < 0 and label == self._tax.names[0] else node

    def find(self, label: Label) -> int:
        """The node of a label; an error with suggestions if there is none or more than one."""
        node = self.seek(label)
        if node < 0:
            raise LabelError(self._explain(label))
        return node

    def _explain(self, label: Label, hints: bool = True) -> str:
        """Why a label has no node. A hint compares the label with every name."""
        if not isinstance(label, str):
            if _is_path(label):
                return f"no node has the path {tuple(label)!r}{self._hint_for_path(label) if hints else ''}"
            kind = type(label).__name__
            return f"a label is a string or a tuple of names from the root down, not {label!r} ({kind})"
        named = self._meant.get(label, [])
        if len(named) > 1:
            paths = [self.label(node) for node in named[:_LISTED]]
            more = f", … and {len(named) - _LISTED} more" if len(named) > _LISTED else ""
            return f"{label!r} names {len(named)} nodes; use one of their paths: {', '.join(paths)}{more}"
        hint = ""
        if hints:
            path = path_of_label(label)
            hint = self._hint_for_path(path) if len(path) > 1 else did_you_mean(label, self._meant)
        return f"the taxonomy has no node {label!r}{hint}"

    def _hint_for_path(self, path: Sequence[str]) -> str:
        """The first name of a path that is not in the tree, and similar names at that place."""
        length = next(length for length in range(len(path) - 1, -1, -1) if self.walk(path[:length]) >= 0)
        children = [self._tax.names[child] for child in self._tax.children(self.walk(path[:length])).tolist()]
        where = repr(join_path(path[:length])) if length else "the root"
        if not children:
            return f"; {where} is a leaf"
        return f"; {where} has no child {path[length]!r}{did_you_mean(path[length], children)}"

    def find_many(self, labels: Iterable[Label]) -> np.ndarray:
        """The node of every label; all unknown labels are reported in one error."""
        if isinstance(labels, str):
            raise LabelError(f"expected a list of labels, found the string {labels!r}")
        nodes: list[int] = []
        known: dict[Label, int] = {}
        wrong: dict[Label, tuple[str, list[int]]] = {}
        for position, label in enumerate(labels):
            key = tuple(label) if isinstance(label, list) else label
            node = known.get(key)
            if node is None:
                node = known[key] = self.seek(key)
            if node < 0:
                if key not in wrong:
                    wrong[key] = self._explain(label, hints=len(wrong) < LabelError.shown), []
                wrong[key][1].append(position)
            nodes.append(node)
        if wrong:
            problems = [
                f"{message} (at {', '.join(map(str, at[:3]))}{', …' if len(at) > 3 else ''})"
                for message, at in wrong.values()
            ]
            count = f"{nodes.count(-1)} labels cannot be found:"
            raise LabelError(f"{count} {problems[0]}" if len(problems) == 1 else count, problems)
        return np.array(nodes, np.int64)
