"""Browse and search the taxonomy: a page of the children of a node, and the nodes whose names contain some words."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from arbormax.model.predict import NodeNames
from arbormax.taxonomy import Taxonomy


class TreeIndex:
    """A taxonomy with its names in the form in which a search compares them."""

    def __init__(self, taxonomy: Taxonomy, names: NodeNames, title: str) -> None:
        self.taxonomy, self.names = taxonomy, names
        self._summary = {
            "name": title,
            "classes": taxonomy.num_leaves,
            "nodes": taxonomy.num_nodes,
            "depth": taxonomy.depth,
            "fingerprint": taxonomy.fingerprint,
        }
        self._folded = [_fold(name) for name in taxonomy.names]

    def node(self, node: int) -> dict[str, Any]:
        """A short description of a node."""
        tax = self.taxonomy
        return {
            "node": node,
            "name": tax.names[node],
            "label": self.names.label(node),
            "classes": int(tax.leaf_counts[node]),
            "children": int(tax.num_children[node]),
        }

    def page(self, node: int, offset: int, limit: int) -> dict[str, Any]:
        """A node, its ancestors, and some of its children."""
        children = self.taxonomy.children(node)
        return {
            **self._summary,
            "node": self.node(node),
            "ancestors": [self.node(ancestor) for ancestor in self.taxonomy.ancestors(node).tolist()],
            "children": [self.node(child) for child in children[offset : offset + limit].tolist()],
            "total": len(children),
            "offset": offset,
        }

    def search(self, words: str, offset: int, limit: int) -> dict[str, Any]:
        """The nodes whose names contain all the words, best matches first."""
        parts = _fold(words).split()
        phrase = " ".join(parts)
        starts_word = re.compile(rf"(?<![^\W_]){re.escape(phrase)}")
        found = list(range(1, len(self._folded))) if parts else []
        for part in parts:
            found = [node for node in found if part in self._folded[node]]

        def rank(node: int) -> tuple[bool, bool, bool, bool, int]:
            """Equal names first, then prefixes, starts of words, other positions, and words that stand apart."""
            name = self._folded[node]
            is_start, is_word = name.startswith(phrase), starts_word.search(name) is not None
            return name != phrase, not is_start, not is_word, phrase not in name, len(name)

        found.sort(key=rank)
        page = found[offset : offset + limit]
        matches = [{**self.node(node), "path": list(self.names.path(node))} for node in page]
        return {"matches": matches, "total": len(found)}


def _fold(name: str) -> str:
    """A name without case, accents and repeated whitespace."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name.casefold()) if not unicodedata.combining(c))
    return " ".join(re.split(r"\s+", plain))
