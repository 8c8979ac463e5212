"""CSV and TSV: one edge or one path per row, told apart by the header or by `layout=`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import NamedTuple

from arbormax.errors import OptionError, TaxonomyError
from arbormax.taxonomy._build import add_edges, add_paths
from arbormax.taxonomy._draft import Draft
from arbormax.taxonomy.tree import Taxonomy

_LEVEL = re.compile(r"(?:level|lvl|depth|l)[ _-]?([0-9]{1,6})", re.IGNORECASE)


class _Shape(NamedTuple):
    layout: str  # "edges" or "paths"
    order: tuple[int, int] = (0, 1)  # the columns of parent and child
    one_column: bool = False  # the cells are '/'-paths


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
        raise OptionError(f"layout is 'edges' or 'paths', not {layout!r}")
    if header not in (None, True, False):
        raise OptionError(f"header is True or False, not {header!r}")
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise OptionError(f"delimiter is one character, found {delimiter!r}")
    if header is False and layout is None:
        raise OptionError("a file without a header needs layout='edges' or layout='paths'")
    rows = _rows(text, delimiter, draft)
    if not rows:
        return
    shape = _shape(rows[0], layout, header, delimiter, draft)
    width = 0
    if header is not False:
        width = len(rows[0][1])
        rows = rows[1:]
    if shape.layout == "edges":
        _read_edges(rows, shape, draft, root)
        return
    if root is not None:
        raise OptionError("root belongs to a file of edges: paths begin below the root")
    _read_paths(rows, shape, width, draft)


def read_tsv(
    text: str,
    draft: Draft,
    *,
    layout: str | None = None,
    header: bool | None = None,
    delimiter: str = "\t",
    root: str | None = None,
) -> None:
    read_csv(text, draft, layout=layout, header=header, delimiter=delimiter, root=root)


def _rows(text: str, delimiter: str, draft: Draft) -> list[tuple[int, list[str]]]:
    """Every row that is not blank, with the number of the line in which it begins; empty cells at its end are cut."""
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
        draft.problems.append(f"not a table: {error} (line {line})")
        draft.fail_on_problems()
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
        problem = f"the header {shown!r} is one of {known.layout}, but layout={layout!r} (line {line})"
    else:
        problem = (
            f"the first row, {shown!r}, is no header that is known (line {line}): 'parent{delimiter}child' for edges, "
            f"'level1{delimiter}level2{delimiter}…' or 'path' for paths. Name the columns so"
        )
    mend = "or say layout='edges' or layout='paths' with header=True or header=False"
    other = next((mark for mark in ",;\t|" if mark != delimiter and mark in shown), None)
    if other and len(cells) == 1:
        mend += f"; if the columns are separated by {other!r}, pass delimiter={other!r}"
    raise TaxonomyError(f"{draft.source}: {problem}, {mend}" if draft.source else f"{problem}, {mend}")


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


def _read_edges(rows: list[tuple[int, list[str]]], shape: _Shape, draft: Draft, root: str | None) -> None:
    edges: list[tuple[str | None, str | None]] = []
    places: list[int] = []
    for line, cells in rows:
        if len(cells) > 2:
            draft.problems.append(_too_many(line, cells, 2))
            continue
        # an empty cell is None: as a parent the top of the tree, as a child an edge to nowhere
        parent, child = ([*cells, "", ""][column] or None for column in shape.order)
        edges.append((parent, child))
        places.append(line)
    add_edges(draft, edges, lambda number: f"line {places[number]}", root)


def _read_paths(rows: list[tuple[int, list[str]]], shape: _Shape, width: int, draft: Draft) -> None:
    paths: list[list[str] | str] = []
    places: list[int] = []
    for line, cells in rows:
        if width and len(cells) > width:
            draft.problems.append(_too_many(line, cells, width))
            continue
        paths.append(cells[0] if shape.one_column else cells)
        places.append(line)
    add_paths(draft, paths, lambda number: f"line {places[number]}")


def _too_many(line: int, cells: list[str], width: int) -> str:
    return f"{len(cells)} cells, but {width} columns (line {line}); a name that holds the separator needs quotes"


def write_csv(tax: Taxonomy, delimiter: str = ",") -> Iterator[str]:
    header = [f"level{level}" for level in range(1, tax.depth + 1)]
    # the second try is for names that only stand with quotes, such as one with a carriage return
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=quoting)
        writer.writerow(header)
        writer.writerows(tax.path(leaf) for leaf in tax.leaves.tolist())
        yield out.getvalue()


def write_tsv(tax: Taxonomy) -> Iterator[str]:
    return write_csv(tax, "\t")
