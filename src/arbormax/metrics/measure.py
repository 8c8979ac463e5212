"""What a measure is: its title, its unit, which direction is better, and how it is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from arbormax.errors import OptionError
from arbormax.metrics.sums import FIXED, Sums, ratio
from arbormax.taxonomy import Taxonomy

Unit = Literal["share", "levels", "edges", "bits", "nats", "count", "seconds", "number"]
Place = Literal["headline", "main", "table", "detail"]
PLACES: tuple[Place, ...] = ("headline", "main", "table", "detail")
PerItem = Callable[[np.ndarray, np.ndarray, Taxonomy], np.ndarray]


@dataclass(frozen=True)
class Measure:
    """One measure of predictions, computed either from `per_item` values or from `Sums` over the items.

    `per_item(true_nodes, pred_nodes, tax)` returns (n,) numbers; the measure is their mean. `value(sums)` computes any
    other function of the sums. A measure that needs log-probabilities has the source "log_probs".

    >>> exact = Measure("exact", "exact matches", "share", "higher", per_item=lambda true, pred, tax: true == pred)
    >>> exact.format(0.875), exact.format_difference(0.0121, -0.0034, 0.0262)
    ('87.5 %', '+1.2 points [−0.3, +2.6]')
    """

    name: str
    title: str  # as in the middle of a sentence
    unit: Unit
    better: Literal["higher", "lower"] | None
    value: Callable[[Sums], Any] | None = None
    per_item: PerItem | None = None
    source: Literal["nodes", "log_probs", "training"] = "nodes"
    per: Literal["level", "k"] | None = None  # a list with one value per level, or a dict with one value per k
    shown: Place = "main"  # the shortest listing that includes it, in the order of PLACES
    meaning: str = ""  # one line for readers of a report

    def __post_init__(self) -> None:
        if self.source != "training" and (self.value is None) == (self.per_item is None):
            raise OptionError(f"the measure {self.name!r} needs either value or per_item", argument="value")

    @property
    def can_bootstrap(self) -> bool:
        """Whether the measure is one number that follows from true and predicted nodes and has a better direction."""
        return self.source == "nodes" and self.per is None and self.better is not None

    def compute(self, sums: Sums) -> Any:
        """The value for sums of any leading shape (...,)."""
        if self.value is not None:
            return self.value(sums)
        return ratio(sums[item_sum(self.name)] / FIXED, sums["count"])

    def format(self, value: object, space: str = " ") -> str:
        """The value as a table shows it: shares in percent, everything else as a number; "–" if there is none."""
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return "–"
        if self.unit == "share":
            return f"{100 * value:.1f}{space}%"
        return f"{value:,.{ {'count': 0, 'seconds': 1}.get(self.unit, 2) }f}"

    def format_spread(self, deviation: float) -> str:
        """A standard deviation, in points for shares."""
        return f"{100 * deviation:.1f}" if self.unit == "share" else f"{deviation:.2f}"

    def format_difference(self, mean: float, low: float, high: float) -> str:
        """A difference with its interval, in points for shares."""
        digits = 1 if self.unit == "share" else 2
        numbers = [_signed(self._rounded(x), digits) for x in (mean, low, high)]
        points = " points" if self.unit == "share" else ""
        return f"{numbers[0]}{points} [{numbers[1]}, {numbers[2]}]"

    def verdict(self, low: float, high: float) -> str:
        """`better` or `worse` if the interval of a difference excludes 0, otherwise `no clear difference`.

        The bounds are rounded as `format_difference` shows them, so that an interval that ends at 0.0 is not clear.
        """
        low, high = self._rounded(low), self._rounded(high)
        if low <= 0 <= high:
            return "no clear difference"
        return "better" if (low > 0) == (self.better == "higher") else "worse"

    def _rounded(self, difference: float) -> float:
        """A difference as it is shown, in points for shares."""
        return round(100 * difference, 1) if self.unit == "share" else round(difference, 2)


def item_sum(name: str) -> str:
    """The name of the sum of a measure's per-item values."""
    return f"item_{name}"


def _signed(number: float, digits: int) -> str:
    """The rounded number with its sign, and no sign on zero."""
    text = f"{number:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text[1:]
