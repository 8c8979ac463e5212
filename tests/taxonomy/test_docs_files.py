"""The page on taxonomy files: every file on it loads, and its Python runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from arbormax import Taxonomy
from arbormax.errors import TaxonomyError

PAGE = Path(__file__).parents[2] / "docs" / "taxonomy-files.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text("utf-8"))
FILES = {title: text for _, title, text in BLOCKS if title}
NEWS = Taxonomy.from_nested(["weather", {"sport": ["football", "tennis"]}, {"arts": ["film", "music"]}])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for title, text in FILES.items():
        (tmp_path / title).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("title", [title for title in FILES if title.startswith("news")])
def test_every_news_file_is_the_same_tree(folder, title):
    assert Taxonomy.load(folder / title) == NEWS


def test_every_format_has_an_example():
    shown = {Path(title).suffix for title in FILES if title.startswith("news")}
    assert shown == {".yaml", ".json", ".csv", ".tsv", ".txt", ".taxonomy", ".tree", ".nwk"}
    assert len(FILES) == sum(1 for _, title, _ in BLOCKS if title), "two blocks have the same title"


def test_the_python_on_the_page_runs(folder, capsys):
    namespace: dict = {}
    for language, _, code in BLOCKS:
        if language == "python":
            exec(compile(code, str(PAGE), "exec"), namespace)
    assert "football" in capsys.readouterr().out


def test_the_rendered_tree_on_the_page_is_that_of_the_files():
    drawn = next(text for language, title, text in BLOCKS if language == "text" and not title)
    assert drawn.split() == re.sub(r" \(.*?\)", "", NEWS.render()).split()


def test_the_broken_file_has_the_defects_on_the_page(folder):
    with pytest.raises(TaxonomyError, match=r"(?s)empty name.*line 2.*the class .* is repeated.*line 1 and line 3"):
        Taxonomy.load(folder / "broken.txt")
