"""From examples to a taxonomy: reads the arguments, clusters, and names the nodes.

n examples, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arbormax.errors import InputError, LabelError, OptionError, did_you_mean, import_extra
from arbormax.induce.constraints import Skeleton, build_skeleton, read_together, read_top
from arbormax.induce.items import Items, is_text
from arbormax.induce.methods import INDUCERS
from arbormax.induce.naming import name_nodes
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.labels import DistinctLabels


@dataclass(frozen=True)
class Options:
    """The arguments of `induce` that are not data."""

    method: str
    branching: int | None
    depth: int | None
    encoder: str
    encoder_options: Mapping[str, Any]
    texts: Mapping[str, str]
    seed: int


def build(
    X: Any,
    labels: Iterable[str],
    options: Options,
    classes: Iterable[str] | None,
    together: Iterable[Sequence[str]],
    top: Any,
) -> Taxonomy:
    """The taxonomy; see `arbormax.induce`."""
    INDUCERS.check(options.method)
    import_extra("sklearn", "inducing a taxonomy", "scikit-learn", "sklearn")
    names, class_n = _read_labels(labels, classes)
    inputs = None if X is None else _read_inputs(X, len(class_n))
    known = set(names)
    if unknown := [label for label in options.texts if label not in known]:
        raise LabelError(f"{unknown[0]!r} is not a class{did_you_mean(unknown[0], names)}", unknown, argument="texts")
    branching = _read_branching(options.branching, options.depth, len(names))
    item_of_class = read_together(together, names, branching)
    items = Items(
        names, class_n, item_of_class, inputs, options.texts, options.encoder, options.encoder_options, options.seed
    )
    cluster = INDUCERS[options.method]
    skeleton = build_skeleton(
        read_top(top, names),
        item_of_class,
        lambda chosen, shape: cluster(items, chosen, shape),
        branching,
        options.depth,
        names,
    )
    return _build_taxonomy(skeleton, items)


def _build_taxonomy(skeleton: Skeleton, items: Items) -> Taxonomy:
    texts = [f"{label} {items.texts.get(label, '')}" for label in items.classes]
    inputs = items.inputs if items.inputs is not None and is_text(items.inputs) else None
    names = name_nodes(
        skeleton.parent, skeleton.class_parent, skeleton.names, items.classes, texts, inputs, items.class_n
    )
    paths: list[tuple[str, ...]] = [()]
    for node in range(1, len(names)):
        paths.append((*paths[skeleton.parent[node]], names[node]))
    above = skeleton.class_parent.tolist()
    tax = Taxonomy.from_paths((*paths[node], label) for node, label in zip(above, items.classes, strict=True))
    return tax.with_texts(items.texts) if items.texts else tax


def _read_labels(labels: Iterable[str], classes: Iterable[str] | None) -> tuple[tuple[str, ...], np.ndarray]:
    """The classes in order, and (n,) the class of each label."""
    distinct = DistinctLabels(labels)
    distinct.raise_problems(
        {
            label: f"expected a string that is not empty, found {label!r}"
            for label in distinct.items
            if not isinstance(label, str) or not label
        }
    )
    names = tuple(sorted(distinct.items)) if classes is None else tuple(classes)
    number = {label: at for at, label in enumerate(names)}
    if len(number) != len(names) or not all(isinstance(label, str) and label for label in names):
        raise OptionError("expected different strings that are not empty", argument="classes")
    distinct.raise_problems(
        {label: f"{label!r} is not among the classes" for label in distinct.items if label not in number}
    )
    if len(names) < 2:
        raise OptionError(f"a tree needs at least two classes, found {len(names)}", argument="labels")
    return names, distinct.spread(number[label] for label in distinct.items)


def _read_inputs(X: Any, count: int) -> Any:
    """A list of texts or a float array or CSR matrix, with one row for each label."""
    found = X.shape[0] if hasattr(X, "shape") else len(X)
    if isinstance(X, str) or found != count:
        raise InputError(f"expected {count} texts or rows of features, one for each label, found {found}", argument="X")
    if is_text(X):
        texts = list(X)
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise InputError(f"expected texts or a feature matrix, found {type(wrong[0]).__name__}", argument="X")
        return texts
    if X.shape[1] == 0:
        raise InputError("expected a matrix with at least one column", argument="X")
    if hasattr(X, "tocsr"):
        values, matrix = X.tocsr().data, X.tocsr()
    else:
        try:
            values = matrix = np.asarray(X, np.float64)
        except (TypeError, ValueError):
            raise InputError("expected texts or a matrix of numbers", argument="X") from None
    if not np.isfinite(values).all():
        raise InputError("expected finite numbers, found NaN or infinity", argument="X")
    return matrix


def _read_branching(branching: int | None, depth: int | None, classes: int) -> int:
    for name, value, least in (("branching", branching, 2), ("depth", depth, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least):
            raise OptionError(f"expected an integer of at least {least}, found {value!r}", argument=name)
    if branching is not None:
        return int(branching)
    if depth is None:
        raise OptionError("expected a number of children, or a depth", argument="branching")
    least = max(2, int(classes ** (1 / depth)) - 1)
    while least**depth < classes:
        least += 1
    return least
