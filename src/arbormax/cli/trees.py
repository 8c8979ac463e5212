"""Trees in the terminal, with bars in one column, and drawings in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from arbormax._files import write_file
from arbormax.cli import output
from arbormax.report.prediction import percent
from arbormax.taxonomy.render import Branch, draw, printable

BAR_WIDTH = 12
_RIGHT = BAR_WIDTH + 12  # columns of a bar and its percentage
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """A bar of this share of the width; a positive share is always visible.

    >>> bar(0.5, 4), bar(0.0, 4), bar(1e-9, 4)
    ('██  ', '    ', '▏   ')
    """
    if output.console().options.ascii_only:
        return ("#" * max(round(share * width), int(share > 0))).ljust(width)
    eighths = max(round(share * width * 8), int(share > 0))
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()).ljust(width)


def tree_text(root: Branch) -> Text:
    """The tree with aligned bars; a long line moves its own bar to the right."""
    console = output.console()
    lines = [(guides, branch, below, _line(branch)) for branch, guides, below in draw(root, width=4)]
    widths = [len(guides) + line.cell_len for guides, branch, _, line in lines if branch.share is not None]
    column = max((width for width in widths if width <= max(20, console.width - _RIGHT)), default=0)
    text = Text()
    for guides, branch, below, line in lines:
        text.append(_guides(guides)).append_text(line)
        if branch.share is not None:
            text.append(" " * max(0, column - len(guides) - line.cell_len) + "  ")
            text.append(bar(branch.share), style="cyan").append(f"{percent(branch.share):>9}")
        for more in branch.more:
            text.append("\n" + _guides(below + ("│   " if branch.children else "    "))).append(more)
        text.append("\n")
    text.rstrip()
    return text


def path_tree(title: str, names: Sequence[str], probabilities: Sequence[float]) -> Text:
    """A path from the root downwards, with the probability of each step."""
    root = branch = Branch(title, style="bold")
    for name, probability in zip(names, probabilities, strict=True):
        branch.children.append(Branch(printable(name), f"  {probability:.3f}"))
        branch = branch.children[0]
    return tree_text(root)


def write_drawing(path: Path, text: str) -> None:
    """Write a drawing, and print where."""
    write_file(path, text.encode("utf-8", "replace"))
    output.print_status(f"written: {path}")


def _line(branch: Branch) -> Text:
    return Text(branch.name, style=branch.style).append(branch.note, style="dim")


def _guides(guides: str) -> str:
    if output.console().options.ascii_only:
        return guides.translate(str.maketrans("├└─│", "+`-|"))
    return guides
