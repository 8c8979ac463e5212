"""A drawing of one tree that shows which of its groups another tree has, too."""

from __future__ import annotations

from arbormax.report import svg
from arbormax.report.prediction import percent
from arbormax.report.tree import draw_marks, tree_lines
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.distance import shared_groups

_STYLE = ".arbormax .differs{fill:#a04100}\n@media (prefers-color-scheme: dark){\n.arbormax .differs{fill:#f0a35e}\n}\n"


def tree_difference_svg(taxonomy: Taxonomy, other: Taxonomy, title: str = "", *, max_leaves: int = 200) -> str:
    """Return the tree as SVG. Each inner node shows the most similar node of the other tree.

    A node with exactly the same classes has a "=" in front of that node's name; other nodes are coloured, and show how
    many of the classes below either of the two nodes are below both. Large trees are folded as by `tree_svg`.

    >>> a = Taxonomy.from_nested({"p": ["w", "x"], "q": ["y", "z"]})
    >>> b = Taxonomy.from_nested({"r": ["w", "x"], "s": {"t": ["y"], "u": ["z"]}})
    >>> "= r</tspan>" in tree_difference_svg(a, b, "p and r")
    True
    """
    similar, shares = shared_groups(taxonomy, other)
    marks = tree_lines(taxonomy, max_leaves)
    for mark in marks[1:]:
        if mark.css != "strong":
            continue
        name, share = svg.clean(other.names[similar[mark.node]]) or "(unnamed)", float(shares[mark.node])
        if not similar[mark.node]:
            name = "the whole tree"
        if share == 1:
            mark.note = f"= {name}"
        else:
            mark.css, mark.note = "strong differs", f"{percent(share)} of {name}"
    label = title or f"Where two trees of {taxonomy.num_leaves:,} classes differ"
    return draw_marks(marks, title, label, _STYLE)
