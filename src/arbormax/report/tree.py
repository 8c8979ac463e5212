"""A class tree as a dendrogram: the root at the left, a column per level, a line per leaf."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from arbormax.errors import OptionError
from arbormax.report import svg
from arbormax.taxonomy import Taxonomy

_ROW, _GAP = 18, 8  # height of a line, and the room between leaves of different parents
_SPINE, _TWIG = 12, 14  # from a column's end to the vertical line, and from there to the next column
_WIDEST = 260  # pixels of a name


@dataclass
class _Mark:
    """One name in the drawing."""

    name: str
    note: str
    css: str
    depth: int
    y: float = 0.0
    below: list[int] = field(default_factory=list)

    @property
    def width(self) -> float:
        bold = "strong" in self.css
        name = svg.shorten(self.name, svg.SIZE, _WIDEST, bold=bold)
        return svg.text_width(name, bold=bold) + (svg.text_width(self.note, svg.SMALL) + 5 if self.note else 0)


def tree_svg(taxonomy: Taxonomy, title: str = "", *, max_leaves: int = 200) -> str:
    """The tree as an SVG file's text; inner nodes tell the number of leaves below them.

    With more than `max_leaves` leaves, the largest subtrees are folded until no more lines than that are left.

    >>> drawing = tree_svg(Taxonomy.from_nested({"comp": ["graphics", "sys"], "sci": ["med"]}), "News")
    >>> drawing.startswith("<svg"), "graphics</text>" in drawing
    (True, True)
    """
    if max_leaves < 1:
        raise OptionError(f"max_leaves is at least 1, found {max_leaves}")
    marks = _marks(taxonomy, _opened(taxonomy, max_leaves))
    columns = _columns(marks)
    width = max(300.0, max(columns[mark.depth] + mark.width for mark in marks) + svg.MARGIN)
    parts, top = svg.heading(title, width)
    bottom = _place(marks, top)
    lines = [_branches(mark, marks, columns) for mark in marks if mark.below]
    parts.append(f'<path class="rule" d="{"".join(lines)}"/>')
    parts += [
        svg.text(columns[mark.depth], mark.y + 4, mark.name, mark.css, note=mark.note, limit=_WIDEST) for mark in marks
    ]
    label = title or f"Class tree of {_leaves(taxonomy.num_leaves)}, depth {taxonomy.depth}"
    return svg.document(width, bottom + svg.MARGIN, label, parts)


def _opened(tax: Taxonomy, rows: int) -> dict[int, int]:
    """How many children of which nodes are drawn so that there are at most `rows` lines."""
    opened: dict[int, int] = {}
    stack = [(0, rows)]
    while stack:
        node, budget = stack.pop()
        count = int(tax.num_children[node])
        if not count or (budget == 1 and tax.leaf_counts[node] > 1):
            continue
        visible = count if count <= budget else budget - 1
        opened[node] = visible
        first = int(tax.child_start[node])
        shares = _share(tax.leaf_counts[first : first + visible], budget - (visible < count))
        stack.extend(zip(range(first, first + visible), shares, strict=True))
    return opened


def _share(wants: np.ndarray, rows: int) -> list[int]:
    """Lines for each of several subtrees: the small ones get what they want, the others share the rest evenly."""
    if wants.sum() <= rows:
        return [int(want) for want in wants]
    cap = bisect_right(range(1, rows + 1), rows, key=lambda level: int(np.minimum(wants, level).sum()))
    shares = np.minimum(wants, cap)
    shares[np.flatnonzero(wants > cap)[: rows - int(shares.sum())]] += 1
    return [int(share) for share in shares]


def _marks(tax: Taxonomy, opened: dict[int, int]) -> list[_Mark]:
    """What is drawn, from top to bottom; parents come before their children."""
    marks: list[_Mark] = []
    stack: list[tuple[int, int, int]] = [(0, -1, 0)]  # node, its parent's place, and leaves that a fold stands for
    while stack:
        node, above, folded = stack.pop()
        if above >= 0:
            marks[above].below.append(len(marks))
        depth = marks[above].depth + 1 if above >= 0 else 0
        if folded:
            marks.append(_Mark(f"… and {folded:,} more", "", "muted", depth))
            continue
        name = svg.clean(tax.names[node]) or "(unnamed)"
        if tax.is_leaf[node]:
            marks.append(_Mark(name, "", "leaf", depth))
            continue
        leaves = int(tax.leaf_counts[node])
        note = _leaves(leaves) if node == 0 else f"{leaves:,}"
        marks.append(_Mark(name, note if node in opened else f"{note} …", "strong", depth))
        if node in opened:
            first, stop = int(tax.child_start[node]), int(tax.child_start[node + 1])
            last = first + opened[node]
            if last < stop:
                stack.append((last, len(marks) - 1, int(tax.leaf_counts[last:stop].sum())))
            stack.extend((child, len(marks) - 1, 0) for child in range(last - 1, first - 1, -1))
    return marks


def _columns(marks: list[_Mark]) -> list[float]:
    """The x of each level. Only nodes with a branch to the right take part: nothing stands beside the others."""
    widths = [0.0] * (max(mark.depth for mark in marks) + 1)
    for mark in marks:
        if mark.below:
            widths[mark.depth] = max(widths[mark.depth], mark.width)
    columns = [float(svg.MARGIN)]
    for width in widths[:-1]:
        columns.append(columns[-1] + width + _SPINE + _TWIG)
    return columns


def _place(marks: list[_Mark], top: float) -> float:
    """Give every mark its y, a parent's in the middle of its children's; gives back the lower end."""
    parent = {child: place for place, mark in enumerate(marks) for child in mark.below}
    bottom, before = top, None
    for place, mark in enumerate(marks):
        if not mark.below:
            bottom += _GAP if before is not None and before != parent.get(place) else 0
            mark.y = bottom + _ROW / 2
            bottom += _ROW
            before = parent.get(place)
    for mark in reversed(marks):
        if mark.below:
            mark.y = (marks[mark.below[0]].y + marks[mark.below[-1]].y) / 2
    return bottom


def _branches(mark: _Mark, marks: list[_Mark], columns: list[float]) -> str:
    """The path from a node's name to each of its children's."""
    y, end = svg.num(mark.y), svg.num(columns[mark.depth + 1] - 4)
    spine = svg.num(columns[mark.depth + 1] - _TWIG)
    ys = [svg.num(marks[child].y) for child in mark.below]
    start = svg.num(columns[mark.depth] + mark.width + 4)
    if len(ys) == 1:
        return f"M{start} {y}H{end}"
    inner = "".join(f"M{spine} {middle}H{end}" for middle in ys[1:-1])
    return f"M{start} {y}H{spine}M{end} {ys[0]}H{spine}V{ys[-1]}H{end}{inner}"


def _leaves(count: int) -> str:
    return f"{count:,} {'leaf' if count == 1 else 'leaves'}"
