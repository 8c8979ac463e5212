"""Examples in docstrings as code blocks: in Markdown, lines that begin with `>>>` would be quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

# from the first prompt to the next blank line or the end
_EXAMPLE = re.compile(r"^>>> .*?(?=\n[ \t]*\n|\Z)", re.DOTALL | re.MULTILINE)


class Doctests(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring and ">>>" in obj.docstring.value:
            obj.docstring.value = _EXAMPLE.sub(r"\n```pycon\n\g<0>\n```\n", obj.docstring.value)
