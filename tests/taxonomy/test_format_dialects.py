"""Taxonomy tables in other dialects, and in workbooks."""

import openpyxl
import pytest

from arbormax import Taxonomy
from arbormax.errors import OptionError, TableError

ROWS = [["level1", "level2"], ["Möbel", "Stühle"], ["Möbel", "Tische; rund"], ["Garten", None]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("first", ["", "sep=;\r\n"])
def test_a_table_with_semicolons_is_read_in_any_encoding(tmp_path, encoding, first):
    text = first + 'level1;level2\r\nMöbel;Stühle\r\nMöbel;"Tische; rund"\r\nGarten;\r\n;\r\n'
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    tax = Taxonomy.load(tmp_path / "t.csv")
    assert [tax.path(leaf) for leaf in tax.leaves] == [("Möbel", "Stühle"), ("Möbel", "Tische; rund"), ("Garten",)]


def test_a_workbook_has_one_path_or_one_edge_per_row(tmp_path):
    book = openpyxl.Workbook()
    for row in ROWS:
        book.active.append(row)
    edges = book.create_sheet("edges")
    for row in [["parent", "child"], [None, "a"], ["a", 7], ["a", "b"]]:
        edges.append(row)
    book.save(tmp_path / "t.xlsx")
    assert Taxonomy.load(tmp_path / "t.xlsx").classes == ("Stühle", "Tische; rund", "Garten")
    assert Taxonomy.load(tmp_path / "t.xlsx", sheet="edges").classes == ("7", "b")
    with pytest.raises(TableError, match="no sheet 'edge'; did you mean 'edges'"):
        Taxonomy.load(tmp_path / "t.xlsx", sheet="edge")
    with pytest.raises(OptionError, match=r"read, not written; save the taxonomy as \.csv"):
        Taxonomy.load(tmp_path / "t.xlsx").save(tmp_path / "other.xlsx")


def test_texts_of_nodes_are_read_from_semicolons_and_workbooks(tmp_path):
    tax = Taxonomy.from_nested({"a": ["x", "y"]})
    (tmp_path / "names.csv").write_text("code;title\nx;The first\ny;The second\n")
    book = openpyxl.Workbook()
    for row in [["code", "title"], ["x", "The first"], ["y", "The second"]]:
        book.active.append(row)
    book.save(tmp_path / "names.xlsx")
    for suffix in ("csv", "xlsx"):
        assert tax.with_texts(tmp_path / f"names.{suffix}").texts[-2:] == ("The first", "The second")
