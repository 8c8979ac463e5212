"""What scikit-learn's users pass: texts, parameter values, and labels as scikit-learn and hiclass write them.

C classes, L levels, n items.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from arbormax._excel import cell_text
from arbormax.data.columns import InputColumns
from arbormax.data.labels import guess_separator, infer_taxonomy, label_nodes
from arbormax.data.tables import describe_missing
from arbormax.errors import InputError, LabelError, OptionError
from arbormax.taxonomy import Taxonomy, load_taxonomy

WHOLE = "\0"  # a separator that occurs in no label: a string is one name


def to_python(value: Any) -> Any:
    """numpy numbers, as scikit-learn's searches draw them, as Python numbers; also inside mappings and lists."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: to_python(item) for key, item in value.items()}
    return [to_python(item) for item in value] if isinstance(value, list) else value


def as_taxonomy(value: Any) -> Taxonomy:
    """A taxonomy from a `Taxonomy`, the path of a file, or nested mappings."""
    if isinstance(value, Taxonomy):
        return value
    if isinstance(value, (str, os.PathLike)):
        return load_taxonomy(value)
    if isinstance(value, (Mapping, list, tuple)):
        return Taxonomy.from_nested(value)
    raise OptionError(
        f"expected a Taxonomy, the path of a file, nested mappings or None, not {type(value).__name__}",
        argument="taxonomy",
    )


def check_text_pairs(X: Any, y: Any, columns: InputColumns | None = None) -> tuple[list[str], list[Any]]:
    """Texts and as many labels, at least one."""
    if y is None:
        raise InputError("TextClassifier requires y to be passed, but the target y is None")
    texts, labels = check_texts(X, columns), check_labels(y)
    if len(texts) != len(labels):
        raise InputError(f"expected one label per text, found {len(texts)} texts in X and {len(labels)} labels in y")
    if not texts:
        raise InputError("expected at least one text, found none", argument="X")
    return texts, labels


def check_texts(X: Any, columns: InputColumns | None = None) -> list[str]:
    """The texts of a list, an array, a Series, or a table with one column, as `ColumnTransformer` passes it.

    With `columns`, the texts of the rows of a table, a list of dictionaries or a 2-D array; a string is a whole text.
    """
    if columns is not None and not isinstance(X, (str, bytes)):
        return _compose_rows(X, columns)
    shape = tuple(getattr(X, "shape", (0,)))
    if len(shape) == 2 and shape[1] == 1 and not hasattr(X, "tocsr"):
        X = _to_array(X)[:, 0]
    elif len(shape) != 1:
        raise InputError(f"expected one text per item, found shape {shape}", argument="X")
    texts = _to_list(X, "X", "texts")
    _raise_for([i for i, text in enumerate(texts) if not isinstance(text, str)], texts, "X", "a text")
    return texts


def _compose_rows(X: Any, columns: InputColumns) -> list[str]:
    names = columns.names
    if hasattr(X, "columns"):
        missing = [name for name in names if name not in list(X.columns)]
        if missing:
            known = list(map(str, X.columns))
            raise InputError(f"X has no column {describe_missing(missing[0], known)}", argument="X")
        rows: list[Any] = [dict(zip(names, row, strict=True)) for row in _to_array(X[list(names)]).tolist()]
    else:
        rows = _to_list(X, "X", "rows")
    texts = []
    for place, row in enumerate(rows):
        if isinstance(row, str):
            texts.append(row)
            continue
        if isinstance(row, (list, tuple)):
            row = {str(position): value for position, value in enumerate(row)}
        if not isinstance(row, Mapping):
            raise InputError(f"expected the columns of a row, found {_short_repr(row)} at {place}", argument="X")
        if absent := [name for name in names if name not in row]:
            raise InputError(f"item {place} has no column {describe_missing(absent[0], list(row))}", argument="X")
        texts.append(columns.compose({name: "" if is_padding(row[name]) else cell_text(row[name]) for name in names}))
    return texts


def check_labels(y: Any, argument: str = "y") -> list[Any]:
    """Every label as a string or a tuple of names."""
    shape = tuple(getattr(y, "shape", (0,)))
    if len(shape) == 2:
        y = _to_array(y)
        y = y[:, 0] if shape[1] == 1 else y
    elif len(shape) != 1:
        raise InputError(f"expected one label or one row of names per item, found shape {shape}", argument=argument)
    labels = [_label(label) for label in _to_list(y, argument, "labels")]
    bad = [i for i, label in enumerate(labels) if not _is_label(label)]
    has_numbers = any(isinstance(labels[i], (int, np.integer)) for i in bad)
    hint = "; some tools of scikit-learn turn labels into numbers, see docs/classifier.md" if has_numbers else ""
    _raise_for(bad, labels, argument, "a string or a tuple of names", hint)
    return labels


def _without_padding(row: Sequence[Any]) -> list[Any]:
    """A row of names without what marks the end of the path: "", None or NaN."""
    names = list(row)
    while names and is_padding(names[-1]):
        names.pop()
    return names


def is_padding(value: Any) -> bool:
    """Whether a value is "", None or NaN, which mark the end of a path and empty cells."""
    if isinstance(value, str):
        return not value
    # the missing value of pandas cannot be compared
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def _label(label: Any) -> Any:
    if isinstance(label, np.ndarray):
        label = label.tolist()
    if not isinstance(label, (list, tuple)):
        return label
    return tuple(_without_padding(label))


def _is_label(label: Any) -> bool:
    return isinstance(label, str) or (isinstance(label, tuple) and all(isinstance(name, str) for name in label))


def _to_list(values: Any, argument: str, what: str) -> list[Any]:
    """The items of a list, an array or a Series."""
    if isinstance(values, (str, bytes)):
        raise InputError(f"expected a list of {what}, found a single string", argument=argument)
    is_sequence = hasattr(values, "__len__") and hasattr(values, "__getitem__") and not isinstance(values, Mapping)
    if not is_sequence:
        found = type(values).__name__
        raise InputError(f"expected a list, an array or a Series of {what}, found {found}", argument=argument)
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _to_array(values: Any) -> np.ndarray:
    """(n, columns) objects of an array or a table of pandas or polars."""
    return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values, dtype=object)


def _raise_for(bad: Sequence[int], items: Sequence[Any], argument: str, what: str, hint: str = "") -> None:
    """Raise one error for all bad items, if there are any."""
    if bad:
        shown = ", ".join(f"{i} ({_short_repr(items[i])})" for i in bad[:10])
        more = f", … and {len(bad) - 10} more" if len(bad) > 10 else ""
        count = f"{len(bad)} items are" if len(bad) > 1 else "one item is"
        raise InputError(f"{count} not {what}: at {shown}{more}{hint}", argument=argument)


def _short_repr(item: Any) -> str:
    text = repr(item)
    return text if len(text) <= 40 else f"{text[:37]}… of type {type(item).__name__}"


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
        labels = flat_labels(y)
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
    names = _without_padding(row)
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
    nodes = np.where(np.isin(tax.leaves, tax.stops), tax.first_parent[tax.leaves], tax.leaves)
    paths = [tax.path(node) for node in nodes.tolist()]
    return np.array([[*path, *[""] * (levels - len(path))] for path in paths])


def flat_labels(y: Any) -> list[Any]:
    """The labels of a list, an array or a table with one column, which are no rows of names."""
    if isinstance(y, Mapping):
        return list(y)
    array = y if isinstance(y, np.ndarray) else np.asarray(y, dtype=object)
    values: list[Any] = array.reshape(-1).tolist()
    return values


def _width(y: Any, paths: Sequence[tuple[str, ...]]) -> int:
    shape: tuple[int, ...] = getattr(y, "shape", ())
    return int(shape[1]) if len(shape) == 2 else max(map(len, paths))
