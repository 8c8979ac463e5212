"""Pieces of HTML: escaped text, percentages, tables, figures with their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from arbormax.metrics import MEASURES, Measure
from arbormax.metrics.registry import COSTS
from arbormax.report.svg import clean

_SPACE = "\u202f"  # between a number and the percent sign


def measure(name: str) -> Measure:
    """A registered measure, or a cost of training."""
    return COSTS[name] if name in COSTS else MEASURES[name]


def heading(name: str) -> str:
    """The title of a measure as a table shows it.

    >>> heading("macro_f1"), heading("hf")
    ('Macro-F1', 'Hierarchical F')
    """
    title = measure(name).title
    return escape(title[0].upper() + title[1:])


def value(name: str, number: object) -> str:
    """A measure as a table shows it."""
    return measure(name).format(number, _SPACE)


def text(content: object, limit: int = 400) -> str:
    """Anything as escaped HTML text, without control characters, cut after `limit` characters."""
    return escape(_cut(str(content), limit))


def one_line(name: str, limit: int = 160) -> str:
    """A name in one line of at most `limit` characters, not escaped."""
    return _cut(name, limit) or "(unnamed)"


def _cut(content: str, limit: int) -> str:
    line = clean(content)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def share(part: float, whole: float | None = None, digits: int = 1) -> str:
    """A share in percent.

    >>> share(1, 8), share(0.5), share(0, 0)
    ('12.5\u202f%', '50.0\u202f%', '–')
    """
    if whole is not None and not whole:
        return "–"
    return f"{100 * (part if whole is None else part / whole):.{digits}f}{_SPACE}%"


def count(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> count(1, "class", "classes"), count(1200, "text")
    ('1 class', '1,200 texts')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], css: str = "") -> str:
    """A table of HTML cells; the first column names the row. A wide table scrolls on its own."""
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    body = "\n".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>' for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="{css}">'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def section(key: str, title: str, content: str) -> str:
    """A section with its heading."""
    return f'<section id="{key}" aria-labelledby="h-{key}"><h2 id="h-{key}">{title}</h2>{content}</section>'


def collapsible(summary: str, content: str) -> str:
    """Content that opens on demand."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def figure(kind: str, run: int | str, label: str, *, note: str = "", data: str = "", tall: str = "") -> str:
    """A place for a drawing, with the text for screen readers, a caption, and the numbers as a collapsed table."""
    css = f"plot {tall}".strip()
    return (
        f'<figure><div class="{css}" role="img" aria-label="{escape(label)}" data-plot="{kind}" data-run="{run}"></div>'
        + (f"<figcaption>{note}</figcaption>" if note else "")
        + (collapsible("The numbers as a table", data) if data else "")
        + "</figure>"
    )
