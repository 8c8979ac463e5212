"""Messages of the command line name its own options, and a closed pipe ends it quietly."""

import json

import numpy as np
import pytest
from cli_tools import SMALL, program

import arbormax as am


def test_a_closed_pipe_ends_the_program_quietly(model, tmp_path):
    (tmp_path / "many.txt").write_text("a goal\n" * 3000)
    for text in (tmp_path / "many.txt", tmp_path / "one.txt"):
        (tmp_path / "one.txt").write_text("a goal\n")
        process = program("predict", model, text, start=True)
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=120) == 141  # as a shell reports a process that SIGPIPE ended
        process.stderr.close()


def test_the_help_of_compare_lists_only_its_own_options(run):
    listed = run("compare", "--help").out
    assert "--heads" in listed
    assert "--seeds" in listed
    for option in ("--head ", "--seed "):
        assert option not in listed
        assert option in run("crossval", "--help").out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--add", "leisur/toys"], "--add leisur/toys: the taxonomy has no node 'leisur'"),
        (["--split", "sprot=a,b"], "--split sprot=a,b: the taxonomy has no node 'sprot'; did you mean 'sport'"),
        (["--move", "sport=shops"], "--move sport=shops: "),
        (["--remove", "hat"], "--remove hat: "),
        (["--rename", "hat=cap"], "--rename hat=cap: "),
        (["--remove", "news/sport", "--remove", "news/weather"], "--remove news/weather: "),
        (["--remove", "hats", "--emptied", "clas"], "--emptied: expected 'error', 'class' or 'remove', found 'clas'"),
    ],
)
def test_edits_are_spelled_as_options(refused, tmp_path, words, expected):
    am.Taxonomy.from_nested({"news": ["sport", "weather"], "shop": ["hats"]}).save(tmp_path / "tree.json")
    message = refused("taxonomy", "edit", tmp_path / "tree.json", *words, "--out", tmp_path / "new.json")
    assert message.startswith(f"arbormax: {expected}")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--encoder", "bga"], "did you mean 'bag'? (available: bag, lstm, bilstm, tfidf, transformer"),
        (["--encoder", "features"], "--encoder: 'features' takes feature matrices, not texts (available: bag,"),
        (["--encoder", "bag", "-o", "dimm=8"], "--option: encoder 'bag' has no option 'dimm'; did you mean 'dim'?"),
        (["--encoder", "bag", "-o", "dim=ten"], "--option dim: expected a whole number, found 'ten'"),
        (["--encoder", "bag", "-o", "dropout=1.5"], "--option dropout: expected a number less than 1, found 1.5"),
        (["--epochs", "0"], "--epochs: expected a number of at least 1, found 0"),
        (["--text", "tetx"], "--text: train.csv: no column 'tetx'; did you mean 'text'?"),
        (["--label", "lable"], "--label: train.csv: no column 'lable'; did you mean 'label'?"),
        (["--no-header"], "--text: columns of a table without a header are positions from 0, found 'text'"),
        (["--no-header", "--text", "0", "--label", "7"], "--label: train.csv: no column 7"),
    ],
)
def test_an_error_about_an_argument_names_the_option(refused, texts, tmp_path, words, expected):
    message = refused("train", texts / "train.csv", "--out", tmp_path / "m", *words)
    assert message.startswith("arbormax: --")
    assert expected in message


def test_wrong_columns_and_decoder_options_of_predict_name_the_option(refused, model, texts):
    expected = "arbormax: --text: test.csv: no column 'tetx'"
    assert refused("predict", model, texts / "test.csv", "--text", "tetx").startswith(expected)
    for command, *words in (["predict", "-m", "a goal"], ["explain", "a goal"], ["evaluate", texts / "test.csv"]):
        message = refused(command, model, *words, "--decoder", "threshold", "--decoder-option", "tua=0.5")
        assert message.startswith("arbormax: --decoder-option tua: decoder 'threshold' does not have this option")


def test_a_number_that_cannot_be_read_is_described_in_plain_words():
    for settings, message in (
        ({"epochs": "ten"}, "epochs: expected a whole number, found 'ten'"),
        ({"epochs": 1.5}, "epochs: expected a whole number, found 1.5"),
        ({"learning_rate": "fast"}, "learning_rate: expected a number, found 'fast'"),
        ({"learning_rate": 0}, "learning_rate: expected a number greater than 0, found 0"),
        ({"warmup": 1}, "warmup: expected a number less than 1, found 1"),
        ({"schedule": "cosine"}, "schedule: expected 'linear' or 'constant', found 'cosine'"),
    ):
        with pytest.raises(am.errors.OptionError) as error:
            am.model.TrainConfig.make(**settings)
        assert str(error.value) == message


def test_inferred_trees_are_the_same_on_the_command_line_and_in_the_estimators(run, tmp_path):
    labels = ["tea/green", "tea-time/cake", "tea/black", "milk"] * 8
    words = {"tea/green": "leaf", "tea-time/cake": "cream", "tea/black": "strong", "milk": "white"}
    rows = [f"{words[label]},{label}" for label in labels]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    assert run("train", tmp_path / "t.csv", "--out", tmp_path / "m", *SMALL).code == 0
    expected = ["milk", "black", "green", "cake"]
    assert json.loads((tmp_path / "m" / "config.json").read_text())
    assert list(am.TextClassifier.load(tmp_path / "m").classes_) == expected
    texts = [words[label] for label in labels]
    clf = am.TextClassifier(epochs=1, encoder="bag", encoder_options={"dim": 4}, accelerator="cpu").fit(texts, labels)
    assert list(clf.classes_) == expected
    matrix = np.eye(4)[[list(words).index(label) for label in labels]]
    clf = am.HierarchicalClassifier(epochs=1, accelerator="cpu").fit(matrix, labels)
    assert list(clf.classes_) == expected


def test_saving_replaces_a_model_and_nothing_else(tmp_path):
    X, y = np.eye(2, dtype=np.float32).repeat(8, 0), ["a", "b"] * 8
    clf = am.HierarchicalClassifier(epochs=1, accelerator="cpu").fit(X, y)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").write_text("mine")
    with pytest.raises(am.errors.OptionError, match=r"folder: .*notes contains other files and no model"):
        clf.save(tmp_path / "notes")
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["diary.txt"]
    with pytest.raises(am.errors.OptionError, match=r"folder: .*is a file"):
        clf.save(tmp_path / "notes" / "diary.txt")
    clf.save(tmp_path / "model")
    other = am.HierarchicalClassifier(epochs=1, accelerator="cpu").fit(X, ["c", "d"] * 8)
    other.save(tmp_path / "model")
    assert list(am.HierarchicalClassifier.load(tmp_path / "model").classes_) == ["c", "d"]
    assert not [path for path in (tmp_path / "model").iterdir() if path.name.startswith(".")]
