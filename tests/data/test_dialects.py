"""Tables in every dialect are read without being told how they are written."""

from __future__ import annotations

import csv
import io
from datetime import date, datetime

import openpyxl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from table_files import write

from arbormax.data.tables import iter_rows, open_source, read_table
from arbormax.errors import TableError

CODECS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"]
NAMES = ["text", "label", "Preis in €", "Größe", "a b", "x", "city"]
CELLS = st.one_of(
    st.text(st.sampled_from("abc xyzÄß,;|\t\"'\n.0123456789-/<>"), max_size=20),
    st.text(st.characters(codec="cp1252", exclude_categories=["Cc", "Cs"]), max_size=12),
    st.decimals(-1000, 1000, places=2).map(lambda number: str(number).replace(".", ",")),
)


@st.composite
def tables(draw):
    names = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=5, unique=True))
    row = st.lists(CELLS, min_size=len(names), max_size=len(names)).filter(lambda cells: any(map(str.strip, cells)))
    return names, draw(st.lists(row, max_size=12))


def encode(rows, codec, delimiter, quoting=csv.QUOTE_MINIMAL, end="\r\n", first=""):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows(rows)
    return (first + text.getvalue()).encode(codec)


@settings(max_examples=300)
@given(
    tables(),
    st.sampled_from(CODECS),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from(["csv", "tsv"]),
)
def test_a_table_in_any_dialect_is_read_as_it_was_written(table, codec, delimiter, quoting, end, has_sep, format):
    names, rows = table
    assume(delimiter != "\t" or not any("\t" in cell and "\n" in cell for row in rows for cell in row))  # like rows
    first = f"sep={delimiter}{end}" if has_sep else ""
    data = encode([names, *rows], codec, delimiter, quoting, end, first)
    source = open_source(io.BytesIO(data), names[:1], format=format)
    assert source.dialect.delimiter == delimiter
    assert source.dialect.newline == end
    assert source.dialect.skipped == has_sep
    found = [row for batch in iter_rows(source, names[:1], records=True) for row in batch.rows]
    assert found == [dict(zip(names, row, strict=True)) for row in rows]


@given(tables(), st.sampled_from([",", ";", "\t", "|"]))
def test_a_table_without_a_header_is_read_by_position(table, delimiter):
    _, rows = table
    data = encode(rows, "utf-8", delimiter)
    width = len(table[0])
    how = {"header": False, "delimiter": delimiter, "quoting": True}
    batches = iter_rows(io.BytesIO(data), list(range(width)), format="csv", **how)
    found = [cells for batch in batches for cells in zip(*(batch[place] for place in range(width)), strict=True)]
    assert found == list(map(tuple, rows))


def read_all(data, *columns, format="csv", **options):
    source = open_source(io.BytesIO(data), columns, format=format, **options)
    rows = [row for batch in iter_rows(source, columns or None, records=True) for row in batch.rows]
    return source.dialect, rows


def test_semicolons_with_decimal_commas_and_no_header():
    rows = [["1,5", "2,25", "A red scarf"], ["3,0", "4,75", "Two blue hats"]] * 3
    dialect, found = read_all(encode(rows, "cp1252", ";"), 2)
    assert (dialect.delimiter, dialect.header) == (";", False)
    assert [list(row.values()) for row in found] == rows


def test_texts_with_commas_and_no_header_are_one_column():
    lines = ["Well, I like it", "It broke, sadly, on day one", "Fine", "Soft, warm", "Not for me, thanks"]
    for end in ("\n", "\r\n"):
        dialect, found = read_all(end.join(lines).encode(), "text")
        assert dialect.describe() == "one column, UTF-8, no header"
        assert [row["0"] for row in found] == lines


def test_a_column_with_a_header_may_have_commas_and_semicolons():
    dialect, found = read_all(b"review\nGood, but; small\nBad\nOkay, I guess\n", "text")
    assert dialect.header
    assert [row["review"] for row in found] == ["Good, but; small", "Bad", "Okay, I guess"]


def test_a_quoted_column_has_cells_with_newlines():
    dialect, found = read_all(b'text\n"one\ntwo, three"\nfour\n', "text")
    assert found == [{"text": "one\ntwo, three"}, {"text": "four"}]
    assert dialect.quoting


def test_a_tab_file_of_excel_is_utf16(tmp_path):
    path = write(tmp_path / "export.csv", encode([["text", "label"], ['5" pipe, 1½', "Größe"]], "utf-16", "\t"))
    table = read_table(path)
    assert (table.texts, table.labels) == (['5" pipe, 1½'], ["Größe"])


def test_quotes_are_plain_characters_if_only_that_makes_sense():
    data = b'text\tlabel\n"Well," she said\tnews\nA 5" pipe\tshop\n"last\tshop\n'
    dialect, found = read_all(data, "text", format="tsv")
    assert not dialect.quoting
    assert [row["text"] for row in found] == ['"Well," she said', 'A 5" pipe', '"last']
    assert "quotes are plain characters" in dialect.describe()


def test_a_windows_byte_at_the_end_of_a_large_file_is_found(tmp_path):
    rows = [["text", "label"], *([["plain words", "a"]] * 200_000), ["déjà vu", "b"]]
    path = write(tmp_path / "large.csv", encode(rows, "cp1252", ","))
    assert path.stat().st_size > 3_000_000
    assert read_table(path).texts[-1] == "déjà vu"


def test_a_few_bad_bytes_in_a_unicode_file_are_reported():
    data = "text,label\nübergroß,a\nschön,b\n".encode() + b"bad \xff,c\n"
    with pytest.raises(TableError, match=r"line 4: contains the byte 0xff"):
        read_table(io.BytesIO(data), format="csv")
    with pytest.raises(TableError, match=r"line 2: contains a NUL character"):
        read_table(io.BytesIO(b"text,label\nnul\0,a\nfine,b\n"), format="csv")


def test_rows_of_delimiters_are_blank():
    data = b"text;label;;\nscarf;a;;\n;;;\n ; ;;\nhat;b;;\n"
    table = read_table(io.BytesIO(data), format="csv")
    assert (table.texts, table.lines, table.skipped) == (["scarf", "hat"], [2, 5], [])


def test_what_is_given_is_not_detected():
    data = "text;label\né;a\n".encode("cp1252")
    dialect, _ = read_all(data, 0, delimiter=",", header=False, encoding="latin-1", quoting=False)
    assert (dialect.delimiter, dialect.header, dialect.encoding, dialect.quoting) == (",", False, "latin-1", False)


@pytest.mark.parametrize(
    ("rows", "has_header"),
    [
        ([["title", "kind"], ["a red scarf of wool", "shop"]], True),
        ([["x0", "x1", "species"], ["1.5", "2", "rose"], ["1", "0", "fern"]], True),
        ([["Produktname", "Warengruppe"], ["Sehr langer Name eines Produkts", "Haus"]], True),
        ([["sport", "The match was won."], ["weather", "Rain until Friday"]], False),
        ([["shop", "red scarf"], ["shop", "blue hat"], ["garden", "a spade"]], False),
        ([["1.5", "2"], ["1", "0"]], False),
    ],
)
def test_a_header_differs_from_the_rows_below(rows, has_header):
    assert read_all(encode(rows, "utf-8", ";"), 0, 1)[0].header == has_header


# --------------------------------------------------------------------------------------------------------------- Excel


def workbook(path, **sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        page = book.create_sheet(title)
        for row in rows:
            page.append(row)
    book.save(path)
    return path


def test_a_sheet_is_read_as_text(tmp_path):
    rows = [
        ["text", "label", None],
        ["scarf", 5.0, None],
        [None, None, None],
        [date(2026, 5, 1), True],
        [datetime(2026, 5, 1, 8, 30), 0.1 + 0.2],
        [" \n", "  "],
        [" 007", -12],
    ]
    path = workbook(tmp_path / "a.xlsx", Empty=[], Data=rows)
    table = read_table(path)
    assert table.texts == ["scarf", "2026-05-01", "2026-05-01 08:30:00", " 007"]
    assert table.labels == ["5", "true", "0.3", "-12"]
    assert (table.lines, table.unit) == ([2, 4, 5, 7], "row")


def test_sheets_are_selected_by_name(tmp_path):
    path = workbook(tmp_path / "a.xlsx", First=[["text", "label"], ["x", "a"]], Second=[["text", "label"], ["y", "b"]])
    assert read_table(path).texts == ["x"]
    assert read_table(path, sheet="Second").texts == ["y"]
    assert open_source(path).describe() == "a.xlsx: sheet 'First' (other sheets: Second), header"
    with pytest.raises(TableError, match=r"no sheet 'Secnd'; did you mean 'Second'\? \(found 'First', 'Second'\)"):
        read_table(path, sheet="Secnd")


def test_the_values_of_formulas_are_read_and_errors_are_empty(tmp_path):
    path = workbook(tmp_path / "a.xlsx", Data=[["text", "label"], ["x", "#N/A"], ["=1+1", "b"], ["y", "c"]])
    with pytest.raises(TableError) as caught:  # nothing has computed the formula
        read_table(path)
    assert caught.value.problems == ("row 2: 'label' is empty", "row 3: 'text' is empty")


def test_a_workbook_without_a_header_and_bad_rows(tmp_path):
    path = workbook(tmp_path / "a.xlsx", Data=[["The match was won", "sport"], ["Rain", "weather"], ["x", "y", "z"]])
    table = read_table(path, 0, 1, on_bad_rows="skip")
    assert table.labels == ["sport", "weather"]
    assert table.skipped == ["row 3: 3 cells, but the first row has 2"]


def test_an_archive_bomb_is_not_unpacked(tmp_path, monkeypatch):
    from arbormax import _archives

    monkeypatch.setattr(_archives, "_ALWAYS_ALLOWED", 1000)
    path = workbook(tmp_path / "a.xlsx", Data=[["x" * 30_000] * 50])
    with pytest.raises(ValueError, match="not plausible"):
        read_table(path)
