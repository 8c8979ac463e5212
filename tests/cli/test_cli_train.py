"""`arbormax train`: models, folders, options, and what it refuses."""

import json

import pytest
from cli_tools import SMALL, WORDS, write_csv

from arbormax.errors import OptionError


def test_training_saves_a_model_and_its_measures(model):
    metrics = json.loads((model / "metrics.json").read_text())
    assert set(metrics) == {"test", "training", "data", "details", "calibration"}
    assert metrics["test"]["items"] == 30
    assert metrics["test"]["accuracy"] > 0.5
    training = metrics["training"]
    assert training["train_items"] == 120
    assert training["validation"] == 0.1
    assert training["device"] == "cpu"
    assert training["epochs"] >= training["best_epoch"] >= 1
    assert "train.csv --test" in training["command"]
    assert metrics["data"]["classes"] == 4


def test_a_finished_model_leaves_no_checkpoints(model):
    assert not (model / "checkpoints").exists()
    assert (model / "logs").is_dir()


def test_the_result_is_a_table_with_the_folder_and_the_next_command(run, texts, tmp_path):
    outcome = run("train", texts / "train.csv", "--test", texts / "test.csv", "--out", tmp_path / "m", *SMALL)
    assert outcome.code == 0
    assert "macro_f1" in outcome.out
    assert f"The model is in {tmp_path / 'm'}" in outcome.out
    assert f"arbormax predict {tmp_path / 'm'}" in outcome.out
    assert "120 texts, 4 classes in a tree of depth 2, inferred from the labels." in outcome.out
    assert [line.split(":")[0] for line in outcome.err.splitlines()] == ["epoch 1 of 2", "epoch 2 of 2"] * 2


def test_tune_searches_before_the_training(run, texts, tmp_path):
    outcome = run("train", texts / "train.csv", "--tune", "0.1s", "--out", tmp_path / "m")
    assert outcome.code == 0
    assert "tuning, trial 1: strength 2, ngrams 2, char_ngrams 4: macro-F1" in outcome.err
    assert "(best so far)" in outcome.err
    assert json.loads((tmp_path / "m" / "metrics.json").read_text())["tuning"]["settings"]["ngrams"] in (1, 2, 3)
    again = run("train", texts / "train.csv", "--tune", "0.1s", "--out", tmp_path / "m", "--resume")
    assert "nothing to resume" in again.err


def test_a_wrong_duration_is_one_line(run, texts, tmp_path):
    outcome = run("train", texts / "train.csv", "--tune", "5m", "--out", tmp_path / "m")
    assert outcome.code == 2
    assert outcome.err == "arbormax: --tune: expected a duration such as 90s, 5min or 1h, found '5m'\n"


def test_stdout_contains_only_json(run, texts, tmp_path):
    outcome = run("train", texts / "train.csv", "--out", tmp_path / "m", "--json", *SMALL)
    result = json.loads(outcome.out)
    assert result["model"] == str(tmp_path / "m")
    assert "test" not in result


def test_the_folder_is_named_after_data_encoder_and_head(run, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("train", texts / "train.csv", "--head", "flat", *SMALL).code == 0
    assert (tmp_path / "runs" / "train-bag-flat" / "config.json").is_file()


def test_settings_reach_the_model(run, texts, tmp_path):
    options = ["--seed", "7", "--patience", "0", "--clip", "0", "--class-weight", "balanced", "--gamma", "1"]
    options += [
        "--label-smoothing",
        "0.1",
        "--hxe-alpha",
        "0.2",
        "--logit-adjustment",
        "1",
        "--head-learning-rate",
        "0.02",
    ]
    options += ["--learning-rate", "0.01", "--validation", "0.2", "-o", "tokens=whitespace", "--precision", "32-true"]
    assert run("train", texts / "train.csv", "--out", tmp_path / "m", *SMALL, *options).code == 0
    config = json.loads((tmp_path / "m" / "config.json").read_text())["config"]
    assert config["seed"] == 7
    assert config["patience"] is None
    assert config["clip"] is None
    assert config["class_weight"] == "balanced"
    assert (config["gamma"], config["logit_adjustment"], config["hxe_alpha"]) == (1, 1, 0.2)
    assert config["encoder_options"] == {"dim": 8, "tokens": "whitespace"}


def test_the_model_is_trained_again_on_all_texts_unless_disabled(run, texts, tmp_path):
    outcome = run("train", texts / "train.csv", "--out", tmp_path / "m", *SMALL)
    assert "epochs on all texts, " in outcome.out
    training = json.loads((tmp_path / "m" / "metrics.json").read_text())["training"]
    assert training["refit_epochs"] >= 1
    words = ["--out", tmp_path / "n", "--no-refit", "--monitor", "loss", *SMALL]
    outcome = run("train", texts / "train.csv", *words)
    assert "on all texts" not in outcome.out
    assert json.loads((tmp_path / "n" / "metrics.json").read_text())["training"]["refit_epochs"] is None
    config = json.loads((tmp_path / "n" / "config.json").read_text())["config"]
    assert (config["refit"], config["monitor"]) == (False, "loss")
    assert run("train", texts / "train.csv", "--resume", *words).code == 0
    with_valid = run("train", texts / "train.csv", "--valid", texts / "test.csv", "--out", tmp_path / "v", *SMALL)
    assert "on all texts" not in with_valid.out


@pytest.mark.parametrize(("given", "stored"), [("0.6", 0.6), ("0.25,", None), ("0.25", 0.25)])
def test_the_path_weight_reaches_the_model(given, stored, run, texts, tmp_path):
    result = run(
        "train", texts / "train.csv", "--out", tmp_path / "m", *SMALL, "--head", "flat", "--path-weight", given
    )
    if stored is None:
        assert result.code == 2
        assert "--path-weight" in result.err
        return
    assert result.code == 0
    assert json.loads((tmp_path / "m" / "config.json").read_text())["config"]["path_weight"] == stored


def test_the_preset_of_the_paper_is_known():
    from arbormax.cli.options import ModelOptions

    config = ModelOptions(preset="paper", settings={"clip": 0.0}).config()
    assert config.encoder == "bilstm"
    assert config.batch_size == 10
    assert config.clip is None


def test_a_file_may_have_any_columns_delimiter_and_separator(run, tmp_path):
    file = tmp_path / "odd.txt"
    file.write_text(
        "".join(f"{i};{words};{label.replace(' > ', '|')}\n" for i, (label, words) in enumerate(WORDS.items())) * 6
    )
    words = ["--input-format", "csv", "--no-header", "--delimiter", ";", "--text", "1", "--label", "2"]
    outcome = run("train", file, "--out", tmp_path / "m", "--separator", "|", *words, *SMALL)
    assert outcome.code == 0, outcome.err
    assert json.loads((tmp_path / "m" / "metrics.json").read_text())["data"]["depth"] == 2


def test_a_taxonomy_file_and_a_validation_file_are_used(run, texts, tmp_path):
    tree = tmp_path / "tree.txt"
    tree.write_text("".join(f"{path.replace(' > ', '/')}\n" for path in [*WORDS, "shop > coats"]))
    words = ["--taxonomy", tree, "--valid", texts / "test.csv", "--out", tmp_path / "m"]
    assert run("train", texts / "train.csv", *words, *SMALL).code == 0
    metrics = json.loads((tmp_path / "m" / "metrics.json").read_text())
    assert metrics["data"]["classes"] == 5
    assert metrics["training"]["valid_items"] == 30
    assert metrics["training"]["validation"] is None


def test_bad_rows_are_skipped_only_with_the_option(run, refused, texts, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text((texts / "train.csv").read_text() + "a text without a label\nanother,\n")
    said = refused("train", bad, "--out", tmp_path / "m", *SMALL, lines=None)
    assert "line 122" in said
    assert "2 rows cannot be used; try --skip-bad-rows" in said
    outcome = run("train", bad, "--out", tmp_path / "m", "--skip-bad-rows", *SMALL)
    assert outcome.code == 0
    assert "2 rows skipped" in outcome.err


@pytest.mark.parametrize("name", ["mine.csv", "mine.jsonl"])
def test_other_column_names_are_an_error_with_the_option(refused, tmp_path, name):
    written = {"mine.csv": "body,label\na goal,sport\n", "mine.jsonl": '{"body": "a goal", "label": "sport"}\n'}
    (tmp_path / name).write_text(written[name])
    assert "(found 'body', 'label'); try --text COLUMN" in refused("train", tmp_path / name)


def test_a_label_with_one_text_is_listed_if_the_tree_is_inferred(run, texts, tmp_path):
    misspelt = tmp_path / "misspelt.csv"
    misspelt.write_text((texts / "train.csv").read_text() + "a goal,news > spotr\n")
    outcome = run("train", misspelt, "--out", tmp_path / "m", *SMALL)
    assert "inferred from the labels; 1 label has only one text: 'news > spotr'." in outcome.out + outcome.err


def test_an_imported_module_registers_an_encoder(run, refused, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_encoder_of_the_cli.py").write_text(
        "from arbormax.encoders import BagEncoder, register\n\n\n"
        "@register\nclass Mine(BagEncoder):\n    name = 'mine-of-the-cli'\n"
    )
    words = ["train", texts / "train.csv", "--out", tmp_path / "m", *SMALL, "--encoder", "mine-of-the-cli"]
    assert "mine-of-the-cli" in refused(*words)
    monkeypatch.syspath_prepend(tmp_path)
    assert run(*words, "--import", "my_encoder_of_the_cli").code == 0
    assert run("predict", tmp_path / "m", "-m", "goal", "--import", "my_encoder_of_the_cli").code == 0


def test_an_import_that_fails_is_an_error(refused, texts, tmp_path, monkeypatch):
    (tmp_path / "broken_module_of_the_cli.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name, outcome in (("broken_module_of_the_cli", "ZeroDivisionError"), ("no_such_module", "No module named")):
        assert outcome in refused("train", texts / "train.csv", "--import", name, "--out", tmp_path / "m")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--encoder", "bga"], "did you mean 'bag'"),
        (["--head", "wide"], "head"),
        (["--preset", "papre"], "did you mean 'paper'"),
        (["--epochs", "0"], "epochs"),
        (["--batch-size", "-1"], "--batch-size"),
        (["--learning-rate", "0"], "--learning-rate"),
        (["--learning-rate", "nan"], "--learning-rate"),
        (["--seed", "-1"], "seed"),
        (["--precision", "8"], "precision"),
        (["--validation", "1"], "validation"),
        (["--class-weight", "heavy"], None),
        (["--strength", "strong"], "--strength: expected a number greater than 0, or 'auto'"),
        (["--label-smoothing", "1"], "--label-smoothing"),
        (["--gamma", "1", "--head", "flat"], "--head hierarchical"),
        (["--path-weight", "0.5", "--head", "hierarchical"], "--head flat"),
        (["--path-weight", "0.5,0.6", "--head", "flat"], "--path-weight"),
        (["--encoder", "bag", "-o", "dimm=8"], "did you mean 'dim'"),
        (["--encoder", "bag", "-o", "dim"], "KEY=VALUE"),
        (["-o", "=3"], "KEY=VALUE"),
        (["--encoder", "bag", "-o", "dim=wide"], "dim"),
        (["--vectors", "none.txt"], "vectors"),
        (["--vectors", "none.txt", "--encoder", "lstm"], "none.txt"),
        (["--accelerator", "abacus"], "abacus"),
        (["--devices", "many"], None),
        (["--devices", "0"], None),
        (["--devices", "2", "--strategy", "dpp"], "did you mean 'ddp'"),
        (["--strategy", "ddp_spawn", "--num-nodes", "2"], "--strategy ddp"),
        (["--num-nodes", "0"], "--num-nodes"),
        (["--text", "body"], "'body'"),
        (["--label", "txet"], "'txet'"),
        (["--delimiter", "ab"], "delimiter"),
        (["--encoding", "klingon"], "klingon"),
        (["--input-format", "xls"], "xls"),
        (["--no-header"], "positions"),
        (["--separator", ""], "separator"),
        (["--taxonomy", "none.json"], "none.json"),
        (["--test", "none.csv"], "none.csv"),
        (["--valid", "none.csv"], "none.csv"),
        (["--resume", "--overwrite"], "--overwrite"),
        (["--snapshot-steps", "0"], "--snapshot-steps"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_option_is_an_error_in_one_line(refused, texts, tmp_path, options, message):
    # several complaints of one setting may be a list
    lines = None if message is None else 1
    printed = refused("train", texts / "train.csv", "--out", tmp_path / "m", *options, lines=lines)
    assert message is None or message in printed
    assert not (tmp_path / "m" / "config.json").exists()


@pytest.mark.parametrize("data", ["icd10", "no-such-thing", "none.csv", ".", "/"])
def test_missing_data_is_an_error(refused, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused("train", data)
    assert not list(tmp_path.iterdir())


def test_a_dataset_without_its_files_lists_them(refused, tmp_path, monkeypatch):
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path))
    message = refused("train", "trec", "--out", tmp_path / "m", lines=None)
    assert "arbormax data fetch trec" in message
    assert str(tmp_path / "trec" / "train_5500.label") in message


def test_options_of_files_are_an_error_with_a_dataset(refused, tmp_path):
    assert "--taxonomy" in refused("train", "trec", "--taxonomy", "x.json", "--out", tmp_path / "m")
    assert "--text" in refused("train", "trec", "--text", "body", "--out", tmp_path / "m")


@pytest.mark.parametrize("content", ["", "text,label\n", "text,label\nonly,one\n", "text,label\n,\n"])
def test_a_file_with_too_few_rows_is_an_error(refused, tmp_path, content):
    (tmp_path / "few.csv").write_text(content)
    refused("train", tmp_path / "few.csv", "--out", tmp_path / "m", *SMALL)


def test_an_unknown_validation_label_is_an_error_with_a_hint(refused, texts, tmp_path):
    (tmp_path / "valid.csv").write_text("text,label\nwarm,shop > coats\n")
    message = refused("train", texts / "train.csv", "--valid", tmp_path / "valid.csv", "--out", tmp_path / "m", *SMALL)
    assert "coats" in message
    assert "try --taxonomy FILE" in message


def test_unknown_test_labels_count_as_errors_and_are_listed(run, texts, tmp_path):
    known = (texts / "test.csv").read_text()
    (tmp_path / "test.csv").write_text(known + "warm,shop > coats\nwarm,shop > coats\nred,art\n")
    words = ("--test", tmp_path / "test.csv", "--out", tmp_path / "m", *SMALL)
    outcome = run("train", texts / "train.csv", *words)
    assert outcome.code == 0
    listed = "3 of 33 test texts have labels that training did not see, and count as errors: "
    assert listed + "'shop > coats' (2), 'art' (1)" in outcome.out
    evaluated = run("evaluate", tmp_path / "m", tmp_path / "test.csv", "--json")
    assert "'shop > coats' (2)" in evaluated.err
    before = json.loads(run("evaluate", tmp_path / "m", texts / "test.csv", "--json").out)
    measures = json.loads(evaluated.out)
    assert measures["items"] == before["items"] + 3
    assert measures["accuracy"] == pytest.approx(before["accuracy"] * before["items"] / measures["items"])


def test_texts_at_inner_nodes_are_reported_and_may_be_classes(run, texts, tmp_path):
    (tmp_path / "train.csv").write_text((texts / "train.csv").read_text() + "warm and red,shop\n" * 6)
    outcome = run("train", tmp_path / "train.csv", "--out", tmp_path / "m", *SMALL)
    assert "6 texts are labelled at an inner node ('shop'): they train the steps down to their node" in outcome.out
    assert "126 texts, 4 classes" in outcome.out
    words = ("--inner-classes", "stop")
    outcome = run("train", tmp_path / "train.csv", "--out", tmp_path / "n", *SMALL, *words)
    assert "126 texts, 5 classes" in outcome.out
    assert "labelled at" not in outcome.out


def test_a_missing_file_is_reported_before_the_folder_is_looked_at(refused, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "notes.txt").write_text("mine")
    assert "no such file" in refused("train", tmp_path / "missing.csv", "--out", tmp_path / "m")
    (tmp_path / "train.csv").write_text("text,label\na,b\n")
    words = ("--test", tmp_path / "missing.csv")
    assert "no such file" in refused("train", tmp_path / "train.csv", *words, "--out", tmp_path / "m")


def test_an_unreadable_folder_is_an_error_in_one_line(refused, texts, tmp_path, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(13, "Permission denied", str(tmp_path / "m"))

    monkeypatch.setattr("arbormax.studies.train.fit", denied)
    message = refused("train", texts / "train.csv", "--out", tmp_path / "m", *SMALL)
    assert message == f"arbormax: {tmp_path / 'm'}: permission denied\n"


def test_a_model_is_replaced_only_with_overwrite(run, refused, model, texts, tmp_path):
    before = (model / "model.safetensors").read_bytes()
    assert "--overwrite" in refused("train", texts / "train.csv", "--out", model, *SMALL)
    assert (model / "model.safetensors").read_bytes() == before


def test_overwriting_replaces_the_model(run, texts, tmp_path):
    words = ["train", texts / "train.csv", "--out", tmp_path / "m", *SMALL]
    assert run(*words).code == 0
    before = (tmp_path / "m" / "model.safetensors").read_bytes()
    assert run(*words, "--seed", "1", "--overwrite").code == 0
    assert (tmp_path / "m" / "model.safetensors").read_bytes() != before


def test_resuming_a_finished_model_prints_a_message(run, refused, texts, tmp_path):
    words = ["train", texts / "train.csv", "--out", tmp_path / "m", *SMALL]
    assert run(*words).code == 0
    outcome = run(*words, "--resume")
    assert outcome.code == 0
    assert "is finished; nothing to resume" in outcome.err
    assert json.loads(run(*words, "--resume", "--json").out)["finished"]
    assert "seed was 0, now 3" in refused(*words, "--resume", "--seed", "3")


def test_a_folder_with_other_files_is_an_error(refused, texts, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    for options in ([], ["--overwrite"], ["--resume"]):
        assert "choose another folder" in refused("train", texts / "train.csv", "--out", tmp_path, *SMALL, *options)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_an_out_that_is_a_file_is_an_error(refused, texts):
    assert "is a file" in refused("train", texts / "train.csv", "--out", texts / "test.csv", *SMALL)


def test_options_are_json_or_text():
    from arbormax.cli.options import parse_options

    assert parse_options(["a=1", "b=x=y", "c=[1]", "d=true", 'e="3"', "f="]) == {
        "a": 1,
        "b": "x=y",
        "c": [1],
        "d": True,
        "e": "3",
        "f": "",
    }
    with pytest.raises(OptionError):
        parse_options(["a"])


def test_a_missing_device_is_an_error(refused, model):
    assert "--device" in refused("predict", model, "-m", "x", "--device", "abacus")


def test_json_lines_and_parquet_give_the_same_model(run, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from cli_tools import rows

    pairs = [{"text": text, "label": label} for text, label in rows(60)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    pq.write_table(pa.Table.from_pylist(pairs), tmp_path / "a.parquet")
    write_csv(tmp_path / "a.csv", 60)
    weights = []
    for name in ("a.jsonl", "a.parquet", "a.csv"):
        assert run("train", tmp_path / name, "--out", tmp_path / name[2:], *SMALL).code == 0
        weights.append((tmp_path / name[2:] / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] == weights[2]


def test_few_texts_get_small_batches(run, texts, tmp_path):
    outcome = run(
        "train", texts / "train.csv", "--out", tmp_path / "m", "--epochs", "1", "--encoder", "bag", "-o", "dim=8"
    )
    assert outcome.code == 0
    assert json.loads((tmp_path / "m" / "config.json").read_text())["config"]["batch_size"] == 120 // 20
    assert (
        run(
            "train",
            texts / "train.csv",
            "--out",
            tmp_path / "m",
            "--epochs",
            "1",
            "--encoder",
            "bag",
            "-o",
            "dim=8",
            "--resume",
        ).code
        == 0
    )


@pytest.mark.parametrize("separator", ["|", ";", " / "])
def test_labels_are_read_for_testing_as_they_were_for_training(run, tmp_path, separator):
    lines = [
        f'"{words.split()[i % 5]} {i}","{label.replace(" > ", separator)}"'
        for i in range(8)
        for label, words in WORDS.items()
    ]
    (tmp_path / "x.csv").write_text("\n".join(["text,label", *lines, ""]))
    outcome = run("train", tmp_path / "x.csv", "--test", tmp_path / "x.csv", "--out", tmp_path / "m", *SMALL)
    assert outcome.code == 0, outcome.err
    outcome = run("evaluate", tmp_path / "m", tmp_path / "x.csv", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["items"] == len(lines)


def test_options_that_differ_from_their_default_are_words_of_a_command():
    from arbormax.cli.options import InputOptions

    words = InputOptions(text=["a", "b"], header=False, quoting=False).words()
    assert words == ["--text", "a", "--text", "b", "--no-header", "--no-quoting"]
    assert InputOptions().words() == []
