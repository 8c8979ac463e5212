"""Tables: formats and values."""

from __future__ import annotations

import gzip
import io
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_files import as_csv, as_jsonl, read_problems, write

from arbormax.data.tables import iter_rows, read_table
from arbormax.errors import MissingDependencyError, OptionError, TableError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = [("the cat", "animal/cat"), ('an "owl", it said', "animal/bird/owl"), ("två\nrader", "other")]


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


def test_the_line_of_a_row_is_the_one_where_it_starts(tmp_path):
    path = write(tmp_path / "a.csv", '\r\n"te\nxt",label\r\n"one\r\ntwo\n\nthree",a\r\n\r\nfour,b\n')
    assert read_table(path, text="te\nxt").lines == [4, 9]


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@given(
    st.lists(st.tuples(CELLS, CELLS), max_size=8), st.sampled_from([",", "\t", ";"]), st.sampled_from(["\n", "\r\n"])
)
def test_csv_round_trips_with_line_numbers(rows, delimiter, end):
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
    filled = [place for place, row in enumerate(rows) if any(cell.strip() for cell in row)]
    assert found == [rows[place] for place in filled]
    assert lines == [len(io.StringIO(starts[place], newline="").readlines()) + 1 for place in filled]


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8))
def test_json_lines_round_trip(rows):
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


def test_a_byte_order_mark_is_not_part_of_the_first_column(tmp_path):
    for encoding in ("utf-8-sig", "utf-8"):
        path = write(tmp_path / "a.csv", b"\xef\xbb\xbftext,label\r\nx,y\r\n")
        assert read_table(path, encoding=encoding).texts == ["x"]
    path = write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"text": "x", "label": "y"}\n')
    assert read_table(path).texts == ["x"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_other_encodings_are_read(tmp_path, encoding):
    path = write(tmp_path / "a.csv", "text,label\né,y\n".encode(encoding))
    assert read_table(path, encoding=encoding).texts == ["é"]


def test_columns_have_names_positions_or_both(tmp_path):
    path = write(tmp_path / "a.csv", "id,body,topic\n1,x,a\n")
    assert read_table(path, "body", "topic").labels == ["a"]
    assert read_table(path, 1, "topic").texts == ["x"]
    bare = write(tmp_path / "b.csv", "a,x\nb,y\n")
    table = read_table(bare, text=1, label="0", header=False)
    assert (table.texts, table.labels, table.lines) == (["x", "y"], ["a", "b"], [1, 2])
    with pytest.raises(OptionError, match="positions from 0, found 'text'"):
        read_table(bare, header=False, label=0)
    with pytest.raises(TableError, match=r"no column 2: positions range from 0 to 1"):
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


def test_a_file_without_rows_still_has_column_names():
    for data in ("text,label\n", "text,label"):
        (batch,) = iter_rows(io.StringIO(data), ["text"], format="csv")
        assert (len(batch), batch.names, batch["text"]) == (0, ("text", "label"), [])


def test_batches_have_the_requested_size():
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


def test_a_dash_means_the_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"text\tlabel\nx\ta\n")))
    assert read_table("-", format="tsv").labels == ["a"]
    assert not sys.stdin.closed
    with pytest.raises(OptionError, match=r"format: the format of <stdin> is unknown"):
        read_table("-")
    with pytest.raises(TableError, match="needs a file, not a stream"):
        read_table("-", format="parquet")


def test_a_file_object_stays_open_and_errors_contain_its_name(tmp_path):
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
        ('{"text": {"x": 1}, "label": "a"}', "line 2: 'text' is a dict, not a text"),
        ('{"text": "x", "label": ["a", null]}', "line 2: 'label' is not a path of names, ['a', None]"),
        ('{"text": "x", "label": ["a", ["b"]]}', "line 2: 'label' is not a path of names, ['a', ['b']]"),
        ('{"text": "\\ud800", "label": "a"}', "line 2: contains half of a surrogate pair"),
        ('["x", "a"]', "line 2: expected an object such as"),
        ("7", "line 2: expected an object such as"),
        ("null", "line 2: expected an object such as"),
        ('{"text": "x", "label": "a"', "line 2: not JSON: expecting ',' delimiter (column 27)"),
        ("[", "line 2: not JSON: expecting value (column 2)"),
        ("[" * 100_000, "line 2: not readable as JSON: maximum recursion depth exceeded"),
        ('{"text": 1' + "0" * 5000 + "}", "line 2: not readable as JSON: Exceeds the limit (4300 digits)"),
    ],
)
def test_a_json_line_that_is_not_a_row_is_reported(record, problem):
    good = '{"text": "x", "label": "a"}\n'
    (found,) = read_problems(io.StringIO(f"{good}{record}\n\n{good}"), format="jsonl")
    assert found.startswith(problem)


def test_parquet_columns_of_many_types_are_converted_to_text(tmp_path):
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


def test_parquet_columns_without_text_are_errors(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": ["x", None, "z"], "label": ["a", "b", ""], "map": [{"a": 1}] * 3, "list": [["a"]] * 3})
    pq.write_table(table, path)
    assert read_problems(path) == ("row 2: 'text' is empty", "row 3: 'label' is empty")
    with pytest.raises(TableError, match="row 1: 'map' is a dict, not a text"):
        read_table(path, label="map")
    with pytest.raises(TableError, match="row 1: 'list' is a list, not a text"):
        read_table(path, text="list")
    with pytest.raises(TableError, match=r"no column 'txt'; did you mean 'text'\? \(found 'text', 'label', 'map'"):
        read_table(path, text="txt")
    bad = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff"))
    pq.write_table(pa.table({"text": bad, "label": ["a", "b"]}), path)
    assert read_problems(path) == ("row 2: 'text' is not UTF-8 text",)


def test_damaged_parquet_is_an_error(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x" * n for n in range(3000)], "label": ["a"] * 3000}), path)
    whole = path.read_bytes()
    for damaged in (b"", whole[:-10], whole[: len(whole) // 2], b"text,label\nx,a\n", whole[:50] + whole[5000:]):
        write(path, damaged)
        with pytest.raises(TableError, match=r"a\.parquet: (not a complete Parquet file|\d+ rows)"):
            read_table(path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"Parquet needs the package pyarrow.*arbormax\[text\]"):
        read_table(path)
