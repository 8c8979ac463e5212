"""Labelled texts: what every reader gives and every training takes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from arbormax.errors import InputError


@dataclass(frozen=True, eq=False)
class Examples:
    """Texts and the node of the taxonomy that each belongs to; any node may be a label, not only a class."""

    texts: list[str]
    nodes: np.ndarray  # (len(texts),) int64 node ids

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", np.asarray(self.nodes, dtype=np.int64).reshape(-1))
        if len(self.texts) != len(self.nodes):
            raise InputError(f"expected one label per text, found {len(self.texts)} texts and {len(self.nodes)} labels")
        for i, text in enumerate(self.texts):
            if not isinstance(text, str):
                raise InputError(f"a text is a str; text {i} is of type {type(text).__name__}")

    def __len__(self) -> int:
        return len(self.texts)

    def digest(self) -> str:
        """A fingerprint of texts and labels, in their order."""
        digest = hashlib.sha256(self.nodes.tobytes())
        for text in self.texts:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8) + data)
        return digest.hexdigest()

    def take(self, items: ArrayLike) -> Examples:
        """The examples at these positions, in this order.

        >>> Examples(["a", "b"], np.array([1, 2])).take([1]).texts
        ['b']
        """
        rows = np.asarray(items, dtype=np.int64)
        return Examples([self.texts[i] for i in rows], self.nodes[rows])
