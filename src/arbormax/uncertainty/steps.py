"""The steps of labelled items down the tree: what every calibration is fitted on.

B items, N nodes, L = depth + 1 levels, S steps, Z cells (the siblings of all steps), D draws of the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arbormax.taxonomy import Taxonomy

_LOWEST = -1000.0  # a log-probability of minus infinity has no gradient


@dataclass(frozen=True, eq=False)
class Steps:
    """The sibling groups on the paths to the labels; groups of one node, which are certain, are left out."""

    item: np.ndarray  # (S,) the item of each step
    parent: np.ndarray  # (S,) the node whose children compete
    target: np.ndarray  # (S,) the cell of the right child
    start: np.ndarray  # (S,) the first cell
    node: np.ndarray  # (Z,) the child
    logp: np.ndarray  # (D, Z) its log-probability given the parent; D is 1 for a model without uncertainty
    items: int

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def step(self) -> np.ndarray:
        """(Z,) the step of each cell."""
        return np.repeat(np.arange(len(self)), np.diff(np.append(self.start, len(self.node))))

    def take(self, items: np.ndarray) -> Steps:
        """The steps of these items, given as (items,) booleans."""
        chosen_S = items[self.item]
        sizes = np.diff(np.append(self.start, len(self.node)))
        start = np.cumsum(sizes[chosen_S]) - sizes[chosen_S]
        cells = chosen_S[self.step]
        offset = (self.target - self.start)[chosen_S]
        number = np.cumsum(items) - 1
        return Steps(
            number[self.item[chosen_S]],
            self.parent[chosen_S],
            start + offset,
            start,
            self.node[cells],
            self.logp[:, cells],
            int(items.sum()),
        )


def find_steps(logp: np.ndarray, nodes_B: np.ndarray, tax: Taxonomy) -> Steps:
    """The steps of items with these labels, which may be inner nodes, from (B, N) or (D, B, N) log-probabilities."""
    logp_DBN = logp if logp.ndim == 3 else logp[None]
    path_BL = tax.ancestor_at(nodes_B[:, None], np.arange(1, tax.depth + 1))  # -1 past the end
    item, level = np.nonzero(path_BL >= 0)
    child = path_BL[item, level]
    parent = tax.parent[child]
    sizes = tax.num_children[parent]
    is_open = sizes > 1
    item, child, parent, sizes = item[is_open], child[is_open], parent[is_open], sizes[is_open]
    start = np.cumsum(sizes) - sizes
    first = tax.child_start[parent]
    step = np.repeat(np.arange(len(sizes)), sizes)
    node = np.arange(len(step)) - start[step] + first[step]
    with np.errstate(invalid="ignore"):
        logp_DZ = logp_DBN[:, item[step], node].astype(np.float64) - logp_DBN[:, item[step], parent[step]]
    logp_DZ = np.maximum(np.where(np.isnan(logp_DZ), 0.0, logp_DZ), _LOWEST)
    return Steps(item, parent, start + child - first, start, node, logp_DZ, len(nodes_B))


def join_steps(parts: Sequence[Steps]) -> Steps:
    """The steps of several batches together."""
    items = np.cumsum([0, *(part.items for part in parts)])
    cells = np.cumsum([0, *(len(part.node) for part in parts)])
    moved = list(zip(parts, items.tolist(), cells.tolist(), strict=False))
    return Steps(
        np.concatenate([part.item + shift for part, shift, _ in moved]),
        np.concatenate([part.parent for part in parts]),
        np.concatenate([part.target + shift for part, _, shift in moved]),
        np.concatenate([part.start + shift for part, _, shift in moved]),
        np.concatenate([part.node for part in parts]),
        np.concatenate([part.logp for part in parts], axis=1),
        int(items[-1]),
    )
