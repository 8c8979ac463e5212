"""Taxonomy files: every format round-trips or refuses, and every defect is text with its line."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbormax import Taxonomy
from arbormax.errors import MissingDependencyError, OptionError, TaxonomyError
from strategies import NASTY, taxonomies

SUFFIXES = [".json", ".yaml", ".yml", ".csv", ".tsv", ".txt", ".taxonomy", ".tree", ".nwk", ".newick", ".tre"]
LOSSY_SUFFIXES = [".yaml", ".csv", ".tsv", ".txt", ".taxonomy", ".tree", ".nwk"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def refused(call) -> str:
    """What the error says, or nothing."""
    try:
        call()
    except TaxonomyError as error:
        return str(error)
    return ""


def same_tree(one: Taxonomy, other: Taxonomy) -> bool:
    return {one.path(node) for node in range(one.num_nodes)} == {other.path(node) for node in range(other.num_nodes)}


def everything(tax: Taxonomy) -> tuple:
    return tax.names, tax.parent.tolist(), tax.leaves.tolist(), tax.stops.tolist()


# Round trips


@given(tax=taxonomies(names=NASTY), stop=st.booleans())
def test_saved_json_stores_everything(folder, tax, stop):
    if stop and tax.num_parents > 1:
        chosen = [*(tax.path(leaf) for leaf in tax.leaves), tax.path(int(tax.parent[tax.num_nodes - 1]))]
        tax = Taxonomy.from_nested(tax.to_nested(), classes=chosen if all(chosen) else None, inner_classes="stop")
    tax.save(folder / "t.json")
    back = Taxonomy.load(folder / "t.json")
    assert everything(back) == everything(tax)
    assert back.source_index.tolist() == list(range(tax.num_nodes))
    assert json.loads((folder / "t.json").read_text("utf-8"))["version"] == 1


@pytest.mark.parametrize("suffix", LOSSY_SUFFIXES)
@given(tax=taxonomies(max_nodes=10, names=NASTY))
def test_other_formats_round_trip_or_raise(folder, suffix, tax):
    path = folder / f"t{suffix}"
    path.unlink(missing_ok=True)
    if refusal := refused(lambda: tax.save(path)):
        assert ".json" in refusal
        assert not path.exists()
    else:
        assert Taxonomy.load(path) == tax
    if refusal := refused(lambda: tax.save(path, lossy=True)):
        assert "cannot store" in refusal
        assert not path.exists()
    else:
        assert same_tree(Taxonomy.load(path), tax)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_plain_tree_keeps_its_class_order_in_every_format(tmp_path, suffix):
    tax = Taxonomy.from_nested(["weather", {"sport": ["ball games", "golf"]}, {"arts & film": ["rock-pop", "cinéma"]}])
    tax.save(tmp_path / f"t{suffix}")
    assert Taxonomy.load(tmp_path / f"t{suffix}") == tax
    assert Taxonomy.load((tmp_path / f"t{suffix}").rename(tmp_path / f"T{suffix.upper()}")) == tax


@pytest.mark.parametrize("suffix", [".yaml", ".csv", ".tsv", ".txt", ".tree", ".nwk"])
@given(tax=taxonomies(shuffle=False))
def test_plain_names_are_always_stored_up_to_their_order(folder, suffix, tax):
    tax.save(folder / f"plain{suffix}", lossy=True)
    assert same_tree(Taxonomy.load(folder / f"plain{suffix}"), tax)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt"])
@given(tax=taxonomies(names=NASTY.filter(lambda name: "\ufeff" not in name)))
def test_paths_keep_the_class_order_of_any_tree_when_they_lose_the_order_of_siblings(folder, suffix, tax):
    tax.save(folder / f"paths{suffix}", lossy=True)
    assert Taxonomy.load(folder / f"paths{suffix}").classes == tax.classes


@pytest.mark.parametrize("suffix", LOSSY_SUFFIXES)
def test_losing_the_class_order_is_an_error_unless_lossy(tmp_path, suffix):
    tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]}, classes=["w", "x", "z", "y"])
    with pytest.raises(TaxonomyError, match=r"cannot store the (class order|order of siblings).*\.json.*lossy=True"):
        tax.save(tmp_path / f"t{suffix}")
    assert list(tmp_path.iterdir()) == []
    tax.save(tmp_path / f"t{suffix}", lossy=True)
    assert same_tree(Taxonomy.load(tmp_path / f"t{suffix}"), tax)


@pytest.mark.parametrize("suffix", LOSSY_SUFFIXES)
def test_losing_stop_leaves_is_an_error_unless_lossy(tmp_path, suffix):
    tax = Taxonomy.from_paths(["a", "a/x", "b"], classes=["b", "x", ("a",)], inner_classes="stop")
    with pytest.raises(TaxonomyError, match=r"the leaves of inner classes|cannot store"):
        tax.save(tmp_path / f"t{suffix}")


def test_a_format_of_edges_cannot_store_repeated_names_even_when_lossy(tmp_path):
    tax = Taxonomy.from_nested({"a": ["other"], "b": ["other"]})
    with pytest.raises(TaxonomyError, match="its names must be unique, and several nodes have the name 'other'"):
        tax.save(tmp_path / "t.taxonomy", lossy=True)
    with pytest.raises(TaxonomyError, match=r"cannot represent names such as 'x\\ny'"):
        Taxonomy.from_nested(["x\ny"]).save(tmp_path / "t.tree", lossy=True)
    assert list(tmp_path.iterdir()) == []


def test_json_stores_a_lone_surrogate(tmp_path):
    tax = Taxonomy.from_nested(["\ud800", "é"])
    tax.save(tmp_path / "t.json")
    assert Taxonomy.load(tmp_path / "t.json") == tax
    with pytest.raises(TaxonomyError, match="two surrogates"):
        Taxonomy.from_nested(["\ud83d\ude00"]).save(tmp_path / "u.json")
    with pytest.raises(TaxonomyError, match="cannot store"):
        tax.save(tmp_path / "t.txt")


@given(taxonomies(names=NASTY))
def test_a_dictionary_round_trips_through_json(tax):
    back = Taxonomy.from_dict(json.loads(json.dumps(tax.to_dict())))
    assert everything(back) == everything(tax)


def test_an_invalid_dictionary_is_an_error():
    with pytest.raises(TaxonomyError, match=r"the parent of 'a' is 7.*\(nodes\[0\]\)"):
        Taxonomy.from_dict({"format": "arbormax.taxonomy", "version": 1, "nodes": [["a", 7]]})


# Nested JSON and YAML


def test_nested_json_is_read_as_the_builder_reads_it(load):
    nested = {"comp": ["graphics", {"sys": ["ibm", "mac"]}], "sci": {"med": None, "space": []}, "misc": "one"}
    tax = load("t.json", json.dumps(nested))
    assert tax == Taxonomy.from_nested(nested)
    assert load("l.json", '["a", {"b": {"c": {}}}]') == Taxonomy.from_nested(["a", {"b": ["c"]}])
    assert load("bom.json", b'\xef\xbb\xbf["a"]').classes == ("a",)
    assert load("f.json", '{"format": ["a"], "version": ["b"]}').classes == ("a", "b")


@given(taxonomies(names=NASTY), st.integers(0, 3))
def test_any_nested_json_is_read(folder, tax, indent):
    (folder / "n.json").write_text(json.dumps(tax.to_nested(), indent=indent or None), "utf-8")
    assert same_tree(Taxonomy.load(folder / "n.json"), tax)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": [\n"x",]}', "line 2 column"),
        ('{"a": ["x"}', "Expecting ',' delimiter: line 1 column 11"),
        ('{"a" ["x"]}', "Expecting ':' delimiter: line 1 column 6"),
        ('{a: ["x"]}', "Expecting property name enclosed in double quotes: line 1 column 2"),
        ('{"a": "x",}', "line 1 column 1"),
        ('{"a": ["x"]', "Expecting ',' delimiter: line 1 column 12"),
        ('{"a": ["x"]}\n["y"]', "Extra data: line 2 column 1"),
        ('["x", "y', "Unterminated string"),
        ('["a\\q"]', "Invalid \\escape"),
        ('{"a": ["x" "y"]}', "Expecting ',' delimiter: line 1 column 12"),
        ("[1 2]", "Expecting ',' delimiter"),
        (f"[{'9' * 5000}]", "integer string conversion"),
    ],
)
def test_json_syntax_errors_give_line_and_column(problems, text, message):
    found = problems("t.json", text)
    assert found[-1].startswith("invalid JSON: ")
    assert message in found[-1]


def test_one_error_reports_all_defects_of_json_with_their_lines(problems):
    text = '{\n"a": ["x",\n"x", 3],\n"a": ["y", ""],\n"b": [null, true],\n"c": 1.5}'
    assert problems("t.json", text) == (
        "a name is a string, found 3 of type int (line 3)",
        "a name is a string, found None of type NoneType (line 5)",
        "a name is a string, found True of type bool (line 5)",
        "a name is a string, found 1.5 of type float (line 6)",
        "empty name (line 4)",
        "'x' is repeated below 'a' (line 2 and line 3); siblings must have different names",
        "'a' is repeated below the root (line 2 and line 4); siblings must have different names",
    )
    assert "a mapping or a list, not str (line 1)" in problems("t.json", '"a"')[0]


def test_depth_has_no_limit_in_json_and_newick(load, problems):
    deep = load("t.json", own([[f"n{node}", node] for node in range(100_000)]))
    assert deep.depth == 100_000
    assert load("t.json", '{"a":' * 100_000 + '["x"]' + "}" * 100_000).depth == 100_001
    assert "line 1 column 500001" in problems("t.json", '{"a":' * 100_000)[0]
    assert load("t.nwk", "(" * 100_000 + "x" + ")" * 100_000 + ";").depth == 100_000


def test_yaml_reads_names_as_they_are_written(load, problems):
    tax = load("t.yaml", "no: [yes, 1.0, 'null']\n2020-01-01:\n  - on\n  - off: ~\n  - 0x1F: null\nalone:\n")
    assert tax.classes == ("yes", "1.0", "null", "on", "off", "0x1F", "alone")
    assert [tax.names[i] for i in tax.children(0)] == ["no", "2020-01-01", "alone"]
    assert load("flow.yml", "{a: {b: x}, c: [d]}").classes == ("x", "d")


def test_one_error_reports_all_defects_of_yaml_with_their_lines(problems):
    text = "a:\n  - x\n  - x\n  -\na:\n  - &n y\n  - *n\n? [k, l]\n: - m\n!!int 3: [z]\n"
    assert problems("t.yaml", text) == (
        "the anchor &n is not supported; write the names in full (line 6)",
        "the alias *n is not supported; write the names in full (line 7)",
        "the tag 'tag:yaml.org,2002:int' is not supported (line 10)",
        "a name is a string, found a list (line 8)",
        "empty name (line 4)",
        "'x' is repeated below 'a' (line 2 and line 3); siblings must have different names",
        "'a' is repeated below the root (line 1 and line 5); siblings must have different names",
    )
    assert "one document, found a second one (line 2)" in problems("t.yaml", "- a\n---\n- b\n")[0]
    assert problems("t.yaml", "a: [b\nc: d")[0].startswith("invalid YAML: ")
    assert "line 2, column" in problems("t.yaml", "a: [b\nc: d")[0]
    assert "more than 1000 levels" in problems("t.yaml", "[" * 5000)[0]
    assert "a mapping or a list, not str" in problems("t.yaml", "a")[0]
    assert "invalid YAML" in problems("t.yaml", "- \x01")[0]


def test_without_pyyaml_the_error_names_the_extra(write, monkeypatch):
    path = write("t.yaml", "- a")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingDependencyError, match=r"reading YAML needs the package PyYAML.*arbormax\[text\]"):
        Taxonomy.load(path)


def test_yaml_quotes_names_that_other_readers_would_convert(tmp_path):
    Taxonomy.from_nested(["no", "1.0", "null", "plain"]).save(tmp_path / "t.yaml")
    assert (tmp_path / "t.yaml").read_text() == '- "no"\n- "1.0"\n- "null"\n- plain\n'


# Saved JSON


def own(nodes, **more) -> str:
    rows = ",\n".join(json.dumps(row) for row in nodes)
    rest = "".join(f',\n"{key}": {json.dumps(value)}' for key, value in more.items())
    return f'{{"format": "arbormax.taxonomy", "version": 1,\n"nodes": [\n{rows}\n]{rest}}}'


def test_saved_json_may_list_nodes_in_any_order(load):
    tax = load("t.json", own([["x", 2], ["a", 0], ["b", 0]], root="top", classes=[3, 1]))
    assert tax.names == ("top", "a", "b", "x")
    assert tax.classes == ("b", "x")
    assert tax.source_index.tolist() == [0, 2, 3, 1]
    assert load("t.json", own([["a", 0], ["b", 0]])).classes == ("a", "b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            own([["a", 0], ["b", 7], ["c", -1]]),
            ["parent of 'b' is 7, but nodes are numbered from 0 to 3 (line 4)", "line 5"],
        ),
        (own([["a", 2], ["b", 1]]), ["cycle: 'a' → 'b' → 'a'"]),
        (own([["a", 0], ["a", 0]]), ["'a' is repeated below the root (line 3 and line 4)"]),
        (own([["a", 0], ["", 0]]), ["empty name (line 4)"]),
        (
            own([["a", 0], ["b"], ["c", "0"], [5, 0]]),
            ["(line 4)", "found ['c', '0'] (line 5)", "[5, 0] (line 6)"],
        ),
        (own([["a", 0], ["b", 0]], classes=[1, 1]), ["'a' (node 1) is repeated in classes (line 6)"]),
        (own([["a", 0], ["b", 0]], classes=[1, 9]), ["from 1 to 2, found 9 (line 6)"]),
        (own([["a", 0], ["b", 0]], classes=[2]), ["classes lacks 1 leaf: 'a' (line 6)"]),
        (own([["a", 0], ["b", 0]], classes="ab"), ["classes is a list of node ids"]),
        (own([["a", 0], ["b", 1]], stops=[1]), ["the stop leaf 'a' has children (line 3)"]),
        (own([["a", 0], ["b", 1]], classes=[1, 2]), ["the class 'a' has other classes below it (line 3)"]),
        (own([["a", 0]], clases=[1]), ["unknown key 'clases'; did you mean 'classes'? (line 5)"]),
        (own([["a", 0]], root="x").replace('"root"', '"nodes"'), ["is repeated 2 times", "nodes is a list"]),
        (own([["a", 0]], root=3), ["the name of the root is a string, found 3 (line 5)"]),
        (own([]), ["the taxonomy is empty"]),
        (
            own([["a", 0]]).replace('"version": 1', '"version": "1"'),
            ["version is a positive integer, found '1' (line 1)"],
        ),
        (own([["a", 0]]).replace('"version": 1', '"version": 2'), ["install a newer arbormax (line 1)"]),
        (own([["a", 0]])[:-1], ["invalid JSON"]),
    ],
)
def test_defects_of_saved_json_are_reported_with_their_lines(problems, text, expected):
    found = problems("t.json", text)
    assert len(found) == len(expected), found
    for problem, part in zip(found, expected, strict=True):
        assert part in problem


def test_loading_saved_json_can_add_stop_leaves(load):
    tax = load("t.json", own([["a", 0], ["b", 0], ["a", 1], ["x", 1]], classes=[3, 4, 2], stops=[3]))
    assert tax.stops.tolist() == [3]
    more = load(
        "t.json",
        own([["a", 0], ["b", 0], ["a", 1], ["x", 1], ["y", 2]], classes=[3, 4, 2, 5], stops=[3]),
        inner_classes="stop",
    )
    assert [more.path(node) for node in more.stops] == [("a", "a"), ("b", "b")]


def test_three_hundred_thousand_nodes_are_saved_and_loaded_in_seconds(tmp_path):
    rng = np.random.default_rng(0)
    count = 300_000
    parents = np.concatenate(([-1], (rng.random(count - 1) * np.arange(1, count)).astype(np.int64)))
    tax = Taxonomy.from_parents(parents)
    tax.save(tmp_path / "t.json")
    start = time.perf_counter()
    assert Taxonomy.load(tmp_path / "t.json") == tax
    assert time.perf_counter() - start < 10  # a tenth of that when the machine is idle


# Tables


@pytest.mark.parametrize("header", ["parent,child", "Parent,CHILD", " parent , child "])
def test_headers_of_edges(load, header):
    tax = load("t.csv", f'{header}\n,a\n,b\n\na,"x, y"\n')
    assert tax.names == ("root", "a", "b", "x, y")


@pytest.mark.parametrize("header", ["level1,level2", "Level_1,Level_2", "l1,l2", "depth 1,depth 2", "LEVEL-0,LEVEL-1"])
def test_headers_of_paths(load, header):
    assert load("t.csv", f"{header}\na,x\n\na,y\n,,\nb,\nc\n").classes == ("x", "y", "b", "c")


def test_options_of_tables(load):
    assert load("t.csv", "path\na/x\na/y\\/z\n").classes == ("x", "y/z")
    swapped = load("t.csv", "child,parent\nx,a\na,\nb,\n")
    assert swapped.names == ("root", "a", "b", "x")
    assert load("t.tsv", "parent\tchild\nr\ta\nr\tb\n").names == ("r", "a", "b")
    assert load("t.csv", "a,x\na,y\n", layout="paths", header=False).classes == ("x", "y")
    assert load("t.csv", "a,x\na,y\n", layout="edges", header=False).names == ("a", "x", "y")
    assert load("t.csv", "from,to\na,x\na,y\n", layout="edges", header=True).names == ("a", "x", "y")
    assert load("t.csv", "parent;child\na;x\n", delimiter=";").names == ("a", "x")
    assert load("t.csv", "parent,child\na,x\nb,y\n", root="top").names == ("top", "a", "b", "x", "y")
    assert load("t.csv", "parent,child\n,r\nr,x\n", root="r").names == ("r", "x")
    assert load("t.csv", b"\xef\xbb\xbfparent,child\r\nr,a\r\n").names == ("r", "a")
    assert load("t.csv", "parent,child\nr,é\n".encode("latin-1"), encoding="latin-1").names == ("r", "é")
    assert load("t.csv", "parent,child\nr,é\n".encode("utf-16"), encoding="utf-16").names == ("r", "é")
    # header=False reads a first row that looks like a header as data
    assert load("t.csv", "l1,l2\nl1,l3\n", layout="paths", header=False).classes == ("l2", "l3")


def test_an_unknown_header_is_an_error_with_a_fix(problems, fix, write):
    assert "unknown header 'a,x' (line 2)" in problems("t.csv", "\na,x\na,y\n")[0]
    assert fix("t.csv", "a,x\n") == {"layout": "paths", "header": False}
    assert fix("t.csv", "parent;child\na;x\n", delimiter=",") == {"delimiter": ";"}
    assert "is for edges" in problems("t.csv", "parent,child\na,x\n", layout="paths")[0]
    assert fix("t.csv", "parent,child\na,x\n", layout="paths") == {"layout": "edges"}
    assert "unknown header" in problems("t.csv", "a,x\n", layout="paths")[0]
    assert "unknown header" in problems("t.csv", "from,to\n", header=True)[0]
    with pytest.raises(OptionError, match="without a header needs a layout"):
        Taxonomy.load(write("t.csv", "a,b"), header=False)


def test_line_numbers_of_a_table_are_those_of_the_file(problems):
    text = 'parent,child\n\n"r\ns",a\nb,a\n"r\ns",b\nb,c,d\n"r\ns"\n'
    assert problems("t.csv", text) == (
        "3 cells, but 2 columns (line 8); quote a name that contains the delimiter",
        "node 'a' has two parents, 'r\\ns' and 'b' (line 3 and line 5); "
        "a taxonomy is a tree: remove one of the two edges, use paths if two nodes share this "
        "name, or read several parents with am.Graph",
        "an edge without a child: ('r\\ns', None) (line 9)",
    )
    paths = "level1,level2,level3\na,x\na,,z\na,x\na,b,c,d\n"
    assert problems("t.csv", paths) == (
        "4 cells, but 3 columns (line 5); quote a name that contains the delimiter",
        "empty name in the path 'a//z' (line 3)",
        "the class 'a/x' is repeated (line 2 and line 4)",
    )
    assert "invalid table" in problems("t.csv", 'parent,child\nr,"a\n')[0]


# Lines


def test_text_paths_with_either_separator_and_escapes(load, problems, fix):
    assert load("t.txt", "a/x\n\na/y\r\nb\n").classes == ("x", "y", "b")
    assert load("t.txt", "a;x\na;y/z\n", sep=";").classes == ("x", "y/z")
    assert load("t.txt", "a;x\na;y\\/z\n").classes == ("x", "y/z")
    assert load("t.txt", "net/TCP\\/IP\nnet/a\\;b\nnet/c\\\\d\nnet/e\\nf\\q\n").classes == (
        "TCP/IP",
        "a;b",
        "c\\d",
        "e\nf\\q",
    )
    assert load("t.txt", "a>x\na>y\n", sep=">").classes == ("x", "y")
    assert load("t.txt", "a > x\na > y\nb\n").classes == ("x", "y", "b")
    assert load("t.txt", "a/x \\> y\na/z\n").classes == ("x > y", "z")
    assert load("t.txt", "a > x/y\na > z\n", sep=" > ").classes == ("x/y", "z")
    assert load("t.txt", "a/x\ty\n", sep="/").classes == ("x\ty",)
    assert load("t.txt", "a/x\ty\n", layout="paths").classes == ("x\ty",)
    both = problems("t.txt", "a/x\n\nb;c\n")[0]
    assert "'/' (line 1) and ';' (line 3)" in both
    assert fix("t.txt", "a/x\n\nb;c\n") == {"sep": "/"}
    arrow = problems("t.txt", "a > x/y\nb > c\n")[0]
    assert "both '/' (line 1) and ' > ' (line 1)" in arrow


def test_a_name_with_an_arrow_round_trips_through_a_text_file(tmp_path):
    tax = Taxonomy.from_nested(["a > b", " > > ", ">", "c>d"])
    tax.save(tmp_path / "t.txt")
    assert Taxonomy.load(tmp_path / "t.txt") == tax


def test_text_with_tabs_contains_parents_and_their_children(load):
    text = "Root\tTop/News\tArts\nTop/News\tU.S.\tWorld\t\nArts\n"
    tax = load("t.txt", text)
    assert tax.names == ("Root", "Top/News", "Arts", "U.S.", "World")
    assert load("t.taxonomy", text) == tax
    assert load("any", text, format="children") == tax
    assert load("t.taxonomy", "a\tx\nb\ty\n", root="top").names == ("top", "a", "b", "x", "y")


def test_darknet_parents_are_line_numbers(load):
    several = load("t.tree", "animal -1\nplant -1\ncat 0\nNew York 1\n\n")
    assert several.names == ("root", "animal", "plant", "cat", "New York")
    assert several.source_index.tolist() == [-1, 0, 1, 2, 3]
    assert load("t.tree", "cat 1\nanimal -1\n").names == ("animal", "cat")
    assert load("t.tree", "(cat,dog)animal;").names == ("animal", "cat", "dog")
    assert load("t.tree", "[&R] (cat,dog)animal;").names == ("animal", "cat", "dog")
    assert load("t.tree", "(cat) -1\n(dog) -1\n", format="darknet").classes == ("(cat)", "(dog)")


def test_newick_labels_comments_and_lengths(load):
    first = "[a [nested] tree] ('it''s':0.1, ( Homo sapiens:1e-3,\n'x,y' [c]),"
    tax = load("t.nwk", first + "(b)clade_1, (c,d)'clade 1'[&&NHX:S=1]:.5)life:0;\n")
    assert tax.names == ("life", "it's", "clade 2", "clade_1", "clade 1", "Homo sapiens", "x,y", "b", "c", "d")
    assert load("t.nwk", "((a,b),(c,d));").names == ("root", "clade 1", "clade 2", "a", "b", "c", "d")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(a,b", "the file does not end with ';' (line 1, column 5)"),
        ("(a,\n(b;", "the brackets around ';' do not match (line 2, column 3)"),
        ("(a,b));", "the brackets around ')' do not match (line 1, column 6)"),
        ("a,b;", "the brackets around ',' do not match (line 1, column 2)"),
        ("(a(b));", "found '(' (line 1, column 3)"),
        ("(a 'b');", "expected ':' or ',' or ')' or ';', found 'b' (line 1, column 4)"),
        ("(a:x);", "expected 'branch length', found 'x' (line 1, column 4)"),
        ("(a:1:2);", "expected ',' or ')' or ';', found ':' (line 1, column 5)"),
        ("(a);\n(b);", "expected one tree in a file, found '(' (line 2, column 1)"),
        ("('a);", "the quote is not closed (line 1, column 2)"),
        ("(a[b);", "the comment is not closed (line 1, column 3)"),
        ("(a]);", "unexpected ']' (line 1, column 3)"),
    ],
)
def test_newick_syntax_errors_give_line_and_column(problems, text, message):
    assert message in problems("t.nwk", text)[0]


def test_verification_is_fast_on_deep_trees_with_repeated_names(tmp_path):
    parents, names, last = [-1], ["root"], 0
    for _ in range(10_000):  # a comb: the paths of its leaves are far longer than the tree
        parents += [last, last]
        names += ["inner", "other"]
        last = len(parents) - 2
    tax = Taxonomy.from_parents(parents, names)
    start = time.perf_counter()
    tax.save(tmp_path / "t.nwk", lossy=True)
    assert time.perf_counter() - start < 5


def test_paths_may_be_separated_by_several_characters(tmp_path):
    file = tmp_path / "google.txt"
    file.write_text("Pets > Birds > Food/Seed\nPets > Cats\nPets > Dogs > C:\\big\n")
    tax = Taxonomy.load(file, sep=" > ")
    assert [tax.path(leaf) for leaf in tax.leaves] == [
        ("Pets", "Birds", "Food/Seed"),
        ("Pets", "Cats"),
        ("Pets", "Dogs", "C:\\big"),
    ]


@pytest.mark.parametrize("text", ['{"name": "r", "children": [{"name": "a"}]}', '[{"id": "a", "parent": "b"}]'])
def test_objects_with_fields_are_an_error(tmp_path, text):
    file = tmp_path / "d3.json"
    file.write_text(text)
    with pytest.raises(TaxonomyError, match="objects with the fields"):
        Taxonomy.load(file)
