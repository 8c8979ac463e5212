"""Costs of mistakes from a file."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from arbormax.errors import InputError, OptionError

_NUMBERS_ONLY = re.compile(r"[\d\s.,;+\-eE]+")  # a line without labels
_NUMBERS, _TABLES = (".npy", ".json"), (".csv", ".tsv", ".xlsx")


def read_costs(path: Path) -> Any:
    """The costs in a file, in a form that `arbormax.decode.optimal` takes.

    They are numbers in an array of NumPy, in JSON or in a table, or a table whose first row and first column are labels
    of the classes.
    """
    state = path.stat()
    return _read(path, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=1)  # a command asks for its options before and after it loads the model
def _read(path: Path, version: tuple[int, int]) -> Any:
    del version
    import numpy as np

    suffix = path.suffix.lower()
    if suffix not in (*_NUMBERS, *_TABLES):
        *others, last = (*_NUMBERS, *_TABLES)
        raise OptionError(f"{path}: expected a file {', '.join(others)} or {last}", argument="costs")
    try:
        if suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if suffix == ".json":
            found = json.loads(path.read_text("utf-8"))
            return found if isinstance(found, dict) else np.asarray(found, np.float64)
        if suffix == ".xlsx":
            return _read_named(path)
        try:
            return np.loadtxt(path, delimiter="\t" if suffix == ".tsv" else ",", ndmin=2, encoding="utf-8-sig")
        except ValueError:
            with path.open(encoding="utf-8-sig", errors="replace") as file:
                if _NUMBERS_ONLY.fullmatch(file.readline()):
                    raise
            return _read_named(path)
    except (ValueError, TypeError, RecursionError) as error:
        reason = error.message if isinstance(error, InputError) else str(error)
        raise OptionError(
            f"{path}: expected numbers, with the labels of the classes in the first row and in the first column, or "
            f"without labels in the order of the classes ({reason})",
            argument="costs",
        ) from error


def _read_named(path: Path) -> dict[str, dict[str, float]]:
    """A table whose first row and first column are labels."""
    from arbormax.data.tables import iter_rows

    costs: dict[str, dict[str, float]] = {}
    for batch in iter_rows(path, (), records=True, header=True):
        for row in batch.rows:
            (_, label), *cells = row.items()
            if label in costs:
                raise ValueError(f"two rows have the label {label!r}")
            costs[label] = {str(name): float(str(cell).replace(",", ".")) for name, cell in cells}
    return costs
