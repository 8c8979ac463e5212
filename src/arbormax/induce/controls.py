"""Trees to compare with: the same tree with shuffled classes, and no tree."""

from __future__ import annotations

import numpy as np

from arbormax.taxonomy import Taxonomy


def shuffle_classes(taxonomy: Taxonomy, seed: int = 0) -> Taxonomy:
    """The same tree with its classes at random leaves: what is left is only its shape.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> shuffled = shuffle_classes(tax, seed=1)
    >>> shuffled.classes, shuffled.path(shuffled.find("z"))
    (('x', 'y', 'z'), ('group 2', 'z'))
    """
    order = np.random.default_rng(seed).permutation(taxonomy.num_leaves)
    taken, names, number = set(taxonomy.classes), [""] * taxonomy.num_nodes, 0
    for node in np.flatnonzero(~taxonomy.is_leaf)[1:].tolist():  # the old names would not fit the new classes
        number += 1
        while f"group {number}" in taken:
            number += 1
        names[node] = f"group {number}"
    for leaf, label in zip(taxonomy.leaves[order].tolist(), taxonomy.classes, strict=True):
        names[leaf] = label
    above = [[*taxonomy.ancestors(leaf).tolist()[1:], leaf] for leaf in taxonomy.leaves[order].tolist()]
    return Taxonomy.from_paths([tuple(names[node] for node in path) for path in above])


def flatten(taxonomy: Taxonomy) -> Taxonomy:
    """The classes directly below the root.

    >>> flatten(Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})).depth
    1
    """
    return Taxonomy.from_paths([(label,) for label in taxonomy.classes])
