"""Splits that keep every label's share, also where a label has fewer examples than there are parts.

scikit-learn's stratified folds refuse data in which every class is rare, and validate on labels that training then
never saw; taxonomies have many of both.
"""

from __future__ import annotations

import numpy as np

from arbormax.data.examples import Examples
from arbormax.errors import OptionError


def fold_of(nodes: np.ndarray, folds: int, seed: int = 0) -> np.ndarray:
    """(n,) the fold in which each example is validated; -1 for the only example of a label, which is always trained on.

    >>> fold_of(np.array([1, 1, 2, 2, 3]), folds=2).tolist().count(-1)
    1
    """
    if not 2 <= folds <= len(nodes):
        raise OptionError(f"folds lie between 2 and the {len(nodes)} examples, not {folds}")
    order, _ = _by_label(nodes, seed)
    shared = order[np.bincount(nodes)[nodes[order]] > 1]
    if len(shared) < folds:
        raise OptionError(f"{len(shared)} examples share their label with another, too few for {folds} folds")
    fold = np.full(len(nodes), -1, dtype=np.int64)
    # neighbours go to different folds, so a label with fewer examples than folds meets each fold once at most
    fold[shared] = np.arange(len(shared)) % folds
    return fold


def held_out(examples: Examples, share: float, seed: int = 0) -> tuple[Examples, Examples | None]:
    """The examples in two parts, the second with this share of every label; every label stays in the first."""
    if not share:
        return examples, None
    order, position = _by_label(examples.nodes, seed)
    spare = order[position > 0]
    count = min(len(spare), max(1, round(share * len(examples))))
    if not count:
        raise OptionError("every label has one example only: nothing can be held out, so give validation=0")
    chosen = np.sort(spare[(np.arange(count) * len(spare)) // count])
    rest = np.setdiff1d(np.arange(len(examples)), chosen)
    return examples.take(rest), examples.take(chosen)


def _by_label(nodes: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The examples sorted by label and shuffled within it, and each one's position within its label."""
    draw = np.random.default_rng(seed).permutation(len(nodes))
    order = draw[np.argsort(nodes[draw], kind="stable")]
    labels = nodes[order]
    starts = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]])) if len(labels) else np.zeros(0, int)
    position = np.arange(len(labels)) - np.repeat(starts, np.diff(np.append(starts, len(labels))))
    return order, position
