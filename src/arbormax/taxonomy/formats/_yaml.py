"""YAML: nested mappings and lists. Names are read as they are written: `no` is the name "no"."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from arbormax.errors import TaxonomyError, import_extra
from arbormax.taxonomy._build import DESCRIPTION, Items, Pairs, Scalar, add_nested
from arbormax.taxonomy._draft import Draft
from arbormax.taxonomy.formats._format import Format, preorder

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

_MAX_DEPTH = 1000  # parsing time grows with the square of the depth
_TAG = "tag:yaml.org,2002:"
_PLAIN = re.compile(r"\w(?:[\w .&+/()-]*[\w.&+/()-])?")


def read(text: str, draft: Draft) -> None:
    yaml = _yaml("reading YAML")
    try:
        documents = _load(yaml, text, draft)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        draft.problems.append(f"invalid YAML: {what}{place}")
        draft.fail_on_problems()
    if documents and documents[0] != Scalar("", 1):
        add_nested(draft, documents[0])


def _load(yaml: Any, text: str, draft: Draft) -> list[Any]:
    """Return the documents of a text as `Items`, `Pairs` and `Scalar`."""
    documents: list[Any] = []
    opened: list[tuple[type[Items], int, list[Any]]] = [(Items, 1, documents)]  # its line and the content so far
    # Events instead of composed nodes: composing recurses, in the fast loader without a recursion limit.
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        _refuse_references(yaml, event, draft)
        kind, first_line, content = opened[-1]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent) and len(documents) == 1:
            draft.problems.append(f"a taxonomy file contains one document, found a second one (line {line})")
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if len(opened) > _MAX_DEPTH:
                raise yaml.YAMLError(f"more than {_MAX_DEPTH} levels; save a tree this deep as .json")
            opened.append((Pairs if isinstance(event, yaml.MappingStartEvent) else Items, line, []))
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            opened.pop()
            opened[-1][2].append(kind(content, first_line))
        elif isinstance(event, yaml.AliasEvent):
            content.append(Scalar(f"*{event.anchor}", line))  # a placeholder: the error is raised anyway
        elif isinstance(event, yaml.ScalarEvent):
            is_null = event.implicit[0] and event.value in ("", "~", "null", "Null", "NULL")
            is_value = kind is Pairs and len(content) % 2 == 1
            content.append(Scalar(None if is_null and is_value else event.value, line))
    return documents


def _refuse_references(yaml: Any, event: Any, draft: Draft) -> None:
    """Report anchors, aliases and tags, which would change what is written in the file."""
    place = f"(line {event.start_mark.line + 1})"
    if getattr(event, "anchor", None) is not None:
        kind = "alias *" if isinstance(event, yaml.AliasEvent) else "anchor &"
        draft.problems.append(f"the {kind}{event.anchor} is not supported; write the names in full {place}")
    tag = getattr(event, "tag", None)
    if tag is not None and tag not in ("!", *(_TAG + kind for kind in ("str", "map", "seq"))):
        draft.problems.append(f"the tag {tag!r} is not supported {place}")


def write(tax: Taxonomy) -> Iterator[str]:
    yaml = _yaml("writing YAML")
    if tax.depth >= _MAX_DEPTH:
        raise TaxonomyError(f"YAML supports {_MAX_DEPTH:,} levels, and the tree has {tax.depth:,}; save it as .json")
    resolver = yaml.resolver.Resolver()

    def quote(name: str) -> str:
        # other readers do not read a plain `no` or `1.0` as a string
        if _PLAIN.fullmatch(name) and resolver.resolve(yaml.ScalarNode, name, (True, False)) == _TAG + "str":
            return name
        return "".join(
            char if char.isprintable() else f"\\U{ord(char):08x}" for char in json.dumps(name, ensure_ascii=False)
        )

    # Children become a mapping if all of them have a value (children or a description), otherwise a list.
    texts = np.array(tax.given_texts or [None] * tax.num_nodes, object)
    inner = ~tax.is_leaf | (texts != None)  # noqa: E711 - compares each element
    listed = [not all(inner[first:stop]) for first, stop in zip(tax.child_start, tax.child_start[1:], strict=False)]
    indent = [-2] + [0] * (tax.num_nodes - 1)
    rows = [f"{'- ' * listed[0]}{DESCRIPTION}: {quote(texts[0])}\n"] if texts[0] else []
    for node in preorder(tax)[1:]:
        parent = int(tax.parent[node])
        # the dash of a list item indents its children further
        dashed = parent and listed[int(tax.parent[parent])]
        indent[node] = indent[parent] + (4 if dashed else 2)
        rows.append(f"{' ' * indent[node]}{'- ' * listed[parent]}{quote(tax.names[node])}{':' * bool(inner[node])}\n")
        if texts[node]:
            own = indent[node] + (4 if listed[parent] else 2)
            rows.append(f"{' ' * own}{'- ' * listed[node]}{DESCRIPTION}: {quote(texts[node])}\n")
    yield "".join(rows)


def _yaml(feature: str) -> Any:
    return import_extra("yaml", feature, "PyYAML", "text")


YAML = Format("YAML", (".yaml", ".yml"), read, write)
