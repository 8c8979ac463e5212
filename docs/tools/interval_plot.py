"""A forest plot: intervals around zero, one per row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from axes import Axis, check_number, format_tick, horizontal_axis, padded_range, tick_step

from arbormax.errors import InputError
from arbormax.report import svg

_ROW, _HEAD = 22, 26
_PLOT, _LABEL = 340, 260  # pixels of the plot, and of a label at most


class Interval(NamedTuple):
    """A row: a dot at `mean` on a bar from `low` to `high`; rows of one `group` are listed below its name."""

    label: str
    group: str
    mean: float
    low: float
    high: float


def intervals_svg(rows: Iterable[Interval], title: str = "", *, x: str = "points") -> str:
    """The text of an SVG file with intervals around a zero line; a dot is hollow if its interval contains zero.

    >>> intervals_svg([Interval("hierarchical", "TREC", 1.2, 0.3, 2.1)]).startswith("<svg")
    True
    """
    rows = [_check(row) for row in rows]
    if not rows:
        raise InputError("no intervals to draw: rows is empty")
    groups: dict[str, list[Interval]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    low, high = padded_range([0.0, *(end for row in rows for end in row[2:])], 0.04)
    step = tick_step(low, high, 5) / 10
    values = [_value(row, step) for row in rows]
    column = "mean [low, high]"
    indent = 12 if any(groups) else 0
    names = [svg.text_width(svg.shorten(svg.clean(row.label), svg.SIZE, _LABEL)) + indent for row in rows]
    heads = [svg.text_width(svg.shorten(svg.clean(group), svg.SIZE, _LABEL, bold=True), bold=True) for group in groups]
    left = svg.MARGIN + max(*names, *heads) + 20
    axis = horizontal_axis(low, high, left, left + _PLOT, sign=True)
    beside = axis.stop + 20 + max(svg.text_width(shown, svg.SMALL) for shown in (*values, column))
    width = beside + svg.MARGIN
    parts, top = svg.heading(title, width)
    parts.append(svg.text(beside, top + 10, column, "muted small end", size=svg.SMALL))
    top += 18
    body, y = [], top
    for group, members in groups.items():
        if group:
            body.append(svg.text(svg.MARGIN, y + 18, group, "strong", limit=_LABEL))
            y += _HEAD
        for row in members:
            body.append(_row(row, axis, y + _ROW / 2, indent))
            body.append(svg.text(beside, y + _ROW / 2 + 4, _value(row, step), "small end", size=svg.SMALL))
            y += _ROW
        y += 4
    parts += [*_frame(axis, top, y, x), *body]
    bottom = y + 42
    if any(row.low <= 0 <= row.high for row in rows):
        parts.append(svg.text(svg.MARGIN, bottom + 10, "hollow dot: the interval contains zero", "muted small"))
        bottom += 16
    return svg.document(width, bottom + svg.MARGIN - 4, title or f"Intervals, {x}", parts)


def _check(row: Interval) -> Interval:
    what = f"interval {row.label!r} of {row.group!r}" if row.group else f"interval {row.label!r}"
    mean, low, high = (check_number(value, what) for value in row[2:])
    if low > high:
        raise InputError(f"{what}: low, {low:g}, is above high, {high:g}")
    return Interval(row.label, row.group, mean, low, high)


def _value(row: Interval, step: float) -> str:
    mean, low, high = (format_tick(value, step, sign=True) for value in row[2:])
    return f"{mean} [{low}, {high}]"


def _frame(axis: Axis, top: float, bottom: float, x: str) -> list[str]:
    ends = f"{svg.num(top)}V{svg.num(bottom)}"
    steps = [svg.num(axis(tick)) for tick in axis.ticks]
    parts = [
        f'<path class="rule grid" d="{"".join(f"M{step} {ends}" for step in steps)}"/>',
        f'<path class="rule" d="M{svg.num(axis(0))} {ends}M{svg.num(axis.start)} {svg.num(bottom)}H{svg.num(axis.stop)}'
        f'{"".join(f"M{step} {svg.num(bottom)}v4" for step in steps)}"/>',
    ]
    parts += [
        svg.text(axis(tick), bottom + 17, label, "muted small middle", size=svg.SMALL)
        for tick, label in zip(axis.ticks, axis.labels, strict=True)
    ]
    parts.append(svg.text((axis.start + axis.stop) / 2, bottom + 36, x, "middle", limit=_PLOT))
    return parts


def _row(row: Interval, axis: Axis, y: float, indent: float) -> str:
    colour, css = ("c0", "dot") if row.low > 0 else ("c1", "dot") if row.high < 0 else ("c4", "ring")
    low, mean, high = (svg.num(axis(value)) for value in (row.low, row.mean, row.high))
    middle, over, under = svg.num(y), svg.num(y - 4), svg.num(y + 4)
    return "\n".join(
        [
            svg.text(svg.MARGIN + indent, y + 4, row.label, limit=_LABEL),
            f'<path class="line {colour}" d="M{low} {over}V{under}M{low} {middle}H{high}M{high} {over}V{under}"/>',
            f'<circle class="{css} {colour}" cx="{mean}" cy="{middle}" r="4.5"/>',
        ]
    )
