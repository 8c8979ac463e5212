"""The costs of requests.

C classes.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from arbormax.errors import InputError, LabelError
from arbormax.serve.schemas import Costs
from arbormax.taxonomy import Taxonomy


class CostTable:
    """(C, C) costs, for `arbormax.decode.optimal`; texts of requests with equal costs are predicted together."""

    def __init__(self, values_CC: np.ndarray) -> None:
        self._values = values_CC
        self._digest = hashlib.sha256(values_CC.tobytes()).digest()

    @classmethod
    def read(cls, costs: Costs, tax: Taxonomy) -> CostTable:
        """The costs of a request in the order of the classes of the model."""
        rows = np.array(costs.rows, np.float64)
        if costs.classes is None:
            return cls(rows)
        try:
            place_C = tax.class_of[tax.find_many(costs.classes)]
        except LabelError as error:
            raise LabelError(error.message, error.problems, argument="costs") from None
        _, first = np.unique(place_C, return_index=True)
        for place, label in enumerate(costs.classes):
            if place_C[place] < 0 or place not in first:
                problem = "is no class" if place_C[place] < 0 else "is there twice"
                raise InputError(f"each class is needed once, and {label!r} {problem}", argument="costs")
        values_CC = np.empty_like(rows)
        values_CC[np.ix_(place_C, place_C)] = rows
        return cls(values_CC)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._values, dtype, copy=bool(copy))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CostTable) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)
