"""Browse and search the taxonomy: a page of the children of a node, and the nodes whose names contain some words."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import numpy as np

from arbormax.model.predict import NodeNames
from arbormax.taxonomy import Taxonomy

_EXACT, _START, _WORD, _INSIDE = range(4)


class TreeIndex:
    """A taxonomy with an index of its names; a page or a search takes milliseconds on a hundred thousand nodes."""

    def __init__(self, taxonomy: Taxonomy, names: NodeNames, title: str) -> None:
        self.taxonomy, self.names = taxonomy, names
        self._summary = {
            "name": title,
            "classes": taxonomy.num_leaves,
            "nodes": taxonomy.num_nodes,
            "depth": taxonomy.depth,
            "fingerprint": taxonomy.fingerprint,
        }
        # All names except the root's in one UTF-8 string: a match of bytes is a match of characters. UTF-8 never
        # contains the byte 255, which separates the names.
        folded = [_fold(name) for name in taxonomy.names[1:]]
        self._bytes = np.frombuffer(b"".join(name + b"\xff" for name in folded), np.uint8)
        self._byte_counts = np.bincount(self._bytes, minlength=256)
        self._start = np.concatenate([[0], np.cumsum([len(name) + 1 for name in folded])]).astype(np.int64)

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
        nodes = self._find(words)
        tax = self.taxonomy
        matches = [
            {
                "node": node,
                "name": tax.names[node],
                "label": self.names.label(node),
                "path": list(self.names.path(node)),
                "classes": int(tax.leaf_counts[node]),
            }
            for node in nodes[offset : offset + limit].tolist()
        ]
        return {"matches": matches, "total": len(nodes)}

    def _find(self, words: str) -> np.ndarray:
        parts = [_fold(part) for part in words.split()]
        if not parts:
            return np.empty(0, np.int64)
        nodes, rank = self._rank_matches(b" ".join(parts))
        if len(parts) > 1:  # names that contain the words separately come last
            apart = self._rank_matches(parts[0])[0]
            for part in dict.fromkeys(parts[1:]):
                apart = np.intersect1d(apart, self._rank_matches(part)[0], assume_unique=True)
            apart = np.setdiff1d(apart, nodes, assume_unique=True)
            nodes, rank = np.concatenate([nodes, apart]), np.concatenate([rank, np.full(len(apart), _INSIDE + 1)])
        length = self._start[nodes] - self._start[nodes - 1]
        found: np.ndarray = nodes[np.lexsort((nodes, length, rank))]
        return found

    def _rank_matches(self, part: bytes) -> tuple[np.ndarray, np.ndarray]:
        """The nodes whose names contain this part, in ascending order, and the rank of each match."""
        rarest, *others = sorted(range(len(part)), key=lambda place: self._byte_counts[part[place]])
        at = np.flatnonzero(self._bytes[rarest : max(0, len(self._bytes) - len(part)) + rarest] == part[rarest])
        for place in others:
            at = at[self._bytes[at + place] == part[place]]
        if not len(at):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        name = np.searchsorted(self._start, at, "right") - 1
        starts = at == self._start[name]
        whole = starts & (self._start[name + 1] - at == len(part) + 1)
        word = ~_LETTER[self._bytes[at - 1]]  # index -1 is the last separator
        rank = np.where(whole, _EXACT, np.where(starts, _START, np.where(word, _WORD, _INSIDE)))
        first = np.flatnonzero(np.diff(name, prepend=-1))
        return name[first] + 1, np.minimum.reduceat(rank, first)


def _fold(name: str) -> bytes:
    """A name without case, accents and repeated whitespace."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name.casefold()) if not unicodedata.combining(c))
    return " ".join(re.split(r"\s+", plain)).encode("utf-8", "surrogatepass")


_LETTER = np.array([byte != 0xFF and (byte >= 0x80 or chr(byte).isalnum()) for byte in range(256)])
