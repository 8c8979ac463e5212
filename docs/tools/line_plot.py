"""Learning curves, alone or as small multiples with one legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from axes import Axis, check_number, check_numbers, horizontal_axis, log_axis, padded_range, vertical_axis

from arbormax.errors import InputError, OptionError
from arbormax.report import svg

_DASHES = ("", "7 3", "2 3", "9 3 2 3", "14 4")
# The colours of Okabe and Ito, which colour-blind readers can distinguish, without yellow on white.
_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#1f2328", "#e69f00", "#56b4e9")
_DARK = ("#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#e6edf3", "#f0e442", "#0072b2")


def _scheme(paper: str, grid: str, colours: tuple[str, ...]) -> str:
    rules = [f".arbormax .dot{{stroke:{paper}}}", f".arbormax .grid{{stroke:{grid}}}"]
    rules += [f".arbormax .c{number}{{color:{colour}}}" for number, colour in enumerate(colours)]
    return "\n".join(rules)


_STYLE = f"""\
.arbormax .end{{text-anchor:end}}
.arbormax .band{{fill:currentColor;fill-opacity:.15}}
.arbormax .dot{{fill:currentColor;stroke-width:1.5}}
{_scheme("#ffffff", "#e4e8ec", _LIGHT)}
@media (prefers-color-scheme: dark){{
{_scheme("#0d1117", "#272d36", _DARK)}
}}
"""
_MOST = len(_LIGHT) * len(_DASHES)  # the two counts have no common divisor, so every pair comes up once
_SAMPLE, _NAME = 30, 300  # pixels of a legend's line and of its name, at most


class Curve(NamedTuple):
    """A line through `mean` at each `x`, with a band from `low` to `high` and a dot on the line at x = `mark`."""

    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    mark: float | None = None


class _Checked(NamedTuple):
    x: np.ndarray
    mean: np.ndarray
    band: tuple[np.ndarray, np.ndarray] | None
    mark: tuple[float, float] | None


def curves_svg(
    series: Mapping[str, Curve],
    title: str = "",
    *,
    x: str = "epoch",
    y: str = "validation macro-F1",
    log: bool = False,
) -> str:
    """Curves in one plot as the text of an SVG file, distinguished by colour and dashes; `x` and `y` name the axes.

    With `log` both axes are logarithmic.

    >>> curves_svg({"flat": Curve([1, 2, 3], [0.5, 0.7, 0.8], mark=3)}).startswith("<svg")
    True
    """
    if not series:
        raise InputError("no curves to draw: series is empty")
    return _draw({"": series}, title, 1, x, y, (640, 340), log)


def panels_svg(
    panels: Mapping[str, Mapping[str, Curve]],
    title: str = "",
    columns: int = 2,
    x: str = "epoch",
    y: str = "validation macro-F1",
) -> str:
    """Several plots side by side as an SVG file's text, each with its own scales; a name looks the same in all."""
    if columns < 1:
        raise OptionError(f"expected at least 1, found {columns}", argument="columns")
    empty = [name for name, series in panels.items() if not series]
    if empty or not panels:
        raise InputError(f"no curves to draw in the panels {empty}" if empty else "no curves to draw: panels is empty")
    return _draw(panels, title, min(columns, len(panels)), x, y, (340, 220))


def _draw(
    panels: Mapping[str, Mapping[str, Curve]],
    title: str,
    columns: int,
    x: str,
    y: str,
    size: tuple[int, int],
    log: bool = False,
) -> str:
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    if len(names) > _MOST:
        raise InputError(f"{len(names)} curves cannot be distinguished, only {_MOST} can: draw them in several figures")
    looks = {name: look for look, name in enumerate(names)}
    checked = [{name: _check(panel, name, curve) for name, curve in series.items()} for panel, series in panels.items()]
    if log:
        checked = [{name: _logarithms(name, curve) for name, curve in series.items()} for series in checked]
    wide, tall = size
    # the axes start at 0 first, because the width of their labels decides where they go
    axes = [_axes(list(series.values()), wide, tall, log) for series in checked]
    room = 22 + max(svg.text_width(label, svg.SMALL) for _, up in axes for label in up.labels)
    cell_wide, head = room + wide + 26, 26 if any(panels) else 6
    cell_tall = head + tall + 38
    width = svg.MARGIN + columns * cell_wide
    parts, top = svg.heading(title, width)
    legend, top = _legend(names, top, width)
    parts += legend
    for place, (panel, series) in enumerate(zip(panels, checked, strict=True)):
        row, column = divmod(place, columns)
        left, over = svg.MARGIN + column * cell_wide + room, top + row * cell_tall + head
        lowest = place + columns >= len(panels)
        parts.append(f'<g transform="translate({svg.num(left)} {svg.num(over)})">')
        if panel:
            parts.append(svg.text(0, -9, panel, "strong", limit=wide))
        parts += _frame(*axes[place], x if lowest else "", y if column == 0 else "", room)
        parts += [_lines(curve, looks[name], *axes[place]) for name, curve in series.items()]
        parts += [_dot(curve, looks[name], *axes[place]) for name, curve in series.items() if curve.mark]
        parts.append("</g>")
    rows = -(-len(panels) // columns)
    return svg.document(width, top + rows * cell_tall + svg.MARGIN, title or f"{y} against {x}", parts, _STYLE)


def _check(panel: str, name: str, curve: Curve) -> _Checked:
    """A curve as arrays, once it can be drawn."""
    what = f"curve {name!r} of panel {panel!r}" if panel else f"curve {name!r}"
    x, mean = check_numbers(curve.x, f"{what}, x"), check_numbers(curve.mean, f"{what}, mean")
    if x.ndim != 1 or not len(x):
        raise InputError(f"{what}: expected a list of at least one x, found shape {x.shape}")
    if (np.diff(x) <= 0).any():
        raise InputError(f"{what}: expected increasing x: sort the points and merge equal x")
    if (curve.low is None) != (curve.high is None):
        raise InputError(f"{what}: a band needs both low and high, found only one of them")
    band = None
    if curve.low is not None and curve.high is not None:
        band = check_numbers(curve.low, f"{what}, low"), check_numbers(curve.high, f"{what}, high")
    for part, values in zip(("mean", "low", "high"), (mean, *(band or ())), strict=False):
        if values.shape != x.shape:
            raise InputError(f"{what}: expected as many values in {part} as in x, {len(x)}; found shape {values.shape}")
    if band and (band[0] > band[1]).any():
        raise InputError(f"{what}: low is above high at x = {x[np.argmax(band[0] > band[1])]:g}")
    mark = None
    if curve.mark is not None:
        at = check_number(curve.mark, f"{what}, mark")
        if not x[0] <= at <= x[-1]:
            raise InputError(f"{what}: the mark {at:g} is outside its x, {x[0]:g} to {x[-1]:g}")
        mark = at, float(np.interp(at, x, mean))
    return _Checked(x, mean, band, mark)


def _logarithms(name: str, curve: _Checked) -> _Checked:
    arrays = (curve.x, curve.mean, *(curve.band or ()))
    if min(float(values.min()) for values in arrays) <= 0:
        raise InputError(f"curve {name!r}: logarithmic axes need numbers above 0")
    x, mean, *band = (np.log10(values) for values in arrays)
    mark = None if curve.mark is None else (float(np.log10(curve.mark[0])), float(np.log10(curve.mark[1])))
    return _Checked(x, mean, (band[0], band[1]) if band else None, mark)


def _axes(curves: list[_Checked], wide: float, tall: float, log: bool) -> tuple[Axis, Axis]:
    xs = np.concatenate([curve.x for curve in curves])
    ys = np.concatenate([values for curve in curves for values in (curve.mean, *(curve.band or ()))])
    if log:
        return log_axis(*padded_range(xs, 0.02), 0, wide), log_axis(*padded_range(ys, 0.05), tall, 0)
    along = horizontal_axis(*padded_range(xs, 0.02), 0, wide, whole=bool((xs == np.round(xs)).all()))
    return along, vertical_axis(*padded_range(ys, 0.05), tall, 0)


def _legend(names: list[str], top: float, width: float) -> tuple[list[str], float]:
    """A sample of each line with its name, in as many rows as they need, and the y below."""
    parts, left, y = [], float(svg.MARGIN), top + 6
    for look, name in enumerate(names):
        limit = min(_NAME, width - 2 * svg.MARGIN - _SAMPLE - 8)
        entry = _SAMPLE + 8 + svg.text_width(svg.shorten(svg.clean(name), svg.SIZE, limit))
        if left > svg.MARGIN and left + entry > width - svg.MARGIN:
            left, y = float(svg.MARGIN), y + 20
        parts.append(f'<path class="line {_look(look)} d="M{svg.num(left)} {svg.num(y)}h{_SAMPLE}"/>')
        parts.append(svg.text(left + _SAMPLE + 8, y + 4, name, limit=limit))
        left += entry + 22
    return parts, y + 18


def _look(look: int) -> str:
    """The rest of a class attribute, and the dashes after it."""
    dashes = _DASHES[look % len(_DASHES)]
    return f'c{look % len(_LIGHT)}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")


def _frame(along: Axis, up: Axis, x: str, y: str, room: float) -> list[str]:
    """Grid, axis, ticks and the names of the axes; an empty name is not drawn."""
    wide, tall = along.stop, up.start
    levels = [svg.num(up(tick)) for tick in up.ticks]
    steps = [svg.num(along(tick)) for tick in along.ticks]
    parts = [
        f'<path class="rule grid" d="{"".join(f"M0 {level}H{svg.num(wide)}" for level in levels)}"/>',
        f'<path class="rule" d="M0 {svg.num(tall)}H{svg.num(wide)}'
        f'{"".join(f"M{step} {svg.num(tall)}v4" for step in steps)}"/>',
    ]
    parts += [
        svg.text(-8, up(tick) + 4, label, "muted small end", size=svg.SMALL)
        for tick, label in zip(up.ticks, up.labels, strict=True)
    ]
    parts += [
        svg.text(along(tick), tall + 17, label, "muted small middle", size=svg.SMALL)
        for tick, label in zip(along.ticks, along.labels, strict=True)
    ]
    if x:
        parts.append(svg.text(wide / 2, tall + 34, x, "middle", limit=wide))
    if y:
        left, middle = 4 - room, tall / 2
        label = svg.text(left, middle, y, "middle", limit=tall)
        turn = f'transform="rotate(-90 {svg.num(left)} {svg.num(middle)})"'
        parts.append(label.replace("<text", f"<text {turn}", 1))
    return parts


def _lines(curve: _Checked, look: int, along: Axis, up: Axis) -> str:
    band = ""
    if curve.band:
        low, high = curve.band
        edge = [*_points(curve.x, high, along, up), *reversed(_points(curve.x, low, along, up))]
        band = f'<path class="band c{look % len(_LIGHT)}" d="M{"L".join(edge)}Z"/>\n'
    points = _points(curve.x, curve.mean, along, up)
    if len(points) == 1:
        x, y = points[0].split()
        return f'{band}<circle class="dot c{look % len(_LIGHT)}" cx="{x}" cy="{y}" r="3"/>'
    return f'{band}<path class="line {_look(look)} d="M{"L".join(points)}"/>'


def _points(xs: np.ndarray, ys: np.ndarray, along: Axis, up: Axis) -> list[str]:
    return [f"{svg.num(along(x))} {svg.num(up(y))}" for x, y in zip(xs.tolist(), ys.tolist(), strict=True)]


def _dot(curve: _Checked, look: int, along: Axis, up: Axis) -> str:
    assert curve.mark is not None
    x, y = curve.mark
    return f'<circle class="dot c{look % len(_LIGHT)}" cx="{svg.num(along(x))}" cy="{svg.num(up(y))}" r="4.5"/>'
