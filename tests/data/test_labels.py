"""Labels as written in files, their nodes, and inferred taxonomies."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbormax import Taxonomy
from arbormax.data.labels import guess_separator, infer_taxonomy, label_nodes, read_examples
from arbormax.data.tables import read_table
from arbormax.errors import InputError, LabelError, OptionError, TableError
from strategies import NASTY, taxonomies

PAGE = Path(__file__).parents[2] / "docs" / "own-data.md"
NEWS = Taxonomy.from_nested({"news": ["sport", "other"], "shop": {"shoes": ["boots"], "other": None}})


def paths_of(tax, nodes):
    return [tax.path(node) for node in nodes.tolist()]


def problems_of(labels, tax=NEWS, **options):
    with pytest.raises(LabelError) as caught:
        label_nodes(labels, tax, **options)
    return caught.value.problems


# -------------------------------------------------------------------------------------------------------------- nodes


def test_a_label_is_a_name_or_a_path_to_any_depth():
    labels = ["sport", "shop/shoes/boots", "shop > shoes", ["shop"], ("news", "other"), "shop >  other", "news"]
    assert paths_of(NEWS, label_nodes(labels, NEWS)) == [
        ("news", "sport"),
        ("shop", "shoes", "boots"),
        ("shop", "shoes"),
        ("shop",),
        ("news", "other"),
        ("shop", "other"),
        ("news",),
    ]


def test_labels_may_be_an_array_or_nothing():
    assert label_nodes(np.array(["sport", "boots"]), NEWS).dtype == np.int64
    assert label_nodes([], NEWS).shape == (0,)
    assert label_nodes(iter(["news"]), NEWS).tolist() == [1]


def test_a_separator_makes_every_string_a_path_first():
    tax = Taxonomy.from_paths([("a", "b"), ("b", "c"), ("d", "TCP/IP")])
    with pytest.raises(LabelError, match="'b' names 2 nodes"):
        label_nodes(["b"], tax)
    labels = ["b", "d|TCP/IP", "b | c", "c", "TCP/IP"]
    assert paths_of(tax, label_nodes(labels, tax, separator="|")) == [
        ("b",),
        ("d", "TCP/IP"),
        ("b", "c"),
        ("b", "c"),
        ("d", "TCP/IP"),
    ]


def test_each_wrong_label_is_reported_once_with_count_lines_and_suggestion():
    labels = ["spotr", "sport", "other", "spotr", "spotr", "spotr", "shop > shoos", ["news", "sprot"]]
    problems = problems_of(labels, lines=range(2, 10), source="mine.csv")
    assert problems == (
        "the taxonomy has no node 'spotr'; did you mean 'sport', 'news/other' or 'shop/other'? "
        "(4 times, lines 2, 5, 6, …)",
        "'other' names 2 nodes; use one of their paths: news/other, shop/other (line 4)",
        "the taxonomy has no node 'shop > shoos'; 'shop' has no child 'shoos'; did you mean 'shoes'? (line 8)",
        "no node has the path ('news', 'sprot'); 'news' has no child 'sprot'; did you mean 'sport'? (line 9)",
    )
    with pytest.raises(LabelError, match=r"^mine\.csv: 4 different labels, of 7 items, are not valid:\n  - the"):
        label_nodes(labels, NEWS, range(2, 10), "mine.csv")
    with pytest.raises(LabelError, match=r"^the taxonomy has no node 'x' \(item 1\)$"):
        label_nodes(["sport", "x"], NEWS)
    with pytest.raises(LabelError, match=r"'shop' has no child 'x' \(rows 3, 4\)$"):
        label_nodes(["shop|x"] * 2, NEWS, [3, 4], separator="|", unit="row")


@pytest.mark.parametrize("label", ["root", (), []])
def test_the_root_is_not_a_label(label):
    (problem,) = problems_of([label])
    assert "is the root, which is not a label" in problem


@pytest.mark.parametrize("label", [5, None, ("news", 5), {"news": 1}, ["news", ["sport"]], 2.5])
def test_a_label_that_is_not_text_is_an_error(label):
    (problem,) = problems_of(["sport", label])
    assert "a string or a" in problem


def test_the_path_of_a_class_with_a_stop_leaf_means_that_leaf():
    tax = Taxonomy.from_paths(["a", "a/b", "c"], inner_classes="stop")
    assert label_nodes(["a", ("a",), "a/b"], tax).tolist() == tax.leaves[tax.encode(["a", "a", "a/b"])].tolist()


def test_an_ambiguous_name_in_a_file_is_an_error_unless_the_labels_are_paths(tmp_path):
    tax = Taxonomy.from_nested({"sport": ["golf"], "news": ["sport"]})
    names, paths = tmp_path / "names.csv", tmp_path / "paths.csv"
    names.write_text("text,label\na,golf\nb,sport\n", "utf-8")
    with pytest.raises(LabelError, match="use one of their paths: /sport, news/sport"):
        read_examples(names, tax)
    paths.write_text("text,label\na,sport/golf\nb,sport\nc,news/sport\n", "utf-8")
    assert paths_of(tax, read_examples(paths, tax)[0].nodes) == [("sport", "golf"), ("sport",), ("news", "sport")]


def test_a_text_in_place_of_a_label_does_not_flood_the_message():
    (problem,) = problems_of(["word " * 100_000])
    assert len(problem) < 1000
    with pytest.raises(OptionError, match="separator: expected a string"):
        label_nodes(["sport"], NEWS, separator="")


def test_a_very_deep_label_gives_a_very_deep_tree():
    assert infer_taxonomy(["/".join("ab" * 5_000), "a/b"]).depth == 10_000


def test_one_string_is_not_a_list_of_labels():
    with pytest.raises(LabelError, match="expected a list of labels"):
        label_nodes("sport", NEWS)


def test_each_distinct_label_is_looked_up_once(monkeypatch):
    looked_up = []
    find = Taxonomy.find
    noted = lambda tax, label, **more: looked_up.append(label) or find(tax, label, **more)  # noqa: E731
    monkeypatch.setattr(Taxonomy, "find", noted)
    nodes = label_nodes(["sport", ["shop"], "boots"] * 10_000, NEWS)
    assert looked_up == ["sport", ("shop",), "boots"]
    assert nodes.shape == (30_000,)


def test_no_suggestion_is_computed_if_another_reading_is_found(monkeypatch):
    monkeypatch.setattr("arbormax.taxonomy.labels.did_you_mean", None)
    assert label_nodes(["shop > shoes", "news > sport"], NEWS).tolist() == [NEWS.find("shoes"), NEWS.find("sport")]


def test_unknown_labels_get_the_value_of_missing(monkeypatch):
    monkeypatch.setattr("arbormax.taxonomy.labels.did_you_mean", None)  # no suggestions are computed
    labels = ["sport", "sprot", "other", "", ("shop", "shoes"), ("shop", "hats"), 3, "sprot", "shop/shoes"]
    shoes = NEWS.find("shoes")
    expected = [NEWS.find("sport"), -1, -1, -1, shoes, -1, -1, -1, shoes]  # two nodes are named "other"
    assert label_nodes(labels, NEWS, missing=-1).tolist() == expected
    assert label_nodes([()], NEWS, missing=-7).tolist() == [-7]  # the root


def test_only_the_wrong_labels_that_are_shown_get_a_suggestion(monkeypatch):
    hinted = []
    monkeypatch.setattr("arbormax.taxonomy.labels.did_you_mean", lambda word, known, **_: hinted.append(word) or "")
    problems = problems_of([f"class {i}" for i in range(5_000)] + ["sport"])
    assert len(problems) == 5_000
    assert len(hinted) == 20


@given(taxonomies(names=NASTY), st.data())
def test_wrong_labels_that_are_not_shown_are_counted(tax, data):
    wrong = [f"no such {i}" for i in range(20)]
    paths = [tax.path(node) for node in range(1, tax.num_nodes)]
    drawn = data.draw(st.lists(st.one_of(st.sampled_from([*tax.names[1:], *paths]), NASTY, st.tuples(NASTY, NASTY))))
    unknown = []
    for label in dict.fromkeys(drawn):
        try:
            label_nodes([label], tax)
        except LabelError:
            unknown.append(label)
    problems = problems_of(wrong + drawn, tax)
    assert len(problems) == 20 + len([label for label in unknown if label not in wrong])


# ---------------------------------------------------------------------------------------------------------- inference


def test_an_inferred_tree_has_its_classes_in_order_of_appearance():
    tax = infer_taxonomy(["b > y", "a", "b", "b > x", "c/d > e", "b > y"])
    assert [tax.path(leaf) for leaf in tax.leaves.tolist()] == [("b", "y"), ("a",), ("b", "x"), ("c/d", "e")]
    assert label_nodes(["b", "c/d", "c/d > e"], tax, separator=" > ").tolist() == [1, 3, 6]


@pytest.mark.parametrize(
    ("labels", "separator"),
    [
        (["a/b", "a > b"], " > "),
        (["a;b", "a/b"], "/"),
        (["a|b", "a;b"], ";"),
        (["a|b"], "|"),
        (["a:b", "a.b", "a>b"], None),
        ([("a", "b/c")], None),
        ([], None),
    ],
)
def test_the_separator_is_guessed(labels, separator):
    assert guess_separator(labels) == separator


def test_labels_without_a_separator_give_a_flat_tree():
    tax = infer_taxonomy(["a", "b.c", "a"])
    assert (tax.depth, tax.classes) == (1, ("a", "b.c"))
    assert infer_taxonomy(["a.b", "a.c"], ".").depth == 2


def test_blanks_around_a_separator_are_ignored():
    tax = infer_taxonomy(["news / sport", "news/weather", "news /sport "])
    assert tax.classes == ("sport", "weather")
    assert label_nodes(["news / sport", " news"], tax, separator="/").tolist() == [2, 1]


def test_an_escaped_slash_belongs_to_the_name():
    assert infer_taxonomy([r"net/TCP\/IP"]).classes == ("TCP/IP",)


def test_empty_names_are_reported_with_their_lines(tmp_path):
    labels = ["a/b", "a//b", "/a", "a//b"]
    (tmp_path / "mine.csv").write_text("label,text\n" + "".join(f"{label},x\n" for label in labels), "utf-8")
    with pytest.raises(LabelError, match=r"^mine\.csv: 2 different labels, of 3 items") as caught:
        read_examples(tmp_path / "mine.csv")
    assert caught.value.problems == (
        "the label 'a//b' has an empty name when split at '/' (lines 3, 5)",
        "the label '/a' has an empty name when split at '/' (line 4)",
    )
    with pytest.raises(LabelError) as caught:
        infer_taxonomy(["a/b", " ", ["a", ""]])
    assert caught.value.problems == (
        "the label ' ' has an empty name when split at '/' (item 1)",
        "the label ('a', '') has an empty name (item 2)",
    )
    with pytest.raises(LabelError, match="found 5"):
        infer_taxonomy(["a", 5])
    with pytest.raises(LabelError, match="cannot infer a taxonomy without labels"):
        infer_taxonomy([])
    with pytest.raises(OptionError, match="separator: expected a string"):
        infer_taxonomy(["a"], "")


PARTS = st.text("ab/|>; \\", min_size=1, max_size=4).filter(lambda name: name.strip() == name)


def is_one_path(names):
    """Not a list of paths, which would be several labels."""
    return len(names) == 1 or not any(all(mark in name for name in names) for mark in ("/", " > "))


PATHS = st.lists(PARTS, min_size=1, max_size=4).filter(is_one_path).map(tuple)


@given(st.lists(PATHS, min_size=1, max_size=12))
def test_an_inferred_tree_contains_the_path_of_every_label(paths):
    tax = infer_taxonomy(paths)
    assert paths_of(tax, label_nodes(paths, tax)) == paths
    assert set(paths) >= {tax.path(leaf) for leaf in tax.leaves.tolist()}
    joined = ["\x1f".join(path) for path in paths]
    again = infer_taxonomy(joined, "\x1f")
    assert again == tax
    assert paths_of(tax, label_nodes(joined, tax, separator="\x1f")) == paths


# ----------------------------------------------------------------------------------------------------------- examples


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("label,text\nnews > sport,goal\nnews,hello\nshop,buy\n", "utf-8")
    return path


def test_examples_are_returned_with_the_tree_of_their_labels(file):
    examples, tax = read_examples(file)
    assert examples.inputs == ["goal", "hello", "buy"]
    assert paths_of(tax, examples.nodes) == [("news", "sport"), ("news",), ("shop",)]
    assert tax.classes == ("sport", "shop")


def test_examples_take_a_taxonomy_or_its_file(file, tmp_path):
    examples, tax = read_examples(file, NEWS)
    assert tax is NEWS
    assert paths_of(NEWS, examples.nodes) == [("news", "sport"), ("news",), ("shop",)]
    NEWS.save(tmp_path / "tree.json")
    for path in (tmp_path / "tree.json", str(tmp_path / "tree.json")):
        again, loaded = read_examples(file, path)
        assert loaded == NEWS
        assert again.nodes.tolist() == examples.nodes.tolist()


def test_an_inferred_tree_reads_its_labels_exactly(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"text": "1", "label": ["a", "b"]}\n{"text": "2", "label": ["b", "c"]}\n{"text": "3", "label": "b"}\n'
    )
    examples, tax = read_examples(path)
    assert paths_of(tax, examples.nodes) == [("a", "b"), ("b", "c"), ("b",)]


def test_unknown_labels_of_a_file_are_reported_with_lines(file):
    with pytest.raises(LabelError, match=r"(?s)mine\.csv: 2 different labels.*'sport'.*\(line 2\).*'shop'.*\(line 4\)"):
        read_examples(file, Taxonomy.from_nested({"news": ["spotr"], "shops": ["x"]}))


def test_skipped_rows_are_reported_in_a_warning_or_listed_in_the_table(file):
    file.write_text("label,text\na,x\nb\n", "utf-8")
    with pytest.raises(TableError, match="line 3"):
        read_examples(file)
    with pytest.warns(UserWarning, match=r"mine\.csv: 1 row skipped: line 3: 1 cell"):
        examples, _ = read_examples(file, on_bad_rows="skip")
    assert len(examples) == 1
    table = read_table(file, on_bad_rows="skip")
    assert read_examples(table)[0].inputs == ["x"]
    with pytest.raises(OptionError, match="has already read it"):
        read_examples(table, header=False)
    with pytest.raises(InputError, match="read without labels"):
        read_examples(read_table(file, label=None, on_bad_rows="skip"))


def test_the_code_of_the_documentation_page_runs_and_prints_its_errors(capsys):
    text = PAGE.read_text("utf-8")
    namespace: dict = {"__name__": "page"}
    exec(compile("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), PAGE.name, "exec"), namespace)
    printed = capsys.readouterr().out
    shown = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert shown
    for block in shown:
        assert block.strip() in printed


def test_line_numbers_must_match_the_labels():
    tax = Taxonomy.from_nested(["x", "y"])
    with pytest.raises(OptionError, match="lines: expected 2 line numbers, one for each label, found 1"):
        label_nodes(["x", "y"], tax, [1])
    with pytest.raises(OptionError, match="separator: expected a string such as ' > ', found 5"):
        label_nodes(["x"], tax, separator=5)
