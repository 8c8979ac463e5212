"""A class tree as Graphviz text, to be laid out and styled by other tools."""

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
    """The tree as a DOT file's text; inner nodes tell the number of leaves below them.

    With more than `max_leaves` leaves, the largest subtrees are folded until no more lines than that are left; so is
    what is below `depth` levels, and of one node what is beyond `max_children`.

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
    for place, mark in enumerate(marks):
        shape = {"strong": ", shape=box", "muted": ", fontcolor=gray40"}.get(mark.css, "")
        lines.append(f"  n{place} [label={_quoted(mark.name, mark.note)}{shape}];")
    lines += [f"  n{place} -> n{child};" for place, mark in enumerate(marks) for child in mark.below]
    return "\n".join([*lines, "}", ""])


def _quoted(*rows: str) -> str:
    """A quoted string of these rows; a backslash in it is a backslash, and markup is no markup."""
    escaped = (row.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for row in rows if row)
    return '"' + "\\n".join(escaped) + '"'
