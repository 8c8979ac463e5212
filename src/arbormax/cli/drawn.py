"""Trees for a terminal, with bars in one column, and drawings for files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text
from rich.tree import Tree

from arbormax._files import write_file
from arbormax.cli import output
from arbormax.errors import OptionError
from arbormax.report.prediction import percent

if TYPE_CHECKING:
    import numpy as np

    from arbormax.taxonomy import Taxonomy

BAR = 12  # columns of a full bar
_RIGHT = BAR + 12  # columns that a bar and its number take
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass
class Branch:
    """One line of a tree: a text, and a bar of this share behind it; `more` are further lines of its own."""

    text: Text
    share: float | None = None
    more: list[Text] = field(default_factory=list)
    below: list[Branch] = field(default_factory=list)


def bar(share: float, width: int = BAR) -> str:
    """A bar of this share of the width; something is seen of all that is not nothing.

    >>> bar(0.5, 4), bar(0.0, 4), bar(1e-9, 4)
    ('██  ', '    ', '▏   ')
    """
    if output.console().options.ascii_only:
        return ("#" * max(round(share * width), int(share > 0))).ljust(width)
    eighths = max(round(share * width * 8), int(share > 0))
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()).ljust(width)


def grown(root: Branch) -> Tree:
    """The tree to print, its bars below one another; a text that is too long pushes its own bar to the right."""
    most = max(20, output.console().width - _RIGHT)
    widths, stack = [0], [(root, 0)]
    while stack:
        branch, depth = stack.pop()
        if branch.share is not None:
            widths.append(4 * depth + branch.text.cell_len)
        stack.extend((child, depth + 1) for child in branch.below)
    column = max(width for width in widths if width <= most)
    tree = Tree(_line(root, 0, column))
    drawn = [(root, tree, 0)]
    for branch, at, depth in drawn:
        drawn.extend((child, at.add(_line(child, depth + 1, column)), depth + 1) for child in branch.below)
    return tree


def _line(branch: Branch, depth: int, column: int) -> Text:
    line = branch.text.copy()
    if branch.share is not None:
        line.append(" " * max(0, column - 4 * depth - line.cell_len) + "  ")
        line.append(bar(branch.share), style="cyan").append(f"{percent(branch.share):>9}")
    for text in branch.more:
        line.append("\n").append_text(text)
    return line


def taxonomy_tree(
    tax: Taxonomy, depth: int | None, max_children: int, max_lines: int, examples: np.ndarray | None = None
) -> Tree:
    """The tree opened level by level until the lines are used up; bars are shares of the classes, or of the examples.

    `examples` is their number at or below each node.
    """
    counts, what = (tax.leaf_counts, "class") if examples is None else (examples, "example")
    whole = max(int(counts[0]), 1)
    about = f"{_counted(tax.num_leaves, 'class')}, {tax.num_nodes:,} nodes, depth {tax.depth}"
    if examples is not None:
        about += f", {_counted(int(counts[0]), what)}"
    root = Branch(Text(output.printable(tax.names[0])).append(f" ({about})", style="dim"))
    made, queue, budget = {0: root}, [0], max_lines
    for node in queue:
        children = tax.children(node).tolist()
        visible = children if len(children) <= max_children + 1 else children[:max_children]
        if node and (len(visible) > budget or (depth is not None and tax.node_depth[node] >= depth)):
            made[node].text.append(" …", style="dim")
            continue
        if not node:
            visible = visible[: max(1, budget)]
        budget -= len(visible)
        for child in visible:
            made[child] = branch = Branch(Text(output.printable(tax.names[child])))
            made[node].below.append(branch)
            if not tax.is_leaf[child]:
                queue.append(child)
            if examples is not None or not tax.is_leaf[child]:
                branch.text.append(f" ({_counted(int(counts[child]), what)})", style="dim")
                branch.share = int(counts[child]) / whole
        if rest := children[len(visible) :]:
            made[node].below.append(Branch(Text(f"… {len(rest):,} more", style="dim"), int(counts[rest].sum()) / whole))
    return grown(root)


def write_drawing(path: Path, text: str) -> None:
    """Write a drawing and say so."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise OptionError(f"{path}: expected the name of a file in a folder that is there")
    write_file(path, text.encode("utf-8", "replace"))
    output.print_status(f"written: {path}")


def _counted(count: int, what: str) -> str:
    plural = {"class": "classes"}.get(what, f"{what}s")
    return f"{count:,} {what if count == 1 else plural}"
