"""Texts of nodes on the command line: reading them, training with them, models from them alone, and new classes."""

import json

import pytest
from cli_tools import SMALL, WORDS

import arbormax as am


@pytest.fixture
def names(tmp_path):
    rows = [f"{label.replace(' > ', '/')}\t{label.split()[-1]}\t{words}\n" for label, words in WORDS.items()]
    (tmp_path / "names.tsv").write_text("".join(rows))
    (tmp_path / "tree.txt").write_text("".join(f"{label.replace(' > ', '/')}\n" for label in WORDS))
    return tmp_path / "names.tsv"


@pytest.mark.parametrize("use", ["init", "tied"])
def test_training_uses_and_saves_the_texts(run, texts, names, tmp_path, use):
    words = ["train", texts / "train.csv", "--node-texts", names, "--names", use, "--out", tmp_path / "m", *SMALL]
    result = run(*words)
    assert result.code == 0, result.err
    clf = am.TextClassifier.load(tmp_path / "m")
    assert clf.names == use
    assert clf.taxonomy_.texts[clf.taxonomy_.find("sport")] == f"sport. {WORDS['news > sport']}"


def test_a_model_without_training_data(run, texts, names, tmp_path):
    words = ["train", tmp_path / "tree.txt", "--node-texts", names, "--names", "only", "--encoder", "tfidf"]
    result = run(*words, "--head", "flat", "--test", texts / "test.csv", "--out", tmp_path / "m")
    assert result.code == 0, result.err
    assert "Built from the texts of the nodes, without training data" in result.out
    metrics = json.loads((tmp_path / "m" / "metrics.json").read_text())
    assert metrics["training"]["train_items"] == metrics["training"]["epochs"] == 0
    assert metrics["test"]["accuracy"] > 0.9
    assert "without training data" in (tmp_path / "m" / "README.md").read_text()
    assert run("report", tmp_path / "m", "--out", tmp_path / "r.html").code == 0
    assert "without training data (zero-shot)" in (tmp_path / "r.html").read_text()


def test_a_taxonomy_is_converted_with_its_texts(run, names, tmp_path):
    words = ["taxonomy", "convert", tmp_path / "tree.txt", tmp_path / "tree.json", "--node-texts", names]
    result = run(*words)
    assert result.code == 0, result.err
    assert am.Taxonomy.load(tmp_path / "tree.json").has_texts


def test_an_added_class_starts_from_its_text(run, texts, names, tmp_path):
    model = tmp_path / "old"
    words = ["train", texts / "train.csv", "--node-texts", names, "--out", model, *SMALL, "--epochs", "10"]
    assert run(*words, "--learning-rate", "0.05").code == 0
    add = ["--add", "news/ball", "--text", "ball=goal match team"]
    result = run("taxonomy", "edit", model, *add, "--out", tmp_path / "m")
    assert result.code == 0, result.err
    clf = am.TextClassifier.load(tmp_path / "m")
    assert clf.taxonomy_.texts[clf.taxonomy_.find("ball")] == "goal match team"
    column = clf.classes_.tolist().index("ball")
    sport, weather = clf.predict_proba(["goal match team", "rain sun wind"])[:, column]
    assert sport > weather


def test_misuse(refused, texts, names, tmp_path):
    (tmp_path / "bad.tsv").write_text("sprot\tx\n")
    train = ["train", texts / "train.csv", "--out", tmp_path / "m"]
    assert "did you mean 'sport'" in refused(*train, "--node-texts", tmp_path / "bad.tsv")
    assert "names.xyz" in refused(*train, "--node-texts", tmp_path / "names.xyz")
    assert refused(*train, "--names", "all").startswith("arbormax: --names: expected")
    assert "--names: cannot be combined" in refused(*train, "--encoder", "bag", "--names", "tied", "--sparse-head")
    only = ["train", tmp_path / "tree.txt", "--names", "only", "--out", tmp_path / "m"]
    assert "--taxonomy: cannot be combined" in refused(*only, "--taxonomy", tmp_path / "tree.txt")
    assert "--valid: cannot be combined" in refused(*only, "--valid", texts / "test.csv")
    edit = ["taxonomy", "edit", tmp_path / "tree.txt", "--out", tmp_path / "new.json"]
    assert "--text ball: expected NAME=TEXT" in refused(*edit, "--add", "news/ball", "--text", "ball")
    assert "no class of this name is added" in refused(*edit, "--add", "news/ball", "--text", "bat=x")
