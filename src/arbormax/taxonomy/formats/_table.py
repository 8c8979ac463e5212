"""CSV and TSV: one edge or one path per row, depending on the header or `layout`."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from arbormax._dialect import ONE_COLUMN, detect_dialect
from arbormax._excel import cell_text, open_sheet
from arbormax.errors import OptionError
from arbormax.taxonomy._build import DESCRIPTION, add_edges, add_paths
from arbormax.taxonomy._draft import Draft
from arbormax.taxonomy.formats._format import Format

if TYPE_CHECKING:
    from arbormax.taxonomy.tree import Taxonomy

_SAMPLE = 1 << 16  # characters from which the delimiter is found
_LEVEL = re.compile(r"(?:level|lvl|depth|l)[ _-]?([0-9]{1,6})", re.IGNORECASE)


def read_csv(
    text: str,
    draft: Draft,
    *,
    layout: str | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    usual: str = ",",
    root: str | None = None,
) -> None:
    if layout not in (None, "edges", "paths"):
        raise OptionError(f"expected 'edges' or 'paths', found {layout!r}", argument="layout")
    if header not in (None, True, False):
        raise OptionError(f"expected True or False, found {header!r}", argument="header")
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n'):
        raise OptionError(f"expected one character, found {delimiter!r}", argument="delimiter")
    if header is False and layout is None:
        raise OptionError("a file without a header needs a layout, 'edges' or 'paths'", argument="layout")
    delimiter = delimiter or find_delimiter(text, usual)
    rows = table_rows(text, delimiter, draft)
    if not rows:
        return
    names, described, texts = [], None, None
    if header is not False:
        line, cells = rows.pop(0)
        names = [cell.strip().lower() for cell in cells]
        if DESCRIPTION in names and len(names) > 1:
            described = names.index(DESCRIPTION)
            del names[described], cells[described]
        layout = _choose_layout(line, cells, layout, header, delimiter, draft)
    width = (2 if layout == "edges" else len(names)) + (described is not None)
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

    if layout == "edges":
        # an empty cell is None: as a parent the root, as a child a defect
        columns = (1, 0) if names == ["child", "parent"] else (0, 1)
        edges = (tuple([*cells, "", ""][column] or None for column in columns) for _, cells in rows)
        add_edges(draft, edges, root, place, texts)
        return
    if root is not None:
        raise OptionError("only for a file of edges; paths begin below the root", argument="root")
    add_paths(draft, (cells[0] if names == ["path"] else cells for _, cells in rows), place, texts)


def find_delimiter(text: str, usual: str) -> str:
    """Return the delimiter of a table, whose rows need not have the same number of cells."""
    lines = [line for line in text[:_SAMPLE].splitlines(keepends=True) if line.strip()]
    if not lines or usual in lines[0]:
        return usual
    found = detect_dialect(lines, usual=usual).delimiter
    return usual if found == ONE_COLUMN else found


def table_rows(text: str, delimiter: str, draft: Draft) -> list[tuple[int, list[str]]]:
    """Return every row that is not blank with the number of its first line, without empty cells at its end."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows = []
    line = 1
    try:
        for cells in reader:
            _trim(cells)
            is_instruction = line == 1 and len(text) > 4 and text[:4].lower() == "sep="  # which Excel reads
            if cells and not is_instruction:
                rows.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        raise draft.fail(f"invalid table: {error} (line {line})") from None
    return rows


def _trim(cells: list[str]) -> None:
    """Remove the empty cells at the end of a row."""
    while cells and not cells[-1].strip():
        cells.pop()


def _choose_layout(
    line: int, cells: list[str], layout: str | None, header: bool | None, delimiter: str, draft: Draft
) -> str:
    """Return the layout of a table with this header, "edges" or "paths"."""
    names = [cell.strip().lower() for cell in cells]
    numbers = [int(match[1]) if (match := _LEVEL.fullmatch(name)) else -1 for name in names]
    known = None
    if names in (["parent", "child"], ["child", "parent"]):
        known = "edges"
    elif names == ["path"] or (numbers[0] in (0, 1) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))):
        known = "paths"
    chosen = layout or known
    if chosen is not None and (header is True or chosen == known):
        return chosen
    shown = delimiter.join(cells[:6]) + ("…" if len(cells) > 6 else "")
    if known is not None:
        raise draft.fail(f"the header {shown!r} is for {known} (line {line})", layout=known)
    other = next((mark for mark in ",;\t|" if mark != delimiter and mark in shown), None)
    fix: dict[str, object] = {"layout": layout or "paths", "header": False}
    raise draft.fail(
        f"unknown header {shown!r} (line {line}); expected 'parent{delimiter}child' for edges, or "
        f"'level1{delimiter}level2{delimiter}…' or 'path' for paths; for other files, give the layout and whether "
        "there is a header",
        **({"delimiter": other} if other and len(cells) == 1 else fix),
    )


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


def write_edges(graph: Taxonomy, delimiter: str = ",") -> Iterator[str]:
    texts = graph.given_texts
    for root in (graph.names[0], ""):  # an empty cell if another node has the name of the root
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
            out = io.StringIO(newline="")
            writer = csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=quoting)
            writer.writerow(["parent", "child", *([DESCRIPTION] if texts else [])])
            for node in range(1, graph.num_nodes):
                for place, above in enumerate(graph.parents(node).tolist()):
                    text = [] if texts is None else [(texts[node] or "") if place == 0 else ""]
                    writer.writerow([graph.names[above] if above else root, graph.names[node], *text])
            yield out.getvalue()


_OPTIONS = ("layout", "header", "delimiter", "root")
CSV = Format("CSV", (".csv",), read_csv, write_csv, _OPTIONS, write_graph=write_edges)
TSV = Format(
    "TSV",
    (".tsv",),
    partial(read_csv, usual="\t"),
    partial(write_csv, delimiter="\t"),
    _OPTIONS,
    write_graph=partial(write_edges, delimiter="\t"),
)


def _write_sheet(tax: Taxonomy) -> Iterator[str]:
    del tax
    raise OptionError("Excel workbooks are read, not written; save the taxonomy as .csv", argument="format")


def sheet_text(path: str | os.PathLike[str], sheet: str | None = None) -> str:
    """Return a sheet of an Excel workbook as CSV; blank rows stay, so that lines are the numbers of rows."""
    out = io.StringIO(newline="")
    with open_sheet(path, sheet, Path(path).name) as (_, _, rows):
        csv.writer(out, lineterminator="\n").writerows([[cell_text(cell).strip() for cell in row] for row in rows])
    return out.getvalue()


XLSX = Format(
    "Excel",
    (".xlsx", ".xlsm"),
    partial(read_csv, delimiter=","),
    _write_sheet,
    ("layout", "header", "root", "sheet"),
    to_text=sheet_text,
)
