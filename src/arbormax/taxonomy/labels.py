"""Names, '/'-paths and labels of nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from arbormax.errors import LabelError, OptionError, did_you_mean

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

Label = str | Sequence[str]  # a name, a '/'-path or a path with " > ", or names from the root down

ARROW = " > "  # between the names of a path in files and messages

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
    known = {**(escapes or {}), "\\": "\\", separator: separator}
    names: list[list[str]] = [[]]
    for piece in re.findall(rf"\\.|{re.escape(separator)}|[^\\{re.escape(separator)}]+|\\", text):
        if piece == separator:
            names.append([])
        else:
            names[-1].append(known.get(piece[1:], piece) if piece[0] == "\\" else piece)
    return ["".join(pieces) for pieces in names]


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


def path_with_arrows(label: str) -> list[str]:
    """The names of a path with " > " between them, without spaces around them; [] if it has none.

    >>> path_with_arrows("news > sport"), path_with_arrows("news/sport")
    (['news', 'sport'], [])
    """
    return [name.strip() for name in label.split(ARROW)] if ARROW in label else []


def _is_path(label: object) -> bool:
    return isinstance(label, (tuple, list)) and all(isinstance(name, str) for name in label)


class DistinctLabels:
    """The distinct labels of some items, in order of appearance, and the items that have each of them."""

    def __init__(
        self, labels: Iterable[Any], lines: Sequence[int] | None = None, source: str = "", unit: str = "line"
    ) -> None:
        if isinstance(labels, str):
            raise LabelError(f"expected a list of labels, found the string {labels!r}")
        self.items: dict[Any, list[int]] = {}
        self.lines, self.unit = lines, unit
        self.prefix = f"{source}: " if source else ""
        item = -1
        for item, label in enumerate(labels.tolist() if isinstance(labels, np.ndarray) else labels):
            try:
                self.items.setdefault(tuple(label) if isinstance(label, list) else label, []).append(item)
            except TypeError:
                raise LabelError(f"expected a string or a list of names, found {label!r}") from None
        if lines is not None and len(lines) != item + 1:
            raise OptionError(
                f"expected {item + 1} line numbers, one for each label, found {len(lines)}", argument="lines"
            )

    def spread(self, nodes: Iterable[int]) -> np.ndarray:
        """The node of every item from the node of every label."""
        found = np.empty(sum(map(len, self.items.values())), np.int64)
        for items, node in zip(self.items.values(), nodes, strict=True):
            found[items] = node
        return found

    def raise_problems(self, wrong: dict[Any, str]) -> None:
        """Raise one error for all wrong labels, each with its number of items and the first of them."""
        if not wrong:
            return
        name = "item" if self.lines is None else self.unit
        problems = []
        for label, message in wrong.items():
            items = self.items[label]
            first = ", ".join(str(item if self.lines is None else self.lines[item]) for item in items[:3])
            where = f"{name}{'s' if len(items) > 1 else ''} {first}"
            if len(items) > 3:
                where = f"{len(items):,} times, {where}, …"
            if len(message) > 600:  # a whole text, if the wrong column was selected
                message = f"{message[:300]} … {message[-200:]}"
            problems.append(f"{message} ({where})")
        if len(problems) == 1:
            raise LabelError(self.prefix + problems[0], problems)
        total = sum(len(self.items[label]) for label in wrong)
        raise LabelError(f"{self.prefix}{len(wrong)} different labels, of {total:,} items, are not valid:", problems)


class LabelIndex:
    """Finds the nodes of labels in one taxonomy.

    The root's name does not count: only its own label may be that name. A stop leaf has the name of the inner node that
    it stands for; the two count as one, and the name means the leaf.
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self._tax = taxonomy
        names, stops = taxonomy.names, taxonomy.stops.tolist()
        inner = taxonomy.first_parent[stops].tolist()
        hidden = {0, *(node for node, stop in zip(inner, stops, strict=True) if names[node] == names[stop])}
        self._meant: dict[str, list[int]] = {}  # the nodes that a name may mean
        for node, name in enumerate(names):
            if node not in hidden:
                self._meant.setdefault(name, []).append(node)
        parents, children = taxonomy.edges.T.tolist()
        self._children = {(parent, names[child]): child for parent, child in zip(parents, children, strict=True)}

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
        if node < 0 and (path := path_with_arrows(label)):
            node = self.walk(path)
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
            path = path_with_arrows(label) or path_of_label(label)
            hint = self._hint_for_path(path) if len(path) > 1 else self._hint_for_name(label)
        return f"the taxonomy has no node {label!r}{hint}"

    def _hint_for_name(self, name: str) -> str:
        """Similar names; the paths of a name that several nodes have."""
        return did_you_mean(name, self._meant, spell=lambda known: map(self.label, self._meant[known]))

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
        distinct = DistinctLabels(labels)
        nodes: list[int] = []
        wrong: dict[Label, str] = {}
        for label in distinct.items:
            nodes.append(self.seek(label))
            if nodes[-1] < 0:
                wrong[label] = self._explain(label, hints=len(wrong) < LabelError.shown)
        distinct.raise_problems(wrong)
        return distinct.spread(nodes)
