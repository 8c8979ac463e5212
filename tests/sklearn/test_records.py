"""Models saved by the estimators are evaluated and reported like models written by `arbormax train`."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from arbormax import HierarchicalClassifier
from arbormax.cli.app import app
from text_toy import LABELS, TEXTS, small


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], prog_name="arbormax")


def metrics_of(folder):
    return json.loads((folder / "metrics.json").read_text("utf-8"))


@pytest.fixture
def matrix():
    rng = np.random.default_rng(0)
    classes = np.arange(60) % 3
    labels = np.array([["animal", "cat"], ["animal", "dog"], ["plant", "oak"]])[classes]
    return np.eye(3)[classes] + 0.1 * rng.standard_normal((60, 3)), labels


def test_a_saved_text_classifier_is_evaluated_and_reported(clf, tmp_path):
    clf.save(tmp_path / "model")
    rows = [f"{json.dumps(text)},{label}" for text, label in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "test.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    done = run("evaluate", tmp_path / "model", tmp_path / "test.csv", "--out", tmp_path / "found.json")
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "found.json").read_text("utf-8"))
    assert found["accuracy"] == clf.evaluate(TEXTS, LABELS)["accuracy"]
    assert found["training"]["epochs"] == clf.run_.epochs
    done = run("report", tmp_path / "found.json", "--out", tmp_path / "report.html")
    assert done.exit_code == 0, done.output


def test_a_text_classifier_saves_its_last_evaluation(clf, tmp_path):
    measures = clf.evaluate(TEXTS, LABELS)
    clf.save(tmp_path / "model")
    saved = metrics_of(tmp_path / "model")
    assert saved["test"] == measures
    assert {"test", "training", "details"} <= set(saved)
    assert run("report", tmp_path / "model").exit_code == 0
    assert (tmp_path / "model" / "report.html").is_file()
    assert f"{measures['accuracy']:.4f}" in (tmp_path / "model" / "README.md").read_text("utf-8")


def test_texts_and_details_of_another_evaluation_are_left_out(clf, tmp_path):
    clf.evaluate(["nothing like it"] * len(TEXTS), LABELS)
    clf.save(tmp_path / "quoted")
    assert "nothing like it" in (tmp_path / "quoted" / "metrics.json").read_text("utf-8")
    clf.save(tmp_path / "bare", texts=False)
    assert "nothing like it" not in (tmp_path / "bare" / "metrics.json").read_text("utf-8")
    clf.save(tmp_path / "other", {"test": {"accuracy": 0.25}})
    assert metrics_of(tmp_path / "other")["test"] == {"accuracy": 0.25}
    assert "details" not in metrics_of(tmp_path / "other")


def test_fitting_again_forgets_the_evaluation(tmp_path):
    clf = small().fit(TEXTS, LABELS)
    clf.evaluate(TEXTS, LABELS)
    clf.fit(TEXTS, LABELS).save(tmp_path / "model")
    assert set(metrics_of(tmp_path / "model")) == {"training"}


def test_a_saved_classifier_of_matrices_is_reported(matrix, tmp_path):
    X, y = matrix
    clf = HierarchicalClassifier(epochs=3, seed=0).fit(X, y)
    measures = clf.evaluate(X, y)
    clf.save(tmp_path / "model")
    assert metrics_of(tmp_path / "model")["test"] == measures
    done = run("report", tmp_path / "model")
    assert done.exit_code == 0, done.output
    again = HierarchicalClassifier.load(tmp_path / "model")
    assert again.evaluate(X, y) == measures
