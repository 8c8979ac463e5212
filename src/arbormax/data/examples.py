"""Labelled examples: what every reader returns and every training takes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from arbormax.errors import InputError

if TYPE_CHECKING:
    from arbormax.taxonomy import Taxonomy

Matrix = Any  # a float32 array, or a scipy matrix or array in CSR format


class Unseen(NamedTuple):
    """A label that the taxonomy does not have."""

    label: str
    parent: int  # the deepest inner node on its path that the taxonomy has


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and the node of the taxonomy that each belongs to; a label may be any node, not only a class.

    The inputs are a list of texts, or the rows of a feature matrix: a numpy array or a scipy CSR matrix. Test examples
    may have labels that the taxonomy does not have: the node of `unseen[i]` is the number of nodes plus i.
    """

    inputs: Any  # list[str] or Matrix
    nodes: np.ndarray  # (n,) int64 node ids
    unseen: tuple[Unseen, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", np.asarray(self.nodes, dtype=np.int64).reshape(-1))
        count = self.inputs.shape[0] if self._is_matrix else len(self.inputs)
        if count != len(self.nodes):
            raise InputError(f"expected one label per example, found {count} examples and {len(self.nodes)} labels")
        if not self._is_matrix:
            for i, text in enumerate(self.inputs):
                if not isinstance(text, str):
                    raise InputError(f"expected texts of type str; text {i} is of type {type(text).__name__}")

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def _is_matrix(self) -> bool:
        return getattr(self.inputs, "ndim", 1) == 2

    def digest(self) -> str:
        """A fingerprint of inputs and labels, in their order."""
        digest = hashlib.sha256(self.nodes.tobytes())
        if self._is_matrix:
            X = self.inputs
            for part in (X,) if isinstance(X, np.ndarray) else (X.data, X.indices, X.indptr):
                digest.update(np.ascontiguousarray(part).tobytes())
            return digest.hexdigest()
        for text in self.inputs:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8) + data)
        return digest.hexdigest()

    def take(self, items: ArrayLike) -> Examples:
        """The examples at these positions, in this order.

        >>> Examples(["a", "b"], np.array([1, 2])).take([1]).inputs
        ['b']
        """
        rows = np.asarray(items, dtype=np.int64)
        inputs = self.inputs[rows] if self._is_matrix else [self.inputs[i] for i in rows]
        return Examples(inputs, self.nodes[rows], self.unseen)

    def unseen_counts(self, tax: Taxonomy) -> dict[str, int]:
        """The number of examples with each label that the taxonomy does not have."""
        counts = np.bincount(self.nodes, minlength=tax.num_nodes + len(self.unseen))[tax.num_nodes :].tolist()
        return {unseen.label: count for unseen, count in zip(self.unseen, counts, strict=True) if count}

    def describe_unseen(self, tax: Taxonomy, items: str = "test texts") -> str | None:
        """How many examples have labels that the taxonomy does not have, and which; None if there are none."""
        counts = self.unseen_counts(tax)
        if not counts:
            return None
        count, labels = sum(counts.values()), sorted(counts, key=lambda label: (-counts[label], label))
        first = ", ".join(f"{label!r} ({counts[label]:,})" for label in labels[:10]) + ", …" * (len(labels) > 10)
        have = f"{count:,} of {len(self):,} {items} {'has a label' if count == 1 else 'have labels'}"
        errors = "counts as an error" if count == 1 else "count as errors"
        return f"{have} that training did not see, and {errors}: {first}"
