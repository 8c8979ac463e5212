"""Each defect in each format that can have it, with its line."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from arbormax import Taxonomy
from arbormax.errors import OptionError, TaxonomyError

SUFFIXES = [".json", ".yaml", ".yml", ".csv", ".tsv", ".txt", ".taxonomy", ".tree", ".nwk", ".newick", ".tre"]

DEFECTS = {
    "cycle": [
        (
            "t.csv",
            "parent,child\nr,x\na,b\nb,a\n",
            "cycle: 'a' → 'b' → 'a' (the parent of each is the next) (line 4 and line 3)",
        ),
        ("t.tsv", "parent\tchild\nr\tx\na\ta\n", "cycle: 'a' → 'a' (the parent of each is the next) (line 3)"),
        (
            "t.taxonomy",
            "r\tx\na\tb\nb\ta\n",
            "cycle: 'a' → 'b' → 'a' (the parent of each is the next) (line 3 and line 2)",
        ),
        ("t.txt", "r\tx\na\tb\nb\ta\n", "cycle: 'a' → 'b' → 'a' (the parent of each is the next) (line 3 and line 2)"),
        ("t.tree", "x -1\na 2\nb 1\n", "cycle: 'a' → 'b' → 'a' (the parent of each is the next) (line 2 and line 3)"),
    ],
    "two parents": [
        ("t.csv", "parent,child\nr,a\nr,b\na,x\nb,x\n", "node 'x' has two parents, 'a' and 'b' (line 4 and line 5)"),
        ("t.tsv", "parent\tchild\n\ta\nb\ta\n\tb\n", "node 'a' has two parents, the root and 'b' (line 2 and line 3)"),
        ("t.taxonomy", "r\ta\tb\na\tx\nb\tx\n", "node 'x' has two parents, 'a' and 'b' (line 2 and line 3)"),
        ("t.txt", "r\ta\tb\na\tx\nb\tx\n", "node 'x' has two parents, 'a' and 'b' (line 2 and line 3)"),
    ],
    "repeated sibling": [
        ("t.json", '{"a": ["x",\n"x"]}', "'x' is repeated below 'a' (line 1 and line 2)"),
        ("t.json", '{"a": ["x"],\n"a": ["y"]}', "'a' is repeated below the root (line 1 and line 2)"),
        ("t.yaml", "a: [x]\na: [y]\n", "'a' is repeated below the root (line 1 and line 2)"),
        ("t.csv", "parent,child\nr,a\nr,a\n", "the edge ('r', 'a') is repeated (line 2 and line 3)"),
        ("t.taxonomy", "r\ta\ta\n", "the edge ('r', 'a') is repeated (line 1)"),
        ("t.tree", "a -1\nb -1\nx 0\nx 0\n", "'x' is repeated below 'a' (line 3 and line 4)"),
        ("t.nwk", "(a,\na)r;", "'a' is repeated below the root (line 1 and line 2)"),
    ],
    "empty name": [
        ("t.json", '["a",\n""]', "empty name (line 2)"),
        ("t.yaml", "- a\n- ''\n", "empty name (line 2)"),
        ("t.yaml", "a: [x]\n'': [y]\n", "empty name (line 2)"),
        ("t.csv", "parent,child\nr,a\n  ,b\n", "empty name in the edge ('  ', 'b') (line 3)"),
        ("t.csv", "level1,level2\na,x\n,y\n", "empty name in the path '/y' (line 3)"),
        ("t.csv", "path\na/x\na//y\n", "empty name in the path 'a//y' (line 3)"),
        ("t.tsv", "level1\tlevel2\na\tx\n\ty\n", "empty name in the path '/y' (line 3)"),
        ("t.txt", "a/x\n\na//y\n", "empty name in the path 'a//y' (line 3)"),
        ("t.txt", "a;x\na;\n", "empty name in the path 'a/' (line 2)"),
        ("t.taxonomy", "r\ta\nr\t\tb\n", "empty name in the edge ('r', '') (line 2)"),
        ("t.tree", "a -1\n -1\nb -1\n", "empty name (line 2)"),
        ("t.tree", "a -1\n\nb 0\n", "empty name (line 2)"),
        ("t.nwk", "(a,\n)r;", "empty name (line 2)"),
        ("t.nwk", "(a,\n'')r;", "empty name (line 2)"),
    ],
    "a node named twice as a class": [
        ("t.csv", "level1,level2\na,x\nb,\na,x\n", "the class 'a/x' is repeated (line 2 and line 4)"),
        ("t.tsv", "path\na/x\na/x\n", "the class 'a/x' is repeated (line 2 and line 3)"),
        ("t.txt", "a/x\na/x\n", "the class 'a/x' is repeated (line 1 and line 2)"),
    ],
    "an edge to nowhere": [
        ("t.csv", "parent,child\nr,a\na,\n", "an edge without a child: ('a', None) (line 3)"),
        ("t.csv", "parent,child\nr,a\nq,b\n", "'r', 'q' have no parent (line 2 and line 3)"),
        ("t.tsv", "parent\tchild\nr\ta\na\n", "an edge without a child: ('a', None) (line 3)"),
        ("t.taxonomy", "r\ta\nq\tb\n", "'r', 'q' have no parent (line 1 and line 2)"),
        ("t.taxonomy", "r\ta\nsolo\n", "'solo' has neither a parent nor children (line 2)"),
        ("t.tree", "a -1\nb 7\n", "the parent of 'b' is 7, but nodes are numbered from 0 to 1 (line 2)"),
        ("t.tree", "a -1\nb -3\n", "the parent of 'b' is -3, but nodes are numbered from 0 to 1 (line 2)"),
        ("t.tree", "a -1\nb\nc 0\n", "expected a name and the number of its parent, found 'b' (line 2)"),
        ("t.tree", f"a -1\nb {'9' * 40}\n", "expected a name and the number of its parent"),
    ],
    "an inner class": [
        ("t.csv", "level1,level2\na,\na,x\n", "the class 'a' has other classes below it (line 2)"),
        ("t.txt", "a/x\na\n", "the class 'a' has other classes below it (line 2)"),
    ],
    "no class at all": [
        *((f"t{suffix}", text, "the taxonomy is empty") for suffix in [*SUFFIXES, ".tree"] for text in ("", "\n \n")),
        ("t.csv", "parent,child\n", "the taxonomy is empty"),
        ("t.csv", "level1\n", "the taxonomy is empty"),
        ("t.json", "{}", "the taxonomy is empty"),
        ("t.json", "[]", "the taxonomy is empty"),
        ("t.yaml", "# nothing\n", "the taxonomy is empty"),
        ("t.nwk", "a;", "the taxonomy is empty"),
        ("t.tree", "a -1\n", "the taxonomy is empty"),
    ],
    "undecodable bytes": [
        (
            f"t{suffix}",
            b"a\n\xe9t\x81\n",  # Windows-1252 has no 0x81
            "line 2 contains the byte 0xe9, which is not valid UTF-8; save the file as UTF-8",
        )
        for suffix in SUFFIXES
        if suffix not in (".xlsx", ".xlsm")
    ],
}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [pytest.param(*case, id=f"{kind} {case[0]}") for kind in DEFECTS for case in DEFECTS[kind]],
)
def test_each_defect_of_each_format_is_reported_with_its_place(problems, name, text, expected):
    found = problems(name, text)
    assert len(found) == 1, found
    assert expected in found[0]


def test_every_undecodable_line_is_reported(problems):
    assert [problem[:6] for problem in problems("t.txt", b"\x81\nok\n\xfe\n")] == ["line 1", "line 3"]
    assert "not valid utf-16" in problems("t.txt", b"a", encoding="utf-16")[0]
    assert "0xe9, which is not valid ascii" in problems("t.txt", b"a\n\xe9", encoding="ascii")[0]


def test_load_takes_classes_and_inner_classes(load, problems):
    assert load("t.txt", "a/x\na/y\n", classes=["y", "x"]).classes == ("y", "x")
    assert load("t.txt", "a/x\na\n", inner_classes="stop").classes == ("x", "a")
    assert "did you mean 'x'" in problems("t.txt", "a/x\na/y\n", classes=["xx", "y"])[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bad.tree", "a" + " " * 300_000 + "x\n \n"),
        ("bad.txt", "\\" * 1_000_000),
        ("bad.txt", "a" * 10_000_000),
        ("bad.tree", "a" * 10_000_000 + " -1\n"),
        ("bad.taxonomy", "a" * 10_000_000),
    ],
)
def test_long_lines_are_refused_quickly_and_quoted_in_part(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    begin = time.monotonic()
    with pytest.raises(
        TaxonomyError, match=r"more than 10,000|expected a name|neither a parent nor children"
    ) as caught:
        Taxonomy.load(path)
    assert time.monotonic() - begin < 30
    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize("encoding", ["idna", "punycode", "undefined", "hex", "no-such", "utf\0-8", "", 5, None])
@pytest.mark.parametrize("content", [b"a/b\xff\n", b"", b"a" * 100 + b"\n.a..b-\x80\n"])
def test_encodings_that_are_not_for_files_are_errors(tmp_path, encoding, content):
    path = tmp_path / "x.txt"
    path.write_bytes(content)
    with suppress(OptionError, TaxonomyError):
        Taxonomy.load(path, encoding=encoding)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.tree", "a -1\nit1\nowl 2\nhen 20\nb 0\nit's 1\ny 3\nz 3\ny 3"),
        (
            "x.json",
            '{"format": "arbormax.taxonomy", "version": 1, "root": "r", "nodes": [["a", 99999999999999999999999]]}',
        ),
    ],
)
def test_inputs_that_fuzzing_found_are_errors(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(TaxonomyError, match=r"the parent of '.*' is .*, but nodes are numbered"):
        Taxonomy.load(tmp_path / name)
