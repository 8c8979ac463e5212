"""arbormax's own JSON: a flat list of nodes that stores every name, the class order and the stop leaves.

Node 0 is the root and the rows of `nodes` are nodes 1, 2, …, so the numbers in the file are node ids.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from arbormax.errors import TaxonomyError, did_you_mean
from arbormax.taxonomy._draft import ROOT, Draft
from arbormax.taxonomy.labels import listing

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

NAME = "arbormax.taxonomy"
VERSION = 1
_KEYS = ("format", "version", "root", "nodes", "classes", "stops")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def write(tax: Taxonomy) -> Iterator[str]:
    def render(ascii_only: bool) -> str:
        quote = json.encoder.encode_basestring_ascii if ascii_only else json.encoder.encode_basestring
        rows = ",\n".join(
            f"[{quote(name)}, {parent}]" for name, parent in zip(tax.names[1:], tax.parent[1:].tolist(), strict=True)
        )
        return (
            f'{{\n"format": "{NAME}",\n"version": {VERSION},\n"root": {quote(tax.names[0])},\n"nodes": [\n{rows}\n],\n'
            f'"classes": {tax.leaves.tolist()},\n"stops": {tax.stops.tolist()}\n}}\n'
        )

    text = render(ascii_only=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can only write as an escape
        paired = [name for name in tax.names if _PAIR.search(name)]
        if paired:
            raise TaxonomyError(
                f"the name {paired[0]!a} contains a character as two surrogates, which JSON cannot distinguish from "
                "the character itself; change the name"
            ) from None
        text = render(ascii_only=True)
    yield text


def parse(text: str) -> tuple[Any, ...] | None:
    """Return the (key, value) pairs of a file in this format, or None for other content; mappings become tuples."""
    try:
        content = json.loads(text, object_pairs_hook=_pairs)
    except (ValueError, RecursionError):
        return None  # the reader of nested files reports the defect with its position
    return content if isinstance(content, tuple) and ("format", NAME) in content else None


def _pairs(pairs: list[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    return tuple(pairs)


def fill(pairs: tuple[Any, ...], draft: Draft, find_places: Callable[[], dict[str, list[int]]]) -> None:
    """Fill a draft; `find_places` returns the lines of the entries and is called only for a defect."""
    places = cache(find_places)

    def at(key: str, number: int = 0) -> str:
        lines = places().get(key, [])
        return f"line {lines[number]}" if number < len(lines) else f"{key}[{number - 1}]"

    draft.where = lambda node: at("nodes", node) if node else at("root")
    draft.has_root = True
    counts = Counter(key for key, _ in pairs)
    for key, count in counts.items():
        if key not in _KEYS:
            draft.problems.append(f"unknown key {key!r}{did_you_mean(key, _KEYS)} ({at(key)})")
        elif count > 1:
            draft.problems.append(f"the key {key!r} is repeated {count} times ({at(key)})")
    content = dict(pairs)
    version = content.get("version")
    if type(version) is not int or version < 1:
        draft.problems.append(f"version is a positive integer, found {version!r} ({at('version')})")
    elif version > VERSION:
        draft.problems[:] = [
            f"the file has version {version} of this format, and this arbormax reads versions up to {VERSION}; "
            f"install a newer arbormax ({at('version')})"
        ]
        draft.fail_on_problems()
    root, nodes = content.get("root", ROOT), content.get("nodes")
    if not isinstance(root, str):
        draft.problems.append(f"a name is a string, found {root!r} ({at('root')})")
        root = ROOT
    if not isinstance(nodes, list):
        draft.problems.append(f"nodes is a list of [name, parent] rows, found {_short(nodes)} ({at('nodes')})")
        draft.fail_on_problems()
        return
    _fill_nodes(root, nodes, draft)
    _fill_classes(content, draft, at)


def _fill_nodes(root: str, rows: list[Any], draft: Draft) -> None:
    names, parents, count = [root], [-1], len(rows)
    for node, row in enumerate(rows, start=1):
        if type(row) is list and len(row) == 2 and type(row[0]) is str and type(row[1]) is int:
            names.append(row[0])
            parents.append(row[1])
            if 0 <= row[1] <= count:
                continue
            draft.problems.append(
                f"the parent of {row[0]!r} is {row[1]}, but nodes are numbered from 0 (the root) to {count}"
                f"{draft.at(node)}"
            )
            parents[-1] = 0
        else:
            draft.problems.append(f"a node is a row [name, parent], found {_short(row)}{draft.at(node)}")
            names.append(f"nodes[{node - 1}]")  # a placeholder: the error is raised anyway
            parents.append(0)
    draft.names, draft.parents = names, parents


def _fill_classes(content: dict[str, Any], draft: Draft, at: Callable[..., str]) -> None:
    inner = set(draft.parents)
    stops = _node_ids("stops", content.get("stops", []), draft, at)
    for number, node in stops.items():
        if node in inner:
            draft.problems.append(f"the stop leaf {draft.names[node]!r} has children ({at('stops', number)})")
    draft.stops = list(stops.values())
    if content.get("classes") is None:
        return
    known = len(draft.problems)
    draft.classes = list(_node_ids("classes", content["classes"], draft, at).values())
    chosen = set(draft.classes)
    missing = [name for node, name in enumerate(draft.names) if node and node not in inner and node not in chosen]
    if missing and len(draft.problems) == known:
        draft.problems.append(
            f"classes lacks {len(missing)} {'leaf' if len(missing) == 1 else 'leaves'}: {listing(missing)} "
            f"({at('classes')})"
        )


def _node_ids(key: str, values: Any, draft: Draft, at: Callable[..., str]) -> dict[int, int]:
    """Return the valid node ids of a list by their position, from 1; the others become problems of the draft."""
    if not isinstance(values, list):
        draft.problems.append(f"{key} is a list of node ids, found {_short(values)} ({at(key)})")
        return {}
    good: dict[int, int] = {}
    first: dict[int, int] = {}
    for number, node in enumerate(values, start=1):
        if type(node) is not int or not 1 <= node < len(draft.names):
            draft.problems.append(
                f"{key} contains node ids from 1 to {len(draft.names) - 1}, found {_short(node)} ({at(key, number)})"
            )
        elif node in first:
            kind = "class" if key == "classes" else "stop leaf"
            where = " and ".join(dict.fromkeys((at(key, first[node]), at(key, number))))
            draft.problems.append(f"the {kind} {draft.names[node]!r} (node {node}) is repeated ({where})")
        else:
            first[node] = number
            good[number] = node
    return good


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return "a deeply nested value"
    return text if len(text) <= 60 else text[:59] + "…"
