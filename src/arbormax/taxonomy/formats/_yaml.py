"""YAML: nested mappings and lists. Names are read as they are written: `no` is the name "no"."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from arbormax.errors import MissingDependencyError, TaxonomyError
from arbormax.taxonomy._draft import Draft
from arbormax.taxonomy.formats._check import preorder
from arbormax.taxonomy.formats._format import Format
from arbormax.taxonomy.formats._nested import NestedBuilder

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

_MAX_DEPTH = 1000  # parsing time grows with the square of the depth
_TAG = "tag:yaml.org,2002:"
_PLAIN = re.compile(r"\w(?:[\w .&+/()-]*[\w.&+/()-])?")


def read(text: str, draft: Draft) -> None:
    yaml = _yaml("reading YAML")
    builder = NestedBuilder(draft, lambda line: f"line {line}")
    try:
        # Events instead of composed nodes: composing recurses, in the fast loader without a recursion limit.
        _read_events(yaml, yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), builder)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        draft.problems.append(f"invalid YAML: {what}{place}")
        draft.fail_on_problems()


def _read_events(yaml: Any, events: Iterator[Any], builder: NestedBuilder) -> None:
    documents = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents == 2:
                builder.problem("a taxonomy file contains one document, found a second one", line)
        if getattr(event, "anchor", None) is not None:
            kind = "alias *" if isinstance(event, yaml.AliasEvent) else "anchor &"
            builder.problem(f"the {kind}{event.anchor} is not supported; write the names in full", line)
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in ("!", *(_TAG + kind for kind in ("str", "map", "seq"))):
            builder.problem(f"the tag {tag!r} is not supported", line)
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if builder.depth == _MAX_DEPTH:
                raise yaml.YAMLError(f"more than {_MAX_DEPTH} levels; save a tree this deep as .json")
            builder.open(isinstance(event, yaml.MappingStartEvent), line)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            builder.close()
        elif isinstance(event, yaml.AliasEvent):
            builder.name(f"*{event.anchor}", line)  # a placeholder: the error is raised anyway
        elif isinstance(event, yaml.ScalarEvent):
            plain = event.implicit[0]
            if plain and event.value in ("", "~", "null", "Null", "NULL") and builder.expects_value:
                builder.null(line)
            elif builder.depth or event.value or not plain:
                builder.name(event.value, line)


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

    # Children become a mapping if all of them are inner nodes, otherwise a list.
    inner = ~tax.is_leaf
    listed = [not all(inner[first:stop]) for first, stop in zip(tax.child_start, tax.child_start[1:], strict=False)]
    indent = [-2] + [0] * (tax.num_nodes - 1)
    rows = []
    for node in preorder(tax)[1:]:
        parent = int(tax.parent[node])
        # the dash of a list item indents its children further
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


YAML = Format("YAML", (".yaml", ".yml"), read, write)
