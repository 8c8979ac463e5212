"""CSV and TSV: one edge or one path per row, depending on the header or `layout`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from arbormax.errors import OptionError
from arbormax.taxonomy._build import DESCRIPTION, add_edges, add_paths
from arbormax.taxonomy._draft import Draft
from arbormax.taxonomy.formats._format import Format

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

_LEVEL = re.compile(r"(?:level|lvl|depth|l)[ _-]?([0-9]{1,6})", re.IGNORECASE)


class _Shape(NamedTuple):
    layout: str  # "edges" or "paths"
    order: tuple[int, int] = (0, 1)  # the columns of parent and child
    one_column: bool = False  # one cell with a '/'-path


def read_csv(
    text: str,
    draft: Draft,
    *,
    layout: str | None = None,
    header: bool | None = None,
    delimiter: str = ",",
    root: str | None = None,
) -> None:
    if layout not in (None, "edges", "paths"):
        raise OptionError(f"expected 'edges' or 'paths', found {layout!r}", argument="layout")
    if header not in (None, True, False):
        raise OptionError(f"expected True or False, found {header!r}", argument="header")
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise OptionError(f"expected one character, found {delimiter!r}", argument="delimiter")
    if header is False and layout is None:
        raise OptionError("a file without a header needs a layout, 'edges' or 'paths'", argument="layout")
    rows = table_rows(text, delimiter, draft)
    if not rows:
        return
    described, texts = None, None
    if header is not False:
        named = [cell.strip().lower() for cell in rows[0][1]]
        described = named.index(DESCRIPTION) if DESCRIPTION in named and len(named) > 1 else None
        rows[0][1][:] = [cell for column, cell in enumerate(rows[0][1]) if column != described]
    shape = _shape(rows[0], layout, header, delimiter, draft)
    width = 2 if shape.layout == "edges" else 0 if header is False else len(rows[0][1])
    width += described is not None
    if header is not False:
        rows = rows[1:]
    draft.problems += [
        f"{len(cells)} cells, but {width} columns (line {line}); quote a name that contains the delimiter"
        for line, cells in rows
        if width and len(cells) > width
    ]
    rows = [(line, cells) for line, cells in rows if not width or len(cells) <= width]
    if described is not None:
        texts = [cells.pop(described) if described < len(cells) else "" for _, cells in rows]
        for _, cells in rows:
            _trim(cells)

    def place(number: int) -> str:
        return f"line {rows[number][0]}"

    if shape.layout == "edges":
        # an empty cell is None: as a parent the root, as a child a defect
        edges = (tuple([*cells, "", ""][column] or None for column in shape.order) for _, cells in rows)
        add_edges(draft, edges, place, root, texts)
        return
    if root is not None:
        raise OptionError("only for a file of edges; paths begin below the root", argument="root")
    add_paths(draft, (cells[0] if shape.one_column else cells for _, cells in rows), place, texts)


def read_tsv(text: str, draft: Draft, *, delimiter: str = "\t", **options: Any) -> None:
    read_csv(text, draft, delimiter=delimiter, **options)


def table_rows(text: str, delimiter: str, draft: Draft) -> list[tuple[int, list[str]]]:
    """Return every row that is not blank with the number of its first line, without empty cells at its end."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows = []
    line = 1
    try:
        for cells in reader:
            _trim(cells)
            if cells:
                rows.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        raise draft.fail(f"invalid table: {error} (line {line})") from None
    return rows


def _trim(cells: list[str]) -> None:
    """Remove the empty cells at the end of a row."""
    while cells and not cells[-1].strip():
        cells.pop()


def _shape(
    first: tuple[int, list[str]], layout: str | None, header: bool | None, delimiter: str, draft: Draft
) -> _Shape:
    line, cells = first
    known = _known_header(cells)
    if header is False:
        return _Shape(layout or "")
    if known is not None and layout in (None, known.layout):
        return known
    if header is True and layout is not None:
        return _Shape(layout)
    shown = delimiter.join(cells[:6]) + ("…" if len(cells) > 6 else "")
    if known is not None:
        raise draft.fail(f"the header {shown!r} is for {known.layout} (line {line})", layout=known.layout)
    other = next((mark for mark in ",;\t|" if mark != delimiter and mark in shown), None)
    fix: dict[str, object] = {"delimiter": other} if other and len(cells) == 1 else {"layout": layout or "paths"}
    if "layout" in fix:
        fix["header"] = False
    raise draft.fail(
        f"unknown header {shown!r} (line {line}); expected 'parent{delimiter}child' for edges, or "
        f"'level1{delimiter}level2{delimiter}…' or 'path' for paths; for other files, give the layout and whether "
        "there is a header",
        **fix,
    )


def _known_header(cells: list[str]) -> _Shape | None:
    names = [cell.strip().lower() for cell in cells]
    if names == ["parent", "child"]:
        return _Shape("edges")
    if names == ["child", "parent"]:
        return _Shape("edges", (1, 0))
    if names == ["path"]:
        return _Shape("paths", one_column=True)
    numbers = [int(match[1]) if (match := _LEVEL.fullmatch(name)) else -1 for name in names]
    if numbers[0] in (0, 1) and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return _Shape("paths")
    return None


def write_csv(tax: Taxonomy, delimiter: str = ",") -> Iterator[str]:
    header = [f"level{level}" for level in range(1, tax.depth + 1)]
    rows = [tax.path(leaf) for leaf in tax.leaves.tolist()]
    if tax.given_texts is not None:
        header.append(DESCRIPTION)
        inner = [node for node in range(1, tax.num_nodes) if not tax.is_leaf[node] and tax.given_texts[node]]
        nodes = [*tax.leaves.tolist(), *inner]
        paths = (tax.path(node) for node in nodes)
        rows = [
            (*path, *("" for _ in range(tax.depth - len(path))), tax.given_texts[node] or "")
            for node, path in zip(nodes, paths, strict=True)
        ]
    # the second attempt is for names that need quotes, such as one with a carriage return
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=quoting)
        writer.writerow(header)
        writer.writerows(rows)
        yield out.getvalue()


def write_tsv(tax: Taxonomy) -> Iterator[str]:
    return write_csv(tax, "\t")


_OPTIONS = ("layout", "header", "delimiter", "root")
CSV = Format("CSV", (".csv",), read_csv, write_csv, _OPTIONS)
TSV = Format("TSV", (".tsv",), read_tsv, write_tsv, _OPTIONS)
