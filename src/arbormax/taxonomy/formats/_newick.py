"""Newick, the format of phylogenetic trees: `(cat,(owl,hen)bird)animal;`. Branch lengths and comments are ignored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

from arbormax.taxonomy._draft import ROOT, Draft
from arbormax.taxonomy.formats._format import Format

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

_TOKEN = re.compile(
    r"(?P<mark>[(),:;])|'(?P<quoted>[^']*(?:''[^']*)*)'"
    r"|(?P<plain>[^\s()\[\],:;'](?:[^()\[\],:;'\r\n]*[^\s()\[\],:;'])?)"
)
_BLANK = re.compile(r"\s*")
_BRACKET = re.compile(r"[\[\]]")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SAFE = re.compile(r"[^\s()\[\]{},:;'\"_]+")  # '_' is quoted because other readers turn it into a space
_FOLLOWING = {  # what may follow each kind of token; a leaf without a name is reported by `assemble`
    "(": ("(", "name", ":", ",", ")", ";"),
    ",": ("(", "name", ":", ",", ")", ";"),
    ")": ("name", ":", ",", ")", ";"),
    "name": (":", ",", ")", ";"),
    ":": ("branch length",),
    "branch length": (",", ")", ";"),
    ";": (),
}

Token = tuple[str, str, int]  # "name" or the character itself for a mark, text, position


class _SyntaxError(Exception):
    """What is wrong, and its position in the text."""


def read(text: str, draft: Draft) -> None:
    if not text.strip():
        return
    lines: list[int] = []  # of each node
    draft.where = lambda node: f"line {lines[node]}"
    draft.has_root = True
    try:
        unnamed = _read_nodes(text, draft, lines)
    except _SyntaxError as error:
        what, position = error.args
        line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
        raise draft.fail(f"invalid Newick: {what} (line {line}, column {column})") from None
    taken = set(draft.names)
    free = (name for name in map("clade {}".format, count(1)) if name not in taken)
    for node in sorted(unnamed):
        draft.names[node] = next(free) if node else ROOT


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    while True:
        position = _BLANK.match(text, position).end()  # type: ignore[union-attr]  # it also matches the empty string
        if position == len(text):
            return
        if text[position] == "[":
            position = _after_comment(text, position)
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            what = "the quote is not closed" if text[position] == "'" else f"unexpected {text[position]!r}"
            raise _SyntaxError(what, position)
        kind = match.lastgroup or ""
        value = match[kind]
        yield value if kind == "mark" else "name", value.replace("''", "'") if kind == "quoted" else value, position
        position = match.end()


def _after_comment(text: str, start: int) -> int:
    depth = 0
    for bracket in _BRACKET.finditer(text, start):
        depth += 1 if bracket[0] == "[" else -1
        if depth == 0:
            return bracket.end()
    raise _SyntaxError("the comment is not closed", start)


def _read_nodes(text: str, draft: Draft, lines: list[int]) -> set[int]:
    """Add every node, parents before children; returns the inner nodes without a name."""
    unnamed: set[int] = set()
    opened: list[int] = []  # the nodes whose brackets are open
    node, last = -1, ","  # the node and the kind of the token before
    line, before = 1, 0  # the line of the token, and the position of the one before it
    for kind, value, position in _tokens(text):
        line, before = line + text.count("\n", before, position), position
        if last == ":" and _NUMBER.fullmatch(value):
            kind = "branch length"
        if kind not in _FOLLOWING[last]:
            expected = " or ".join(map(repr, _FOLLOWING[last])) or "one tree in a file"
            raise _SyntaxError(f"expected {expected}, found {value!r}", position)
        if kind in (",", ")", ";") and bool(opened) == (kind == ";"):
            raise _SyntaxError(f"the brackets around {value!r} do not match", position)
        if kind == "name" and last == ")":
            draft.names[node], lines[node] = value, line
            unnamed.discard(node)
        elif last in ("(", ","):  # a new node
            node = draft.add(value if kind == "name" else "", opened[-1] if opened else -1)
            lines.append(line)
        if kind == "(":
            unnamed.add(node)
            opened.append(node)
        elif kind == ")":
            node = opened.pop()
        last = kind
    if last != ";":
        raise _SyntaxError("the file does not end with ';'", len(text))
    return unnamed


def write(tax: Taxonomy) -> Iterator[str]:
    def quote(name: str) -> str:
        return name if _SAFE.fullmatch(name) else "'" + name.replace("'", "''") + "'"

    parts: list[str] = []
    starts = tax.child_start.tolist()
    stack = [(0, False)]  # nodes to open, or (True) to close
    while stack:
        node, closing = stack.pop()
        first, stop = starts[node], starts[node + 1]
        if first < stop and not closing:
            parts.append("(")
            stack.append((node, True))
            stack += [(child, False) for child in range(stop - 1, first - 1, -1)]
            continue
        parts.append((")" if closing else "") + quote(tax.names[node]))
        if node and node + 1 < starts[tax.parent[node] + 1]:
            parts.append(",\n" if tax.parent[node] == 0 else ",")
    yield "".join(parts) + ";\n"


_START = re.compile(r"\s*(?:\[[^\]]*\]\s*)*\(")
NEWICK = Format(
    "Newick", (".nwk", ".newick", ".tre", ".tree"), read, write, matches=lambda text: bool(_START.match(text))
)
