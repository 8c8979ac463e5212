"""Columns of categories beside the numbers of a table: each value becomes a column of zeros and ones.

n rows, D columns of the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from arbormax._excel import cell_text
from arbormax.data.columns import InputColumns
from arbormax.data.tables import describe_missing
from arbormax.errors import InputError
from arbormax.sklearn.inputs import is_padding

_MOST = 10_000  # columns of a dense matrix


@dataclass(frozen=True)
class Categories:
    """The columns of a table: those with numbers, and the values of those with categories."""

    numbers: tuple[str, ...]
    values: dict[str, tuple[str, ...]]  # the sorted values of each column of categories

    @classmethod
    def learn(cls, X: Any, also: str | int | Sequence[str | int]) -> Self:
        """The categories of a training; "", None and NaN are none."""
        columns, names = _read_columns(X), InputColumns.of(also=also).also
        _check_columns(columns, names)
        values = {name: tuple(sorted(set(filter(None, map(_text, columns[name]))))) for name in names}
        if sum(map(len, values.values())) > _MOST:
            found = ", ".join(f"{name!r} {len(each):,}" for name, each in values.items())
            message = f"expected at most {_MOST:,} different values, found {found}"
            raise InputError(f"{message}; TextClassifier takes columns with more", argument="also")
        return cls(tuple(name for name in columns if name not in names), values)

    def encode(self, X: Any) -> np.ndarray:
        """(n, D) the numbers, then a column for each category; a category that training did not see has only zeros."""
        columns = _read_columns(X)
        _check_columns(columns, (*self.numbers, *self.values))
        count = len(next(iter(columns.values()), ()))
        parts = [_to_numbers(name, columns[name]) for name in self.numbers]
        blocks = [np.stack(parts, 1)] if parts else []
        for name, values in self.values.items():
            number = {value: place for place, value in enumerate(values)}
            places = np.array([number.get(_text(value), -1) for value in columns[name]], np.int64)
            block = np.zeros((count, len(values)), np.float32)
            block[np.flatnonzero(places >= 0), places[places >= 0]] = 1
            blocks.append(block)
        found: np.ndarray = np.concatenate(blocks, 1)
        return found


def _read_columns(X: Any) -> dict[str, list[Any]]:
    """The columns of a table, a list of dictionaries or a 2-D array, by name or position."""
    if hasattr(X, "columns"):
        return {str(name): X[name].to_list() for name in X.columns}
    rows = X.tolist() if hasattr(X, "tolist") else list(X)
    if any(not isinstance(row, (Mapping, list, tuple)) for row in rows):
        raise InputError("expected a table, a list of dictionaries or a 2-D array", argument="X")
    rows = [row if isinstance(row, Mapping) else dict(enumerate(row)) for row in rows]
    names = list(rows[0]) if rows else []
    for place, row in enumerate(rows):
        if absent := [name for name in names if name not in row]:
            raise InputError(f"item {place} has no column {describe_missing(str(absent[0]), list(map(str, row)))}")
    return {str(name): [row[name] for row in rows] for name in names}


def _check_columns(columns: Mapping[str, Any], names: Sequence[str]) -> None:
    if missing := [name for name in names if name not in columns]:
        raise InputError(f"X has no column {describe_missing(missing[0], list(columns))}", argument="X")


def _text(value: Any) -> str:
    return "" if is_padding(value) else cell_text(value).strip()


def _to_numbers(name: str, values: list[Any]) -> np.ndarray:
    """(n,) float32 the values of a column of numbers."""
    try:
        return np.asarray(values, dtype=np.float32)
    except (ValueError, TypeError):
        bad = next(value for value in values if not _is_number(value))
        message = (
            f"the column {name!r} has {bad!r}, which is not a number; name the column in also if it has categories"
        )
        raise InputError(message, argument="X") from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError):
        return False
    return True
