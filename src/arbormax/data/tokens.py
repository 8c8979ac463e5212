"""Tokenisers: a text in, its words out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Literal, get_args

from arbormax.errors import OptionError, did_you_mean

Tokeniser = Literal["words", "whitespace"]

_WORD = re.compile(r"\w+(?:['’]\w+)*")


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
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).replace("’", "'")
    return _WORD.findall(text.lower())


def tokeniser(name: str) -> Callable[[str], list[str]]:
    """The tokeniser of this name."""
    known: dict[str, Callable[[str], list[str]]] = {"words": words, "whitespace": whitespace}
    if name not in known:
        choices = ", ".join(get_args(Tokeniser))
        raise OptionError(f"tokeniser is one of {choices}; found {name!r}{did_you_mean(name, known)}")
    return known[name]
