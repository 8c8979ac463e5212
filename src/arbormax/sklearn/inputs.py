"""Validation of what scikit-learn's users pass: texts, labels, taxonomies and parameter values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arbormax.errors import InputError, OptionError
from arbormax.taxonomy import Taxonomy


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
        return Taxonomy.load(value)
    if isinstance(value, (Mapping, list, tuple)):
        return Taxonomy.from_nested(value)
    raise OptionError(
        f"expected a Taxonomy, the path of a file, nested mappings or None, not {type(value).__name__}",
        argument="taxonomy",
    )


def check_text_pairs(X: Any, y: Any) -> tuple[list[str], list[Any]]:
    """Texts and as many labels, at least one."""
    if y is None:
        raise InputError("TextClassifier requires y to be passed, but the target y is None")
    texts, labels = check_texts(X), check_labels(y)
    if len(texts) != len(labels):
        raise InputError(f"expected one label per text, found {len(texts)} texts in X and {len(labels)} labels in y")
    if not texts:
        raise InputError("expected at least one text, found none", argument="X")
    return texts, labels


def check_texts(X: Any) -> list[str]:
    """The texts of a list, an array, a Series, or a table with one column, as `ColumnTransformer` passes it."""
    shape = tuple(getattr(X, "shape", (0,)))
    if len(shape) == 2 and shape[1] == 1 and not hasattr(X, "tocsr"):
        X = _to_array(X)[:, 0]
    elif len(shape) != 1:
        raise InputError(f"expected one text per item, found shape {shape}", argument="X")
    texts = _to_list(X, "X", "texts")
    _raise_for([i for i, text in enumerate(texts) if not isinstance(text, str)], texts, "X", "a text")
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


def is_padding(value: Any) -> bool:
    """Whether a value in a row of names marks the end of the path: "", None or NaN."""
    if isinstance(value, str):
        return not value
    # the missing value of pandas cannot be compared
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def _label(label: Any) -> Any:
    if isinstance(label, np.ndarray):
        label = label.tolist()
    if not isinstance(label, (list, tuple)):
        return label
    length = len(label)
    while length and is_padding(label[length - 1]):
        length -= 1
    return tuple(label[:length])


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
