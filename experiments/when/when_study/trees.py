"""Trees and labels of the study. Class c is the same class in every tree."""

from __future__ import annotations

import numpy as np

from arbormax.taxonomy import Taxonomy


def make_tree(tax: Taxonomy, kind: str, seed: int) -> Taxonomy:
    """The taxonomy, one with shuffled classes, or one with its upper levels alone.

    A shuffled tree has the same shape, with the classes at random leaves. `levels2` has the nodes of the first level,
    and all classes below them. Classes are named by their number.
    """
    paths = [tax.path(leaf)[:-1] for leaf in tax.leaves]
    if kind == "shuffled":
        order = np.random.default_rng(seed).permutation(len(paths))
        paths = [paths[place] for place in order]
    elif kind.startswith("levels"):
        paths = [path[: int(kind.removeprefix("levels")) - 1] for path in paths]
    return Taxonomy.from_paths([(*path, f"class {number}") for number, path in enumerate(paths)])


def make_labels(
    tax: Taxonomy, classes: np.ndarray, share: float, rest: str, seed: int
) -> tuple[np.ndarray, list[tuple[str, ...]]]:
    """The places of the training examples, and their labels as paths.

    A share of the examples keeps its class; the others are dropped, or their label is the parent or grandparent of the
    class. Examples whose label would be the root are dropped. Larger shares contain smaller ones.
    """
    order = np.random.default_rng(seed).permutation(len(classes))
    fine = np.zeros(len(classes), bool)
    fine[order[: round(share * len(classes))]] = True
    cut = {"dropped": None, "parent": -1, "grandparent": -2}[rest]
    places, labels = [], []
    for place, number in enumerate(classes):
        path = tax.path(tax.leaves[number])
        label = path if fine[place] else path[:cut] if cut is not None else ()
        if label:
            places.append(place)
            labels.append(label)
    return np.array(places), labels
