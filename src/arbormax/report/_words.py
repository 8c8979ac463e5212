"""Numbers and HTML as people read them: shares, signed points, tables, escaped names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from arbormax.report.svg import clean

TITLES = {
    "accuracy": "Accuracy",
    "macro_f1": "Macro-F1",
    "macro_precision": "Macro precision",
    "macro_recall": "Macro recall",
    "hf": "Hierarchical F",
    "mistake_severity": "Mistake severity",
    "tree_distance": "Tree distance",
    "nll": "Negative log-likelihood",
    "operating_curve_area": "Area of correct against specific",
    "seconds": "Seconds of training",
    "parameters": "Parameters",
}
MEANS = {
    "accuracy": "texts that got exactly the right class",
    "macro_f1": "every class counts the same, however rare",
    "hf": "nodes of the path that are right: near misses count in part",
    "mistake_severity": "levels up to where a mistake and the truth meet; lower is better",
}
SHARES = frozenset({"accuracy", "macro_f1", "macro_precision", "macro_recall", "hf", "operating_curve_area"})
LOWER = frozenset({"mistake_severity", "tree_distance", "nll"})


def in_text(name: str) -> str:
    """A measure's title inside a sentence.

    >>> in_text("macro_f1"), in_text("hf")
    ('macro-F1', 'hierarchical F')
    """
    return TITLES[name][0].lower() + TITLES[name][1:]


def text(content: object, limit: int = 400) -> str:
    """Anything as escaped HTML text, without what steers the writing direction, cut where it is very long."""
    whole = clean(str(content))
    return escape(whole if len(whole) <= limit else whole[: limit - 1] + "…")


def share(part: float, whole: float | None = None, digits: int = 1) -> str:
    """A share in percent.

    >>> share(1, 8), share(0.5), share(0, 0)
    ('12.5\u202f%', '50.0\u202f%', '–')
    """
    if whole is not None and not whole:
        return "–"
    return f"{100 * (part if whole is None else part / whole):.{digits}f}\u202f%"


def value(name: str, number: object) -> str:
    """A measure as a table shows it."""
    if not isinstance(number, (int, float)) or isinstance(number, bool):
        return "–"
    if name in SHARES:
        return share(float(number))
    if name in ("parameters",):
        return f"{number:,.0f}"
    return f"{number:,.1f}" if name == "seconds" else f"{number:.2f}"


def signed(number: float, digits: int) -> str:
    """A rounded number with its sign, and no sign on zero.

    >>> signed(-1.26, 1), signed(0.01, 1)
    ('−1.3', '0.0')
    """
    told = f"{number:+.{digits}f}"
    return told.replace("-", "−") if float(told) else told[1:]


def difference(name: str, mean: float, low: float, high: float) -> str:
    """A difference with its interval, shares in points of a hundred."""
    points = name in SHARES
    told = [signed(100 * x, 1) if points else signed(x, 2) for x in (mean, low, high)]
    return f"{told[0]}{' points' * points} [{told[1]}, {told[2]}]"


def verdict(name: str, low: float, high: float) -> str:
    """`better` or `worse` where the interval leaves 0 out, else `no clear difference`."""
    if low <= 0 <= high:
        return "no clear difference"
    return "better" if (low > 0) != (name in LOWER) else "worse"


def count(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun.

    >>> count(1, "class", "classes"), count(1200, "text")
    ('1 class', '1,200 texts')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], css: str = "") -> str:
    """A table whose cells are HTML already; its first column names the row. It scrolls on its own where it is wide."""
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    body = "\n".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>' for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="{css}">'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def behind(summary: str, content: str) -> str:
    """Content that opens on demand."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def figure(kind: str, run: int | str, label: str, *, note: str = "", data: str = "", tall: str = "") -> str:
    """A place for a drawing: what a screen reader says, a caption, and the numbers as a table behind it."""
    css = f"plot {tall}".strip()
    return (
        f'<figure><div class="{css}" role="img" aria-label="{escape(label)}" data-plot="{kind}" data-run="{run}"></div>'
        + (f"<figcaption>{note}</figcaption>" if note else "")
        + (behind("The numbers as a table", data) if data else "")
        + "</figure>"
    )
