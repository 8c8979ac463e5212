"""JSON: nested mappings and lists, or the flat list of nodes that `save` writes and that stores everything.

In the flat layout node 0 is the root and the rows of `nodes` are nodes 1, 2, …, so its numbers are node ids.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Any

from arbormax.errors import TaxonomyError, did_you_mean
from arbormax.taxonomy._build import Items, Pairs, Scalar, add_nested, add_parents
from arbormax.taxonomy._draft import ROOT, Draft, in_brackets
from arbormax.taxonomy.formats._format import Format
from arbormax.taxonomy.labels import listing

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

_NAME, _GRAPH = "arbormax.taxonomy", "arbormax.graph"
_VERSION = 1
_KEYS = ("format", "version", "root", "nodes", "classes", "stops", "texts")
_SIGNATURE = re.compile(rf'"format"\s*:\s*"(?:{re.escape(_NAME)}|{re.escape(_GRAPH)})"')
_BLANK = re.compile(r"[ \t\n\r]*")
_CLOSING = {"{": "}", "[": "]"}
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def read(text: str, draft: Draft) -> None:
    if not text.strip():
        return
    try:
        # Large files are flat: Python's own parser is faster, and only a defect needs the lines.
        flat = json.loads(text, object_pairs_hook=tuple) if _SIGNATURE.search(text) else None
        is_flat = isinstance(flat, tuple) and not {("format", _NAME), ("format", _GRAPH)}.isdisjoint(
            pair for pair in flat if pair[0] == "format"
        )
        content = None if is_flat else parse(text)
    except RecursionError:
        raise draft.fail("invalid JSON: a saved taxonomy has no lists inside of its rows") from None
    except ValueError as error:
        raise draft.fail(f"invalid JSON: {error}") from None
    if flat is not None and is_flat:
        read_flat(flat, draft, _find_lines(text))
    else:
        add_nested(draft, content)
        _refuse_objects(draft)


def parse(text: str) -> Any:
    """Return the content as `Items`, `Pairs` and `Scalar`, with lines; unlike `json.loads`, to any depth."""
    decode = json.JSONDecoder().raw_decode
    stack: list[tuple[str, int, list[Any]]] = [("", 1, [])]  # each open bracket, its line and the content so far
    expects_value = True  # or a key; False after one, where a separator follows
    position, line = 0, 1
    while True:
        start, position = position, _BLANK.match(text, position).end()  # type: ignore[union-attr]  # it always matches
        line += text.count("\n", start, position)
        mark = text[position : position + 1]
        bracket, opened, content = stack[-1]
        awaits_colon = bracket == "{" and len(content) % 2 == 1
        if not bracket and not expects_value:
            if mark:
                raise json.JSONDecodeError("Extra data", text, position)
            return content[0]
        if mark and mark == _CLOSING.get(bracket) and not awaits_colon and not (expects_value and content):
            stack.pop()
            stack[-1][2].append(Pairs(content, opened) if bracket == "{" else Items(content, opened))
            expects_value = False
            position += 1
        elif not expects_value:
            separator = ":" if awaits_colon else ","
            if mark != separator:
                raise json.JSONDecodeError(f"Expecting {separator!r} delimiter", text, position)
            expects_value = True
            position += 1
        elif bracket == "{" and not awaits_colon and mark != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, position)
        elif mark in _CLOSING:
            stack.append((mark, line, []))
            position += 1
        else:
            value, position = decode(text, position)
            content.append(Scalar(value, line))
            expects_value = False


def _find_lines(text: str) -> Callable[..., str]:
    """Return the function from a key of the flat layout, and a number in its list, to the line."""

    @cache
    def pairs() -> dict[str, tuple[int, Any]]:
        return {key.value: (key.line, value) for key, value in parse(text)}

    def place(key: str, number: int | None = None) -> str:
        if key not in pairs():
            return ""
        line, value = pairs()[key]
        return f"line {line if number is None else value[number].line}"

    return place


def _refuse_objects(draft: Draft) -> None:
    """Reject objects with fields such as `name` and `children`, whose field names would become classes."""
    tops = {name for name, parent in zip(draft.names, draft.parents, strict=True) if parent == -1}
    for fields in ({"name", "children"}, {"id", "parent"}, {"name", "parent"}):
        if fields <= tops and len(tops) <= 4:
            listed = " and ".join(repr(name) for name in sorted(fields))
            raise draft.fail(
                f"objects with the fields {listed} are not supported; write the names themselves, "
                'as in {"animal": ["cat", "dog"]}, or use Taxonomy.from_edges'
            )


def to_dict(tax: Taxonomy) -> dict[str, Any]:
    """Return the content of the flat layout."""
    nodes: list[list[Any]]
    if tax.is_graph:
        nodes = [[name, tax.parents(node).tolist()] for node, name in enumerate(tax.names[1:], start=1)]
    else:
        nodes = [list(row) for row in zip(tax.names[1:], tax.parent[1:].tolist(), strict=True)]
    values = (_GRAPH if tax.is_graph else _NAME, _VERSION, tax.names[0], nodes, tax.leaves.tolist(), tax.stops.tolist())
    content = dict(zip(_KEYS, values, strict=False))
    if tax.given_texts is not None:
        content["texts"] = [[node, text] for node, text in enumerate(tax.given_texts) if text]
    return content


def write(tax: Taxonomy) -> Iterator[str]:
    text = _render(tax, ascii_only=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can only write as an escape
        paired = [name for name in (*tax.names, *(tax.given_texts or ())) if name and _PAIR.search(name)]
        if paired:
            raise TaxonomyError(
                f"the name or text {paired[0]!a} contains a character as two surrogates, which JSON cannot "
                "distinguish from the character itself; change it"
            ) from None
        text = _render(tax, ascii_only=True)
    yield text


def _render(tax: Taxonomy, ascii_only: bool) -> str:
    """Return the flat layout with one node per line."""
    encode = json.JSONEncoder(ensure_ascii=ascii_only).encode
    content = to_dict(tax)
    rows = ",\n".join(f"[{encode(name)}, {parent}]" for name, parent in content["nodes"])
    lines = [f'"{key}": {encode(value)}' for key, value in content.items() if key not in ("nodes", "texts")]
    lines.insert(3, f'"nodes": [\n{rows}\n]')
    if "texts" in content:
        texts = ",\n".join(f"[{node}, {encode(text)}]" for node, text in content["texts"])
        lines.append(f'"texts": [\n{texts}\n]')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _entry(key: str, number: int | None = None) -> str:
    return "" if number is None else f"{key}[{number}]"


def read_flat(pairs: Iterable[tuple[str, Any]], draft: Draft, place: Callable[..., str] = _entry) -> Draft:
    """Fill a draft from the keys and values of the flat layout; `place` describes a key or an entry of its list."""
    pairs = list(pairs)
    content = {"root": ROOT, "stops": [], "texts": [], **dict(pairs)}

    def at(key: str, *numbers: int | None) -> str:
        return in_brackets(*(place(key, number) for number in numbers or (None,)))

    def entries(key: str, expected: str, is_valid: Callable[[Any], bool]) -> list[tuple[int, Any]]:
        """Return the valid entries of a list with their numbers; the others become problems of the draft."""
        if not isinstance(values := content.get(key), list):
            draft.problems.append(f"{key} is a list of {expected}, found {short_repr(values)}{at(key)}")
            return []
        valid = []
        for number, value in enumerate(values):
            if is_valid(value):
                valid.append((number, value))
            else:
                draft.problems.append(f"{key} is a list of {expected}, found {short_repr(value)}{at(key, number)}")
        return valid

    def node_ids(key: str) -> list[int]:
        first: dict[int, int] = {}
        for number, node in entries(
            key, f"node ids from 1 to {len(rows)}", lambda node: type(node) is int and 1 <= node <= len(rows)
        ):
            if node in first:
                again = at(key, first[node], number)
                draft.problems.append(f"{draft.names[node]!r} (node {node}) is repeated in {key}{again}")
            first.setdefault(node, number)
        return list(first)

    draft.where = lambda node: place("nodes", node - 1) if node else place("root")
    draft.has_root = True
    for key, count in Counter(key for key, _ in pairs).items():
        if key not in _KEYS:
            draft.problems.append(f"unknown key {key!r}{did_you_mean(key, _KEYS)}{at(key)}")
        elif count > 1:
            draft.problems.append(f"the key {key!r} is repeated {count} times{at(key)}")
    version = content.get("version")
    if type(version) is not int or version < 1:
        draft.problems.append(f"version is a positive integer, found {version!r}{at('version')}")
    elif version > _VERSION:
        raise draft.fail(
            f"the file has version {version} of this format, and this arbormax reads versions up to {_VERSION}; "
            f"install a newer arbormax{at('version')}"
        )
    if not isinstance(content["root"], str):
        draft.problems.append(f"the name of the root is a string, found {short_repr(content['root'])}{at('root')}")
    draft.is_graph, draft.by_number = content.get("format") == _GRAPH, True
    if draft.is_graph:
        rows = entries("nodes", "[name, parents] rows", _has_parents)
    else:
        rows = entries("nodes", "[name, parent] rows", lambda row: _has_types(row, str, int))
    draft.fail_on_problems()
    draft.names = [content["root"], *(name for _, (name, _) in rows)]
    draft.parents = [-1, *(above[0] if draft.is_graph else above for _, (_, above) in rows)]
    if draft.is_graph:
        add_parents(draft, [[], *(above for _, (_, above) in rows)])
    inner = {*draft.parents, *(above for above, *_ in draft.further)}
    draft.stops = node_ids("stops")
    draft.problems += [
        f"the stop leaf {draft.names[node]!r} has children{draft.at(node)}" for node in draft.stops if node in inner
    ]
    if content.get("classes") is not None:
        draft.classes = node_ids("classes")
        used = inner.union(draft.classes)
        missing = [name for node, name in enumerate(draft.names) if node not in used]
        if missing and not draft.problems:
            leaves = "leaf" if len(missing) == 1 else "leaves"
            draft.problems.append(f"classes lacks {len(missing)} {leaves}: {listing(missing)}{at('classes')}")
    for number, (node, text) in entries(
        "texts",
        f"[node, text] rows with node ids from 0 to {len(rows)}",
        lambda row: _has_types(row, int, str) and 0 <= row[0] <= len(rows),
    ):
        draft.describe(node, text, place("texts", number))
    return draft


def _has_parents(row: Any) -> bool:
    is_pair = _has_types(row, str, list)
    return is_pair and bool(row[1]) and all(type(parent) is int for parent in row[1])


def _has_types(row: Any, *types: type) -> bool:
    return type(row) is list and tuple(map(type, row)) == types


JSON = Format("JSON", (".json",), read, write, keeps_all=True, write_graph=write)
