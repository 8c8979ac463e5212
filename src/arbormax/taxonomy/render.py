"""Trees as lines of text, for `Taxonomy.render` and the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from arbormax.errors import OptionError

if TYPE_CHECKING:
    import numpy as np

    from arbormax.taxonomy.tree import Taxonomy


@dataclass
class Branch:
    """One node of a tree of text. The terminal also draws `share` as a bar, and `more` as further lines."""

    name: str
    note: str = ""
    style: str = ""  # of the name
    share: float | None = None
    more: list[Any] = field(default_factory=list)
    children: list[Branch] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.name + self.note


def draw(root: Branch, width: int = 3) -> Iterator[tuple[Branch, str, str]]:
    """Yield every branch from top to bottom with its guide lines, and the guide lines of its further lines.

    >>> tree = Branch("a", children=[Branch("b"), Branch("c")])
    >>> [guides + branch.text for branch, guides, _ in draw(tree)]
    ['a', '├─ b', '└─ c']
    """
    dashes, blank = "─" * (width - 2) + " ", " " * width
    stack = [(root, "", "")]
    while stack:
        branch, guides, below = stack.pop()
        yield branch, guides, below
        for child in reversed(branch.children):
            is_last = child is branch.children[-1]
            corner, bar = ("└", blank) if is_last else ("├", "│" + blank[1:])
            stack.append((child, below + corner + dashes, below + bar))


def outline(
    tax: Taxonomy,
    *,
    totals: np.ndarray | None = None,
    unit: str = "item",
    depth: int | None = None,
    max_lines: int = 80,
    max_children: int = 20,
) -> Branch:
    """Return the tree of a taxonomy, opened level by level until the lines are used up.

    `totals` (N,) is a number for every node, such as the items at or below it. The share of a branch is its part of all
    items or, without `totals`, of all classes.
    """
    for name, value in (("max_lines", max_lines), ("max_children", max_children)):
        if value < 1:
            raise OptionError(f"expected at least 1, found {value}", argument=name)
    opened = _choose_opened(tax, depth, max_lines, max_children)
    values = tax.leaf_counts if totals is None else totals
    whole = max(float(values[0]), 1.0)
    root = Branch(printable(tax.names[0]))
    notes = [count(tax.num_leaves, "class"), f"{tax.num_nodes:,} nodes", f"depth {tax.depth}"]
    root.note = f" ({', '.join([*notes, *([] if totals is None else [count(totals[0], unit)])])})"
    branches, shown_below = {0: root}, {0: 0}
    for node, visible in opened.items():
        children = tax.children(node)
        for child in children[:visible].tolist():
            if child in branches:  # in a graph, a node is opened below one of its parents
                above = printable(tax.names[shown_below[child]])
                branches[node].children.append(Branch(printable(tax.names[child]), f" (also below {above})"))
                continue
            shown_below[child] = node
            is_leaf = bool(tax.is_leaf[child])
            notes = [] if is_leaf else [count(tax.leaf_counts[child], "class")]
            notes += [] if totals is None else [count(totals[child], unit)]
            branches[child] = branch = Branch(printable(tax.names[child]))
            branch.note = f" ({', '.join(notes)})" if notes else ""
            branch.note += "" if is_leaf or child in opened else " …"
            branch.share = float(values[child]) / whole if notes else None
            branches[node].children.append(branch)
        if visible < len(children):
            rest = Branch("", f"… {len(children) - visible:,} more")
            rest.share = float(values[children[visible:]].sum()) / whole
            branches[node].children.append(rest)
    return root


def _choose_opened(tax: Taxonomy, depth: int | None, max_lines: int, max_children: int) -> dict[int, int]:
    """Return the nodes whose children are shown, in breadth-first order, and how many of them."""
    opened: dict[int, int] = {}
    budget, queue, seen = max_lines, [0], {0}
    for node in queue:
        children = int(tax.num_children[node])
        visible = min(children, max_children) if children > max_children + 1 else children
        cost = visible + (visible < children)
        if node == 0 and cost > budget:  # the root is always opened
            visible = max(1, budget - 1)
            cost = visible + 1
        if not children or cost > budget or (depth is not None and tax.node_depth[node] >= depth):
            continue
        budget -= cost
        opened[node] = visible
        shown = tax.children(node)[:visible].tolist()
        queue += [child for child in shown if child not in seen]
        seen.update(shown)
    return opened


def printable(name: str) -> str:
    """Return a name with control characters and line breaks escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def count(value: float | np.generic, unit: str) -> str:
    """Return a number with its unit, such as '1 class' or '2 classes'."""
    number = float(value)
    plural = unit if number == 1 else "classes" if unit == "class" else f"{unit}s"
    return f"{int(number):,} {plural}" if number.is_integer() else f"{number:,.2f} {plural}"
