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
        is_wide = encoding.lower().startswith(("utf-16", "utf-32", "utf_16", "utf_32"))
        # a newline has several bytes in a wide encoding, so that lines cannot be decoded one by one
        bad = [] if is_wide else _bad_lines(data, encoding)
        bad = bad or [(data.count(b"\n", 0, error.start) + 1, data[error.start])]
        name = "UTF-8" if encoding.lower().replace("_", "-").startswith("utf-8") else encoding
        draft.problems += [
            f"line {line} contains the byte 0x{byte:02x}, which is not valid {name}; save the file as UTF-8"
            for line, byte in bad
        ]
        draft.fix["encoding"] = "latin-1"
        draft.fail_on_problems()
        raise  # not reached: there is at least one problem


def _bad_lines(data: bytes, encoding: str) -> list[tuple[int, int]]:
    """Return the number and the first bad byte of every line that cannot be decoded."""
    bad = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        try:
            line.decode(encoding)
        except UnicodeDecodeError as error:
            bad.append((number, line[error.start]))
    return bad


def lines(text: str) -> list[str]:
    """Split a text at line ends as editors write them, and not at the rarer ones of `splitlines`."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
