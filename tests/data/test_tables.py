"""A user's own file: every format, and every way in which one can be broken."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbormax.data import tables
from arbormax.data.tables import iter_rows, read_table
from arbormax.errors import InputError, MissingDependencyError, OptionError, TableError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = [("the cat", "animal/cat"), ('an "owl", it said', "animal/bird/owl"), ("två\nrader", "other")]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def as_csv(rows, delimiter=",", header=("text", "label"), end="\r\n"):
    out = io.StringIO(newline="")
    # csv leaves a lone carriage return bare where lines end in a newline
    quoting = csv.QUOTE_ALL if end == "\n" else csv.QUOTE_MINIMAL
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([header, *rows] if header else rows)
    return out.getvalue()


def as_jsonl(rows):
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)


def problems_of(path, **options):
    with pytest.raises(TableError) as caught:
        read_table(path, **options)
    return caught.value.problems


# ------------------------------------------------------------------------------------------------------ what is read


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "ndjson", "parquet", "csv.gz", "TSV.GZ", "jsonl.gz"])
def test_every_format_gives_the_same_rows(tmp_path, suffix):
    path = tmp_path / f"mine.{suffix}"
    kind = suffix.lower().removesuffix(".gz")
    if kind == "parquet":
        pq.write_table(pa.table({"text": [t for t, _ in ROWS], "label": [label for _, label in ROWS]}), path)
    else:
        text = as_jsonl(ROWS) if "json" in kind else as_csv(ROWS, "\t" if kind == "tsv" else ",")
        write(path, gzip.compress(text.encode()) if suffix.lower().endswith("gz") else text)
    table = read_table(path)
    assert list(zip(table.texts, table.labels, strict=True)) == ROWS
    assert table.path == path.name
    assert table.lines == ([1, 2, 3] if "json" in kind or kind == "parquet" else [2, 3, 4])
    assert table.unit == ("row" if kind == "parquet" else "line")
    assert table.skipped == []


def test_a_row_is_found_at_the_line_where_it_starts(tmp_path):
    path = write(tmp_path / "a.csv", '\r\n"te\nxt",label\r\n"one\r\ntwo\n\nthree",a\r\n\r\nfour,b\n')
    assert read_table(path, text="te\nxt").lines == [4, 9]


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@given(
    st.lists(st.tuples(CELLS, CELLS), max_size=8), st.sampled_from([",", "\t", ";"]), st.sampled_from(["\n", "\r\n"])
)
def test_what_csv_writes_comes_back_with_its_lines(rows, delimiter, end):
    header = as_csv([], delimiter, end=end)
    data = header + "".join(as_csv([row], delimiter, None, end) for row in rows)
    starts = [header + "".join(as_csv([row], delimiter, None, end) for row in rows[:n]) for n in range(len(rows))]
    batches = iter_rows(
        io.BytesIO(data.encode()), ["text", "label"], 3, format="csv", delimiter=delimiter, quoting=True
    )
    found, lines = [], []
    for batch in batches:
        found += zip(batch["text"], batch["label"], strict=True)
        lines += batch.lines
    assert found == rows
    assert lines == [len(io.StringIO(start, newline="").readlines()) + 1 for start in starts]


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8))
def test_what_json_writes_comes_back(rows):
    (batch,) = iter_rows(io.StringIO(as_jsonl(rows)), ["text", "label"], format="jsonl")
    assert list(zip(batch["text"], batch["label"], strict=True)) == rows
    assert batch.lines == list(range(1, len(rows) + 1))


@given(st.binary(max_size=80), st.sampled_from(["csv", "tsv", "jsonl", "parquet"]))
def test_any_bytes_give_rows_or_a_table_error(data, format):
    try:
        batches = list(iter_rows(io.BytesIO(data), None, 2, format=format, on_bad_rows="skip"))
    except TableError:
        return
    for batch in batches:
        assert len(batch.lines) == len(batch.rows)


@given(st.lists(st.text(alphabet='ab"', max_size=5), max_size=12), st.sampled_from(["csv", "tsv"]))
def test_every_line_of_a_broken_file_is_in_a_row_or_in_a_problem(lines, format):
    seen = {1}
    for batch in iter_rows(io.StringIO("text\n" + "\n".join(lines)), ["text"], format=format, on_bad_rows="skip"):
        for line, text in zip(batch.lines, batch["text"], strict=True):
            seen |= set(range(line, line + text.count("\n") + 1))
        seen |= {int(problem.split(":")[0].removeprefix("line ")) for problem in batch.problems}
    assert seen >= {number for number, line in enumerate(lines, 2) if line}


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    for encoding in ("utf-8-sig", "utf-8"):
        path = write(tmp_path / "a.csv", b"\xef\xbb\xbftext,label\r\nx,y\r\n")
        assert read_table(path, encoding=encoding).texts == ["x"]
    path = write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"text": "x", "label": "y"}\n')
    assert read_table(path).texts == ["x"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_other_encodings_are_read_when_named(tmp_path, encoding):
    path = write(tmp_path / "a.csv", "text,label\né,y\n".encode(encoding))
    assert read_table(path, encoding=encoding).texts == ["é"]


def test_columns_have_names_positions_or_both(tmp_path):
    path = write(tmp_path / "a.csv", "id,body,topic\n1,x,a\n")
    assert read_table(path, "body", "topic").labels == ["a"]
    assert read_table(path, 1, "topic").texts == ["x"]
    bare = write(tmp_path / "b.csv", "a,x\nb,y\n")
    table = read_table(bare, text=1, label="0", header=False)
    assert (table.texts, table.labels, table.lines) == (["x", "y"], ["a", "b"], [1, 2])
    with pytest.raises(OptionError, match="positions from 0, not names; found 'text'"):
        read_table(bare, header=False, label=0)
    with pytest.raises(TableError, match=r"no column 2: positions run from 0 to 1"):
        read_table(bare, 2, 0, header=False)


def test_a_table_without_labels_can_be_read(tmp_path):
    table = read_table(write(tmp_path / "a.csv", "text\nx\n"), label=None)
    assert table.labels is None
    assert len(table) == 1


def test_whole_rows_keep_the_types_of_the_file(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"id": 1, "text": "x", "tags": ["p"]}\n{"text": 5}\n')
    (batch,) = iter_rows(path, ["text"], records=True)
    assert batch["text"] == ["x", "5"]
    assert batch.rows == [{"id": 1, "text": "x", "tags": ["p"]}, {"text": 5}]
    (batch,) = iter_rows(write(tmp_path / "a.csv", "id,text\n1,x\n"))
    assert (batch.names, batch.rows, batch.columns) == (("id", "text"), [{"id": "1", "text": "x"}], {})
    pq.write_table(pa.table({"id": [1], "text": ["x"]}), tmp_path / "a.parquet")
    (batch,) = iter_rows(tmp_path / "a.parquet")
    assert batch.rows == [{"id": 1, "text": "x"}]
    (batch,) = iter_rows(io.StringIO("p,q\n"), header=False, format="csv")
    assert batch.rows == [{"0": "p", "1": "q"}]


def test_a_file_without_rows_still_tells_its_columns():
    for data in ("text,label\n", "text,label"):
        (batch,) = iter_rows(io.StringIO(data), ["text"], format="csv")
        assert (len(batch), batch.names, batch["text"]) == (0, ("text", "label"), [])


def test_batches_have_the_size_asked_for():
    file = io.StringIO("text\n" + "x\n" * 7)
    assert [len(batch) for batch in iter_rows(file, ["text"], 3, format="csv")] == [3, 3, 1]
    file = io.StringIO("text\n" + "x\n" * 6)
    assert [len(batch) for batch in iter_rows(file, ["text"], 3, format="csv")] == [3, 3]


def test_memory_does_not_grow_with_the_file():
    class Endless(io.RawIOBase):
        left = 3_000

        def readable(self):
            return True

        def readinto(self, buffer):
            if not self.left:
                return 0
            self.left -= 1
            data = b"text\n" if self.left == 2_999 else b"x" * (len(buffer) - 1) + b"\n"
            buffer[: len(data)] = data
            return len(data)

    tracemalloc.start()
    count = sum(len(batch) for batch in iter_rows(io.BufferedReader(Endless()), ["text"], 16, format="csv"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count > 1000
    assert peak < 4_000_000  # of 24 million


def test_the_standard_input_is_a_file_named_by_a_dash(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"text\tlabel\nx\ta\n")))
    assert read_table("-", format="tsv").labels == ["a"]
    assert not sys.stdin.closed
    with pytest.raises(OptionError, match=r"<stdin> has no suffix .* pass format="):
        read_table("-")
    with pytest.raises(TableError, match="needs a file, not a stream"):
        read_table("-", format="parquet")


def test_a_file_object_stays_open_and_says_its_name(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\nx\n")
    for mode in ("r", "rb"):
        with open(path, mode) as file:
            with pytest.raises(TableError, match=r"a\.csv: line 2: 1 cell, but the header has 2"):
                read_table(file, format="csv")
            assert not file.closed


# ------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("value", "label"),
    [("5", "5"), ("5.5", "5.5"), ("true", "true"), ('["a", "b/c"]', ("a", "b/c")), ('["a", 2]', ("a", "2"))],
)
def test_a_json_value_becomes_a_label(value, label):
    file = io.StringIO(f'{{"text": "x", "label": {value}}}')
    assert read_table(file, format="jsonl").labels == [label]


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ('{"text": "x", "label": null}', "line 2: 'label' is empty"),
        ('{"text": "x"}', "line 2: no column 'label' (found 'text')"),
        ('{"text": "x", "label": []}', "line 2: 'label' is empty"),
        ('{"text": " ", "label": NaN}', "line 2: 'text' is empty and 'label' is empty"),
        ('{"text": ["x"], "label": "a"}', "line 2: 'text' is a list, not a text"),
        ('{"text": {"x": 1}, "label": "a"}', "line 2: 'text' is an object, not a text"),
        ('{"text": "x", "label": ["a", null]}', "line 2: 'label' is a path with an empty name, ['a', None]"),
        ('{"text": "x", "label": ["a", ["b"]]}', "line 2: 'label' is a list, not a text"),
        ('{"text": "\\ud800", "label": "a"}', "line 2: holds half of a surrogate pair"),
        ('["x", "a"]', "line 2: a list, but a row is an object"),
        ("7", "line 2: a number, but a row is an object"),
        ("null", "line 2: null, but a row is an object"),
        ('"x"', "line 2: a string, but a row is an object"),
        ('{"text": "x", "label": "a"', "line 2: not JSON: expecting ',' delimiter (column 27)"),
        ("[", "line 2: not JSON: expecting value (column 2); write one object per line, not one list"),
        ("[" * 100_000, "line 2: not JSON that can be read: maximum recursion depth exceeded"),
        ('{"text": 1' + "0" * 5000 + "}", "line 2: not JSON that can be read: Exceeds the limit (4300 digits)"),
    ],
)
def test_a_json_line_that_is_no_row_is_told(record, problem):
    good = '{"text": "x", "label": "a"}\n'
    (found,) = problems_of(io.StringIO(f"{good}{record}\n\n{good}"), format="jsonl")
    assert found.startswith(problem)


def test_parquet_columns_of_many_types_are_text(tmp_path):
    labels = {
        "plain": pa.array(["a", "b"]),
        "large": pa.array(["a", "b"], pa.large_string()),
        "coded": pa.array(["a", "b"]).dictionary_encode(),
        "bytes": pa.array([b"a", b"b"]),
        "number": pa.array([1, 2]),
        "path": pa.array([["a", "x"], ["b"]]),
        "large path": pa.array([["a", "x"], ["b"]], pa.large_list(pa.string())),
        "day": pa.array([0, 1], pa.date32()),
    }
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x", "y"], **labels}), path)
    found = {name: read_table(path, label=name).labels for name in labels}
    assert found == {
        **{key: ["a", "b"] for key in ("plain", "large", "coded", "bytes")},
        "number": ["1", "2"],
        **{key: [("a", "x"), ("b",)] for key in ("path", "large path")},
        "day": ["1970-01-01", "1970-01-02"],
    }


def test_parquet_that_holds_no_text_is_told(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": ["x", None, "z"], "label": ["a", "b", ""], "map": [{"a": 1}] * 3, "list": [["a"]] * 3})
    pq.write_table(table, path)
    assert problems_of(path) == ("row 2: 'text' is empty", "row 3: 'label' is empty")
    with pytest.raises(TableError, match=r"the column 'map' holds struct<a: int64>, not text"):
        read_table(path, label="map")
    with pytest.raises(TableError, match=r"the column 'list' holds list<.*>, not text"):
        read_table(path, text="list")
    with pytest.raises(TableError, match=r"no column 'txt'; did you mean 'text'\? \(found 'text', 'label', 'map'"):
        read_table(path, text="txt")
    bad = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff"))
    pq.write_table(pa.table({"text": bad, "label": ["a", "b"]}), path)
    assert problems_of(path) == ("row 2: 'text' is not UTF-8 text",)


def test_damaged_parquet_is_told(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x" * n for n in range(3000)], "label": ["a"] * 3000}), path)
    whole = path.read_bytes()
    for damaged in (b"", whole[:-10], whole[: len(whole) // 2], b"text,label\nx,a\n", whole[:50] + whole[5000:]):
        write(path, damaged)
        with pytest.raises(TableError, match=r"a\.parquet: (not a whole Parquet file|\d+ rows)"):
            read_table(path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"reading Parquet needs the package pyarrow.*arbormax\[text\]"):
        read_table(path)


# ------------------------------------------------------------------------------------------------------------ defects


def test_all_bad_rows_are_told_together_with_their_lines(tmp_path):
    rows = b'text,label\na,b,c\nbad \xff,x\n"two\nlines",\n   ,x\nnul\0,x\nfine,y\nlast,"open\nfoo,y\n'
    problems = problems_of(write(tmp_path / "a.csv", rows))
    told = [
        "line 2: 3 cells, but the header has 2; a text that holds ',' needs quotes",
        "line 3: holds the byte 0xff",
        "line 4: 'label' is empty",
        "line 6: 'text' is empty",
        "line 7: holds a NUL character",
        "line 9: a quote opens here and is never closed",
    ]
    assert [problem[: len(start)] for problem, start in zip(problems, told, strict=True)] == told


def test_skipped_rows_are_counted_and_the_others_read(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\nx,a\ny\n"open,b\nz,c\n')
    table = read_table(path, on_bad_rows="skip")
    assert (table.texts, table.lines) == (["x", "z"], [2, 5])
    assert [problem[:7] for problem in table.skipped] == ["line 3:", "line 4:"]
    with pytest.raises(TableError, match=r'2 rows cannot be used \(on_bad_rows="skip" leaves them out\):'):
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


STRAY = 'text\tlabel\n"stray\ta\nfine\tb\nfive 5"\tc\n"Hello," she said\ta\nsay "hi"\tb\n"last\tc\n'


def test_stray_quotes_of_a_raw_tsv_swallow_no_rows():
    problems = problems_of(io.StringIO(STRAY), format="tsv")
    assert [problem.split(":")[0] for problem in problems] == ["line 2", "line 5", "line 7"]
    assert "closes in line 4, around what look like whole rows" in problems[0]
    assert "text goes on after a quoted cell" in problems[1]
    assert all("quoting=False" in problem for problem in problems)
    table = read_table(io.StringIO(STRAY), format="tsv", on_bad_rows="skip")
    assert table.texts == ["fine", 'five 5"', 'say "hi"']
    table = read_table(io.StringIO(STRAY), format="tsv", quoting=False)
    assert table.texts == ['"stray', "fine", 'five 5"', '"Hello," she said', 'say "hi"', '"last']
    assert table.lines == [2, 3, 4, 5, 6, 7]


def test_quoted_tabs_and_newlines_of_a_tsv_are_kept():
    rows = [("1", "one\ttwo\nthree", "a"), ("2", 'a "quote"', "b")]
    table = read_table(io.StringIO(as_csv(rows, "\t", ("id", "text", "label"))), format="tsv")
    assert table.texts == ["one\ttwo\nthree", 'a "quote"']
    rows = [("one\ttwo\nthree\tfour", "a")]
    odd = as_csv(rows, "\t").replace("\r\n", "\n")
    assert read_table(io.StringIO(odd), format="tsv").texts == ["one\ttwo\nthree\tfour"]


def test_a_bad_byte_in_a_swallowed_line_is_told_at_its_own_line():
    data = b'text,label\n"open,a\nfine,b\nbad \xff,c\n'
    problems = problems_of(io.BytesIO(data), format="csv")
    assert [problem[:24] for problem in problems] == ["line 2: a quote opens he", "line 4: holds the byte 0"]


def test_a_cell_longer_than_the_standard_limit_is_read():
    table = read_table(io.StringIO("text,label\n" + "x" * 1_000_000 + ",a\n"), format="csv")
    assert len(table.texts[0]) == 1_000_000


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl"])
def test_a_row_beyond_all_measure_is_told_and_the_rest_is_read(monkeypatch, format):
    monkeypatch.setattr(tables, "LONGEST", 100)
    rows = [("x", "a"), ("y" * 1000, "b"), ("z", "c")]
    text = as_jsonl(rows) if format == "jsonl" else as_csv(rows, "\t" if format == "tsv" else ",")
    table = read_table(io.StringIO(text), format=format, on_bad_rows="skip")
    assert table.texts == ["x", "z"]
    (problem,) = table.skipped
    assert problem.endswith("longer than 100 characters")


@pytest.mark.parametrize("between", [0, 2, 50])
def test_a_quote_that_opens_before_a_long_file_does_not_eat_it(monkeypatch, between):
    monkeypatch.setattr(tables, "LONGEST", 100)
    data = 'text,label\n"x,a\n' + "row,b\n" * between + "y" * 300 + ",c\nlast,d\n"
    table = read_table(io.StringIO(data), format="csv", on_bad_rows="skip")
    assert table.texts == ["row"] * between + ["last"]
    assert [problem.split(":")[0] for problem in table.skipped] == ["line 2", f"line {between + 3}"]
    assert "is a quote that opens here never closed?" in table.skipped[0]


def test_a_missing_column_is_told_with_those_that_are_there(tmp_path):
    with pytest.raises(TableError, match=r"no column 'text'; did you mean 'Text'\? \(found 'Text', 'label'\)"):
        read_table(write(tmp_path / "a.csv", "Text,label\nx,a\n"))
    with pytest.raises(TableError) as caught:
        read_table(write(tmp_path / "a.csv", "a,b\nx,a\n"))
    assert len(caught.value.problems) == 2
    with pytest.raises(TableError, match=r"separated by ';', pass delimiter=';'"):
        read_table(write(tmp_path / "a.csv", "text;label\nx;a\n"), label=None)
    assert read_table(tmp_path / "a.csv", delimiter=";").texts == ["x"]
    with pytest.raises(TableError, match="the column 'text' stands 2 times"):
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
    ("name", "content", "told"),
    [
        ("a.csv", b"", r"a\.csv: the file is empty"),
        ("a.csv", b"\n\r\n", r"a\.csv: the file is empty"),
        ("a.csv", b"text,label\n", r"a\.csv: there are no rows"),
        ("a.jsonl", b"\n", r"a\.jsonl: there are no rows"),
        ("a.csv", "text,label\nx,a\n".encode("utf-16"), r"UTF-16 text: pass encoding='utf-16'"),
        ("a.csv", "text,label\nx,a\n".encode("utf-32"), r"UTF-32 text: pass encoding='utf-32'"),
        ("a.csv", gzip.compress(b"text,label\n", mtime=0), r"compressed by gzip: give it a name that ends in \.gz"),
        ("a.csv", b"PK\x03\x04...", "a spreadsheet"),
        ("a.csv", b"PAR1...", "pass format='parquet'"),
        ("a.csv.gz", b"text,label\nx,a\n", r"the gzip file is damaged"),
        ("a.csv.gz", gzip.compress(b"text,label\nx,a\n" * 9, mtime=0)[:-9], r"the gzip file is damaged"),
        ("a.csv", b"te\xffxt,label\nx,a\n", "line 1: holds the byte 0xff"),
        ("a.csv", b'"text,label\nx,a\n', "line 1: a quote opens here and is never closed"),
        ("a.txt", b"text,label\nx,a\n", r"a\.txt: the suffix does not tell the format .*pass format="),
        ("a.jsonn", b"", r"did you mean '\.jsonl'"),
        ("a", b"text,label\nx,a\n", r"the suffix does not tell the format"),
        ("a.parquet.gz", b"", "unpack it with gunzip"),
    ],
)
def test_a_file_that_is_no_table_says_why(tmp_path, name, content, told):
    with pytest.raises(TableError, match=told):
        read_table(write(tmp_path / name, content))


def test_text_cut_in_the_middle_of_a_utf16_character_is_told(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\nx,a\n".encode("utf-16")[:-1])
    with pytest.raises(TableError, match=r"not utf-16|holds the byte"):
        read_table(path, encoding="utf-16")


def test_a_missing_file_names_the_ones_beside_it(tmp_path):
    write(tmp_path / "train.csv", "text,label\nx,a\n")
    with pytest.raises(FileNotFoundError, match=r"did you mean 'train\.csv'\?"):
        iter_rows(tmp_path / "tarin.csv", ["text"])
    (tmp_path / "dangling-link.jsonl").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match=r"no such file: '.*link\.jsonl'"):
        read_table(tmp_path / "dangling-link.jsonl")
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_table(tmp_path / "nowhere" / "train.csv")
    with pytest.raises(IsADirectoryError, match="a table is one file"):
        read_table(tmp_path)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"format": "cvs"}, "no format 'cvs'; did you mean 'csv'"),
        ({"format": "csv", "delimiter": ";;"}, "delimiter is one character"),
        ({"format": "csv", "header": None}, "header is True or False"),
        ({"format": "csv", "quoting": "no"}, "quoting may also be None"),
        ({"format": "csv", "encoding": "utf-99"}, "encoding='utf-99' is not known"),
        ({"format": "jsonl", "delimiter": ";"}, "delimiter= belongs to CSV and TSV"),
        ({"format": "jsonl", "header": False}, "header= belongs to CSV and TSV"),
        ({"format": "jsonl", "quoting": False}, "quoting= belongs to CSV and TSV"),
        ({"format": "jsonl", "text": 0}, "names, not positions"),
        ({"format": "csv", "text": 1.5}, "a column is a name or a position"),
        ({"format": "csv", "on_bad_rows": "drop"}, "on_bad_rows is 'error' or 'skip'"),
        ({"format": "parquet"}, "open the file in binary mode"),
    ],
)
def test_options_that_cannot_be_are_refused(options, told):
    with pytest.raises(OptionError, match=told):
        read_table(io.StringIO(""), **options)


def test_an_encoding_of_no_text_is_refused():
    with pytest.raises(OptionError, match="'base64' is no encoding of text"):
        read_table(io.BytesIO(b"text,label\n"), format="csv", encoding="base64")


def test_a_list_of_columns_is_not_one_string():
    with pytest.raises(OptionError, match="not one string"):
        iter_rows(io.StringIO(""), "text", format="csv")
    with pytest.raises(OptionError, match="batch_size"):
        iter_rows(io.StringIO(""), ["text"], 0, format="csv")
