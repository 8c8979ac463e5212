"""Text helpers of the results page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence


def format_gap(ours: float, theirs: float) -> str:
    """The difference of two percentages as printed.

    >>> format_gap(73.14, 74.258), format_gap(74.3, 74.258), format_gap(80.0, 74.258)
    ('1.2 points below', 'equal to', '5.7 points above')
    """
    gap = round(round(ours, 1) - round(theirs, 1), 1)
    if not gap:
        return "equal to"
    return f"{abs(gap):.1f} {'point' if abs(gap) == 1 else 'points'} {'above' if gap > 0 else 'below'}"


def format_signed(number: float, digits: int) -> str:
    text = f"{number:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text[1:]


def capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def markdown_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = "|".join(["", *("---" for _ in head), ""])
    body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (head, *lines)]
    return "\n".join([body[0], rule, *body[1:]])


def wrap(text: str) -> str:
    """A paragraph with lines of at most 118 characters."""
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)
