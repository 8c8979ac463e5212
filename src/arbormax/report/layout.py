"""The layout of a drawn tree: a column for each level, parents in the middle of their children."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from arbormax.report import svg

_MAX_WIDTH = 260  # of a name, in pixels


@dataclass(eq=False)
class Mark:
    """One name in the drawing."""

    name: str
    note: str
    css: str  # strong, leaf, or muted for several nodes that share one line
    depth: int
    conditional: float = 0.0  # probability given the parent, in the drawing of a prediction
    answered: bool = True  # whether the answer reaches this depth
    y: float = 0.0
    below: list[Mark] = field(default_factory=list)

    @property
    def width(self) -> float:
        bold = self.css == "strong"
        name = svg.shorten(self.name, svg.SIZE, _MAX_WIDTH, bold=bold)
        return svg.text_width(name, bold=bold) + (svg.text_width(self.note, svg.SMALL) + 5 if self.note else 0)


def column_starts(marks: Sequence[Mark], gap: float) -> list[float]:
    """The x of the names of each level; only nodes with children push the next column to the right."""
    columns = [float(svg.MARGIN)]
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
    return [svg.text(columns[m.depth], m.y + 4, m.name, m.css, note=m.note, limit=_MAX_WIDTH) for m in marks]
