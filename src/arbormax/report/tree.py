"""A class tree as a dendrogram in SVG, with a column per level and a line per leaf, or as Graphviz text.

A small tree is drawn as a whole, a large one is folded.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from arbormax.errors import OptionError
from arbormax.report import svg
from arbormax.report.svg import Mark, column_starts, names, place
from arbormax.taxonomy import Graph, Taxonomy

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
    after the first `max_children` of a node are folded too. A node of a graph is drawn once for each of its paths.

    >>> drawing = tree_svg(Taxonomy.from_nested({"comp": ["graphics", "sys"], "sci": ["med"]}), "News")
    >>> drawing.startswith("<svg"), "graphics</text>" in drawing
    (True, True)
    """
    kind = "graph" if taxonomy.is_graph else "tree"
    label = title or f"Class {kind} of {_count_leaves(taxonomy.num_leaves)}, depth {taxonomy.depth}"
    tree = taxonomy.unroll()[0] if isinstance(taxonomy, Graph) else taxonomy
    return draw_marks(tree_lines(tree, max_leaves, depth, max_children), title, label)


def draw_marks(marks: list[Mark], title: str, label: str, style: str = "") -> str:
    """Return the SVG of the lines of a tree; `label` is the text for screen readers."""
    columns = column_starts(marks, _SPINE + _TWIG)
    width = max(300.0, max(columns[mark.depth] + mark.width for mark in marks) + svg.MARGIN)
    parts, top = svg.heading(title, width)
    bottom = place(marks[0], top, _ROW, _GAP)
    lines = [_branches(mark, columns) for mark in marks if mark.below]
    parts.append(f'<path class="rule" d="{"".join(lines)}"/>')
    parts += names(marks, columns)
    return svg.document(width, bottom + svg.MARGIN, label, parts, style)


def tree_dot(
    taxonomy: Taxonomy,
    title: str = "",
    *,
    max_leaves: int = 200,
    depth: int | None = None,
    max_children: int | None = None,
) -> str:
    """Return the tree as DOT, for other tools to lay out and style; it is folded as by `tree_svg`.

    Of a graph, the first `max_leaves` nodes in level order are drawn, with all edges between them.

    >>> print(tree_dot(Taxonomy.from_nested({"sci": ["med"]})))  # doctest: +ELLIPSIS
    digraph taxonomy {
      graph [rankdir=LR, ...];
      ...
      n0 [label="root\\n1 leaf", shape=box];
      n1 [label="sci\\n1", shape=box];
      n2 [label="med"];
      n0 -> n1;
      n1 -> n2;
    }
    <BLANKLINE>
    """
    lines = [
        "digraph taxonomy {",
        f"  graph [rankdir=LR, ranksep=0.6, nodesep=0.08, ordering=out{_heading(title)}];",
        '  node [shape=plaintext, style=rounded, fontname="sans-serif", fontsize=11, height=0.25, margin="0.08,0.04"];',
        '  edge [arrowhead=none, color="#818b98"];',
    ]
    if taxonomy.is_graph:
        return "\n".join([*lines, *_graph_rows(taxonomy, max_leaves, depth), "}", ""])
    marks = tree_lines(taxonomy, max_leaves, depth, max_children)
    number = {mark: at for at, mark in enumerate(marks)}
    for mark in marks:
        shape = {"strong": ", shape=box", "muted": ", fontcolor=gray40"}.get(mark.css, "")
        lines.append(f"  n{number[mark]} [label={_quoted(mark.name, mark.note)}{shape}];")
    lines += [f"  n{number[mark]} -> n{number[child]};" for mark in marks for child in mark.below]
    return "\n".join([*lines, "}", ""])


def _heading(title: str) -> str:
    return f", label={_quoted(svg.clean(title))}, labelloc=t" if title else ""


def _graph_rows(tax: Taxonomy, most: int, depth: int | None) -> list[str]:
    """The lines of the nodes and the edges of a graph."""
    last_level = tax.depth if depth is None else min(depth, tax.depth)
    shown = min(max(1, most), int(tax.level_start[last_level + 1]))
    rows = []
    for node in range(shown):
        below = "" if tax.is_leaf[node] else f"{tax.leaf_counts[node]:,}" if node else _count_leaves(tax.num_leaves)
        shape = "" if tax.is_leaf[node] else ", shape=box"
        rows.append(f"  n{node} [label={_quoted(svg.clean(tax.names[node]), below)}{shape}];")
    if shown < tax.num_nodes:
        rows.append(f'  more [label="… {tax.num_nodes - shown:,} more nodes", fontcolor=gray40];')
    edges = tax.edges[(tax.edges < shown).all(1)].tolist()
    return rows + [f"  n{parent} -> n{child};" for parent, child in edges]


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


def _quoted(*rows: str) -> str:
    """Return the rows as one quoted string, with backslashes, quotes and markup escaped."""
    escaped = (row.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for row in rows if row)
    return '"' + "\\n".join(escaped) + '"'


def tree_lines(tax: Taxonomy, max_leaves: int, depth: int | None = None, max_children: int | None = None) -> list[Mark]:
    """The marks of the drawing from top to bottom, parents before their children.

    At most `max_leaves` marks have no children: the largest subtrees are folded. Nothing is drawn below `depth` levels,
    and at most `max_children` children of one node.
    """
    for name, limit in (("max_leaves", max_leaves), ("depth", depth), ("max_children", max_children)):
        if limit is not None and limit < 1:
            raise OptionError(f"expected at least 1, found {limit}", argument=name)
    return _marks(tax, _opened(tax, max_leaves, _visible(tax, depth, max_children)))


def _count_leaves(count: int) -> str:
    return f"{count:,} {'leaf' if count == 1 else 'leaves'}"


def _visible(tax: Taxonomy, depth: int | None, max_children: int | None) -> np.ndarray:
    """(N,) how many children of each node may be drawn."""
    visible = np.array(tax.num_children)
    if depth is not None:
        visible[tax.node_depth >= depth] = 0
    return visible if max_children is None else np.minimum(visible, max_children)


def _lines(tax: Taxonomy, visible: np.ndarray) -> np.ndarray:
    """(N,) the number of lines that the whole subtree of each node takes."""
    lines = np.ones(tax.num_nodes, dtype=np.int64)
    for node in np.flatnonzero(visible)[::-1]:
        first = tax.child_start[node]
        lines[node] = lines[first : first + visible[node]].sum() + (visible[node] < tax.num_children[node])
    return lines


def _opened(tax: Taxonomy, rows: int, visible: np.ndarray) -> dict[int, int]:
    """The number of children to draw for each opened node, so that there are at most `rows` lines."""
    lines = tax.leaf_counts if np.array_equal(visible, tax.num_children) else _lines(tax, visible)
    opened: dict[int, int] = {}
    stack = [(0, rows)]
    while stack:
        node, budget = stack.pop()
        count = int(visible[node])
        if not count or (budget == 1 and lines[node] > 1):
            continue
        is_cut = count < tax.num_children[node]  # one line stands for the other children
        if count + is_cut > budget:
            count, is_cut = budget - 1, True
        opened[node] = count
        first = int(tax.child_start[node])
        shares = _share(lines[first : first + count], budget - is_cut)
        stack.extend(zip(range(first, first + count), shares, strict=True))
    return opened


def _share(wants: np.ndarray, rows: int) -> list[int]:
    """The lines of each subtree: small ones get all that they want, the others share the rest evenly."""
    if wants.sum() <= rows:
        return [int(want) for want in wants]
    cap = bisect_right(range(1, rows + 1), rows, key=lambda level: int(np.minimum(wants, level).sum()))
    shares = np.minimum(wants, cap)
    shares[np.flatnonzero(wants > cap)[: rows - int(shares.sum())]] += 1
    return [int(share) for share in shares]


def _marks(tax: Taxonomy, opened: dict[int, int]) -> list[Mark]:
    marks: list[Mark] = []
    stack: list[tuple[int, Mark | None, int]] = [(0, None, 0)]  # node, mark of its parent, number of folded leaves
    while stack:
        node, above, folded = stack.pop()
        leaves = int(tax.leaf_counts[node])
        name, note, css = svg.clean(tax.names[node]) or "(unnamed)", "", "leaf"
        if folded:
            name, css = f"… and {folded:,} more", "muted"
        elif not tax.is_leaf[node]:
            note, css = _count_leaves(leaves) if node == 0 else f"{leaves:,}", "strong"
            note += "" if node in opened else " …"
        mark = Mark(name, note, css, above.depth + 1 if above else 0, node=node)
        marks.append(mark)
        if above:
            above.below.append(mark)
        if node in opened and not folded:
            first, stop = int(tax.child_start[node]), int(tax.child_start[node + 1])
            last = first + opened[node]
            if last < stop:
                stack.append((last, mark, int(tax.leaf_counts[last:stop].sum())))
            stack.extend((child, mark, 0) for child in range(last - 1, first - 1, -1))
    return marks
