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

Token = tuple[str, str, int]  # kind (the character itself for a mark), text, position


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
    for node in unnamed:
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
        yield (value if kind == "mark" else kind), value.replace("''", "'") if kind == "quoted" else value, position
        position = match.end()


def _after_comment(text: str, start: int) -> int:
    depth = 0
    for bracket in _BRACKET.finditer(text, start):
        depth += 1 if bracket[0] == "[" else -1
        if depth == 0:
            return bracket.end()
    raise _SyntaxError("the comment is not closed", start)


def _read_nodes(text: str, draft: Draft, lines: list[int]) -> list[int]:
    """Add every node, parents before children; returns the inner nodes without a name."""
    unnamed: list[int] = []
    opened: list[int] = []  # the nodes whose brackets are open
    node, labelled, awaited = -1, False, "node"
    line, before = 1, 0  # the line of the token, and the position of the one before it

    def add(name: str) -> int:
        lines.append(line)
        return draft.add(name, opened[-1] if opened else -1)

    for kind, value, position in _tokens(text):
        line, before = line + text.count("\n", before, position), position
        if awaited == "end":
            raise _SyntaxError("a taxonomy file contains one tree, found a second one", position)
        if awaited == "length":
            if kind != "plain" or not _NUMBER.fullmatch(value):
                raise _SyntaxError(f"expected a branch length after ':', found {value!r}", position)
            awaited = "no length"
        elif kind == "(" and awaited == "node":
            opened.append(add(""))
        elif kind in ("quoted", "plain"):
            if awaited == "node":
                node, awaited = add(value), "more"
            elif awaited == "more" and not labelled:
                draft.names[node], lines[node] = value, line
            else:
                raise _SyntaxError(f"expected ',' or ')', found the name {value!r}", position)
            labelled = True
        elif kind == "(":
            raise _SyntaxError("expected ',' or ')', found '('", position)
        else:
            if awaited == "node":  # a leaf without a name, which `assemble` reports
                node, awaited, labelled = add(""), "more", True
            if kind == ":":
                if awaited == "no length":
                    raise _SyntaxError("found a second branch length", position)
                awaited = "length"
                continue
            if not labelled:
                unnamed.append(node)
            if kind == ",":
                if not opened:
                    raise _SyntaxError("',' is outside all brackets", position)
                awaited, labelled = "node", False
            elif kind == ")":
                if not opened:
                    raise _SyntaxError("')' has no opening bracket", position)
                node, awaited, labelled = opened.pop(), "more", False
            elif opened:
                raise _SyntaxError(f"{len(opened)} brackets are not closed before ';'", position)
            else:
                awaited = "end"
    if awaited != "end":
        raise _SyntaxError("the file does not end with ';'", len(text))
    return sorted(unnamed)


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
