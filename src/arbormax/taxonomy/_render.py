"""The tree as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arbormax.errors import OptionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from arbormax.taxonomy.tree import Taxonomy


def render(tax: Taxonomy, counts: ArrayLike | None, max_lines: int, max_children: int) -> str:
    if max_lines < 1 or max_children < 1:
        raise OptionError(f"max_lines and max_children are at least 1, found {max_lines} and {max_children}")
    totals = None if counts is None else tax.sum_up(counts)
    shown = _choose(tax, max_lines, max_children)
    lines = [f"{printable(tax.names[0])} ({tax.num_leaves:,} classes, {tax.num_nodes:,} nodes, depth {tax.depth})"]
    if totals is not None:
        lines[0] = f"{lines[0][:-1]}, {_items(totals[0])})"
    # Nodes still to be drawn, next one last, each with the bars of its ancestors; -k stands for k folded siblings.
    stack: list[tuple[int, str, bool]] = []

    def push(node: int, bars: str) -> None:
        first, count = int(tax.child_start[node]), int(tax.num_children[node])
        visible = shown.get(node, 0)
        rows = list(range(first, first + visible))
        if visible < count and visible:
            rows.append(visible - count)
        stack.extend((row, bars, row == rows[-1]) for row in reversed(rows))

    push(0, "")
    while stack:
        node, bars, last = stack.pop()
        branch = "└─ " if last else "├─ "
        if node < 0:
            lines.append(f"{bars}{branch}… {-node:,} more")
            continue
        notes = [] if tax.is_leaf[node] else [_plural(int(tax.leaf_counts[node]), "class", "classes")]
        if totals is not None:
            notes.append(_items(totals[node]))
        folded = " …" if not tax.is_leaf[node] and node not in shown else ""
        note = f" ({', '.join(notes)})" if notes else ""
        lines.append(f"{bars}{branch}{printable(tax.names[node])}{note}{folded}")
        push(node, bars + ("   " if last else "│  "))
    return "\n".join(lines)


def _choose(tax: Taxonomy, max_lines: int, max_children: int) -> dict[int, int]:
    """How many children of which nodes to draw: level by level, until the lines are used up."""
    shown: dict[int, int] = {}
    budget, queue = max_lines, [0]
    for node in queue:
        count = int(tax.num_children[node])
        visible = min(count, max_children) if count > max_children + 1 else count
        cost = visible + (visible < count)
        if node == 0 and cost > budget:  # the root is always opened
            visible = max(1, budget - 1)
            cost = visible + 1
        if not count or cost > budget:
            continue
        budget -= cost
        shown[node] = visible
        first = int(tax.child_start[node])
        queue.extend(range(first, first + visible))
    return shown


def printable(name: str) -> str:
    """A name without characters that would steer a terminal or break a line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def _plural(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _items(value: np.generic) -> str:
    number = float(value)
    return _plural(int(number), "item", "items") if number.is_integer() else f"{number:,.2f} items"
