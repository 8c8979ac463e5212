"""`arbormax train --from`: a trained model continues."""

import json

import pytest
from cli_tools import write_csv


def test_the_accuracy_before_and_after_is_printed_and_saved(run, model, texts, tmp_path):
    new = write_csv(tmp_path / "new.csv", 60, seed=5)
    result = run("train", "--from", model, new, "--test", texts / "test.csv", "--out", tmp_path / "newer")
    assert result.code == 0, result.err
    assert "before" in result.out
    assert "held-out new texts" in result.out
    continued = json.loads((tmp_path / "newer" / "metrics.json").read_text())["continued"]
    assert continued["test"]["items"] == 30
    assert continued["test"]["before"] == json.loads((model / "metrics.json").read_text())["test"]["accuracy"]
    assert run("predict", tmp_path / "newer", "--message", "goal match").code == 0


def test_test_labels_that_the_model_does_not_have_are_listed(run, model, texts, tmp_path):
    new = write_csv(tmp_path / "new.csv", 60, seed=5)
    (tmp_path / "test.csv").write_text("text,label\nsong,news > music\nrain,news > weather\n")
    result = run("train", "--from", model, new, "--test", tmp_path / "test.csv", "--out", tmp_path / "newer")
    assert "1 of 2 test texts has a label that training did not see" in result.out


def test_an_unknown_class_names_the_command_that_adds_it(refused, model, tmp_path):
    (tmp_path / "new.csv").write_text("text,label\nsong,news > music\nrain,news > weather\n")
    error = refused("train", "--from", model, tmp_path / "new.csv", "--out", tmp_path / "newer")
    assert "'news' has no child 'music'" in error
    assert f"arbormax taxonomy edit {model} --add PARENT/NAME" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--head", "flat"], "--head: a trained model keeps its head"),
        (["-o", "dim=4"], "--option: cannot be combined with --from"),
        (["--taxonomy", "tree.csv"], "--taxonomy: cannot be combined with --from"),
        (["--epochs", "0"], "--epochs: expected a number of at least 1"),
    ],
)
def test_options_that_a_trained_model_does_not_take(refused, model, texts, tmp_path, words, message):
    error = refused("train", "--from", model, texts / "test.csv", "--out", tmp_path / "newer", *words)
    assert message in error


def test_a_continued_model_needs_a_folder(refused, model, texts):
    assert "--out: expected a folder" in refused("train", "--from", model, texts / "test.csv")


def test_a_move_names_the_command_that_repairs_it(run, texts, tmp_path):
    words = ["train", texts / "train.csv", "--out", tmp_path / "m", "--head", "hierarchical"]
    assert run(*words).code == 0
    result = run("taxonomy", "edit", tmp_path / "m", "--move", "shoes=news", "--out", tmp_path / "moved")
    assert "how many predictions of 'news/shoes' stay the same is not known" in result.out
    assert "repeat this with --unlabelled FILE" in result.err
    assert f"arbormax train --from {tmp_path / 'moved'} FILE" in result.err
