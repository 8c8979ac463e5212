"""The texts of nodes, and files with them: tables of code, title and description, or a JSON mapping from labels.

A text is a longer name or a description, beside the names that identify the nodes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Any

from arbormax.errors import LabelError, TaxonomyError
from arbormax.taxonomy._build import Pairs
from arbormax.taxonomy._draft import Draft
from arbormax.taxonomy.formats._format import decode
from arbormax.taxonomy.formats._json import parse
from arbormax.taxonomy.formats._table import find_delimiter, sheet_text, table_rows
from arbormax.taxonomy.labels import Label, join_path

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy


Entry = tuple[Any, Any, str]  # label, text, place in the file

_DELIMITERS = {".tsv": "\t", ".txt": "\t", ".csv": ","}
_CODES = ("code", "label", "path", "node", "class", "id", "name")
_TEXTS = ("title", "name", "text", "description")
NodeTexts = tuple[str | None, ...]  # (N,) the text of each node, None for nodes without one


def read_texts(path: str | os.PathLike[str]) -> list[Entry]:
    """Return the label, the text and the place of every node in a file."""
    file = Path(path)
    draft = Draft(source=file.name)
    suffix = file.suffix.lower()
    if suffix == ".xlsx":
        entries = _read_table(sheet_text(file), ",", draft)
    elif suffix not in (*_DELIMITERS, ".json"):
        raise draft.fail(f"unknown suffix {file.suffix!r}; expected .tsv, .csv, .txt, .xlsx or .json")
    else:
        text = decode(file.read_bytes(), None, draft)
        is_json = suffix == ".json"
        entries = _read_json(text, draft) if is_json else _read_table(text, _DELIMITERS[suffix], draft)
    if not entries:
        raise draft.fail("the file has no texts")
    return entries


def join_texts(title: str, description: str) -> str:
    """Return one text of a title and a description.

    >>> join_texts("Bakers", "They bake bread."), join_texts("", "They bake bread.")
    ('Bakers. They bake bread.', 'They bake bread.')
    """
    title, description = title.strip(), description.strip()
    if not title or not description:
        return title or description
    return f"{title} {description}" if title[-1] in ".:;!?" else f"{title}. {description}"


def _read_json(text: str, draft: Draft) -> list[Entry]:
    try:
        content = parse(text)
    except ValueError as error:
        raise draft.fail(f"invalid JSON: {error}") from None
    if not isinstance(content, Pairs):
        raise draft.fail(f"expected an object that maps labels to texts, found {type(content).__name__}")
    return [(key.value, getattr(text, "value", text), f"line {key.line}") for key, text in content]


def _read_table(text: str, delimiter: str, draft: Draft) -> list[Entry]:
    delimiter = find_delimiter(text, delimiter)
    rows = table_rows(text, delimiter, draft)
    if not rows:
        return []
    code, columns = 0, [1, 2]
    header = [cell.strip().lower() for cell in rows[0][1]]
    has_header = len(header) > 1 and header[0] in _CODES and any(cell in _TEXTS for cell in header[1:])
    if has_header:
        code = min(range(len(header)), key=lambda i: _CODES.index(header[i]) if header[i] in _CODES else len(_CODES))
        columns = [header.index(name) for name in _TEXTS if name in header and header.index(name) != code]
        rows = rows[1:]
    else:
        draft.problems += [
            f"expected the columns code, title and description, found {len(cells)} cells (line {line}); "
            "a table with further columns needs a header"
            for line, cells in rows
            if len(cells) > 3
        ]
    if all(len(cells) < 2 for _, cells in rows):
        raise draft.fail(
            f"expected a code and a text in each row, found one column; is {delimiter!r} the delimiter of this file?"
        )
    draft.fail_on_problems()
    entries: list[Entry] = []
    for line, cells in rows:
        found = [cells[column].strip() if column < len(cells) else "" for column in (code, *columns)]
        joined = ""
        for part in found[1:]:
            joined = join_texts(joined, part)
        entries.append((found[0], joined, f"line {line}"))
    return entries


def resolve_texts(tax: Taxonomy, entries: Iterable[tuple[Label, Any, str]], source: str | None) -> NodeTexts:
    """Return the texts of all nodes after (label, text, place) entries are added; `source` is the name of a file."""
    given = list(tax.given_texts or (None,) * tax.num_nodes)
    problems: list[str] = []
    first: dict[int, tuple[Label, str]] = {}
    for label, text, place in entries:
        at = f" ({place})" if place else ""
        if not isinstance(text, str) or not text.strip():
            what = "empty" if isinstance(text, str) else f"{short_repr(text)} of type {type(text).__name__}"
            problems.append(f"the text of {label!r} is a string that is not empty, found {what}{at}")
            continue
        try:
            node = tax.find(label)
        except LabelError as error:
            problems.append(f"{error.message}{at}")
            continue
        if node in first:
            other, before = first[node]
            both = f" ({before} and {place})" if place else f" ({other!r} and {label!r})"
            path = repr(join_path(tax.path(node))) if node else "the root"
            problems.append(f"two texts for {path}{both}")
            continue
        first[node] = label, place
        given[node] = text.strip()
    if problems:
        prefix = f"{source}: " if source else ""
        message = problems[0] if len(problems) == 1 else f"{len(problems)} node texts cannot be used:"
        raise TaxonomyError(prefix + message, problems, argument=None if source else "texts")
    return tuple(given)
