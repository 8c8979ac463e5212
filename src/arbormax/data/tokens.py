"""Tokenisers: a text in, its words out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Literal, get_args

from arbormax.errors import OptionError, did_you_mean

Tokeniser = Literal["words", "whitespace"]

_WORD = re.compile(r"\w+(?:'\w+)*")


def whitespace(text: str) -> list[str]:
    """Lower-case pieces between blanks, as the paper has them.

    >>> whitespace("What's an  owl ?")
    ["what's", 'an', 'owl', '?']
    """
    return text.lower().split()


def words(text: str) -> list[str]:
    """Lower-case words and numbers without punctuation; compatible forms of a character count as one.

    >>> words("Type 2 diabetes (adult-onset), patient’s own ﬁndings")
    ['type', '2', 'diabetes', 'adult', 'onset', "patient's", 'own', 'findings']
    """
    if text.isascii():
        return _WORD.findall(text.lower())
    return _marked_word().findall(unicodedata.normalize("NFKC", text).replace("’", "'").lower())


@cache
def _marked_word() -> re.Pattern[str]:
    """A word with marks in it, such as the vowels of Hindi, which are no letters to `\\w`."""
    marks = "".join(c for c in map(chr, range(0x300, 0x1F000)) if unicodedata.category(c).startswith("M"))
    return re.compile(rf"\w[\w{marks}]*(?:'\w[\w{marks}]*)*")


def tokeniser(name: str) -> Callable[[str], list[str]]:
    """The tokeniser of this name."""
    known: dict[str, Callable[[str], list[str]]] = {"words": words, "whitespace": whitespace}
    if name not in known:
        choices = ", ".join(get_args(Tokeniser))
        raise OptionError(f"tokeniser is one of {choices}; found {name!r}{did_you_mean(name, known)}")
    return known[name]
