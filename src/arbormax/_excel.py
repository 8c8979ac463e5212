"""Sheets of Excel workbooks (.xlsx) as rows of cells, and rows as a workbook, with openpyxl."""

from __future__ import annotations

import math
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from itertools import islice
from pathlib import Path
from typing import IO, Any

from arbormax._archives import check_archive
from arbormax.errors import InputError, TableError, did_you_mean, import_extra

MAX_ROWS, MAX_TEXT = 1_048_576, 32_767  # rows of a sheet and characters of a cell, as Excel limits them
_ERRORS = {"#N/A", "#REF!", "#DIV/0!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!"}  # the values of wrong formulas
_SAMPLE = 200  # rows that decide whether there is a header

Cells = list[Any]


@contextmanager
def open_sheet(source: Any, sheet: str | None, name: str) -> Iterator[tuple[str, tuple[str, ...], Iterator[Cells]]]:
    """The title of a sheet, the titles of the other sheets, and the rows: cells without the empty ones at their end.

    `sheet` is a title; None selects the first sheet that is not empty.
    """
    openpyxl = import_extra("openpyxl", "Excel", "openpyxl", "excel")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="openpyxl")  # about styles and other things that are not read
        try:
            with zipfile.ZipFile(source) as archive:
                check_archive(archive, Path(name), archive.namelist())
            if hasattr(source, "seek"):
                source.seek(0)
            book = openpyxl.load_workbook(source, read_only=True, data_only=True)
        except (zipfile.BadZipFile, LookupError, ValueError, SyntaxError, OSError) as error:
            if isinstance(error, (InputError, PermissionError)):
                raise
            raise TableError(f"{name}: not a complete workbook of Excel ({error})") from None
        try:
            sheets = {each.title: each for each in book.worksheets}
            if sheet is not None and sheet not in sheets:
                listed = ", ".join(map(repr, sheets))
                raise TableError(f"{name}: no sheet {sheet!r}{did_you_mean(sheet, sheets)} (found {listed})")
            filled = [title for title, each in sheets.items() if any(_rows(each, name))]
            chosen = sheet or next(iter(filled or sheets), None)
            if chosen is None:
                raise TableError(f"{name}: the workbook has no sheets with cells")
            others = tuple(title for title in filled if title != chosen)
            yield chosen, others, _rows(sheets[chosen], name)
        finally:
            book.close()


def detect_sheet(source: Any, sheet: str | None, name: str) -> tuple[str, tuple[str, ...], list[list[str]]]:
    """The title of a sheet, the titles of the others, and its first rows as text, without blank ones."""
    with open_sheet(source, sheet, name) as (title, others, rows):
        filled = ([cell_text(cell) for cell in cells] for cells in rows if cells)
        return title, others, list(islice(filled, _SAMPLE))


def _rows(sheet: Any, name: str) -> Iterator[Cells]:
    sheet.reset_dimensions()  # some programs write a wrong size
    try:
        for cells in sheet.iter_rows(values_only=True):
            values = [None if cell in _ERRORS else cell for cell in cells]
            while values and (values[-1] is None or (isinstance(values[-1], str) and not values[-1].strip())):
                values.pop()
            yield values
    except (LookupError, ValueError, SyntaxError, zipfile.BadZipFile, OSError) as error:
        raise TableError(f"{name}: the sheet cannot be read ({error})") from None


def cell_text(value: Any) -> str:
    """A cell as text: numbers without ".0", dates as 2026-05-01.

    >>> [cell_text(value) for value in (5.0, 0.1 + 0.2, datetime(2026, 5, 1), True, None)]
    ['5', '0.3', '2026-05-01', 'true', '']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.15g}" if math.isfinite(value) else ""
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, (date, time)):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    return str(value)


@contextmanager
def open_workbook(stream: IO[bytes], sheet: str) -> Iterator[Callable[[Sequence[Any]], None]]:
    """A function that adds a row to a new workbook, which is written to the stream at the end of the block."""
    openpyxl = import_extra("openpyxl", "Excel", "openpyxl", "excel")
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE, WriteOnlyCell

    book = openpyxl.Workbook(write_only=True)
    page = book.create_sheet(sheet)
    count = 0

    def to_cell(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if len(value) > MAX_TEXT:
            raise InputError(f"a cell of Excel has at most {MAX_TEXT:,} characters, found {len(value):,}; write CSV")
        cell = WriteOnlyCell(page, ILLEGAL_CHARACTERS_RE.sub(" ", value))
        cell.data_type = "s"  # a text that begins with = is not a formula
        return cell

    def write(values: Sequence[Any]) -> None:
        nonlocal count
        count += 1
        if count > MAX_ROWS:
            raise InputError(f"a sheet of Excel has at most {MAX_ROWS:,} rows; write CSV")
        page.append([to_cell(value) for value in values])

    try:
        yield write
    except BaseException:
        page.close()  # its temporary file
        raise
    book.save(stream)
