"""CSV and TSV: one edge or one path per row, depending on the header or `layout`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from arbormax.errors import OptionError
from arbormax.taxonomy._build import add_edges, add_paths
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
    rows = _rows(text, delimiter, draft)
    if not rows:
        return
    shape = _shape(rows[0], layout, header, delimiter, draft)
    width = 2 if shape.layout == "edges" else 0 if header is False else len(rows[0][1])
    if header is not False:
        rows = rows[1:]
    draft.problems += [
        f"{len(cells)} cells, but {width} columns (line {line}); quote a name that contains the delimiter"
        for line, cells in rows
        if width and len(cells) > width
    ]
    rows = [(line, cells) for line, cells in rows if not width or len(cells) <= width]

    def place(number: int) -> str:
        return f"line {rows[number][0]}"

    if shape.layout == "edges":
        # an empty cell is None: as a parent the root, as a child a defect
        edges = (tuple([*cells, "", ""][column] or None for column in shape.order) for _, cells in rows)
        add_edges(draft, edges, place, root)
        return
    if root is not None:
        raise OptionError("only for a file of edges; paths begin below the root", argument="root")
    add_paths(draft, (cells[0] if shape.one_column else cells for _, cells in rows), place)


def read_tsv(text: str, draft: Draft, *, delimiter: str = "\t", **options: Any) -> None:
    read_csv(text, draft, delimiter=delimiter, **options)


def _rows(text: str, delimiter: str, draft: Draft) -> list[tuple[int, list[str]]]:
    """Return every row that is not blank with the number of its first line, without empty cells at its end."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows = []
    line = 1
    try:
        for cells in reader:
            while cells and not cells[-1].strip():
                cells.pop()
            if cells:
                rows.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        raise draft.fail(f"invalid table: {error} (line {line})") from None
    return rows


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
    # the second attempt is for names that need quotes, such as one with a carriage return
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=quoting)
        writer.writerow(header)
        writer.writerows(tax.path(leaf) for leaf in tax.leaves.tolist())
        yield out.getvalue()


def write_tsv(tax: Taxonomy) -> Iterator[str]:
    return write_csv(tax, "\t")


_OPTIONS = ("layout", "header", "delimiter", "root")
CSV = Format("CSV", (".csv",), read_csv, write_csv, _OPTIONS)
TSV = Format("TSV", (".tsv",), read_tsv, write_tsv, _OPTIONS)
