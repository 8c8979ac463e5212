"""A class tree as Graphviz text, for other tools to lay out and style."""

from __future__ import annotations

from arbormax.report import svg
from arbormax.report.tree_lines import tree_lines
from arbormax.taxonomy import Taxonomy


def tree_dot(
    taxonomy: Taxonomy,
    title: str = "",
    *,
    max_leaves: int = 200,
    depth: int | None = None,
    max_children: int | None = None,
) -> str:
    """Return the tree as DOT; inner nodes show the number of leaves below them.

    The largest subtrees are folded until at most `max_leaves` lines are left. Nodes below `depth` levels and children
    after the first `max_children` of a node are folded too.

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
    marks = tree_lines(taxonomy, max_leaves, depth, max_children)
    heading = f", label={_quoted(svg.clean(title))}, labelloc=t" if title else ""
    lines = [
        "digraph taxonomy {",
        f"  graph [rankdir=LR, ranksep=0.6, nodesep=0.08, ordering=out{heading}];",
        '  node [shape=plaintext, style=rounded, fontname="sans-serif", fontsize=11, height=0.25, margin="0.08,0.04"];',
        '  edge [arrowhead=none, color="#818b98"];',
    ]
    place = {mark: at for at, mark in enumerate(marks)}
    for mark in marks:
        shape = {"strong": ", shape=box", "muted": ", fontcolor=gray40"}.get(mark.css, "")
        lines.append(f"  n{place[mark]} [label={_quoted(mark.name, mark.note)}{shape}];")
    lines += [f"  n{place[mark]} -> n{place[child]};" for mark in marks for child in mark.below]
    return "\n".join([*lines, "}", ""])


def _quoted(*rows: str) -> str:
    """Return the rows as one quoted string, with backslashes, quotes and markup escaped."""
    escaped = (row.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for row in rows if row)
    return '"' + "\\n".join(escaped) + '"'
