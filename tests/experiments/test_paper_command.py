"""The command line of the paper's study, on a small study with generated texts."""

import json
import shlex

import pytest
from small_study import BAG, SVC, put_split, put_vectors, records
from study import jobs
from study.command import main

from arbormax.errors import InputError, OptionError

CPU = ["--accelerator", "cpu"]
BILSTM = {
    "name": "bilstm",
    "encoder": "bilstm",
    "preset": "paper",
    "settings": {"encoder_options.vectors": "glove.6B", "epochs": 1},
    "grid": {"encoder_options.hidden": [100, 150]},
}


@pytest.fixture
def studies(tmp_path, monkeypatch):
    """A folder with a study of Reuters-8, and ARBORMAX_DATA with its texts."""
    root, folder = tmp_path / "data", tmp_path / "studies"
    monkeypatch.setenv("ARBORMAX_DATA", str(root))
    put_split(root, "train")
    put_split(root, "test", 24, seed=1)
    put_vectors(root)
    folder.mkdir()
    (folder / "r8.json").write_text(json.dumps({"dataset": "r8", "folds": 2, "arms": [BAG, SVC, BILSTM]}), "utf-8")
    return folder


@pytest.fixture
def run(studies, capsys):
    """Runs the command on the studies; returns the exit status, the output and the messages."""

    def run(*argv):
        code = main(studies, [str(word) for word in argv])
        return code, *capsys.readouterr()

    return run


def test_a_study_prints_its_tables(run, studies, tmp_path):
    argv = ["--dataset", "r8", "--out", tmp_path / "out", "--arms", "bag,svc", *CPU]
    code, out, err = run(*argv)
    assert code == 0, err
    assert "Reuters-8" in out
    assert "bag of words," in out
    assert "Best by cross-validated macro-F1" in out
    assert "TF-IDF + LinearSVC" in out
    assert err.endswith(f"written: {tmp_path / 'out'}\n")
    assert len(records(tmp_path / "out", "runs")) == 5
    command = records(tmp_path / "out", "runs")["runs/svc-svc-seed0.json"]["command"]
    assert shlex.split(command) == ["arbormax", "reproduce", str(studies), *map(str, argv)]

    code, out, err = run(*argv, "--json")
    assert code == 0, err
    values = json.loads(out)["r8"]
    assert {(row["arm"], row["head"]) for row in values["rows"]} == {
        ("bag", "flat"),
        ("bag", "hierarchical"),
        ("svc", "svc"),
    }
    assert {one["head"] for one in values["differences"]["bag"]} == {"hierarchical"}
    assert values["headline"]["arm"] == "svc"
    assert records(tmp_path / "out", "runs")["runs/svc-svc-seed0.json"]["command"] == command  # nothing ran again


def test_results_are_saved_beside_the_study_by_default(run, studies):
    assert run("--dataset", "r8", "--arms", "svc", *CPU)[0] == 0
    assert len(records(studies / "results", "runs")) == 1


def test_all_datasets_are_those_with_a_file(run, studies):
    assert run("--arms", "svc", *CPU)[0] == 0
    assert len(records(studies / "results", "runs")) == 1


def test_the_quick_study_is_small(run, studies):
    code, out, err = run("--dataset", "r8", "--quick", *CPU)
    assert code == 0, err
    assert "BiLSTM" in out
    assert "This is the quick study" in out
    found = records(studies / "quick", "runs")
    assert set(found) == {"runs/bilstm-flat-seed0.json", "runs/bilstm-hierarchical-seed0.json"}
    assert found["runs/bilstm-flat-seed0.json"]["config"]["rows"] == 2000


def test_nothing_starts_after_the_time_limit(run, tmp_path):
    code, _, err = run("--dataset", "r8", "--out", tmp_path / "out", "--minutes", "0", *CPU)
    assert code == 0, err
    assert "the same command continues" in err
    assert records(tmp_path / "out") == {}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--dataset", "r88"], "dataset: expected trec, 20ng, r8, r52 or all, found 'r88'; did you mean 'r8'"),
        (["--quick", "--arms", "bag"], "arms: cannot be combined with --quick"),
        (["--arms", "bga"], "expected arms of r8 (bag, svc, bilstm), found 'bga'; did you mean 'bag'?"),
        (["--arms", ","], "expected at least one arm of bag, svc, bilstm"),
        (["--dataset", "trec"], "trec.json does not exist; the studies are part of the repository"),
        (["--accelerator", "tpu"], "accelerator: expected auto, cpu or gpu, found 'tpu'"),
    ],
)
def test_a_wrong_option_is_an_error(run, studies, argv, message):
    with pytest.raises((OptionError, InputError)) as caught:
        run(*argv)
    assert message in str(caught.value)
    assert sorted(path.name for path in studies.iterdir()) == ["r8.json"]


def test_a_folder_without_studies_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"r8\.json does not exist"):
        main(tmp_path, ["--dataset", "r8"])
    with pytest.raises(InputError, match=r"contains no study: expected trec\.json"):
        main(tmp_path, [])


def test_an_error_in_a_study_names_its_file(run, studies):
    (studies / "r8.json").write_text(json.dumps({"dataset": "r8", "arms": [{**BAG, "seed": 3}]}), "utf-8")
    with pytest.raises(OptionError, match=r"r8\.json: arms.0: arm 0 has no option 'seed'; did you mean 'seeds'"):
        run()


def test_missing_texts_are_reported_before_anything_runs(run, tmp_path, monkeypatch):
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path / "empty"))
    with pytest.raises(FileNotFoundError, match=r"r8-train-all-terms\.txt"):
        run("--out", tmp_path / "n", *CPU)
    assert not (tmp_path / "n").exists()


def test_the_results_must_be_a_folder(run, tmp_path):
    (tmp_path / "n.csv").write_text("", "utf-8")
    with pytest.raises(OptionError, match=r"n\.csv is a file"):
        run("--out", tmp_path / "n.csv", *CPU)


def test_records_of_another_study_are_an_error(run, studies):
    run("--arms", "svc", *CPU)
    other = {**SVC, "settings": {"ngrams": 1}}
    (studies / "r8.json").write_text(json.dumps({"dataset": "r8", "folds": 2, "arms": [other]}), "utf-8")
    with pytest.raises(OptionError, match=r"has other settings \(ngrams\)"):
        run(*CPU)


def test_a_stopped_study_prints_how_to_continue(run, studies, monkeypatch):
    def fit(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "fit", fit)
    code, out, err = run("--dataset", "r8", "--arms", "bag", *CPU)
    assert (code, out) == (130, "")
    words = ["arbormax", "reproduce", str(studies), "--dataset", "r8", "--arms", "bag", *CPU]
    assert err.strip().endswith(f"continue with: {shlex.join(words)}")
