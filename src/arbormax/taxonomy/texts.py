"""The texts of nodes: a longer name or a description for each, beside the names that identify them."""

from __future__ import annotations

from collections.abc import Iterable
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Any

from arbormax.errors import LabelError, TaxonomyError
from arbormax.taxonomy.labels import Label, join_path

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

NodeTexts = tuple[str | None, ...]  # (N,) the text of each node, None for nodes without one


def resolve_texts(tax: Taxonomy, entries: Iterable[tuple[Label, Any, str]], source: str | None) -> NodeTexts:
    """Return the texts of all nodes after (label, text, place) entries are added; `source` is the name of a file."""
    given = list(tax.given_texts or (None,) * tax.num_nodes)
    problems: list[str] = []
    first: dict[int, tuple[Label, str]] = {}
    for label, text, place in entries:
        at = f" ({place})" if place else ""
        if not isinstance(text, str) or not text.strip():
            what = "empty" if isinstance(text, str) else f"{short_repr(text)} of type {type(text).__name__}"
            problems.append(f"the text of {label!r} is a string that is not empty, found {what}{at}")
            continue
        try:
            node = tax.find(label)
        except LabelError as error:
            problems.append(f"{error.message}{at}")
            continue
        if node in first:
            other, before = first[node]
            both = f" ({before} and {place})" if place else f" ({other!r} and {label!r})"
            path = repr(join_path(tax.path(node))) if node else "the root"
            problems.append(f"two texts for {path}{both}")
            continue
        first[node] = label, place
        given[node] = text.strip()
    if problems:
        prefix = f"{source}: " if source else ""
        message = problems[0] if len(problems) == 1 else f"{len(problems)} node texts cannot be used:"
        raise TaxonomyError(prefix + message, problems, argument=None if source else "texts")
    return tuple(given)
