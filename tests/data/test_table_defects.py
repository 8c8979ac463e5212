"""Tables with defects."""

from __future__ import annotations

import gzip
import io
import pickle
import time

import pyarrow as arrow
import pytest
from pyarrow import parquet
from table_files import as_csv, read_problems, write

from arbormax.data.tables import _csv, iter_rows, read_table
from arbormax.errors import InputError, OptionError, TableError


def test_all_bad_rows_are_reported_in_one_error_with_line_numbers(tmp_path):
    rows = b'text,label\na,b,c\nbad \xff,x\n"two\nlines",\n   ,x\nnul\0,x\nfine,y\nlast,"open\nfoo,y\n'
    problems = read_problems(write(tmp_path / "a.csv", rows), encoding="utf-8")
    reported = [
        "line 2: 3 cells, but the header has 2; a text that contains ',' needs quotes",
        "line 3: contains the byte 0xff",
        "line 4: 'label' is empty",
        "line 6: 'text' is empty",
        "line 7: contains a NUL character",
        "line 9: a quote opens here and is never closed",
    ]
    assert [problem[: len(start)] for problem, start in zip(problems, reported, strict=True)] == reported


def test_skipped_rows_are_listed_and_the_others_read(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\nx,a\ny\n"open,b\nz,c\n')
    table = read_table(path, on_bad_rows="skip")
    assert (table.texts, table.lines) == (["x", "z"], [2, 5])
    assert [problem[:7] for problem in table.skipped] == ["line 3:", "line 4:"]
    with pytest.raises(TableError, match=r"2 rows cannot be used; try quoting=False or on_bad_rows='skip'\n  - line 3"):
        read_table(path)
    with pytest.raises(TableError, match=r"a\.csv: line 2: 1 cell, but the header has 2$"):
        read_table(write(path, "text,label\nx\n"), on_bad_rows="skip")


def test_the_message_shows_twenty_rows_and_the_count():
    with pytest.raises(InputError) as caught:
        read_table(io.StringIO("text,label\n" + "x\n" * 25), format="csv")
    assert len(caught.value.problems) == 25
    assert "25 rows cannot be used" in str(caught.value)
    assert "line 21:" in str(caught.value)
    assert "line 22:" not in str(caught.value)
    assert "… and 5 more" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.problems) == (str(caught.value), caught.value.problems)


def test_a_stream_fails_at_the_first_batch_with_bad_rows():
    batches = iter_rows(io.StringIO("text,label\nx,a\nx,a\nx\nx,a\ny\nz\n"), ["text"], 2, format="csv")
    assert len(next(batches)) == 2
    with pytest.raises(TableError, match="line 4"):
        next(batches)


CLEAN = "text\tlabel\n" + "clean\tb\n" * 300  # more rows than the ones from which quotes are detected
STRAY = CLEAN + '"stray\ta\nfine\tb\nfive 5"\tc\n"Hello," she said\ta\nsay "hi"\tb\n"last\tc\n'


def test_stray_quotes_in_a_tsv_do_not_hide_rows():
    problems = read_problems(io.StringIO(STRAY), format="tsv")
    assert [problem.split(":")[0] for problem in problems] == ["line 302", "line 305", "line 307"]
    assert "closes in line 304, around what look like whole rows" in problems[0]
    assert "text after a quoted cell" in problems[1]
    with pytest.raises(TableError) as caught:
        read_table(io.StringIO(STRAY), format="tsv")
    assert caught.value.fix == {"quoting": False, "on_bad_rows": "skip"}
    table = read_table(io.StringIO(STRAY), format="tsv", on_bad_rows="skip")
    assert table.texts[300:] == ["fine", 'five 5"', 'say "hi"']
    table = read_table(io.StringIO(STRAY), format="tsv", quoting=False)
    assert table.texts[300:] == ['"stray', "fine", 'five 5"', '"Hello," she said', 'say "hi"', '"last']
    assert table.lines[300:] == [302, 303, 304, 305, 306, 307]
    few = STRAY.replace("clean\tb\n", "")
    assert read_table(io.StringIO(few), format="tsv").texts == table.texts[300:]  # detected


def test_quoted_tabs_and_newlines_in_a_tsv_are_preserved():
    rows = [("1", "one\ttwo\nthree", "a"), ("2", 'a "quote"', "b")]
    table = read_table(io.StringIO(as_csv(rows, "\t", ("id", "text", "label"))), format="tsv")
    assert table.texts == ["one\ttwo\nthree", 'a "quote"']
    rows = [("one\ttwo\nthree\tfour", "a")]
    odd = as_csv(rows, "\t").replace("\r\n", "\n")
    assert read_table(io.StringIO(odd), format="tsv").texts == ["one\ttwo\nthree\tfour"]


def test_a_bad_byte_inside_an_open_quote_is_reported_at_its_own_line():
    data = b'text,label\n"open,a\nfine,b\nbad \xff,c\n'
    problems = read_problems(io.BytesIO(data), format="csv", encoding="utf-8")
    assert [problem[:24] for problem in problems] == ["line 2: a quote opens he", "line 4: contains the byt"]


def test_a_cell_longer_than_the_standard_limit_is_read():
    table = read_table(io.StringIO("text,label\n" + "x" * 1_000_000 + ",a\n"), format="csv")
    assert len(table.texts[0]) == 1_000_000


@pytest.mark.parametrize("format", ["csv", "tsv"])
def test_a_cell_that_is_too_long_is_reported_and_the_rest_is_read(monkeypatch, format):
    monkeypatch.setattr(_csv, "MAX_CELL", 100)
    rows = [("x", "a"), ("y" * 1000, "b"), ("z", "c")]
    text = as_csv(rows, "\t" if format == "tsv" else ",")
    table = read_table(io.StringIO(text), format=format, on_bad_rows="skip")
    assert table.texts == ["x", "z"]
    (problem,) = table.skipped
    assert "a cell is longer than 100 characters" in problem


@pytest.mark.parametrize("between", [0, 2, 50])
def test_an_open_quote_does_not_hide_the_rest_of_a_long_file(monkeypatch, between):
    monkeypatch.setattr(_csv, "MAX_CELL", 100)
    data = 'text,label\n"x,a\n' + "row,b\n" * between + "y" * 300 + ",c\nlast,d\n"
    table = read_table(io.StringIO(data), format="csv", on_bad_rows="skip")
    assert table.texts == ["row"] * between + ["last"]
    assert [problem.split(":")[0] for problem in table.skipped] == ["line 2", f"line {between + 3}"]
    assert "is a quote never closed?" in table.skipped[0]


def test_the_error_about_a_missing_column_lists_those_that_exist(tmp_path):
    with pytest.raises(TableError, match=r"no column 'text'; did you mean 'Text'\? \(found 'Text', 'label'\)"):
        read_table(write(tmp_path / "a.csv", "Text,label\nx,a\n"))
    with pytest.raises(TableError) as caught:
        read_table(write(tmp_path / "a.csv", "a,b\nx,a\n"))
    assert len(caught.value.problems) == 2
    assert "; try text='COLUMN' and label='COLUMN', or header=False\n" in str(caught.value)
    with pytest.raises(TableError, match=r"2 columns cannot be read; try text='COLUMN' and label='COLUMN'\n"):
        read_table(write(tmp_path / "a.csv", "Text,b\nx,a\n"))  # names like "Text" are in a header
    with pytest.raises(TableError, match=r"; try label='COLUMN' or header=False$"):
        read_table(write(tmp_path / "a.csv", "text,b\nx,a\n"))
    with pytest.raises(TableError, match=r"try delimiter=';'"):
        read_table(write(tmp_path / "a.csv", "text;label\nx;a\n"), delimiter=",")
    with pytest.raises(TableError, match="the column 'text' exists 2 times"):
        read_table(write(tmp_path / "a.csv", "text,text,label\nx,y,a\n"))
    with pytest.raises(
        TableError, match=r"no row has a column 'label'; did you mean 'labels'\? \(found 'text', 'labels'"
    ):
        read_table(write(tmp_path / "a.jsonl", '{"text": "x", "labels": "a"}\n' * 3))
    batches = iter_rows(io.StringIO('{"Text": "x"}\n' * 9), required=["text"], batch_size=2, format="jsonl")
    with pytest.raises(TableError, match=r"line 2: no column 'text'; did you mean 'Text'"):
        next(batches)


def test_rows_without_a_label_may_come_first_and_be_skipped():
    file = io.StringIO('{"text": "x"}\n' * 5000 + '{"text": "y", "label": "a"}\n')
    table = read_table(file, format="jsonl", on_bad_rows="skip")
    assert table.texts == ["y"]
    assert len(table.skipped) == 5000


@pytest.mark.parametrize(
    ("name", "content", "reported"),
    [
        ("a.csv", b"", r"a\.csv: the file is empty"),
        ("a.csv", b"\n\r\n", r"a\.csv: the file is empty"),
        ("a.csv", b"text,label\n", r"a\.csv: the file has no rows"),
        ("a.jsonl", b"\n", r"a\.jsonl: the file has no rows"),
        ("a.csv", "text,label\nx\0,a\n", r"line 2: contains a NUL character"),
        ("a.csv", gzip.compress(b"text,label\n", mtime=0), r"the file is compressed; its name must end in \.gz"),
        ("a.csv", b"PAR1", r"the file is a Parquet file; try format='parquet'"),
        ("a.csv", b"PK\x03\x04", r"the file is an Excel workbook or another ZIP file; try format='xlsx'"),
        ("a.csv", b"\xd0\xcf\x11\xe0", r"an old version of Excel; save it as \.xlsx"),
        ("a.xls", b"\xd0\xcf\x11\xe0", r"unknown suffix; save it as \.xlsx or \.csv"),
        ("a.xlsx", b"text,label\nx,a\n", r"not a complete workbook of Excel"),
        ("a.csv.gz", b"text,label\nx,a\n", r"the file cannot be read \(Not a gzipped file"),
        ("a.csv.gz", gzip.compress(b"text,label\nx,a\n" * 9, mtime=0)[:-9], r"the file cannot be read"),
        ("a.csv", b"te\xe9\x81\xffxt,label\nx,a\n", "line 1: contains the byte 0xe9"),
        ("a.csv", b'"text,label\nx,a\n', "line 1: a quote opens here and is never closed"),
        ("a.txt", b"text,label\nx,a\n", r"a\.txt: unknown suffix .*try format="),
        ("a.jsonn", b"", r"did you mean '\.jsonl'"),
        ("a", b"text,label\nx,a\n", r"unknown suffix"),
        ("a.parquet.gz", b"", "not a complete Parquet file"),
    ],
)
def test_the_error_about_a_file_that_is_not_a_table_gives_the_reason(tmp_path, name, content, reported):
    with pytest.raises(TableError, match=reported):
        read_table(write(tmp_path / name, content))


def test_text_that_ends_inside_a_utf16_character_is_an_error(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\nx,a\n".encode("utf-16")[:-1])
    with pytest.raises(TableError, match=r"cannot be read after line"):
        read_table(path, encoding="utf-16")


def test_the_error_about_a_missing_file_suggests_a_similar_name(tmp_path):
    write(tmp_path / "train.csv", "text,label\nx,a\n")
    with pytest.raises(FileNotFoundError, match=r"did you mean 'train\.csv'\?"):
        iter_rows(tmp_path / "tarin.csv", ["text"])
    (tmp_path / "dangling-link.jsonl").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match=r"no such file: '.*link\.jsonl'"):
        read_table(tmp_path / "dangling-link.jsonl")
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_table(tmp_path / "nowhere" / "train.csv")
    with pytest.raises(IsADirectoryError, match="expected a file, found a folder"):
        read_table(tmp_path)


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"format": "cvs"}, "format: unknown format 'cvs'; did you mean 'csv'"),
        ({"format": "csv", "delimiter": ";;"}, "delimiter: expected one character"),
        ({"format": "jsonl", "delimiter": ";"}, "delimiter: an option for CSV and TSV"),
        ({"format": "jsonl", "header": False}, "header: an option for CSV, TSV and Excel"),
        ({"format": "jsonl", "quoting": False}, "quoting: an option for CSV and TSV"),
        ({"format": "csv", "sheet": "A"}, "sheet: only workbooks have sheets"),
        ({"format": "csv", "on_bad_rows": "drop"}, "on_bad_rows: expected 'error' or 'skip'"),
    ],
)
def test_invalid_options_are_errors(options, reported):
    with pytest.raises(OptionError, match=reported):
        read_table(io.StringIO(""), **options)


def test_an_unknown_encoding_is_an_error():
    for encoding, reported in (("base64", "'base64' is not a text encoding"), ("utf-99", "unknown encoding: utf-99")):
        with pytest.raises(OptionError, match=f"encoding: {reported}"):
            read_table(io.BytesIO(b"text,label\n"), format="csv", encoding=encoding)


def test_one_string_is_not_a_list_of_columns():
    with pytest.raises(OptionError, match="columns: expected a list of columns, found one string"):
        iter_rows(io.StringIO(""), "text", format="csv")
    with pytest.raises(OptionError, match="batch_size"):
        iter_rows(io.StringIO(""), ["text"], 0, format="csv")


def test_a_table_full_of_open_quotes_is_an_error_in_linear_time(tmp_path):
    path = tmp_path / "quotes.csv"
    path.write_text("text,label\n" + 'a","b\n' * 50_000)
    begin = time.monotonic()
    with pytest.raises(TableError, match="too many quotes are never closed, up to line 50001; try quoting=False"):
        read_table(path, on_bad_rows="skip")
    assert time.monotonic() - begin < 60
    assert len(read_table(path, quoting=False)) == 50_000


@pytest.mark.parametrize("encoding", ["idna", "punycode", "undefined", "hex", "no-such", "utf\0-8", "", 5])
def test_encodings_that_are_not_for_files_are_errors(tmp_path, encoding):
    path = tmp_path / "x.csv"
    path.write_bytes(b"text,label\n\xff..a-,b\n")
    with pytest.raises((OptionError, TableError)):
        read_table(path, encoding=encoding)


def test_a_parquet_column_whose_name_is_not_utf8_is_an_error(tmp_path):
    path = tmp_path / "x.parquet"
    parquet.write_table(arrow.table({"text": ["a"], "labelé": ["b"]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace("labelé".encode(), b"label\xff\xfe"))
    with pytest.raises(TableError, match=r"x\.parquet: .*"):
        read_table(path)
