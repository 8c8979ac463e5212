"""Writing rows to files of every format."""

import json

import pytest

from arbormax._dialect import ONE_COLUMN, Dialect
from arbormax.data.tables import iter_rows, read_table
from arbormax.data.tables.writing import open_writer, resolve_format
from arbormax.errors import InputError, OptionError

ROW = {
    "text": "a, b",
    "path": ["news", "sport"],
    "probabilities": [0.9, 0.5],
    "top": [{"label": "x", "probability": 0.5}],
}


def test_the_suffix_determines_the_format(tmp_path):
    assert resolve_format(None) == "jsonl"
    assert resolve_format(tmp_path / "a.TSV") == "tsv"
    assert resolve_format(tmp_path / "a.txt", "csv") == "csv"
    with pytest.raises(OptionError, match=r"unknown suffix; did you mean '\.jsonl'.*try output_format='jsonl'"):
        resolve_format(tmp_path / "a.json")
    with pytest.raises(OptionError, match="output_format: unknown format 'xml'"):
        resolve_format(None, "xml")
    with pytest.raises(OptionError, match="Parquet needs a file"):
        resolve_format(None, "parquet")


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_a_written_file_is_read_again(tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out.{suffix}"
    with open_writer(path) as write:
        write(ROW)
        assert not path.exists()
    (batch,) = iter_rows(path, ["text"])
    assert batch["text"] == ["a, b"]


def test_lists_become_cells_of_a_table(tmp_path):
    with open_writer(tmp_path / "out.csv") as write:
        write(ROW)
    header, cells = (tmp_path / "out.csv").read_text().splitlines()
    assert header == "text,path,probabilities,top1_label,top1_probability"
    assert cells == '"a, b",news > sport,0.9;0.5,x,0.5'


def test_rows_of_a_table_need_the_same_columns(tmp_path):
    def write_both():
        with open_writer(tmp_path / "out.csv") as write:
            write({"a": 1})
            write({"b": 1})

    with pytest.raises(InputError, match="write JSON lines instead"):
        write_both()
    assert list(tmp_path.iterdir()) == []


def test_rows_go_to_the_standard_output_without_a_file(capsys):
    with open_writer(None) as write:
        write(ROW)
    assert json.loads(capsys.readouterr().out) == ROW


@pytest.mark.parametrize(
    ("dialect", "start"),
    [
        (Dialect("utf-8-sig", ";", newline="\r\n"), "\ufefftext;path\r\n".encode()),
        (Dialect("utf-16", "\t"), "text\tpath\n".encode("utf-16")),
        (Dialect("cp1252", "|", skipped=1), "\ufefftext|path\n".encode()),
        (Dialect(delimiter=ONE_COLUMN, header=False), b"text,path\n"),
    ],
)
def test_a_csv_file_is_written_in_the_dialect_that_was_read(tmp_path, dialect, start):
    rows = [{"text": 'a; "b", ü 漢', "path": ["x/y", "z"]}]
    with open_writer(tmp_path / "out.csv", None, dialect, separator="/") as write:
        for row in rows:
            write(row)
    assert (tmp_path / "out.csv").read_bytes().startswith(start)
    table = read_table(tmp_path / "out.csv", label="path")
    assert (table.texts, table.labels) == ([rows[0]["text"]], [r"x\/y/z"])


def test_a_workbook_is_written_without_formulas(tmp_path):
    row = {"text": "=1+1 \x01", "probability": 0.5, "path": ["a", "b"]}
    with open_writer(tmp_path / "out.xlsx") as write:
        write(row)
    table = read_table(tmp_path / "out.xlsx", label="path")
    assert (table.texts, table.labels) == (["=1+1  "], ["a > b"])
    with pytest.raises(InputError, match="at most 32,767 characters"), open_writer(tmp_path / "long.xlsx") as write:
        write({"text": "x" * 40_000})
    with pytest.raises(OptionError, match=r"Excel needs a file, .* try out='FILE\.xlsx'"):
        resolve_format(None, "xlsx")
