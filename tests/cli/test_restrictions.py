"""Decoders and restrictions on the command line."""

import csv
import json

import numpy as np
import pytest


def labels(result):
    assert result.code == 0, (result.err, result.exception)
    return [json.loads(line)["label"] for line in result.out.splitlines()]


def test_within_and_without_restrict_every_row(run, model, texts):
    assert set(labels(run("predict", model, texts / "test.csv", "--within", "shop"))) == {"shoes", "hats"}
    words = ["--within", "shop", "--within", "news > sport", "--without", "shop/hats"]
    assert set(labels(run("predict", model, texts / "test.csv", *words))) == {"shoes", "sport"}
    result = run("explain", model, "goal match", "--within", "shop", "--json")
    assert json.loads(result.out)["path"][0] == "shop"
    found = json.loads(run("evaluate", model, texts / "test.csv", "--without", "news", "--json").out)
    assert 0 < found["accuracy"] < 1


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_column_restricts_each_row(run, model, tmp_path, suffix):
    cells = ["shop", "", "news > weather; hats", "weather"]
    path = tmp_path / f"asked.{suffix}"
    if suffix == "csv":
        path.write_text("text,here\n" + "".join(f"goal match team,{cell}\n" for cell in cells))
    else:
        values = [["shop"], None, ["news > weather", "hats"], "weather"]
        path.write_text("".join(json.dumps({"text": "goal match team", "here": v}) + "\n" for v in values))
    first, free, third, fourth = labels(run("predict", model, path, "--within-column", "here"))
    assert first in {"shoes", "hats"}
    assert free == "sport"
    assert third in {"weather", "hats"}
    assert fourth == "weather"
    assert labels(run("predict", model, path, "--without-column", "here"))[0] in {"sport", "weather"}


def test_a_wrong_restriction_names_the_option_and_the_line(refused, model, texts, tmp_path):
    assert "--within: " in refused("predict", model, "-m", "goal", "--within", "shops")
    assert "leaves no class" in refused("predict", model, "-m", "goal", "--without", "shop", "--without", "news")
    (tmp_path / "a.csv").write_text("text,here\ngoal,shop\ngoal,hat\n")
    message = refused("predict", model, tmp_path / "a.csv", "--within-column", "here")
    assert "--within-column: line 3: " in message
    assert "did you mean 'hats'" in message
    assert "did you mean 'here'" in refused("predict", model, tmp_path / "a.csv", "--within-column", "her")
    assert "--message" in refused("predict", model, "-m", "goal", "--within-column", "here")
    words = ["--within", "shop", "--within-column", "here"]
    assert "cannot be combined" in refused("predict", model, tmp_path / "a.csv", *words)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "npy", "json"])
def test_costs_are_read_from_a_file(run, model, tmp_path, suffix):
    costs = np.ones((4, 4))
    costs[2] = 0.0  # nothing is cheaper than the third class, whatever is true
    path = tmp_path / f"costs.{suffix}"
    if suffix == "npy":
        np.save(path, costs)
    elif suffix == "json":
        path.write_text(json.dumps(costs.tolist()))
    else:
        np.savetxt(path, costs, delimiter="," if suffix == "csv" else "\t")
    words = ["--decoder", "optimal", "--decoder-option", "metric=risk", "--costs", path, "--json"]
    result = run("predict", model, "-m", "rain sun", *words)
    from arbormax import Taxonomy

    assert json.loads(result.out)["label"] == Taxonomy.load(model / "taxonomy.json").classes[2]


@pytest.mark.parametrize(("suffix", "delimiter"), [("csv", ","), ("csv", ";"), ("tsv", "\t"), ("json", "")])
def test_costs_have_the_labels_of_the_classes(run, model, tmp_path, suffix, delimiter):
    from arbormax import Taxonomy

    classes = Taxonomy.load(model / "taxonomy.json").classes
    order = classes[::-1]
    costs = {row: {column: float(row != classes[2]) for column in order} for row in order}  # the third class is cheap
    path = tmp_path / f"costs.{suffix}"
    lines = [["predicted", *order], *([row, *map(str, costs[row].values())] for row in order)]
    path.write_text("\n".join(map(delimiter.join, lines)) if delimiter else json.dumps(costs))
    words = ["--decoder", "optimal", "--decoder-option", "metric=risk", "--costs", path, "--json"]
    result = run("predict", model, "-m", "rain sun", *words)
    assert json.loads(result.out)["label"] == classes[2]
    assert result.err.count("UTF-8") <= 1  # the file is read once


def test_wrong_costs_and_metrics_are_refused(refused, model, tmp_path):
    (tmp_path / "costs.csv").write_text("0,1\n1,0\n")
    words = ["predict", model, "-m", "rain", "--decoder", "optimal"]
    message = refused(*words, "--decoder-option", "metric=risk", "--costs", tmp_path / "costs.csv")
    assert "(4, 4) for classes" in message
    assert message.startswith("arbormax: --costs: ")
    (tmp_path / "words.csv").write_text("a,b\n")
    words += ["--decoder-option", "metric=risk"]
    assert "each of the 4 classes is needed once" in refused(*words, "--costs", tmp_path / "words.csv")
    (tmp_path / "words.csv").write_text("predicted,a\nb,much\n")
    assert "expected numbers, with the labels" in refused(*words, "--costs", tmp_path / "words.csv")
    (tmp_path / "words.csv").write_text("0,1\n1\n")
    assert "expected numbers, with the labels" in refused(*words, "--costs", tmp_path / "words.csv")
    (tmp_path / "costs.txt").write_text("1")
    assert ".npy, .json, .csv, .tsv or .xlsx" in refused(*words, "--costs", tmp_path / "costs.txt")
    (tmp_path / "costs.json").write_text('{"a": 1}')
    assert "the taxonomy has no node 'a'" in refused(*words, "--costs", tmp_path / "costs.json")
    (tmp_path / "costs.json").write_text(json.dumps(np.eye(4).tolist()))
    message = refused("predict", model, "-m", "rain", "--costs", tmp_path / "costs.json")
    assert message.startswith("arbormax: --costs: decoder 'leaf' does not have this option; it is an option of ")
    message = refused("predict", model, "-m", "rain", "--decoder-option", "tau=0.4")
    assert "--decoder-option tau: " in message
    assert "'threshold' or 'climb'" in message
    assert "did you mean 'hf'" in refused(*words, "--decoder-option", "metric=hff")


def test_a_prediction_that_stops_says_why(run, model):
    for words in (["predict", model, "-m", "goal rain"], ["explain", model, "goal rain"]):
        result = run(*words, "--tau", "0.999")
        assert "With a threshold of 99.9 %, the prediction stops at " in result.out
        assert ", because " in result.out
    assert "stops at" not in run("predict", model, "-m", "goal rain").out


def test_rows_of_csv_have_empty_cells_for_classes_that_are_not_allowed(run, model, tmp_path):
    (tmp_path / "asked.csv").write_text("text,here\ngoal match,shop\ngoal match,\ngoal match,hats\n")
    options = ["--within-column", "here", "--top-k", 3, "--format", "csv"]
    result = run("predict", model, tmp_path / "asked.csv", *options)
    assert result.code == 0, result.err
    rows = list(csv.DictReader(result.out.splitlines()))
    assert [sum(bool(row[f"top{k}_label"]) for k in (1, 2, 3)) for row in rows] == [2, 3, 1]
    result = run("predict", model, tmp_path / "asked.csv", "--within", "shop", "--decoder", "beam", "--format", "csv")
    assert {row["top3_label"] for row in csv.DictReader(result.out.splitlines())} == {""}


def test_a_coverage_refuses_a_restriction(refused, model, tmp_path):
    (tmp_path / "asked.csv").write_text("text,here\ngoal match,shop\n")
    for words in (["--within", "shop"], ["--without-column", "here"]):
        message = refused("predict", model, tmp_path / "asked.csv", "--coverage", 0.9, *words)
        assert f"{words[0]}: a guaranteed coverage cannot be combined" in message
