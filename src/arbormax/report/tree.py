"""A class tree as a dendrogram: the root at the left, a column per level, a line per leaf."""

from __future__ import annotations

from arbormax.report import svg
from arbormax.report.layout import Mark, column_starts, names, place
from arbormax.report.tree_lines import count_leaves, tree_lines
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
    columns = column_starts(marks, _SPINE + _TWIG)
    width = max(300.0, max(columns[mark.depth] + mark.width for mark in marks) + svg.MARGIN)
    parts, top = svg.heading(title, width)
    bottom = place(marks[0], top, _ROW, _GAP)
    lines = [_branches(mark, columns) for mark in marks if mark.below]
    parts.append(f'<path class="rule" d="{"".join(lines)}"/>')
    parts += names(marks, columns)
    label = title or f"Class tree of {count_leaves(taxonomy.num_leaves)}, depth {taxonomy.depth}"
    return svg.document(width, bottom + svg.MARGIN, label, parts)


def _branches(mark: Mark, columns: list[float]) -> str:
    """Return the SVG path from the name of a node to those of its children."""
    y, end = svg.num(mark.y), svg.num(columns[mark.depth + 1] - 4)
    spine = svg.num(columns[mark.depth + 1] - _TWIG)
    ys = [svg.num(child.y) for child in mark.below]
    start = svg.num(columns[mark.depth] + mark.width + 4)
    if len(ys) == 1:
        return f"M{start} {y}H{end}"
    inner = "".join(f"M{spine} {middle}H{end}" for middle in ys[1:-1])
    return f"M{start} {y}H{spine}M{end} {ys[0]}H{spine}V{ys[-1]}H{end}{inner}"
