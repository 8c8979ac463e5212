"""Stratified splits that also work for labels with fewer examples than folds.

scikit-learn's stratified folds reject data in which every class is rare, and may validate on labels that are missing
from the training part. Both are common with taxonomies.
"""

from __future__ import annotations

import numpy as np

from arbormax.data.examples import Examples
from arbormax.errors import OptionError


def assign_folds(nodes: np.ndarray, folds: int, seed: int = 0) -> np.ndarray:
    """(n,) the fold that validates each example; -1 for the only example of a label, which is always in training.

    >>> assign_folds(np.array([1, 1, 2, 2, 3]), folds=2).tolist().count(-1)
    1
    """
    if not 2 <= folds <= len(nodes):
        raise OptionError(f"expected 2 to {len(nodes)}, the number of examples, found {folds}", argument="folds")
    order, _ = _by_label(nodes, seed)
    shared = order[np.bincount(nodes)[nodes[order]] > 1]
    if len(shared) < folds:
        message = f"only {len(shared)} examples share their label with another, too few for {folds} folds"
        raise OptionError(message, argument="folds")
    fold = np.full(len(nodes), -1, dtype=np.int64)
    # neighbours are in different folds, so a label with fewer examples than folds is in each fold at most once
    fold[shared] = np.arange(len(shared)) % folds
    return fold


def hold_out(examples: Examples, share: float, seed: int = 0) -> tuple[Examples, Examples | None]:
    """The examples in two parts, the second with this share of every label; every label is in the first part."""
    if not share:
        return examples, None
    chosen = choose_held_out(examples.nodes, share, seed)
    rest = np.setdiff1d(np.arange(len(examples)), chosen)
    return examples.take(rest), examples.take(chosen)


def choose_held_out(nodes: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """The sorted positions of this share of the examples of every label, but not of the only one of a label."""
    order, position = _by_label(nodes, seed)
    spare = order[position > 0]
    count = min(len(spare), max(1, round(share * len(nodes))))
    if not count:
        raise OptionError("every label has only one example, so no validation part is possible", fix={"validation": 0})
    return np.sort(spare[(np.arange(count) * len(spare)) // count])


def _by_label(nodes: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The examples sorted by label, shuffled within each label, and the position of each within its label."""
    draw = np.random.default_rng(seed).permutation(len(nodes))
    order = draw[np.argsort(nodes[draw], kind="stable")]
    labels = nodes[order]
    starts = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]])) if len(labels) else np.zeros(0, int)
    position = np.arange(len(labels)) - np.repeat(starts, np.diff(np.append(starts, len(labels))))
    return order, position
