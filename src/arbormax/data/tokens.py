"""Tokenizers split a text into words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Literal

Tokeniser = Literal["words", "whitespace"]

FIELD = "\ufdd0"  # begins a category at the end of a text; Unicode reserves it for such use inside a program
_WORD = re.compile(r"\w+(?:'\w+)*")


def whitespace(text: str) -> list[str]:
    """Lower-case words, split on whitespace, as in the paper.

    >>> whitespace("What's an  owl ?")
    ["what's", 'an', 'owl', '?']
    """
    if FIELD in text:
        text, fields = split_fields(text)
        return [*text.lower().split(), *fields]
    return text.lower().split()


def words(text: str) -> list[str]:
    """Lower-case words and numbers without punctuation, in Unicode normal form NFKC.

    >>> words("Type 2 diabetes (adult-onset), patient’s own ﬁndings")
    ['type', '2', 'diabetes', 'adult', 'onset', "patient's", 'own', 'findings']
    """
    if text.isascii():
        return _WORD.findall(text.lower())
    if FIELD in text:
        text, fields = split_fields(text)
        return [*words(text), *fields]
    return word_pattern().findall(unicodedata.normalize("NFKC", text).replace("’", "'").lower())


Span = tuple[int, int]  # start and end of a part of a text


def split_fields(text: str) -> tuple[str, list[str]]:
    """The text before its categories, and each category as one token, which no word is equal to.

    >>> split_fields("A scarf \ufdd0 brand: Acme & Co")
    ('A scarf ', ['\ufdd0brand:_acme_&_co'])
    """
    text, *fields = text.split(FIELD)
    return text, [FIELD + "_".join(unicodedata.normalize("NFKC", field).lower().split()) for field in fields]


def show_fields(text: str) -> str:
    """A text for readers, with as many characters: categories after a bullet."""
    return text.replace(FIELD, "•")


def _field_spans(text: str) -> list[Span]:
    """The start and end of each category."""
    return [
        (found.start(1), found.end(1)) for found in re.finditer(f"{FIELD}\\s*([^{FIELD}]*?)\\s*(?={FIELD}|$)", text)
    ]


def spans(text: str, name: Tokeniser = "words") -> list[Span]:
    """The start and end of each word of the tokenizer; one character may contain two words.

    >>> spans("An owl’s ﬁnd: ½")
    [(0, 2), (3, 8), (9, 12), (14, 15), (14, 15)]
    """
    if FIELD in text:
        return [*spans(text.partition(FIELD)[0], name), *_field_spans(text)]
    if tokeniser(name) is whitespace:
        return [found.span() for found in re.finditer(r"\S+", text)]
    if text.isascii():
        return [found.span() for found in _WORD.finditer(text)]
    pieces = _normal_pieces(text)
    normal = "".join(piece for piece, _ in pieces).replace("’", "'").lower()
    origin = [span for piece, span in pieces for character in piece for _ in character.lower()]
    return [(origin[found.start()][0], origin[found.end() - 1][1]) for found in word_pattern().finditer(normal)]


def _normal_pieces(text: str) -> list[tuple[str, Span]]:
    """The normal form of the text in the shortest parts that can be normalised separately, each with its span."""
    starts = [0]
    for place, character in enumerate(text[1:], start=1):
        if character.isascii() or _stands_alone(text[starts[-1] : place], character):
            starts.append(place)
    places = zip(starts, [*starts[1:], len(text)], strict=True)
    return [(unicodedata.normalize("NFKC", text[start:end]), (start, end)) for start, end in places]


def _stands_alone(before: str, character: str) -> bool:
    """Whether the normal form of a character does not depend on the text before it."""
    normal = unicodedata.normalize("NFKC", character)
    if unicodedata.combining(character) or unicodedata.combining(normal[0]):
        return False
    return unicodedata.normalize("NFKC", before + character) == unicodedata.normalize("NFKC", before) + normal


@cache
def word_pattern() -> re.Pattern[str]:
    """The pattern of a word, including marks such as the vowels of Hindi, which `\\w` does not match."""
    marks = "".join(c for c in map(chr, range(0x300, 0x1F000)) if unicodedata.category(c).startswith("M"))
    return re.compile(rf"\w[\w{marks}]*(?:'\w[\w{marks}]*)*")


def tokeniser(name: Tokeniser) -> Callable[[str], list[str]]:
    """The tokenizer of this name."""
    return {"words": words, "whitespace": whitespace}[name]
