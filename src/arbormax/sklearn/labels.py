"""Labels as scikit-learn and hiclass write them: strings, rows of names, or any values that can be compared.

C classes, L levels, n items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from arbormax.data.labels import guess_separator, infer_taxonomy, label_nodes
from arbormax.errors import InputError, LabelError
from arbormax.sklearn.inputs import is_padding
from arbormax.taxonomy import Taxonomy

WHOLE = "\0"  # a separator that occurs in no label: a string is one name


@dataclass(frozen=True)
class LabelFormat:
    """How the labels of a training were written, to read further labels in the same way.

    `levels` is the width of rows of names, None for plain labels. `separator` splits strings into paths. Without a
    separator, strings are what `Taxonomy.find` accepts if the taxonomy was given (`is_given`), and values that are
    compared with `classes_` if not.
    """

    levels: int | None
    separator: str | None
    is_given: bool


class Labels(NamedTuple):
    """The labels of a training."""

    taxonomy: Taxonomy
    nodes: np.ndarray  # (n,) int64
    format: LabelFormat
    classes: np.ndarray  # (C,) or (C, L): the classes as `predict` returns them


def read_text_labels(labels: Sequence[Any], taxonomy: Taxonomy | None) -> Labels:
    """The labels of texts: strings or tuples of names."""
    separator = None
    if taxonomy is None:
        separator = guess_separator(labels)
        taxonomy = infer_taxonomy(labels, separator, sort=True)
        separator = separator or WHOLE
    nodes = label_nodes(labels, taxonomy, separator=separator)
    return Labels(taxonomy, nodes, LabelFormat(None, separator, separator is None), np.array(taxonomy.classes))


def read_labels(y: Any, taxonomy: Taxonomy | None) -> Labels:
    """The labels of a feature matrix: rows of names, strings, or without a taxonomy any values."""
    is_given = taxonomy is not None
    paths = path_rows(y)
    if paths is not None:
        tax = infer_taxonomy(paths, sort=True) if taxonomy is None else taxonomy
        written = LabelFormat(max(_width(y, paths), tax.depth), None, is_given)
        classes = _class_rows(tax, written.levels)
        if isinstance(y, np.ndarray) and y.dtype.kind in "iu":  # predictions are whole numbers, too
            classes = classes.astype(y.dtype)
        return Labels(tax, find_nodes(y, tax, written, classes), written, classes)
    values = np.unique(np.asarray(y))
    separator = guess_separator(values.tolist()) if taxonomy is None else None
    if taxonomy is not None or separator is not None:
        tax = infer_taxonomy(values.tolist(), separator, sort=True) if taxonomy is None else taxonomy
        classes = np.array(tax.classes)
    else:
        tax = Taxonomy.from_paths([(str(value),) for value in values.tolist()])
        classes = values
    written = LabelFormat(None, separator, is_given)
    return Labels(tax, find_nodes(y, tax, written, classes), written, classes)


def find_nodes(
    y: Any, tax: Taxonomy, format: LabelFormat, classes: np.ndarray, missing: int | None = None
) -> np.ndarray:
    """(n,) the nodes of labels in any form that `read_labels` accepts; `classes` are those of the training."""
    labels: list[Any] | None = path_rows(y)
    if labels is None:
        labels = _to_list(y)
        if format.is_given:
            _check_strings(labels)
        elif format.separator is None and format.levels is None:  # compared by value: 1 equals 1.0
            numbers = {label: number for number, label in enumerate(classes.tolist())}
            found = np.array([numbers.get(label, -1) for label in labels], np.int64)
            if missing is None and (found < 0).any():
                raise LabelError(f"{labels[int(found.argmin())]!r} is not a class of the training")
            return np.where(found < 0, -1 if missing is None else missing, tax.leaves[found])
    return label_nodes(labels, tax, separator=format.separator, missing=missing)


def node_labels(nodes: np.ndarray, tax: Taxonomy, format: LabelFormat, classes: np.ndarray) -> np.ndarray:
    """(n,) or (n, L) the labels of nodes in the form of `classes`; the root is an empty string or an empty row."""
    numbers = tax.class_of[nodes]
    if (numbers >= 0).all():
        labels: np.ndarray = classes[numbers]
        return labels
    of_node = {node: tax.path(node) if format.levels else tax.label(node) for node in np.unique(nodes).tolist()}
    if format.levels is not None:
        return np.array([[*of_node[node], *[""] * (format.levels - len(of_node[node]))] for node in nodes.tolist()])
    found = [of_node[node] if c < 0 else classes[c] for node, c in zip(nodes.tolist(), numbers.tolist(), strict=True)]
    return np.array(found, dtype=None if classes.dtype.kind == "U" else object)


def path_rows(y: Any) -> list[tuple[str, ...]] | None:
    """The paths of rows of names without the padding on the right, or None if the labels are plain.

    A row is one of a 2-D array or table, a list or a tuple. "", None and NaN are padding.

    >>> path_rows([["a", "b"], ["c", ""], ["d"]])
    [('a', 'b'), ('c',), ('d',)]
    >>> path_rows(["a", "b"]), path_rows([["a"], ["b"]])
    (None, None)
    """
    shape = getattr(y, "shape", None)
    if shape is not None and len(shape) > 2:
        raise InputError(f"expected one label or one row of names per item, found shape {tuple(shape)}", argument="y")
    if shape is not None and len(shape) == 2 and not hasattr(y, "tocsr"):
        rows = y.rows() if callable(getattr(y, "rows", None)) else np.asarray(y, dtype=object).tolist()
        if shape[1] == 1:
            return None
    else:
        is_list = isinstance(y, (list, tuple)) or str(getattr(y, "dtype", "")) == "object"
        items = list(y) if is_list else ()
        if not len(items) or not any(isinstance(item, (list, tuple, np.ndarray)) for item in items):
            return None
        rows = [item if isinstance(item, (list, tuple, np.ndarray)) else (item,) for item in items]
        if all(len(row) == 1 for row in rows):
            return None
    _check_not_multilabel(rows)
    return [_path(row, i) for i, row in enumerate(rows)]


def _check_not_multilabel(rows: Sequence[Sequence[Any]]) -> None:
    numbers = {value for row in rows for value in row if isinstance(value, Real)}
    if numbers and numbers <= {0, 1} and len({len(row) for row in rows}) == 1:
        raise InputError(
            "found a multilabel indicator matrix of zeros and ones, expected one label per item; write paths of names "
            "as strings",
            argument="y",
        )


def _path(row: Sequence[Any], place: int) -> tuple[str, ...]:
    names = list(row)
    while names and is_padding(names[-1]):
        names.pop()
    path = tuple(name for name in map(_name, names) if name is not None)
    if not path or len(path) < len(names) or not all(path):
        what = "is empty" if not names else f"contains a value that is not a name: {list(row)!r}"
        raise InputError(f"row {place} {what}; expected names from the top down, then '' or None", argument="y")
    return path


def _name(value: Any) -> str | None:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real) and float(value).is_integer():  # pandas turns integers beside missing values into floats
        return str(int(float(value)))
    return None


def _check_strings(labels: Sequence[Any]) -> None:
    wrong = next((label for label in labels if not isinstance(label, str)), "")
    if wrong != "":
        raise InputError(
            f"with a taxonomy a label is a string or a row of names, found {wrong!r} ({type(wrong).__name__}); "
            "some tools of scikit-learn turn labels into numbers, see docs/classifier.md",
            argument="y",
        )


def _class_rows(tax: Taxonomy, levels: int | None) -> np.ndarray:
    """(C, L) the path of every class, padded with ""."""
    assert levels is not None
    # a class that is an inner node is written as that node, not as its virtual leaf
    nodes = np.where(np.isin(tax.leaves, tax.stops), tax.parent[tax.leaves], tax.leaves)
    paths = [tax.path(node) for node in nodes.tolist()]
    return np.array([[*path, *[""] * (levels - len(path))] for path in paths])


def _to_list(y: Any) -> list[Any]:
    if isinstance(y, Mapping):
        return list(y)
    array = y if isinstance(y, np.ndarray) else np.asarray(y, dtype=object)
    values: list[Any] = array.reshape(-1).tolist()
    return values


def _width(y: Any, paths: Sequence[tuple[str, ...]]) -> int:
    shape: tuple[int, ...] = getattr(y, "shape", ())
    return int(shape[1]) if len(shape) == 2 else max(map(len, paths))
