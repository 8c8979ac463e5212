"""A format is one file and one line in the registry."""

from __future__ import annotations

import pytest

from arbormax import Taxonomy
from arbormax.errors import OptionError, TaxonomyError
from arbormax.taxonomy.formats import FORMATS, Format

TREE = Taxonomy.from_nested({"animal": ["cat", "dog"], "plant": ["oak"]})


def read_dashes(text, draft, *, dash="-"):
    """`- name` below `name`: one dash for each level."""
    above = [-1]
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip(dash))
        above[depth + 1 :] = [draft.add(line[depth:], above[depth])]


def write_dashes(tax):
    lines, stack = [], tax.children(0).tolist()[::-1]
    while stack:
        node = stack.pop()
        lines.append("-" * (int(tax.node_depth[node]) - 1) + tax.names[node])
        stack += tax.children(node).tolist()[::-1]
    yield "\n".join(lines)


@pytest.fixture
def dashes():
    FORMATS.add("dashes", Format("dashes", (".dash",), read_dashes, write_dashes, ("dash",)), "one dash for each level")
    yield
    FORMATS.remove("dashes")


def test_a_registered_format_is_read_and_written(dashes, tmp_path):
    TREE.save(tmp_path / "tree.dash")
    assert (tmp_path / "tree.dash").read_text() == "animal\n-cat\n-dog\nplant\n-oak"
    assert Taxonomy.load(tmp_path / "tree.dash") == TREE
    (tmp_path / "stars").write_text("animal\n*cat\n*dog\nplant\n*oak")
    assert Taxonomy.load(tmp_path / "stars", format="dashes", dash="*") == TREE


def test_a_registered_format_that_loses_the_class_order_is_an_error(dashes, tmp_path):
    shuffled = Taxonomy.from_nested({"animal": ["cat", "dog"]}, classes=["dog", "cat"])
    with pytest.raises(TaxonomyError, match="dashes cannot store the class order"):
        shuffled.save(tmp_path / "tree.dash")


def test_errors_list_registered_formats(dashes, tmp_path):
    with pytest.raises(OptionError, match=r"available: .*newick, dashes\)"):
        TREE.save(tmp_path / "tree", format="dash")
    with pytest.raises(TaxonomyError, match=r"available: .*\.dash\)"):
        TREE.save(tmp_path / "tree.xyz")


def test_the_command_line_offers_registered_formats(dashes, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from arbormax.cli.app import app

    monkeypatch.setenv("COLUMNS", "200")
    text = CliRunner().invoke(app, ["taxonomy", "convert", "--help"]).output
    assert text.count("newick, dashes.") == 2  # --input-format and --output-format
    TREE.save(tmp_path / "tree.json")
    words = ["taxonomy", "convert", str(tmp_path / "tree.json"), str(tmp_path / "x"), "--output-format", "dashes"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert Taxonomy.load(tmp_path / "x", format="dashes") == TREE


def test_every_format_can_be_imported_and_has_a_summary():
    for name in FORMATS:
        assert isinstance(FORMATS[name], Format)
        assert FORMATS.summary(name)
