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
    assert run("evaluate", out, texts / "test.csv", "--coverage", 0.9).code == 0
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


def test_json_has_the_whole_report(run, model, tmp_path):
    write_csv(tmp_path / "held-out.csv", 60, seed=5)
    words = ["--method", "temperature", "--coverage", 0.8, "--out", tmp_path / "out", "--json"]
    result = run("calibrate", model, tmp_path / "held-out.csv", *words)
    found = json.loads(result.out)
    assert found["method"] == "temperature"
    assert {"nll", "brier", "ece", "ece_debiased", "levels"} <= found["before"].keys()
    assert found["coverage"]["target"] == 0.8
    assert 0 <= found["coverage"]["threshold"] <= 1


def test_bad_input_is_one_line_that_says_what_to_do(run, refused, model, texts, tmp_path):
    write_csv(tmp_path / "held-out.csv", 20, seed=5)
    held_out = tmp_path / "held-out.csv"
    out = ["--out", tmp_path / "out"]
    assert "at least 99 items, found 10" in refused("calibrate", model, held_out, "--coverage", 0.99, *out)
    assert "did you mean 'parent'" in refused("calibrate", model, held_out, "--method", "parents", *out)
    assert "--overwrite" in refused("calibrate", model, held_out, "--out", model)
    assert "arbormax calibrate MODEL FILE" in refused("predict", model, "--message", "goal", "--coverage", 0.9)
    (tmp_path / "other.csv").write_text("text,label\ngoal,news > unicorns\n")
    message = refused("calibrate", model, tmp_path / "other.csv", *out)
    assert "unicorns" in message
    assert "remove these items, or add their classes to the model with am.edit" in message
    message = refused("predict", model, "--message", "goal", "--coverage", 0.9, "--tau", 0.5)
    assert "--coverage" in message
    assert "requires --coverage" in refused("predict", model, "--message", "goal", "--max-nodes", 2)
