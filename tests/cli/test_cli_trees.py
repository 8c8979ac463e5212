"""`arbormax taxonomy induce`, `compare` and `refine`."""

import csv
import json

import pytest
from cli_tools import SMALL

from arbormax import Taxonomy

HUMAN = Taxonomy.from_nested({"news": ["sport", "weather"], "shop": ["shoes", "hats"]})
QUICK = ["--head", "hierarchical", "--validation", "0", "--accelerator", "cpu"]


@pytest.fixture
def induced(run, texts, tmp_path):
    """An induced tree of the texts."""
    file = tmp_path / "induced.json"
    result = run("taxonomy", "induce", texts / "train.csv", "--branching", "2", "--out", file)
    assert result.code == 0, (result.err, result.exception)
    return file


@pytest.fixture
def human(tmp_path):
    HUMAN.save(tmp_path / "human.json")
    return tmp_path / "human.json"


def test_a_tree_is_induced_and_trains_a_model(run, induced, texts, tmp_path):
    tax = Taxonomy.load(induced)
    assert set(tax.names) >= {"news > sport", "news > weather", "shop > shoes", "shop > hats"}
    assert tax.num_children.max() == 2
    words = ["train", texts / "train.csv", "--taxonomy", induced, "--out", tmp_path / "model", *SMALL]
    assert run(*words).code == 0


@pytest.mark.parametrize("method", ["centroids", "confusion", "names", "kmeans", "huffman", "random"])
def test_every_method_is_an_option(run, texts, tmp_path, method):
    words = ["taxonomy", "induce", texts / "train.csv", "--method", method, "--depth", "2", "--json"]
    result = run(*words, "--out", tmp_path / "tree.json")
    assert result.code == 0, (result.err, result.exception)
    assert json.loads(result.out)["classes"] == 4
    assert Taxonomy.load(tmp_path / "tree.json").depth == 2


def test_constraints_are_options(run, texts, tmp_path):
    words = ["taxonomy", "induce", texts / "train.csv", "--branching", "2", "--method", "random"]
    words += ["--together", "news > sport,shop > hats", "--out", tmp_path / "tree.json"]
    assert run(*words).code == 0
    tax = Taxonomy.load(tmp_path / "tree.json")
    assert tax.parent[tax.find("news > sport")] == tax.parent[tax.find("shop > hats")]


def test_the_wrong_use_of_induce_is_an_error(refused, induced, texts, tmp_path):
    words = ["taxonomy", "induce", texts / "train.csv", "--out"]
    assert "exists already; try --overwrite" in refused(*words, induced)
    out = tmp_path / "new.json"
    assert "--method: unknown method 'kmean'" in refused(*words, out, "--method", "kmean")
    assert "--branching: expected an integer of at least 2" in refused(*words, out, "--branching", "1")
    assert "--together: 'x' is not a class" in refused(*words, out, "--together", "news > sport,x")
    assert "--encoder: the features of 'bag' mean nothing" in refused(*words, out, "--encoder", "bag")
    assert "--separator" in refused(*words, out, "--separator", "/")
    assert "unknown suffix '.new'" in refused(*words, tmp_path / "tree.new", "--encoder", "bag")  # before the training
    assert not out.exists()


def test_trees_are_compared_without_data(run, human, induced, tmp_path):
    drawing = tmp_path / "difference.svg"
    result = run("taxonomy", "compare", human, induced, "--flat", "--shuffled", "--svg", drawing)
    assert result.code == 0, (result.err, result.exception)
    assert "triplet distance" in result.out
    assert "<svg" in drawing.read_text()
    found = json.loads(run("taxonomy", "compare", human, induced, "--flat", "--json").out)
    assert list(found) == ["human", "induced", "flat"]
    assert found["human"]["distance"] == 0
    assert found["flat"]["distance"] == 1  # every three of the four classes contain a pair


def test_a_model_is_compared_on_trees(run, human, induced, texts):
    words = ["taxonomy", "compare", human, induced, "--flat", "--data", texts / "train.csv", "--folds", "2", *QUICK]
    result = run(*words)
    assert result.code == 0, (result.err, result.exception)
    assert "macro_f1" in result.out
    assert "All measures are those of classes on the tree human" in result.out
    assert "flat − human, macro-F1" in result.out
    found = json.loads(run(*words, "--json").out)
    assert set(found["pooled"]) == {"human", "induced", "flat"}


def test_the_wrong_use_of_compare_is_an_error(refused, human, tmp_path):
    assert "expected at least two trees" in refused("taxonomy", "compare", human)
    assert "expected each tree once" in refused("taxonomy", "compare", human, human)
    Taxonomy.from_nested(["sport", "hats"]).save(tmp_path / "other.json")
    message = refused("taxonomy", "compare", human, tmp_path / "other.json", "--flat", lines=None)
    assert "other has other classes than the first tree, human" in message


def test_a_tree_is_refined_and_the_patch_is_applied(run, tmp_path):
    data, tree, patch = (tmp_path / name for name in ("data.csv", "tree.json", "patch.json"))
    Taxonomy.from_nested({"a": ["a1", "a2", "a3", "b4"], "b": ["b1", "b2", "b3"]}).save(tree)
    with data.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for number in range(280):
            label = ["a1", "a2", "a3", "b4", "b1", "b2", "b3"][number % 7]
            other = f"{label[0]}{1 + number // 7 % (4 if label[0] == 'b' else 3)}"
            writer.writerow([f"group{label[0]} {label if number % 2 else other}", label])
    words = ["taxonomy", "refine", tree, "--data", data, "--level", "0.5", "--folds", "2", "--out", patch, *QUICK]
    result = run(*words)
    assert result.code == 0, (result.err, result.exception)
    assert "tested on 140 others" in result.out
    found = json.loads(run(*words, "--overwrite", "--json").out)
    assert found["tested"]
    assert all(proposal["title"] in result.out for proposal in found["tested"])
    assert "exists already; try --overwrite" in run(*words).err
    content = {"format": "arbormax taxonomy patch 1", "edits": [{"kind": "move", "node": ["a", "b4"], "under": ["b"]}]}
    assert json.loads(patch.read_text())["format"] == content["format"]
    patch.write_text(json.dumps(content))
    edited = tmp_path / "edited.json"
    assert run("taxonomy", "edit", tree, "--patch", patch, "--out", edited).code == 0
    tax = Taxonomy.load(edited)
    assert tax.path(tax.find("b4")) == ("b", "b4")


def test_a_patch_edits_a_model(run, model, tmp_path):
    patch = tmp_path / "patch.json"
    edits = [{"kind": "move", "node": ["news", "sport"], "under": ["shop"]}]
    patch.write_text(json.dumps({"format": "arbormax taxonomy patch 1", "edits": edits}))
    result = run("taxonomy", "edit", model, "--patch", patch, "--out", tmp_path / "edited")
    assert result.code == 0, (result.err, result.exception)
    tax = Taxonomy.load(tmp_path / "edited" / "taxonomy.json")
    assert tax.path(tax.find("sport")) == ("shop", "sport")
