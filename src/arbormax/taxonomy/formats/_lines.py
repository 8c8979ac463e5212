"""Formats of text lines: one path per line, a parent and its children per line, and darknet's `name parentIndex`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from arbormax.errors import OptionError
from arbormax.taxonomy._build import add_edges, add_paths
from arbormax.taxonomy._draft import Draft
from arbormax.taxonomy.formats._format import Format, lines, preorder
from arbormax.taxonomy.labels import split_path

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

_MARKS = ("/", ";", " > ")  # the separators of names in a path that are recognised
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "/": "/", ";": ";", ">": ">"}
_ESCAPES = str.maketrans({char: "\\" + letter for letter, char in _ESCAPED.items() if char != ">"})
_ARROW = re.compile("(?<= )>(?= )")
_INDEX = re.compile(r"-?[0-9]{1,18}")


def read_txt(
    text: str, draft: Draft, *, sep: str | None = None, layout: str | None = None, root: str | None = None
) -> None:
    """Read one path per line; with tabs in the file, a parent and its children per line."""
    if layout not in (None, "paths", "children"):
        raise OptionError(f"expected 'paths' or 'children' for a text file, found {layout!r}", argument="layout")
    if sep is not None and (not isinstance(sep, str) or not sep or any(char in sep for char in "\\\r\n")):
        raise OptionError(f"expected a separator of names, such as '/' or ' > ', found {sep!r}", argument="sep")
    if layout is None:
        layout = "children" if "\t" in text and sep is None else "paths"
    if layout == "children":
        if sep is not None:
            raise OptionError("only for layout='paths'; children are separated by tabs", argument="sep")
        read_children(text, draft, root=root)
        return
    if root is not None:
        raise OptionError("only for layout='children'; paths begin below the root", argument="root")
    rows = [(number, line) for number, line in enumerate(lines(text), start=1) if line.strip()]
    separator = sep or _separator(rows, draft)
    # only a separator of one character can be escaped
    paths = (
        split_path(line, separator, _ESCAPED) if len(separator) == 1 else line.split(separator) for _, line in rows
    )
    add_paths(draft, paths, lambda number: f"line {rows[number][0]}")


def _separator(rows: list[tuple[int, str]], draft: Draft) -> str:
    """Return the separator that the file uses outside escapes."""
    first: dict[str, int] = {}
    for number, line in rows:
        bare = re.sub(r"\\.", "", line) if "\\" in line else line
        for mark in _MARKS:
            if mark in bare:
                first.setdefault(mark, number)
    if len(first) > 1:
        one, other = [mark for mark in _MARKS if mark in first][:2]
        escapes = "" if " > " in (one, other) else f", or escape the other one as '\\{one}' or '\\{other}'"
        raise draft.fail(
            f"the paths contain both {one!r} (line {first[one]}) and {other!r} (line {first[other]}); choose the one "
            f"that separates names{escapes}",
            sep=" > " if " > " in (one, other) else one,
        )
    return next(iter(first), "/")


def write_txt(tax: Taxonomy) -> Iterator[str]:
    escaped = [_ARROW.sub(r"\\>", name.translate(_ESCAPES)) for name in tax.names]
    rows = []
    for leaf in tax.leaves.tolist():
        rows.append("/".join([*(escaped[node] for node in tax.ancestors(leaf).tolist()[1:]), escaped[leaf]]))
    yield "\n".join(rows) + "\n"


def read_children(text: str, draft: Draft, *, root: str | None = None) -> None:
    """Read lines `parent<TAB>child<TAB>child…`, as in datasets for hierarchical text classification."""
    edges: list[tuple[str, str]] = []
    places: list[int] = []
    alone: list[tuple[str, int]] = []  # lines with a parent only
    for number, line in enumerate(lines(text), start=1):
        if not line.strip():
            continue
        parent, *children = line.rstrip("\t").split("\t")
        edges += [(parent, child) for child in children]
        places += [number] * len(children)
        if not children:
            alone.append((parent, number))
    add_edges(draft, edges, root, lambda number: f"line {places[number]}")
    known = set(draft.names)
    draft.problems += [
        f"{name!r} has neither a parent nor children (line {number}); names are separated by tabs"
        for name, number in alone
        if name not in known
    ]


def write_children(tax: Taxonomy) -> Iterator[str]:
    names, starts = tax.names, tax.child_start.tolist()
    for order in (range(tax.num_nodes), preorder(tax)):
        yield "".join(
            "\t".join([names[node], *names[starts[node] : starts[node + 1]]]) + "\n"
            for node in order
            if starts[node] < starts[node + 1]
        )


def read_darknet(text: str, draft: Draft) -> None:
    """Read lines `name parentIndex`; an index counts lines from 0, and -1 is the top level."""
    rows = lines(text.rstrip())
    if rows == [""]:
        return
    for number, line in enumerate(rows):
        words = line.rsplit(None, 1)
        if words and _INDEX.fullmatch(words[-1]) and (len(words) == 2 or line[0].isspace()):
            draft.add(words[0] if len(words) == 2 else "", int(words[-1]))
            continue
        if words:
            shown = repr(line[:80]) + "…" * (len(line) > 80)
            draft.problems.append(f"expected a name and the number of its parent, found {shown} (line {number + 1})")
        draft.add(line, -1)  # indices count all lines; an empty line is reported as an empty name
    draft.where, draft.by_number = lambda node: f"line {node + 1}", True
    draft.has_root = list(draft.parents).count(-1) == 1


def write_darknet(tax: Taxonomy) -> Iterator[str]:
    # a single node at the top level would be read as the root; only then the root is written
    with_root = tax.num_children[0] == 1
    for order in (list(range(tax.num_nodes)), preorder(tax)):
        kept = order if with_root else order[1:]
        index = {-1: -1, 0: -1} | {node: number for number, node in enumerate(kept)}
        yield "".join(f"{tax.names[node]} {index[int(tax.parent[node])]}\n" for node in kept)


TXT = Format("TXT", (".txt",), read_txt, write_txt, ("sep", "layout", "root"))
CHILDREN = Format("the children format", (".taxonomy",), read_children, write_children, ("root",), names_repeat=False)
DARKNET = Format("the darknet format", (".tree",), read_darknet, write_darknet)
