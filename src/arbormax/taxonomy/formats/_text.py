"""Bytes, lines and positions: what every reader and writer of text files shares."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cached_property

from arbormax.errors import OptionError
from arbormax.taxonomy._draft import Draft


def decode(data: bytes, encoding: str, draft: Draft) -> str:
    """The text of a file, or one error that names every line that cannot be read and its byte."""
    try:
        return data.decode(encoding)
    except LookupError:
        raise OptionError(f"encoding={encoding!r} is not known to Python; try 'utf-8' or 'latin-1'") from None
    except UnicodeDecodeError as error:
        draft.problems += _undecodable(data, encoding) or [
            _bad_byte(data.count(b"\n", 0, error.start) + 1, data[error.start], encoding)
        ]
        draft.fail_on_problems()
        raise  # never reached: there is at least one problem


def _undecodable(data: bytes, encoding: str) -> list[str]:
    problems = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        try:
            line.decode(encoding)
        except UnicodeDecodeError as error:
            problems.append(_bad_byte(number, line[error.start], encoding))
            if encoding.lower().startswith(("utf-16", "utf-32", "utf_16", "utf_32")):
                return []  # a newline takes several bytes there: the lines cannot be read one by one
    return problems


def _bad_byte(line: int, byte: int, encoding: str) -> str:
    name = "UTF-8" if encoding.lower().replace("_", "-").startswith("utf-8") else encoding
    return f"line {line} holds the byte 0x{byte:02x}, which is not {name}; save the file as UTF-8 or pass encoding="


class Positions:
    """Turns a position in a text into its line and column, both from 1."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _breaks(self) -> list[int]:
        return [match.end() for match in re.finditer(r"\r\n?|\n", self._text)]

    def line(self, position: int) -> int:
        return bisect_left(self._breaks, position + 1) + 1

    def at(self, position: int) -> str:
        line = self.line(position)
        start = self._breaks[line - 2] if line > 1 else 0
        return f"line {line}, column {position - start + 1}"


def lines(text: str) -> list[str]:
    """The lines of a text; only the ends of line that editors write count, not the rarer ones of `splitlines`."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
