"""JSON: nested mappings and lists, read token by token to know lines and repeated keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # typeshed leaves it out

from arbormax.taxonomy._draft import Draft
from arbormax.taxonomy.formats import _native
from arbormax.taxonomy.formats._format import Format
from arbormax.taxonomy.formats._nested import NestedBuilder
from arbormax.taxonomy.formats._text import Positions, TextError

_TOKEN = re.compile(
    r'[ \t\n\r]*(?:([{}\[\]:,])|(")|(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null|NaN|-?Infinity))'
)
_BLANK = re.compile(r"[ \t\n\r]*")
_STRING, _LITERAL = '"', "literal"

Token = tuple[str, str, int]  # kind (the character itself for a bracket, ':' or ','), text, position


def read(text: str, draft: Draft) -> None:
    if not text.strip():
        return
    if _native.NAME in text and (content := _native.parse(text)) is not None:
        _native.fill(content, draft, lambda: _places(text))
        return
    positions = Positions(text)
    try:
        _read_nested(text, NestedBuilder(draft, lambda position: f"line {positions.line(position)}"))
        _refuse_objects(draft)
    except TextError as error:
        if _native.NAME in text:
            draft.problems.clear()  # the file is meant to be in our own format, where numbers are valid
        draft.problems.append(f"invalid JSON: {error} ({positions.at(error.position)})")
        draft.fail_on_problems()


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


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    while match := _TOKEN.match(text, position):
        mark, quote, literal = match.groups()
        position = match.end()
        if mark:
            yield mark, mark, position - 1
        elif literal:
            yield _LITERAL, literal, match.start(3)
        elif quote:
            start = position - 1
            try:
                string, position = scanstring(text, position, True)
            except JSONDecodeError as error:
                raise TextError(error.msg[0].lower() + error.msg[1:], error.pos) from None
            yield _STRING, string, start
    position = _BLANK.match(text, position).end()  # type: ignore[union-attr]  # it also matches the empty string
    if position < len(text):
        raise TextError(f"unexpected {text[position]!r}", position)
    yield "end", "the end of the file", position


def _read_nested(text: str, builder: NestedBuilder) -> None:
    open_marks: list[str] = []
    awaited = "value"
    for kind, found, position in _tokens(text):
        if kind == "end" and awaited == "end":
            return
        if awaited.startswith("value") and kind in "{[":
            builder.open(kind == "{", position)
            open_marks.append(kind)
            awaited = "key or }" if kind == "{" else "value or ]"
            continue
        if kind in "}]" and open_marks and kind == _CLOSES[open_marks[-1]] and awaited.endswith((kind, "more")):
            builder.close()
            open_marks.pop()
        elif awaited.startswith("value") and kind == _STRING:
            builder.name(found, position)
        elif awaited.startswith("value") and kind == _LITERAL:
            if found == "null":
                builder.null(position)
            else:
                builder.invalid(found, position)
        elif awaited.startswith("key") and kind == _STRING:
            builder.name(found, position)
            awaited = ":"
            continue
        elif awaited == ":" and kind == ":":
            awaited = "value"
            continue
        elif awaited == "more" and kind == ",":
            awaited = "key" if open_marks[-1] == "{" else "value"
            continue
        else:
            shown = (
                found if kind == "end" else json.dumps(found, ensure_ascii=False) if kind == _STRING else repr(found)
            )
            wanted = _WANTED[awaited].format(close=_CLOSES[open_marks[-1]] if open_marks else "")
            raise TextError(f"expected {wanted}, found {shown}", position)
        awaited = "more" if open_marks else "end"


_CLOSES = {"{": "}", "[": "]"}
_WANTED = {
    "value": "a name, a list or a mapping",
    "value or ]": "a name, a list, a mapping or ']'",
    "key": "a name in double quotes",
    "key or }": "a name in double quotes or '}}'",
    ":": "':'",
    "more": "',' or '{close}'",
    "end": "the end of the file",
}


def _places(text: str) -> dict[str, list[int]]:
    """Return the lines of a file in our own format: of each top-level key, then of the entries of its list."""
    positions = Positions(text)
    found: dict[str, list[int]] = {}
    depth, key, awaits_key = 0, "", True
    for kind, value, position in _tokens(text):
        if depth == 1 and kind == _STRING and awaits_key:
            key, awaits_key = value, False
            found.setdefault(key, []).append(positions.line(position))
        elif depth == 1 and kind == ",":
            awaits_key = True
        elif depth == 2 and kind not in ",:]}":
            found[key].append(positions.line(position))
        depth += (kind in "{[") - (kind in "}]")
    return found


JSON = Format("JSON", (".json",), read, _native.write, keeps_all=True)
