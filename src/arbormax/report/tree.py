"""A class tree as a dendrogram: the root at the left, a column per level, a line per leaf."""

from __future__ import annotations

from arbormax.report import svg
from arbormax.report.tree_lines import MAX_WIDTH, Mark, count_leaves, tree_lines
from arbormax.taxonomy import Taxonomy

_ROW, _GAP = 18, 8  # height of a line, and the gap between leaves of different parents
_SPINE, _TWIG = 12, 14  # from a column's end to the vertical line, and from there to the next column


def tree_svg(
    taxonomy: Taxonomy,
    title: str = "",
    *,
    max_leaves: int = 200,
    depth: int | None = None,
    max_children: int | None = None,
) -> str:
    """Return the tree as SVG; inner nodes show the number of leaves below them.

    The largest subtrees are folded until at most `max_leaves` lines are left. Nodes below `depth` levels and children
    after the first `max_children` of a node are folded too.

    >>> drawing = tree_svg(Taxonomy.from_nested({"comp": ["graphics", "sys"], "sci": ["med"]}), "News")
    >>> drawing.startswith("<svg"), "graphics</text>" in drawing
    (True, True)
    """
    marks = tree_lines(taxonomy, max_leaves, depth, max_children)
    columns = _columns(marks)
    width = max(300.0, max(columns[mark.depth] + mark.width for mark in marks) + svg.MARGIN)
    parts, top = svg.heading(title, width)
    bottom = _place(marks, top)
    lines = [_branches(mark, marks, columns) for mark in marks if mark.below]
    parts.append(f'<path class="rule" d="{"".join(lines)}"/>')
    parts += [
        svg.text(columns[mark.depth], mark.y + 4, mark.name, mark.css, note=mark.note, limit=MAX_WIDTH)
        for mark in marks
    ]
    label = title or f"Class tree of {count_leaves(taxonomy.num_leaves)}, depth {taxonomy.depth}"
    return svg.document(width, bottom + svg.MARGIN, label, parts)


def _columns(marks: list[Mark]) -> list[float]:
    """Return the x of each level; only nodes with children need space to the right."""
    widths = [0.0] * (max(mark.depth for mark in marks) + 1)
    for mark in marks:
        if mark.below:
            widths[mark.depth] = max(widths[mark.depth], mark.width)
    columns = [float(svg.MARGIN)]
    for width in widths[:-1]:
        columns.append(columns[-1] + width + _SPINE + _TWIG)
    return columns


def _place(marks: list[Mark], top: float) -> float:
    """Set the y of every mark, parents at the middle of their children; returns the lower end."""
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


def _branches(mark: Mark, marks: list[Mark], columns: list[float]) -> str:
    """Return the SVG path from the name of a node to those of its children."""
    y, end = svg.num(mark.y), svg.num(columns[mark.depth + 1] - 4)
    spine = svg.num(columns[mark.depth + 1] - _TWIG)
    ys = [svg.num(marks[child].y) for child in mark.below]
    start = svg.num(columns[mark.depth] + mark.width + 4)
    if len(ys) == 1:
        return f"M{start} {y}H{end}"
    inner = "".join(f"M{spine} {middle}H{end}" for middle in ys[1:-1])
    return f"M{start} {y}H{spine}M{end} {ys[0]}H{spine}V{ys[-1]}H{end}{inner}"
