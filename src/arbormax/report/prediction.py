"""A drawing of one prediction: the path through the tree, its alternatives, and the probability of every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arbormax.errors import InputError
from arbormax.report import svg
from arbormax.report.svg import Mark, column_starts, names, place

_ROW, _GAP = 24, 10  # height of a row, and the gap between the children of different parents
_BEND, _RUN, _PAD = 40, 84, 6  # of an edge: the curve, the straight part with the probability, the padding
_NOTE = "On a line: the probability given the parent. After a name: the total probability."


def prediction_svg(explanation: Mapping[str, Any], title: str = "") -> str:
    """An explanation of `arbormax.model.explain` as the text of an SVG file.

    The path is thick and bold, and dashed beyond the answer. Children that the explanation omits share one line.
    """
    try:
        marks = _marks(explanation)
        label = title or f"Prediction: {svg.clean(str(explanation['label'])) or 'the root'}"
    except (KeyError, TypeError, IndexError) as error:
        raise InputError(
            f"expected an explanation of arbormax.model.explain: {error!r}", argument="explanation"
        ) from error
    columns = column_starts(marks, _BEND + _RUN + 3 * _PAD)
    width = max(
        svg.text_width(_NOTE, svg.SMALL) + 2 * svg.MARGIN,
        max(columns[mark.depth] + mark.width for mark in marks) + svg.MARGIN,
    )
    parts, top = svg.heading(title, width)
    bottom = place(marks[0], top, _ROW, _GAP)
    edges = [(mark, child) for mark in marks for child in mark.below]
    edges.sort(key=lambda edge: edge[1].css == "strong")  # the path is drawn on top
    parts += [_edge(parent, child, columns) for parent, child in edges]
    parts += [_probability(child, columns) for _, child in edges if child.css != "muted"]
    parts += names(marks, columns)
    parts.append(svg.text(svg.MARGIN, bottom + 20, _NOTE, "muted small", size=svg.SMALL))
    return svg.document(width, bottom + 20 + svg.MARGIN, label, parts)


def percent(probability: float) -> str:
    """A probability in percent; 0 % and 100 % stand for exact values only.

    >>> [percent(p) for p in (0, 0.0001, 0.004, 0.875, 0.99999, 1)]
    ['0 %', '< 0.1 %', '0.4 %', '87.5 %', '> 99.9 %', '100 %']
    """
    if probability <= 0 or probability >= 1:
        return "100 %" if probability >= 1 else "0 %"
    if probability < 0.0005:
        return "< 0.1 %"
    return "> 99.9 %" if probability >= 0.9995 else f"{100 * probability:.1f} %"


def _marks(explanation: Mapping[str, Any]) -> list[Mark]:
    """The marks of the drawing, parents before their children."""
    stopped, answer = int(explanation["stopped_at"]), explanation["node"]
    by_node: dict[int, Mark] = {}
    marks: list[Mark] = []
    for node in explanation["nodes"]:
        depth, probability = int(node["depth"]), float(node["probability"])
        notes = [percent(probability)] * (depth > 1) + ["the answer"] * (node["node"] == answer)
        mark = Mark(
            name=svg.clean(str(node["name"])) or "(unnamed)",
            note=" · ".join(notes),
            depth=depth,
            conditional=float(node["conditional"]),
            css="strong" if node["on_path"] else "leaf",
            answered=depth <= stopped,
        )
        if node["parent"] is not None:
            by_node[node["parent"]].below.append(mark)
        by_node[node["node"]] = mark
        marks.append(mark)
    for node in explanation["nodes"]:
        mark = by_node[node["node"]]
        if mark.below and node["hidden"]:
            label = f"… {node['hidden']:,} more ({percent(float(node['hidden_probability']))})"
            marks.append(Mark(label, "", "muted", mark.depth + 1))
            mark.below.append(marks[-1])
    if not marks:
        raise IndexError("no nodes")
    return marks


def _edge(parent: Mark, child: Mark, columns: list[float]) -> str:
    """The line to a child; its width shows the probability given the parent."""
    start = columns[parent.depth] + parent.width + _PAD
    straight, end = columns[child.depth] - _RUN - 2 * _PAD, columns[child.depth] - _PAD
    high, low, bend = svg.num(parent.y), svg.num(child.y), svg.num(straight - _BEND / 2)
    path = f"M{svg.num(start)} {high}H{svg.num(straight - _BEND)}C{bend} {high} {bend} {low} {svg.num(straight)} {low}"
    on_path = child.css == "strong"
    style = "line c0" if on_path else "rule"
    dashes = ' stroke-dasharray="6 4"' if on_path and not child.answered else ""
    thick = svg.num(1 + 4 * child.conditional)
    return f'<path class="{style}" style="stroke-width:{thick}px"{dashes} d="{path}H{svg.num(end)}"/>'


def _probability(child: Mark, columns: list[float]) -> str:
    """The probability on the straight part of a line, with the colour of the background behind it."""
    label, on_path = percent(child.conditional), child.css == "strong"
    middle = columns[child.depth] - _PAD - (_RUN + _PAD) / 2
    wide = svg.text_width(label, svg.SMALL, bold=on_path)
    paper = f'<rect class="paper" x="{svg.num(middle - wide / 2 - 2)}" y="{svg.num(child.y - 8)}"'
    css = "small middle" + ("" if on_path else " muted")
    return f'{paper} width="{svg.num(wide + 4)}" height="16"/>' + svg.text(
        middle, child.y + 4, label, css, size=svg.SMALL
    )
