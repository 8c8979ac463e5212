"""OBO: the terms of an ontology, such as the Gene Ontology, and their is_a relations.

A node is a term: its name is the id of the term, and its text the name and the definition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arbormax.errors import OptionError, TaxonomyError, did_you_mean
from arbormax.taxonomy._build import add_terms
from arbormax.taxonomy._draft import Draft
from arbormax.taxonomy.formats._format import Format, lines
from arbormax.taxonomy.formats._texts import join_texts
from arbormax.taxonomy.labels import listing

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_COMMENT = re.compile(r"(?<!\\)(?:\s!|\s*\{).*$")  # a comment, or qualifiers in braces
_ESCAPES = {"n": "\n", "t": "\t", "W": " "}
_ESCAPED = re.compile(r"\\(.)")


@dataclass
class _Term:
    line: int
    id: str = ""
    name: str = ""
    text: str = ""
    is_obsolete: bool = False
    parents: list[tuple[str, int]] = field(default_factory=list)  # with their lines


def read_obo(text: str, draft: Draft, *, names: str = "id", root: str | None = None) -> None:
    """Read the terms of an ontology that are not obsolete.

    `names` says what the names of the nodes are, "id" or "name"; `root` is the term whose descendants are read.
    """
    if names not in ("id", "name"):
        raise OptionError(f"expected 'id' or 'name', found {names!r}", argument="names")
    terms: dict[str, _Term] = {}
    for term in _read_terms(text, draft):
        if not term.id:
            draft.problems.append(f"a term without an id (line {term.line})")
        elif term.id in terms:
            draft.problems.append(f"the id {term.id!r} is repeated (line {terms[term.id].line} and line {term.line})")
        elif not term.is_obsolete:
            terms[term.id] = term
    for term in terms.values():
        for parent, line in term.parents:
            if parent not in terms:
                hint = did_you_mean(parent, terms)
                draft.problems.append(f"the parent {parent!r} of {term.id!r} is not a term{hint} (line {line})")
    draft.fail_on_problems()
    rows = [(_title(term, names), list(dict.fromkeys(p for p, _ in term.parents)), key) for key, term in terms.items()]
    texts = [join_texts("" if names == "name" or t.name == t.id else t.name, t.text) for t in terms.values()]
    add_terms(draft, rows, texts, [f"line {term.line}" for term in terms.values()], root)


def _title(term: _Term, names: str) -> str:
    return (term.name or term.id) if names == "name" else term.id


def _read_terms(text: str, draft: Draft) -> Iterator[_Term]:
    term: _Term | None = None
    for number, line in enumerate(lines(text), start=1):
        if line.startswith("["):
            if term is not None:
                yield term
            term = _Term(number) if line.strip() == "[Term]" else None
            continue
        tag, colon, value = line.partition(":")
        if term is None or not colon:
            if line.strip() and not colon:
                draft.problems.append(f"expected 'tag: value', found {line[:60]!r} (line {number})")
            continue
        value = value.strip()
        if tag == "id":
            term.id = _plain(value)
        elif tag == "name":
            term.name = _unescape(value)
        elif tag == "def" and (match := _QUOTED.match(value)):
            term.text = _unescape(match[1])
        elif tag == "is_a":
            term.parents.append((_plain(value), number))
        elif tag == "is_obsolete":
            term.is_obsolete = _plain(value) == "true"
    if term is not None:
        yield term


def _plain(value: str) -> str:
    """Return a value without the comment and the qualifiers after it."""
    return _unescape(_COMMENT.sub("", value).strip())


def _unescape(value: str) -> str:
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), value) if "\\" in value else value


def write_obo(tax: Taxonomy) -> Iterator[str]:
    if odd := [name for name in tax.names if name != name.strip() or "\r" in name]:
        raise TaxonomyError(f"OBO cannot store names such as {listing(odd, 3)}; save the taxonomy as .json")
    names = [_escape(name).replace(" ", "\\W") for name in tax.names]
    stanzas = ["format-version: 1.2\n"]
    for node, name in enumerate(names):
        rows = ["[Term]", f"id: {name}", f"name: {_escape(tax.names[node])}"]
        text = tax.given_texts[node] if tax.given_texts else None
        if text:
            rows.append(f'def: "{_escape(text)}" []')
        rows += [f"is_a: {names[above]}" for above in tax.parents(node).tolist()]
        stanzas.append("\n".join(rows) + "\n")
    yield "\n".join(stanzas)


def _escape(value: str) -> str:
    for char, escaped in (("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t"), ('"', '\\"'), ("!", "\\!"), ("{", "\\{")):
        value = value.replace(char, escaped)
    return value


OBO = Format("OBO", (".obo",), read_obo, write_obo, ("names", "root"), names_repeat=False, write_graph=write_obo)
