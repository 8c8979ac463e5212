"""The command line with graphs."""

from __future__ import annotations

import json
import random

import pytest
from typer.testing import CliRunner

from arbormax import Graph
from arbormax.cli.app import app

EDGES = [("r", "pet"), ("r", "fish"), ("pet", "cat"), ("pet", "goldfish"), ("fish", "goldfish"), ("fish", "cod")]


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def files(tmp_path):
    rng = random.Random(0)
    words = {"cat": "purr fur", "goldfish": "gold bowl", "cod": "sea north"}
    labels = [rng.choice(list(words)) for _ in range(60)]
    rows = "".join(f"{words[label]} {rng.choice('abc')},{label}\n" for label in labels)
    (tmp_path / "data.csv").write_text(f"text,label\n{rows}")
    Graph.from_edges(EDGES).save(tmp_path / "pets.obo")
    return tmp_path


def test_a_graph_is_trained_predicted_and_evaluated(files):
    model, data = files / "model", files / "data.csv"
    trained = invoke(
        *("train", data, "--taxonomy", files / "pets.obo", "--out", model, "--epochs", 8, "--learning-rate", 0.05)
    )
    assert trained.exit_code == 0, trained.output
    assert "3 classes in a graph of depth 2" in trained.output
    (files / "in.txt").write_text("gold bowl a\n")
    predicted = invoke("predict", model, files / "in.txt")
    assert json.loads(predicted.stdout)["path"] == ["pet", "goldfish"]
    evaluated = invoke("evaluate", model, data, "--json")
    assert evaluated.exit_code == 0, evaluated.output
    explained = invoke("explain", model, "gold")
    assert explained.exit_code == 2
    assert "this needs a tree, and the taxonomy is a graph" in explained.output


def test_a_graph_is_shown_checked_and_converted(files):
    shown = invoke("taxonomy", "show", files / "pets.obo", "--dot", files / "pets.dot")
    assert "goldfish (also below pet)" in shown.output
    assert (files / "pets.dot").read_text().count("->") == len(EDGES)
    assert "No defects." in invoke("taxonomy", "check", files / "pets.obo").output
    assert invoke("taxonomy", "convert", files / "pets.obo", files / "pets.csv").exit_code == 0
    assert Graph.load(files / "pets.csv") == Graph.from_edges(EDGES)
    drawn = invoke("taxonomy", "show", files / "pets.obo", "--svg", files / "pets.svg")
    assert drawn.exit_code == 0, drawn.output
    assert (files / "pets.svg").read_text().count("goldfish</text>") == 2  # once for each path


def test_a_table_with_two_parents_is_a_graph_where_the_option_says_so(files):
    Graph.from_edges(EDGES).save(files / "pets.csv")
    checked = invoke("taxonomy", "check", files / "pets.csv")
    assert checked.exit_code == 2
    assert "am.Graph" in checked.output
    assert "try --graph" in checked.output
    converted = invoke("taxonomy", "convert", files / "pets.csv", files / "pets.json", "--graph")
    assert converted.exit_code == 0, converted.output
    assert Graph.load(files / "pets.json") == Graph.from_edges(EDGES)
    (files / "cycle.csv").write_text("parent,child\nr,a\na,b\nb,a\n")
    assert "--graph" not in invoke("taxonomy", "check", files / "cycle.csv").output  # would not help


def test_terms_are_named_by_their_ids_or_their_names(files):
    terms = "[Term]\nid: X:1\nname: pet\n\n[Term]\nid: X:2\nname: cat\nis_a: X:1\n"
    (files / "terms.obo").write_text(f"format-version: 1.2\n\n{terms}")
    assert "X:2" in invoke("taxonomy", "show", files / "terms.obo").output
    shown = invoke("taxonomy", "show", files / "terms.obo", "--names", "name").output
    assert "cat" in shown
    assert "X:2" not in shown


def test_an_evaluation_and_a_comparison_on_a_graph_are_reported(files):
    model, data, tree = files / "model", files / "data.csv", files / "pets.obo"
    assert invoke("train", data, "--taxonomy", tree, "--out", model, "--epochs", 1).exit_code == 0
    assert invoke("evaluate", model, data, "--out", files / "test.json").exit_code == 0
    words = ("compare", data, "--taxonomy", tree, "--folds", 2, "--seeds", 1, "--epochs", 1, "--out", files / "heads")
    assert invoke(*words).exit_code == 0
    for source in ("test.json", "heads"):
        reported = invoke("report", files / source, "--out", files / "report.html")
        assert reported.exit_code == 0, reported.output
        page = (files / "report.html").read_text()
        assert "The taxonomy is a graph: the measures are those of the graph" in page
        assert "goldfish" in page


def test_what_needs_a_tree_says_so(files):
    refined = invoke("taxonomy", "refine", files / "pets.obo", "--data", files / "data.csv")
    assert refined.exit_code == 2
    assert "refinement needs a tree" in refined.output
