"""Axes of plots: round ticks, their labels, and the mapping from values to pixels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from arbormax.errors import InputError
from arbormax.report import svg

LARGEST = 1e100  # larger numbers could overflow in the arithmetic of the axes


def nice_ticks(low: float, high: float, count: int = 5, *, whole: bool = False) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from low to high, about `count` of them.

    `whole` allows whole numbers only.

    >>> nice_ticks(0.71, 0.93)
    [0.75, 0.8, 0.85, 0.9]
    >>> nice_ticks(1, 3, whole=True)
    [1.0, 2.0, 3.0]
    """
    step = tick_step(low, high, count, whole=whole)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, 1 - math.floor(math.log10(step)))
    return [round(number * step, digits) + 0.0 for number in range(first, last + 1)]


def tick_step(low: float, high: float, count: int, *, whole: bool = False) -> float:
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    # a step somewhat finer than requested, because small plots would have a single tick otherwise
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.75 * rough)
    return max(1.0, step) if whole else step


def format_tick(value: float, step: float, *, sign: bool = False) -> str:
    """A number with the precision of a step and a true minus sign."""
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    plus = "+" if sign else ""
    if abs(value) >= 1e7 or decimals > 5:
        digits = 1 + max(0, math.ceil(math.log10(abs(value) / step))) if value else 1
        shown = f"{value:{plus}.{min(digits, 12)}g}"
    else:
        shown = f"{round(value, decimals) + 0.0:{plus},.{decimals}f}"
    return shown.replace("-", "−")


@dataclass(frozen=True)
class Axis:
    """A mapping of the values from low to high to the pixels from start to stop, with ticks and labels."""

    low: float
    high: float
    start: float
    stop: float
    ticks: list[float]
    labels: list[str]

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)


def horizontal_axis(
    low: float, high: float, start: float, stop: float, *, whole: bool = False, sign: bool = False
) -> Axis:
    """An axis from left to right, with as many ticks as fit with their labels."""
    for count in range(10, 1, -1):
        step = tick_step(low, high, count, whole=whole)
        ticks = nice_ticks(low, high, count, whole=whole)
        labels = [format_tick(tick, step, sign=sign and tick != 0) for tick in ticks]
        widest = max((svg.text_width(label, svg.SMALL) for label in labels), default=0.0)
        if widest + 10 <= step / (high - low) * (stop - start):
            break
    return Axis(low, high, start, stop, ticks, labels)


def vertical_axis(low: float, high: float, bottom: float, top: float) -> Axis:
    """An axis from bottom to top."""
    count = max(4, round((bottom - top) / 50))
    ticks, step = nice_ticks(low, high, count), tick_step(low, high, count)
    return Axis(low, high, bottom, top, ticks, [format_tick(tick, step) for tick in ticks])


def log_axis(low: float, high: float, start: float, stop: float) -> Axis:
    """A logarithmic axis with ticks at powers of ten."""
    low, high = min(low, math.floor(high)), max(high, math.ceil(low) + 1.0)  # at least two powers
    ticks = [float(power) for power in range(math.ceil(low), math.floor(high) + 1)]
    return Axis(low, high, start, stop, ticks, [_power(int(tick)) for tick in ticks])


def _power(power: int) -> str:
    if -3 <= power <= 4:
        return f"{10.0**power:,.{max(0, -power)}f}"
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def padded_range(values: Iterable[float], share: float) -> tuple[float, float]:
    """The range of the values, extended at both ends by a share of it; a constant gets a range around it."""
    array = np.fromiter(values, np.float64)
    low, high = float(array.min()), float(array.max())
    size = max(abs(low), abs(high))
    pad = share * (high - low)
    if high - low <= max(1e-9 * size, 1e-90):
        pad = 0.1 * size if size > 1e-80 else 1.0
    return low - pad, high + pad


def check_number(value: object, what: str) -> float:
    """The value as a float, checked to be a finite number."""
    array = check_numbers(value, what)
    if array.ndim:
        raise InputError(f"{what}: expected one number, found shape {array.shape}")
    return float(array)


def check_numbers(values: object, what: str) -> np.ndarray:
    """The values as a float array, checked to be finite numbers."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: expected numbers, found {values!r:.60}") from error
    bad = ~(np.abs(array) <= LARGEST)
    if bad.any():
        where = f" at position {int(np.flatnonzero(bad)[0])}" if array.ndim else ""
        raise InputError(f"{what}: found {array[bad].flat[0]}{where}; remove values that are not finite")
    return array
