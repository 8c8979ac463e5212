"""Texts of nodes: where they come from, where they are stored, and what is refused."""

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import arbormax as am
from arbormax.errors import TaxonomyError
from strategies import taxonomies

TREE = {"bird": ["owl", "hen"], "fish": []}
TEXTS = {(): "all animals", "owl": "hunts at night", "bird": "has wings: and\n“feathers”", "fish": "no: 1, 'two'"}


@pytest.fixture
def tax():
    return am.Taxonomy.from_nested(TREE)


def test_texts_default_to_names(tax):
    assert not tax.has_texts
    assert tax.texts == tax.names


def test_texts_are_given_by_labels_and_paths(tax):
    described = tax.with_texts({"owl": " hunts at night ", ("bird", "hen"): "lays eggs", (): "animals"})
    assert described.has_texts
    assert not tax.has_texts
    assert described.texts == ("animals", "bird", "fish", "hunts at night", "lays eggs")


def test_texts_are_given_by_paths_with_arrows(tax, tmp_path):
    assert tax.with_texts({"bird > hen": "lays eggs"}).texts[4] == "lays eggs"
    (tmp_path / "texts.csv").write_text("code,description\nbird > hen,lays eggs\n")
    assert tax.with_texts(tmp_path / "texts.csv").texts[4] == "lays eggs"


def test_texts_are_added_to_earlier_ones(tax):
    described = tax.with_texts({"owl": "old", "hen": "kept"}).with_texts({"owl": "new"})
    assert described.texts[3:] == ("new", "kept")


def test_texts_are_not_part_of_the_identity(tax):
    described = tax.with_texts(TEXTS)
    assert described.fingerprint == tax.fingerprint
    assert described == tax
    assert hash(described) == hash(tax)


def test_copies_keep_texts(tax):
    described = tax.with_texts(TEXTS)
    assert copy.deepcopy(described).texts == described.texts
    assert pickle.loads(pickle.dumps(described)).texts == described.texts
    assert am.Taxonomy.from_dict(json.loads(json.dumps(described.to_dict()))).texts == described.texts


@pytest.mark.parametrize("suffix", ["json", "yaml", "csv", "tsv"])
def test_files_store_texts(tax, tmp_path, suffix):
    texts = {label: text for label, text in TEXTS.items() if label or suffix in ("json", "yaml")}
    described = tax.with_texts(texts)
    described.save(tmp_path / f"tree.{suffix}")
    back = am.Taxonomy.load(tmp_path / f"tree.{suffix}")
    assert back == described
    assert back.given_texts == described.given_texts


@pytest.mark.parametrize("suffix", ["txt", "taxonomy", "tree", "nwk"])
def test_a_format_without_texts_says_so(tax, tmp_path, suffix):
    with pytest.raises(TaxonomyError, match=r"cannot store .*the texts of nodes.*lossy=True"):
        tax.with_texts(TEXTS).save(tmp_path / f"tree.{suffix}")
    tax.with_texts(TEXTS).save(tmp_path / f"tree.{suffix}", lossy=True)
    assert not am.Taxonomy.load(tmp_path / f"tree.{suffix}").has_texts


@given(taxonomies(), st.data())
def test_json_and_yaml_store_any_text(tmp_path_factory, tax, data):
    text = st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip)
    nodes = data.draw(st.lists(st.integers(0, tax.num_nodes - 1), unique=True, max_size=4))
    described = tax.with_texts({tax.path(node): data.draw(text) for node in nodes})
    folder = tmp_path_factory.mktemp("texts")
    for name in ("tree.json", "tree.yaml"):
        described.save(folder / name, lossy=name == "tree.yaml")
    assert am.Taxonomy.load(folder / "tree.json").texts == described.texts
    back = am.Taxonomy.load(folder / "tree.yaml")
    found = {back.path(node): text for node, text in enumerate(back.texts) if node}
    assert found == {described.path(node): text for node, text in enumerate(described.texts) if node}


FILES = {
    "edges.csv": 'parent,child,description\n,bird,"has wings"\n,fish\nbird,owl,"hunts, at night"\nbird,hen,\n',
    "first.csv": 'description,child,parent\nhas wings,bird\n,fish\n"hunts, at night",owl,bird\n,hen,bird\n',
    "levels.tsv": "level1\tlevel2\tDescription\nbird\towl\thunts, at night\nbird\then\nfish\nbird\t\thas wings\n",
    "paths.csv": 'path,description\nbird/owl,"hunts, at night"\nbird/hen\nfish\nbird,has wings\n',
    "nested.json": '{"bird": {"description": "has wings", "owl": {"description": "hunts, at night"}, "hen": {}}, '
    '"fish": []}',
    "list.json": '[{"bird": [{"description": "has wings"}, {"owl": {"description": "hunts, at night"}}, "hen"]}, '
    '"fish"]',
    "nested.yaml": "bird:\n  description: has wings\n  owl: {description: 'hunts, at night'}\n  hen:\nfish:\n",
}


@pytest.mark.parametrize("name", FILES)
def test_files_with_a_description(tmp_path, name):
    (tmp_path / name).write_text(FILES[name])
    tax = am.Taxonomy.load(tmp_path / name)
    assert set(tax.classes) == {"owl", "hen", "fish"}
    found = {tax.label(node): text for node, text in enumerate(tax.given_texts) if text}
    assert found == {"bird": "has wings", "owl": "hunts, at night"}


def test_a_node_may_be_called_description():
    tax = am.Taxonomy.from_nested({"question": {"description": ["definition"], "entity": None}})
    assert tax.classes == ("definition", "entity")
    assert not tax.has_texts


def test_a_described_inner_class_and_its_leaf_share_the_text(tmp_path):
    (tmp_path / "t.csv").write_text("path,description\nbird,has wings\nbird/owl,\n")
    tax = am.Taxonomy.load(tmp_path / "t.csv", inner_classes="stop")
    assert tax.classes == ("bird", "owl")
    assert tax.texts[tax.find(("bird",))] == tax.texts[tax.find(("bird", "bird"))] == "has wings"
    by_label = am.Taxonomy.from_paths(["bird", "bird/owl"], inner_classes="stop").with_texts({"bird": "wings"})
    assert by_label.texts[by_label.find(("bird",))] == "wings"


def test_an_inner_row_without_a_description_is_a_class(tmp_path):
    (tmp_path / "t.csv").write_text("path,description\nbird,\nbird/owl,hunts\n")
    with pytest.raises(TaxonomyError, match="the class 'bird' has other classes below it"):
        am.Taxonomy.load(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"bird": {"description": 3, "owl": null}}', "the description of 'bird' is a string, found 3 of type int"),
        ('{"bird": {"description": "a", "owl": null, "description": "b"}}', "the description of 'bird' is repeated"),
        ('{"format": "arbormax.taxonomy", "version": 1, "nodes": [["a", 0]], "texts": [[2, "x"]]}', "from 0 to 1"),
        ('{"format": "arbormax.taxonomy", "version": 1, "nodes": [["a", 0]], "texts": {"a": "x"}}', "a list of"),
        ('{"format": "arbormax.taxonomy", "version": 1, "nodes": [["a", 0]], "texts": [[1, "x"], [1, "y"]]}', "repea"),
    ],
)
def test_wrong_descriptions_in_json(tmp_path, content, message):
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(TaxonomyError, match=message):
        am.Taxonomy.load(tmp_path / "t.json")


# Files of texts

NAMES = "bird\tBirds\thave wings\nowl\tOwls.\tThey hunt.\nhen\tHens\nfish\t\tswim\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("names.tsv", NAMES),
        ("names.tsv", "code\ttitle\tdescription\n" + NAMES),
        ("names.csv", NAMES.replace("\t", ",")),
        ("names.txt", NAMES),
        ("n.json", '{"bird": "Birds. have wings", "bird/owl": "Owls. They hunt.", "hen": "Hens", "fish": "swim"}'),
    ],
)
def test_a_file_of_texts(tax, tmp_path, name, content):
    (tmp_path / name).write_text(content)
    tax.save(tmp_path / "tree.yaml")
    for described in (
        tax.with_texts(tmp_path / name),
        am.Taxonomy.load(tmp_path / "tree.yaml", texts=str(tmp_path / name)),
    ):
        assert described.texts == ("root", "Birds. have wings", "swim", "Owls. They hunt.", "Hens")


def test_a_header_chooses_the_columns(tax, tmp_path):
    (tmp_path / "names.csv").write_text("label,level,description,title\nowl,2,They hunt.,Owls\n")
    assert tax.with_texts(tmp_path / "names.csv").texts[3] == "Owls. They hunt."


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        ("owl\tx\nbrid\ty\n", ["the taxonomy has no node 'brid'; did you mean 'bird'? (line 2)"]),
        ("owl\tx\nbird/owl\ty\n", ["two texts for 'bird/owl' (line 1 and line 2)"]),
        ("owl\tx\nhen\t\t\n", ["the text of 'hen' is a string that is not empty, found empty (line 2)"]),
        ("owl\ta\tb\tc\n", ["expected the columns code, title and description, found 4 cells (line 1)"]),
        ("owl x\nhen y\n", ["found one column; is '\\t' the delimiter"]),
        ("", ["the file has no texts"]),
    ],
)
def test_wrong_files_of_texts(tax, tmp_path, content, problems):
    (tmp_path / "names.tsv").write_text(content)
    with pytest.raises(TaxonomyError) as caught:
        tax.with_texts(tmp_path / "names.tsv")
    assert str(caught.value).startswith("names.tsv: ")
    assert all(problem in str(caught.value) for problem in problems)


def test_a_file_of_texts_with_an_unknown_suffix(tax, tmp_path):
    (tmp_path / "names.xls").write_text("x")
    with pytest.raises(TaxonomyError, match=r"unknown suffix '\.xls'"):
        tax.with_texts(tmp_path / "names.xls")
    with pytest.raises(FileNotFoundError):
        tax.with_texts(tmp_path / "missing.tsv")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"owl": 3}, "texts: the text of 'owl' is a string that is not empty, found 3 of type int"),
        ({"owl": None}, "found None"),
        ({"owl": " "}, "found empty"),
        ({"owl": "a", ("bird", "owl"): "b"}, "two texts for 'bird/owl'"),
        ({"olw": "a"}, "did you mean 'owl'"),
        ([("owl", "a")], "expected a mapping from labels or paths to texts, found list"),
    ],
)
def test_wrong_texts(tax, texts, message):
    with pytest.raises(TaxonomyError, match=message):
        tax.with_texts(texts)


def test_all_wrong_texts_are_reported_together(tax):
    with pytest.raises(TaxonomyError) as caught:
        tax.with_texts({"olw": "a", "hen": 1, "fish": "kept"})
    assert len(caught.value.problems) == 2


def test_edits_keep_texts_and_add_new_ones(tax):
    described = tax.with_texts({"owl": "hunts", "hen": "lays eggs"})
    edits = am.edit(described).add("goose", under="bird", text="honks").rename("hen", "chicken").remove("owl")
    edited = edits.split("fish", ["cod", "eel"]).done().taxonomy
    assert {edited.label(node): text for node, text in enumerate(edited.given_texts) if text} == {
        "goose": "honks",
        "chicken": "lays eggs",
    }
    with pytest.raises(TaxonomyError, match="a text is a string that is not empty, found 3"):
        am.edit(tax).add("goose", under="bird", text=3).done()
    assert not am.edit(tax).add("goose", under="bird").done().taxonomy.has_texts


def test_other_libraries_keep_texts(tax):
    described = tax.with_texts(TEXTS)
    assert am.Taxonomy.from_networkx(described.to_networkx()).given_texts == described.given_texts
    assert am.Taxonomy.from_anytree(described.to_anytree()).given_texts == described.given_texts
