"""Labels as scikit-learn and hiclass write them, read into paths of a tree and given back as they were.

C classes, L levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from arbormax.data.labels import guess_separator, infer_taxonomy, label_nodes
from arbormax.errors import InputError, LabelError
from arbormax.sklearn.inputs import fills
from arbormax.taxonomy import Taxonomy


def rows_of(y: Any) -> list[tuple[str, ...]] | None:
    """The paths that rows of names spell, less what fills them up on the right, or None where labels are plain.

    A row is one of a 2-D array or table, a list or a tuple. "", None and NaN fill up.

    >>> rows_of([["a", "b"], ["c", ""], ["d"]])
    [('a', 'b'), ('c',), ('d',)]
    >>> rows_of(["a", "b"]), rows_of([["a"], ["b"]])
    (None, None)
    """
    shape = getattr(y, "shape", None)
    if shape is not None and len(shape) > 2:
        raise InputError(f"y has one label per item, or a row of names: found shape {tuple(shape)}")
    if shape is not None and len(shape) == 2 and not hasattr(y, "tocsr"):
        rows = y.rows() if callable(getattr(y, "rows", None)) else np.asarray(y, dtype=object).tolist()
        if shape[1] == 1:
            return None
    else:
        is_listed = isinstance(y, (list, tuple)) or str(getattr(y, "dtype", "")) == "object"
        items = list(y) if is_listed else ()
        if not len(items) or not any(isinstance(item, (list, tuple, np.ndarray)) for item in items):
            return None
        rows = [item if isinstance(item, (list, tuple, np.ndarray)) else (item,) for item in items]
        if all(len(row) == 1 for row in rows):
            return None
    _refuse_indicators(rows)
    return [_path(row, i) for i, row in enumerate(rows)]


def _refuse_indicators(rows: Sequence[Sequence[Any]]) -> None:
    numbers = {value for row in rows for value in row if isinstance(value, Real)}
    if numbers and numbers <= {0, 1} and len({len(row) for row in rows}) == 1:
        raise InputError(
            "y looks like a multilabel indicator, a column of 0 and 1 for each class; an item has one label here. If "
            "these are paths of names, give them as strings"
        )


def _path(row: Sequence[Any], place: int) -> tuple[str, ...]:
    names = list(row)
    while names and fills(names[-1]):
        names.pop()
    path = tuple(name for name in map(_name, names) if name is not None)
    if not path or len(path) < len(names) or not all(path):
        what = "is empty" if not names else f"has something that is no name: {list(row)!r}"
        raise InputError(f"y: row {place} {what}; a row has names from the top of the tree down, then '' or None")
    return path


def _name(value: Any) -> str | None:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real) and float(value).is_integer():  # pandas writes whole numbers so beside missing ones
        return str(int(float(value)))
    return None


@dataclass(frozen=True)
class Form:
    """How the labels of a training were written, to read others and to write answers.

    `levels` is the width of rows of names, None for plain labels. `separator` splits plain strings into paths; where
    it is None they are names of a given taxonomy (`is_given`), or else each a class of a flat tree.
    """

    levels: int | None
    separator: str | None
    is_given: bool

    def nodes(self, y: Any, tax: Taxonomy, classes: np.ndarray, missing: int | None = None) -> np.ndarray:
        """(n,) the node of each label, in any form that `fit` takes; `classes` are those of the training."""
        labels: list[Any] | None = rows_of(y)
        if labels is None:
            labels = _listed(y)
            if self.is_given:
                _refuse_numbers(labels)
            elif self.separator is None and self.levels is None:  # as they compare: 1 is 1.0
                numbers = {label: number for number, label in enumerate(classes.tolist())}
                found = np.array([numbers.get(label, -1) for label in labels], np.int64)
                if missing is None and (found < 0).any():
                    raise LabelError(f"{labels[int(found.argmin())]!r} is none of the classes of the training")
                return np.where(found < 0, -1 if missing is None else missing, tax.leaves[found])
        return label_nodes(labels, tax, separator=self.separator, missing=missing)


def _refuse_numbers(labels: Sequence[Any]) -> None:
    wrong = next((label for label in labels if not isinstance(label, str)), "")
    if wrong != "":
        raise InputError(
            f"with a taxonomy a label is a string or a row of names, found {wrong!r} ({type(wrong).__name__}); "
            "scikit-learn turns labels into numbers for some tools, see docs/classifier.md"
        )


def read_labels(y: Any, given: Taxonomy | None) -> tuple[Taxonomy, np.ndarray, Form, np.ndarray]:
    """The tree, the (n,) nodes of the labels, their form, and (C,) or (C, L) the classes as they are written in it."""
    paths = rows_of(y)
    if paths is not None:
        tax = infer_taxonomy(sorted(set(paths))) if given is None else given
        form = Form(max(_width(y, paths), tax.depth), None, given is not None)
        classes = _rows(tax, form)
        if isinstance(y, np.ndarray) and y.dtype.kind in "iu":  # answers are then whole numbers too
            classes = classes.astype(y.dtype)
        return tax, form.nodes(y, tax, classes), form, classes
    distinct = np.unique(np.asarray(y))
    if given is None and (separator := guess_separator(distinct.tolist())) is None:
        tax = Taxonomy.from_paths([(str(label),) for label in distinct.tolist()])
        form = Form(None, None, is_given=False)
        return tax, form.nodes(y, tax, distinct), form, distinct
    tax = infer_taxonomy(distinct.tolist(), separator) if given is None else given
    form = Form(None, separator if given is None else None, given is not None)
    nodes = form.nodes(y, tax, distinct)
    return tax, nodes, form, _written(tax, form, _listed(y), nodes)


def _rows(tax: Taxonomy, form: Form) -> np.ndarray:
    """(C, L) the path of every class, filled up with ""."""
    assert form.levels is not None
    return np.array([[*path, *[""] * (form.levels - len(path))] for path in _class_paths(tax)])


def _written(tax: Taxonomy, form: Form, labels: Sequence[str], nodes: np.ndarray) -> np.ndarray:
    """(C,) each class as the first label that named it; those that none named, in the same manner."""
    seen: dict[int, str] = {}
    for number, label in zip(tax.class_of[nodes].tolist(), labels, strict=True):
        seen.setdefault(number, label)
    seen.pop(-1, None)
    written = list(tax.classes)
    if any(label != written[number] for number, label in seen.items()):
        written = [(form.separator or "/").join(path) for path in _class_paths(tax)]
    for number, label in seen.items():
        written[number] = label
    return np.array(written)


def _class_paths(tax: Taxonomy) -> list[tuple[str, ...]]:
    """The path of every class; a class that is an inner node has its own, not that of the leaf that stands for it."""
    nodes = np.where(np.isin(tax.leaves, tax.stops), tax.parent[tax.leaves], tax.leaves)
    return [tax.path(node) for node in nodes.tolist()]


def _listed(y: Any) -> list[Any]:
    if isinstance(y, Mapping):
        return list(y)
    array = y if isinstance(y, np.ndarray) else np.asarray(y, dtype=object)
    listed: list[Any] = array.reshape(-1).tolist()
    return listed


def _width(y: Any, paths: Sequence[tuple[str, ...]]) -> int:
    shape: tuple[int, ...] = getattr(y, "shape", ())
    return int(shape[1]) if len(shape) == 2 else max(map(len, paths))
