"""Feature matrices from tables of numbers and from NumPy's .npz files, read without pickle.

B rows of a batch, D features.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any, Unpack

import numpy as np

from arbormax._archives import ARCHIVE_ERRORS
from arbormax.data.tables import Column, RowBatch, TableOptions, iter_rows, resolve_source, row_unit
from arbormax.errors import InputError, OptionError, TableError, did_you_mean

FEATURES: Column = -1  # the key of the matrix in a batch
_LARGEST = float(np.finfo(np.float32).max)


def iter_features(
    path: str | os.PathLike[str],
    width: int,
    features: Sequence[str] | None = None,
    label: str | None = None,
    **options: Unpack[TableOptions],
) -> Iterator[RowBatch]:
    """Batches of rows with `width` features; `batch[FEATURES]` is a (B, D) float32 array, `batch[label]` the labels.

    `path` is a table, as in `iter_rows`, or an .npz file with the array `X` and, for labels, `y`. `features` are the
    columns of a table, names or patterns such as "x*"; by default all columns except the label. Rows with a value that
    is not a finite number are left out and listed in `problems`.
    """
    if is_npz(path):
        if features is not None:
            raise OptionError(f"{Path(path).name} is an .npz file, whose columns have no names", argument="features")
        yield _read_npz(Path(path), width, label)
        return
    name, _ = resolve_source(path, options.get("format"))
    unit = unit_of(path, options.get("format"))
    labels = [] if label is None else [label]
    columns: list[str] = []
    how: dict[str, Any] = {"required": labels, "paths": labels, "arguments": dict.fromkeys(labels, "label")}
    for batch in iter_rows(path, labels, records=True, on_bad_rows="skip", **how, **options):
        if not columns and (names := batch.names or tuple(batch.rows[0] if batch.rows else ())):
            columns = _select(names, features, label, width, name)
        values_BD, problems = _to_numbers([[row.get(column) for column in columns] for row in batch.rows], columns)
        yield _keep_good(batch, values_BD, problems, unit)


def is_npz(path: str | os.PathLike[str]) -> bool:
    """Whether a file is one of NumPy's archives of arrays, by its suffix."""
    return Path(path).suffix.lower() == ".npz"


def unit_of(path: str | os.PathLike[str], format: str | None = None) -> str:
    """What messages count in a file: "line", or "row" in Parquet and .npz."""
    return "row" if is_npz(path) else row_unit(resolve_source(path, format)[1])


def _select(
    names: Sequence[str], features: Sequence[str] | None, label: str | None, width: int, source: str
) -> list[str]:
    """The columns of the features, in the order of the matrix."""
    found = [name for name in names if name != label]
    if features is not None:
        matches = {
            feature: [feature] if feature in found else [name for name in found if fnmatchcase(name, feature)]
            for feature in features
        }
        if missing := [feature for feature, columns in matches.items() if not columns]:
            problems = [f"no column {feature!r}{did_you_mean(feature, found)}" for feature in missing]
            message = problems[0] if len(problems) == 1 else f"{len(problems)} features are missing"
            raise TableError(f"{source}: {message}", problems, fix={"features": "A,B"})
        found = list(dict.fromkeys(column for columns in matches.values() for column in columns))
    if len(found) != width:
        listed = ", ".join(map(repr, found[:8])) + ", …" * (len(found) > 8)
        but = "" if label is None else f", besides the label {label!r}"
        raise TableError(
            f"{source}: expected {width:,} columns of features, found {len(found):,}{but}: {listed or 'none'}",
            fix={"features": "A,B"},
        )
    return found


def _to_numbers(cells: list[list[Any]], columns: Sequence[str]) -> tuple[np.ndarray, dict[int, str]]:
    """(B, D) the cells of some rows as numbers, and what is wrong with each bad row."""
    problems: dict[int, str] = {}
    values = np.zeros((len(cells), len(columns)))
    for row, own in enumerate(cells):
        for place, cell in enumerate(own):
            try:
                number = float(cell)
            except (TypeError, ValueError, OverflowError):
                number = math.nan
            if abs(number) <= _LARGEST:
                values[row, place] = number
            else:
                problems.setdefault(row, f"{columns[place]!r} is {short_repr(cell)}, not a finite 32-bit number")
    return values, problems


def _keep_good(batch: RowBatch, values_BD: np.ndarray, problems: dict[int, str], unit: str) -> RowBatch:
    """The batch with the matrix, without its bad rows."""
    described = [f"{unit} {batch.lines[row]}: {problem}" for row, problem in problems.items()]
    good = [row for row in range(len(batch)) if row not in problems]
    return RowBatch(
        lines=[batch.lines[row] for row in good],
        columns={
            FEATURES: np.ascontiguousarray(values_BD[good]).astype(np.float32),  # type: ignore[dict-item]
            **{column: [values[row] for row in good] for column, values in batch.columns.items()},
        },
        names=batch.names,
        rows=[batch.rows[row] for row in good] if batch.rows else [],
        problems=[*batch.problems, *described],
        fix=batch.fix,
    )


def _read_npz(path: Path, width: int, label: str | None) -> RowBatch:
    """The rows of the matrix X, and their labels in the array y: one name or number each, or names padded with ""."""
    names = ("X",) if label is None else ("X", "y")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            X, *labels = (arrays[name] for name in names)
    except (ValueError, LookupError, TypeError, *ARCHIVE_ERRORS) as error:
        wanted = f"an .npz file of plain arrays with {' and '.join(names)}"
        raise InputError(f"{path.name}: expected {wanted} ({error or type(error).__name__})") from None
    if X.dtype.kind not in "fiub" or X.ndim != 2 or X.shape[1] != width:
        raise InputError(f"{path.name}: expected numbers of shape (rows, {width}) in X, found {X.dtype} of {X.shape}")
    columns: dict[Any, list[Any]] = {}
    if label is not None:
        y = labels[0]
        if y.dtype.kind not in "Uiubf" or y.ndim not in (1, 2) or len(y) != len(X):
            expected = f"a string or number, or a row of strings, for each of the {len(X):,} rows in y"
            raise InputError(f"{path.name}: expected {expected}, found {y.dtype} of {y.shape}")
        rows = y.tolist()
        columns[label] = [str(row) if y.ndim == 1 else tuple(name for name in map(str, row) if name) for row in rows]
    batch = RowBatch(list(range(1, len(X) + 1)), columns, (), rows=[{}] * len(X))
    bad = np.flatnonzero(~(np.abs(X.astype(np.float64)) <= _LARGEST).all(1))
    _, problems = _to_numbers(X[bad].tolist(), [f"column {place}" for place in range(width)])
    return _keep_good(batch, X, {int(bad[row]): problem for row, problem in problems.items()}, "row")
