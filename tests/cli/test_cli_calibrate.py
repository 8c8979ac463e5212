"""`arbormax calibrate`, and predictions with a coverage."""

import json

from cli_tools import write_csv

from arbormax.model import load_model
from arbormax.uncertainty.conformal import predict_sets


def test_a_model_is_calibrated_into_another_folder(run, model, texts, tmp_path):
    write_csv(tmp_path / "held-out.csv", 200, seed=5)
    out = tmp_path / "calibrated"
    result = run("calibrate", model, tmp_path / "held-out.csv", "--coverage", 0.9, "--out", out)
    assert result.code == 0, result.err
    for words in (
        "negative log-likelihood",
        "Brier score",
        "before",
        "after",
        "Temperatures of level 1",
        "Coverage 0.9",
    ):
        assert words in result.out
    loaded = load_model(out)
    assert (loaded.calibration.method, loaded.coverage.target, len(loaded.coverage.nodes)) == ("parent", 0.9, 100)
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["calibration"]["items"] == 100
    assert "test" not in metrics  # measured before the calibration
    predicted = run("predict", out, "--message", "goal match", "--coverage", 0.9, "--json")
    assert predicted.code == 0, predicted.err
    measured = run("evaluate", out, texts / "test.csv", "--coverage", 0.9)
    assert "sets of at most 1 node for a coverage of 0.9: 1.00 nodes" in measured.out
    words = ["--coverage", 0.8, "--max-nodes", 3, "--groups", "branch"]
    measured = json.loads(run("evaluate", out, texts / "test.csv", *words, "--json").out)["sets"]
    assert {"items", "max_nodes", "coverage", "classes", "nodes", "groups"} == measured.keys()
    assert set(measured["groups"]) == {loaded.taxonomy.names[node] for node in loaded.taxonomy.children(0)}
    assert sum(group["items"] for group in measured["groups"].values()) == measured["items"]
    reason = run("explain", out, "goal rain", "--coverage", 0.9).out
    assert "stops at" not in reason or "With a coverage of 90 % (a probability above " in reason
    sets = ["--coverage", 0.9, "--max-nodes", 3]
    row = json.loads(run("predict", out, "--message", "goal match", *sets, "--json").out)
    [nodes] = predict_sets(loaded, ["goal match"], 0.1, 3)
    labels = [loaded.taxonomy.label(node) for node in nodes]
    assert row["set"] == labels
    assert (
        f"The set: {'; '.join(label or 'all classes' for label in labels)}"
        in run("predict", out, "--message", "goal match", *sets).out
    )
    found = run("predict", out, texts / "test.csv", *sets, "--groups", "branch", "--format", "csv")
    assert found.out.splitlines()[0].endswith(",set")
    (tmp_path / "groups.json").write_text(json.dumps(dict.fromkeys(loaded.taxonomy.classes, "all")))
    grouped = run("predict", out, "--message", "goal match", *sets, "--groups", tmp_path / "groups.json", "--json")
    assert json.loads(grouped.out)["set"] == labels
    wrong = run("predict", out, "--message", "goal", *sets, "--groups", "branches")
    assert "--groups: expected 'branch' or a JSON file, found 'branches'" in wrong.err


def test_without_an_option_enough_texts_guarantee_coverage(run, model, tmp_path):
    write_csv(tmp_path / "held-out.csv", 200, seed=5)
    words = ["calibrate", model, tmp_path / "held-out.csv", "--out", tmp_path / "out"]
    result = run(*words)
    assert "The scores of 100 other items guarantee coverage" in result.out
    assert load_model(tmp_path / "out").coverage.target is None
    assert run("predict", tmp_path / "out", "-m", "goal match", "--coverage", 0.9).code == 0
    result = run(*words, "--coverage", 0, "--overwrite")
    assert "No coverage is guaranteed" in result.out
    assert load_model(tmp_path / "out").coverage is None


def test_json_has_the_whole_report(run, model, tmp_path):
    write_csv(tmp_path / "held-out.csv", 60, seed=5)
    words = ["--method", "temperature", "--coverage", 0.8, "--out", tmp_path / "out", "--json"]
    result = run("calibrate", model, tmp_path / "held-out.csv", *words)
    found = json.loads(result.out)
    assert found["method"] == "temperature"
    assert {"nll", "brier", "ece", "ece_debiased", "levels"} <= found["before"].keys()
    assert found["coverage"]["target"] == 0.8
    assert 0 <= found["coverage"]["threshold"] <= 1


def test_labels_that_the_model_does_not_have_are_listed_with_their_lines(run, model, tmp_path):
    label = load_model(model).taxonomy.classes[0]
    rows = f"text,label\ngoal,{label}\ngoal,{label}x\nball,{label}x\nrain,unicorns\n"
    (tmp_path / "other.csv").write_text(rows)
    result = run("calibrate", model, tmp_path / "other.csv", "--out", tmp_path / "out")
    assert result.code == 2
    first, *listed = result.err.splitlines()
    assert first.startswith("arbormax: other.csv: 2 different labels, of 3 items, are not valid; to add new classes: ")
    assert first.endswith(f"arbormax taxonomy edit {model} --add PARENT/NAME --out EDITED")
    assert f"no node '{label}x'; did you mean '{label}'" in listed[0]
    assert listed[0].endswith("(lines 3, 4)")
    assert "'unicorns'" in listed[1]
    assert listed[1].endswith("(line 5)")


def test_no_method_needs_a_coverage(run, refused, model, tmp_path):
    write_csv(tmp_path / "held-out.csv", 60, seed=5)
    words = ["calibrate", model, tmp_path / "held-out.csv", "--out", tmp_path / "out"]
    message = refused(*words, "--method", "none")
    assert message.rstrip().endswith("; try --coverage 0.9")
    assert run(*words, "--method", "none", "--coverage", 0.9).code == 0
    assert "(available: temperature, level, parent, vector, none)" in refused(
        *words, "--method", "platt", "--overwrite"
    )


def test_bad_input_is_one_line_that_says_what_to_do(run, refused, model, texts, tmp_path):
    write_csv(tmp_path / "held-out.csv", 20, seed=5)
    held_out = tmp_path / "held-out.csv"
    out = ["--out", tmp_path / "out"]
    assert "at least 99 items, found 10" in refused("calibrate", model, held_out, "--coverage", 0.99, *out)
    assert "did you mean 'parent'" in refused("calibrate", model, held_out, "--method", "parents", *out)
    assert "--overwrite" in refused("calibrate", model, held_out, "--out", model)
    assert "arbormax calibrate MODEL FILE" in refused("predict", model, "--message", "goal", "--coverage", 0.9)
    message = refused("predict", model, "--message", "goal", "--coverage", 0.9, "--tau", 0.5)
    assert "--coverage" in message
    assert "requires --coverage" in refused("predict", model, "--message", "goal", "--max-nodes", 2)
