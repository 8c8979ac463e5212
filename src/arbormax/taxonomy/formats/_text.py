"""Decoding and lines, for all readers of text files."""

from __future__ import annotations

from arbormax.errors import OptionError
from arbormax.taxonomy._draft import Draft


def decode(data: bytes, encoding: str, draft: Draft) -> str:
    """Return the text of a file, or raise one error with every line that cannot be decoded."""
    try:
        return data.decode(encoding)
    except LookupError:
        raise OptionError(
            f"Python has no encoding {encoding!r}; use 'utf-8' or 'latin-1'", argument="encoding"
        ) from None
    except UnicodeDecodeError as error:
        draft.problems += _undecodable(data, encoding) or [
            _bad_byte(data.count(b"\n", 0, error.start) + 1, data[error.start], encoding)
        ]
        draft.fix["encoding"] = "latin-1"
        draft.fail_on_problems()
        raise  # not reached: there is at least one problem


def _undecodable(data: bytes, encoding: str) -> list[str]:
    problems = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        try:
            line.decode(encoding)
        except UnicodeDecodeError as error:
            problems.append(_bad_byte(number, line[error.start], encoding))
            if encoding.lower().startswith(("utf-16", "utf-32", "utf_16", "utf_32")):
                return []  # a newline has several bytes there, so lines cannot be decoded one by one
    return problems


def _bad_byte(line: int, byte: int, encoding: str) -> str:
    name = "UTF-8" if encoding.lower().replace("_", "-").startswith("utf-8") else encoding
    return f"line {line} contains the byte 0x{byte:02x}, which is not valid {name}; save the file as UTF-8"


def lines(text: str) -> list[str]:
    """Split a text at line ends as editors write them, and not at the rarer ones of `splitlines`."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
