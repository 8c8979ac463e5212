"""The lines of a drawn tree: every node of a small tree, the folded form of a large one."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from arbormax.errors import OptionError
from arbormax.report import svg
from arbormax.report.layout import Mark
from arbormax.taxonomy import Taxonomy


def tree_lines(tax: Taxonomy, max_leaves: int, depth: int | None = None, max_children: int | None = None) -> list[Mark]:
    """The marks of the drawing from top to bottom, parents before their children.

    At most `max_leaves` marks have no children: the largest subtrees are folded. Nothing is drawn below `depth` levels,
    and at most `max_children` children of one node.
    """
    for name, limit in (("max_leaves", max_leaves), ("depth", depth), ("max_children", max_children)):
        if limit is not None and limit < 1:
            raise OptionError(f"expected at least 1, found {limit}", argument=name)
    return _marks(tax, _opened(tax, max_leaves, _visible(tax, depth, max_children)))


def count_leaves(count: int) -> str:
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
            note, css = count_leaves(leaves) if node == 0 else f"{leaves:,}", "strong"
            note += "" if node in opened else " …"
        mark = Mark(name, note, css, above.depth + 1 if above else 0)
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
