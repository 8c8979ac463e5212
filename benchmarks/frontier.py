"""A plot of time against accuracy, written as SVG without a library."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_COLOURS = ("#d55e00", "#0072b2", "#777777", "#009e73")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM = 720, 420, 60, 160, 50


def write_frontier(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw each contender's points: seconds on a log axis, test accuracy upwards; the tuned one is filled."""
    times = np.log10([row["seconds"] for row in rows])
    low, high = times.min() - 0.1, times.max() + 0.1
    top = max(row["test_accuracy"] for row in rows) + 0.05

    def across(seconds: float) -> float:
        return round(float(_LEFT + (np.log10(seconds) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)), 1)

    def up(share: float) -> float:
        return round(float((_HEIGHT - _BOTTOM) * (1 - share / top)), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif"'
        ' font-size="13">',
        "<title>Training time against test accuracy on ICD-10-CM</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for share in np.arange(0.0, top, 0.1):
        y = up(share)
        parts.append(f'<path d="M{_LEFT} {y}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{share:.1f}</text>')
    for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        if low <= np.log10(tick) <= high:
            parts.append(f'<text x="{across(tick)}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{tick} s</text>')
    threads = rows[0]["threads"]
    caption = f"training time, {threads} threads; the filled point is the tuned number of epochs"
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 8}">{caption}</text>')
    names = dict.fromkeys(row["contender"] for row in rows)
    for name, colour in zip(names, _COLOURS, strict=False):
        mine = sorted((row for row in rows if row["contender"] == name), key=lambda row: row["seconds"])
        places = [(across(row["seconds"]), up(row["test_accuracy"])) for row in mine]
        line = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for row, (x, y) in zip(mine, places, strict=True):
            fill = colour if row["is_tuned"] else "white"
            parts.append(f'<circle cx="{x}" cy="{y}" r="5" fill="{fill}" stroke="{colour}" stroke-width="2">')
            parts.append(f"<title>{row['epochs']} epochs</title></circle>")
        parts.append(f'<text x="{places[-1][0] + 10}" y="{places[-1][1] + 4}" fill="{colour}">{name}</text>')
    file.write_text("\n".join([*parts, "</svg>", ""]), "utf-8")
