"""Helpers of all drawings: the document with its style sheet, text that fits, short numbers, and the layout of a tree.

A drawn tree has a column for each level, and parents in the middle of their children.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from itertools import accumulate

SIZE, SMALL, LARGE = 12, 11, 15  # of text, in pixels; the style sheet has the same numbers
MARGIN = 16
# all rules start with .arbormax, so that a page can contain the drawing inline
_STYLE = (files("arbormax.report") / "page" / "drawing.css").read_text("utf-8")
_MAX_WIDTH = 260  # of a name, in pixels


def document(width: float, height: float, label: str, parts: Iterable[str], style: str = "") -> str:
    """The SVG file with these parts; `label` is the text for screen readers, `style` adds rules to the style sheet."""
    name, wide, tall = escape(clean(label)), num(width), num(height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="arbormax" role="img" aria-label="{name}"'
        f' width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}">'
    )
    paper = f'<rect class="paper" width="{wide}" height="{tall}"/>'
    return "\n".join([head, f"<title>{name}</title>", f"<style>\n{_STYLE}{style}</style>", paper, *parts, "</svg>", ""])


def heading(title: str, width: float) -> tuple[list[str], float]:
    """The title, wrapped into lines, and the y below it."""
    lines: list[str] = []
    for word in clean(title).split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, LARGE, bold=True) <= width - 2 * MARGIN:
            lines[-1] = longer
        else:
            lines.append(word)
    parts = [
        text(MARGIN, MARGIN + 15 + 20 * row, shown, "title", size=LARGE, limit=width - 2 * MARGIN)
        for row, shown in enumerate(lines)
    ]
    return parts, MARGIN + (20 * len(lines) + 10 if lines else 0)


def text(
    x: float,
    y: float,
    content: str,
    css: str = "",
    *,
    note: str = "",
    size: int = SIZE,
    limit: float = float("inf"),
) -> str:
    """A text element, cut to `limit` pixels with the whole text in a tooltip; `note` follows in grey."""
    whole = clean(content)
    shown = shorten(whole, size, limit, bold="strong" in css or "title" in css)
    full = f"<title>{escape(whole)}</title>" if shown != whole else ""
    after = f'<tspan class="muted small" dx="5">{escape(note)}</tspan>' if note else ""
    style = f' class="{css}"' if css else ""
    return f'<text x="{num(x)}" y="{num(y)}"{style}>{full}{escape(shown)}{after}</text>'


def num(value: float) -> str:
    """A coordinate with at most one decimal.

    >>> num(12.04), num(-0.01), num(3.25)
    ('12', '0', '3.2')
    """
    return f"{round(float(value), 1) + 0.0:.1f}".removesuffix(".0")


def clean(content: str) -> str:
    """Text without characters that XML forbids or that change the writing direction; line breaks become spaces."""
    kept = (" " if char.isspace() else char for char in content if char.isspace() or not _is_forbidden(char))
    return " ".join("".join(kept).split())


def _is_forbidden(char: str) -> bool:
    # Cc control, Cs lone surrogates; U+xFFFE and U+xFFFF are no characters; the rest changes the writing direction
    return (
        unicodedata.category(char) in ("Cc", "Cs")
        or ord(char) & 0xFFFE == 0xFFFE
        or char in "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )


def shorten(content: str, size: int, limit: float, *, bold: bool = False) -> str:
    """The text, cut with an ellipsis if it is wider than `limit` pixels."""
    if text_width(content, size, bold=bold) <= limit:
        return content
    widths = list(accumulate(text_width(char, size, bold=bold) for char in content))
    return content[: bisect_right(widths, limit - text_width("…", size, bold=bold))].rstrip() + "…"


def text_width(content: str, size: int = SIZE, *, bold: bool = False) -> float:
    """The width of the text in pixels, estimated generously because fonts differ."""
    return sum(map(_em, content)) * size * (1.14 if bold else 1.0)


def _em(char: str) -> float:
    if char in "ijlI.,:;'|!()[]/\\ ":
        return 0.36
    if char in "mwMW@%—…":
        return 0.97
    if char in "&<>+=#~−":
        return 0.84
    if unicodedata.combining(char):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF" or ord(char) > 0xFFFF:
        return 1.1
    return 0.72 if char.isupper() else 0.62


@dataclass(eq=False)
class Mark:
    """One name in the drawing."""

    name: str
    note: str
    css: str  # strong, leaf, or muted for several nodes that share one line
    depth: int
    node: int = -1  # of the taxonomy
    conditional: float = 0.0  # probability given the parent, in the drawing of a prediction
    answered: bool = True  # whether the answer reaches this depth
    y: float = 0.0
    below: list[Mark] = field(default_factory=list)

    @property
    def width(self) -> float:
        bold = "strong" in self.css
        name = shorten(self.name, SIZE, _MAX_WIDTH, bold=bold)
        return text_width(name, bold=bold) + (text_width(self.note, SMALL) + 5 if self.note else 0)


def column_starts(marks: Sequence[Mark], gap: float) -> list[float]:
    """The x of the names of each level; only nodes with children push the next column to the right."""
    columns = [float(MARGIN)]
    for depth in range(max(mark.depth for mark in marks)):
        widest = max((mark.width for mark in marks if mark.below and mark.depth == depth), default=0.0)
        columns.append(columns[-1] + widest + gap)
    return columns


def place(root: Mark, top: float, row: float, gap: float) -> float:
    """Set the y of every mark, with a gap between the children of different parents; returns the lower end."""
    order, stack = [], [root]
    while stack:
        order.append(stack.pop())
        stack.extend(reversed(order[-1].below))
    parent = {child: mark for mark in order for child in mark.below}
    bottom, before = top, None
    for mark in order:
        if not mark.below:
            bottom += gap if before not in (None, parent.get(mark)) else 0
            mark.y = bottom + row / 2
            bottom += row
            before = parent.get(mark)
    for mark in reversed(order):
        if mark.below:
            mark.y = (mark.below[0].y + mark.below[-1].y) / 2
    return bottom


def names(marks: Sequence[Mark], columns: Sequence[float]) -> list[str]:
    """The names with their notes as SVG."""
    return [text(columns[m.depth], m.y + 4, m.name, m.css, note=m.note, limit=_MAX_WIDTH) for m in marks]
