"""What a classifier is given, in scikit-learn's many forms: texts, labels and plain values out of it, or one error."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arbormax.errors import InputError, OptionError
from arbormax.taxonomy import Taxonomy


def plain(value: Any) -> Any:
    """Numbers of numpy, as scikit-learn's searches draw them, as Python's own; also inside mappings and lists."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def taxonomy_of(given: Any) -> Taxonomy:
    """The taxonomy that is given as one, as the path of its file or as nested mappings."""
    if isinstance(given, Taxonomy):
        return given
    if isinstance(given, (str, os.PathLike)):
        return Taxonomy.load(given)
    if isinstance(given, (Mapping, list, tuple)):
        return Taxonomy.from_nested(given)
    raise OptionError(
        f"taxonomy is a Taxonomy, the path of its file, nested mappings or None, not {type(given).__name__}"
    )


def pairs_of(X: Any, y: Any) -> tuple[list[str], list[Any]]:
    """Texts and as many labels, at least one."""
    if y is None:
        raise InputError("TextClassifier requires y to be passed, but the target y is None")
    texts, labels = texts_of(X), labels_of(y)
    if len(texts) != len(labels):
        raise InputError(f"expected one label per text, found {len(texts)} texts in X and {len(labels)} labels in y")
    if not texts:
        raise InputError("X is empty: expected at least one text")
    return texts, labels


def _items(values: Any, name: str, what: str) -> list[Any]:
    """The items of a list, an array or a Series."""
    if isinstance(values, (str, bytes)):
        raise InputError(f"{name} is one string: give a list of {what}, such as [{name}]")
    is_sequence = hasattr(values, "__len__") and hasattr(values, "__getitem__") and not isinstance(values, Mapping)
    if not is_sequence:
        raise InputError(f"{name} is a list, an array or a Series of {what}, not a {type(values).__name__}")
    return list(values.tolist() if hasattr(values, "tolist") else values)


def texts_of(X: Any) -> list[str]:
    """Every text of a list, an array, a Series, or the only column of a table, as `ColumnTransformer` gives it."""
    shape = tuple(getattr(X, "shape", (0,)))
    if len(shape) == 2 and shape[1] == 1 and not hasattr(X, "tocsr"):
        X = _table(X)[:, 0]
    elif len(shape) != 1:
        raise InputError(f"X is one text per item: expected one dimension or one column, found shape {shape}")
    texts = _items(X, "X", "texts")
    _refuse("X", "a text", texts, [i for i, text in enumerate(texts) if not isinstance(text, str)])
    return texts


def labels_of(y: Any, name: str = "y") -> list[Any]:
    """Every label as a string or a tuple of names."""
    shape = tuple(getattr(y, "shape", (0,)))
    if len(shape) == 2:
        y = _table(y)
        y = y[:, 0] if shape[1] == 1 else y
    elif len(shape) != 1:
        raise InputError(f"{name} has one label per item, or a row of names: found shape {shape}")
    labels = [_label(label) for label in _items(y, name, "labels")]
    bad = [i for i, label in enumerate(labels) if not _is_label(label)]
    numbers = any(isinstance(labels[i], (int, np.integer)) for i in bad)
    hint = "; scikit-learn turns labels into numbers for some tools, see docs/classifier.md" if numbers else ""
    _refuse(name, "a string or a tuple of names", labels, bad, hint)
    return labels


def _label(label: Any) -> Any:
    if isinstance(label, np.ndarray):
        label = label.tolist()
    if not isinstance(label, (list, tuple)):
        return label
    length = len(label)
    while length and fills(label[length - 1]):
        length -= 1
    return tuple(label[:length])


def fills(value: Any) -> bool:
    """Whether this stands in a row of names where the path has ended: "", None or NaN."""
    if isinstance(value, str):
        return not value
    # pandas has a missing value of its own, which compares with nothing
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def _table(values: Any) -> np.ndarray:
    """(n, columns) objects of an array or a table of pandas or polars."""
    return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values, dtype=object)


def _is_label(label: Any) -> bool:
    return isinstance(label, str) or (isinstance(label, tuple) and all(isinstance(name, str) for name in label))


def _refuse(name: str, what: str, items: Sequence[Any], bad: Sequence[int], hint: str = "") -> None:
    """Raise one error for all items that are not what they should be."""
    if bad:
        shown = ", ".join(f"{i} ({_short(items[i])})" for i in bad[:10])
        more = f", … and {len(bad) - 10} more" if len(bad) > 10 else ""
        count = f"{len(bad)} items are" if len(bad) > 1 else "one item is"
        raise InputError(f"{name}: {count} not {what}: at {shown}{more}{hint}")


def _short(item: Any) -> str:
    told = repr(item)
    return told if len(told) <= 40 else f"{told[:37]}… of type {type(item).__name__}"
