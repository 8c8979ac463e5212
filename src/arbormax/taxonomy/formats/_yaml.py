"""YAML: nested mappings and lists whose names are taken as they are written, so that `no` is the name "no"."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from arbormax.errors import MissingDependencyError, TaxonomyError
from arbormax.taxonomy._draft import Draft
from arbormax.taxonomy.formats._check import preorder
from arbormax.taxonomy.formats._nested import NestedBuilder
from arbormax.taxonomy.tree import Taxonomy

# YAML parsers take time that grows with the square of the depth; nobody writes such a file by hand.
_DEEPEST = 1000
_TAG = "tag:yaml.org,2002:"
_PLAIN = re.compile(r"\w(?:[\w .&+/()-]*[\w.&+/()-])?")


def read(text: str, draft: Draft) -> None:
    yaml = _yaml("reading YAML")
    builder = NestedBuilder(draft, lambda line: f"line {line}")
    try:
        # Events, not composed nodes: composing recurses, and the fast loader does so without Python's guard.
        _read_events(yaml, yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), builder)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        draft.problems.append(f"not YAML: {what}{place}")
        draft.fail_on_problems()


def _read_events(yaml: Any, events: Iterator[Any], builder: NestedBuilder) -> None:
    documents = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents == 2:
                builder.problem("a second document begins; a taxonomy file holds one", line)
        if getattr(event, "anchor", None) is not None:
            kind = "alias *" if isinstance(event, yaml.AliasEvent) else "anchor &"
            builder.problem(f"the {kind}{event.anchor} is not read; write the names out", line)
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in ("!", *(_TAG + kind for kind in ("str", "map", "seq"))):
            builder.problem(f"the tag {tag!r} is not read", line)
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if builder.depth == _DEEPEST:
                raise yaml.YAMLError(f"more than {_DEEPEST} levels deep; a tree this deep needs a .json file")
            builder.open(isinstance(event, yaml.MappingStartEvent), line)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            builder.close()
        elif isinstance(event, yaml.AliasEvent):
            builder.name(f"*{event.anchor}", line)  # a stand-in: the error above is raised in any case
        elif isinstance(event, yaml.ScalarEvent):
            plain = event.implicit[0]
            if plain and event.value in ("", "~", "null", "Null", "NULL") and builder.awaits_value_of_key:
                builder.nothing(line)
            elif builder.depth or event.value or not plain:
                builder.name(event.value, line)


def write(tax: Taxonomy) -> Iterator[str]:
    yaml = _yaml("writing YAML")
    if tax.depth >= _DEEPEST:
        raise TaxonomyError(f"the tree is {tax.depth:,} levels deep, too deep for YAML; save it as .json")
    resolver = yaml.resolver.Resolver()

    def quote(name: str) -> str:
        # a plain `no` or `1.0` is a name to us, but not to other readers
        if _PLAIN.fullmatch(name) and resolver.resolve(yaml.ScalarNode, name, (True, False)) == _TAG + "str":
            return name
        return "".join(
            char if char.isprintable() else f"\\U{ord(char):08x}" for char in json.dumps(name, ensure_ascii=False)
        )

    # Children that are all inner nodes make a mapping, others a list, in which a leaf is just its name.
    inner = ~tax.is_leaf
    listed = [not all(inner[first:stop]) for first, stop in zip(tax.child_start, tax.child_start[1:], strict=False)]
    indent = [-2] + [0] * (tax.num_nodes - 1)
    rows = []
    for node in preorder(tax)[1:]:
        parent = int(tax.parent[node])
        # an inner item of a list stands after its dash, so what is below it begins further right
        dashed = parent and listed[int(tax.parent[parent])]
        indent[node] = indent[parent] + (4 if dashed else 2)
        rows.append(f"{' ' * indent[node]}{'- ' * listed[parent]}{quote(tax.names[node])}{':' * bool(inner[node])}\n")
    yield "".join(rows)


def _yaml(feature: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingDependencyError(feature, "PyYAML", "text") from None
    return yaml
