"""The command that runs the paper's experiments, here on a study and on texts of a moment."""

import json
import shlex

import pytest

from small_study import BAG, SVC, put_split, put_vectors, records

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
    """A folder with a study of Reuters-8, and its texts where they are looked for."""
    root, folder = tmp_path / "data", tmp_path / "studies"
    monkeypatch.setenv("ARBORMAX_DATA", str(root))
    put_split(root, "train")
    put_split(root, "test", 24, seed=1)
    put_vectors(root)
    folder.mkdir()
    (folder / "r8.json").write_text(json.dumps({"dataset": "r8", "folds": 2, "arms": [BAG, SVC, BILSTM]}), "utf-8")
    return folder


def test_a_study_is_run_and_told_in_tables(run, studies, tmp_path):
    words = ["reproduce", "r8", "--study", studies, "--out", tmp_path / "out", "--arms", "bag,svc", *CPU]
    told = run(*words)
    assert told.code == 0, (told.err, told.exception)
    assert "Reuters-8" in told.out
    assert "bag of words," in told.out
    assert "Best by cross-validated macro-F1" in told.out
    assert "TF-IDF + LinearSVC" in told.out
    assert told.err.endswith(f"written: {tmp_path / 'out'}\n")
    assert len(records(tmp_path / "out", "runs")) == 5
    command = records(tmp_path / "out", "runs")["runs/svc-svc-seed0.json"]["command"]
    assert shlex.split(command) == ["arbormax", *map(str, words)]

    again = run(*words, "--json")
    assert again.code == 0, again.err
    values = json.loads(again.out)["r8"]
    assert {(row["arm"], row["head"]) for row in values["rows"]} == {
        ("bag", "flat"),
        ("bag", "hierarchical"),
        ("svc", "svc"),
    }
    assert {one["head"] for one in values["differences"]["bag"]} == {"hierarchical"}
    assert values["headline"]["arm"] == "svc"
    assert records(tmp_path / "out", "runs")["runs/svc-svc-seed0.json"]["command"] == command  # nothing ran again


def test_results_lie_beside_the_study_unless_told(run, studies):
    assert run("reproduce", "r8", "--study", studies, "--arms", "svc", *CPU).code == 0
    assert len(records(studies / "results", "runs")) == 1


def test_the_quick_study_shows_how_it_goes(run, studies):
    told = run("reproduce", "r8", "--study", studies, "--quick", *CPU)
    assert told.code == 0, (told.err, told.exception)
    assert "BiLSTM" in told.out
    assert "This was the quick study" in told.out
    found = records(studies / "quick", "runs")
    assert set(found) == {"runs/bilstm-flat-seed0.json", "runs/bilstm-hierarchical-seed0.json"}
    assert found["runs/bilstm-flat-seed0.json"]["config"]["rows"] == 2000


def test_without_time_nothing_is_run_and_that_is_said(run, studies, tmp_path):
    told = run("reproduce", "r8", "--study", studies, "--out", tmp_path / "out", "--minutes", "0", *CPU)
    assert told.code == 0, (told.err, told.exception)
    assert "Not finished in the time given: the same command goes on." in told.err
    assert records(tmp_path / "out") == {}


def test_the_help_has_an_example(run):
    told = run("reproduce", "--help")
    assert told.code == 0
    for part in ("--quick", "--arms", "--study", "--workers", "arbormax reproduce trec --quick"):
        assert part in told.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["r88"], "expected one of trec, 20ng, r8, r52 or all, found 'r88'; did you mean 'r8'"),
        (["r8", "--quick", "--arms", "bag"], "--quick has an arm of its own, so leave --arms out"),
        (["r8", "--arms", "bga"], "arms of r8 are bag, svc, bilstm; found 'bga'; did you mean 'bag'?"),
        (["r8", "--arms", ","], "name one arm or more of bag, svc, bilstm"),
        (["trec"], "trec.json: run this in a clone of arbormax, or name the studies' folder (--study)"),
        (["all"], "trec.json: run this in a clone of arbormax"),
        (["r8", "--accelerator", "tpu"], "accelerator is auto, cpu or gpu, found 'tpu'"),
        (["r8", "--workers", "0"], "'--workers'"),
    ],
)
def test_a_wrong_command_is_refused_in_one_line(refused, studies, words, told):
    assert told in refused("reproduce", *words, "--study", studies)
    assert sorted(path.name for path in studies.iterdir()) == ["r8.json"]


def test_a_folder_without_studies_is_told(refused, tmp_path):
    assert f"there is no study in {tmp_path / 'none' / 'r8.json'}" in refused(
        "reproduce", "r8", "--study", tmp_path / "none"
    )


def test_a_fault_of_the_study_is_told_with_its_file(refused, studies):
    (studies / "r8.json").write_text(json.dumps({"dataset": "r8", "arms": [{**BAG, "seed": 3}]}), "utf-8")
    told = refused("reproduce", "r8", "--study", studies)
    assert f"{studies / 'r8.json'}: a study has no option 'arms.0.seed'; did you mean 'seeds'" in told


def test_missing_texts_are_told_with_their_place(run, refused, studies, tmp_path, monkeypatch):
    (tmp_path / "data" / "r8" / "test.tsv").unlink()
    told = run("reproduce", "r8", "--study", studies, "--arms", "svc", *CPU)
    assert told.code == 2
    assert str(tmp_path / "data" / "r8" / "r8-test-all-terms.txt") in told.err
    assert "arbormax data fetch r8" in told.err
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path / "empty"))  # found out before anything runs
    assert "r8-train-all-terms.txt" in refused(
        "reproduce", "r8", "--study", studies, "--out", tmp_path / "n", *CPU, lines=None
    )
    assert not (tmp_path / "n").exists()


def test_the_results_are_a_folder(refused, studies, tmp_path):
    (tmp_path / "n.csv").write_text("", "utf-8")
    assert "n.csv is a file" in refused("reproduce", "r8", "--study", studies, "--out", tmp_path / "n.csv", *CPU)


def test_records_of_another_study_are_refused(refused, run, studies):
    run("reproduce", "r8", "--study", studies, "--arms", "svc", *CPU)
    other = {**SVC, "settings": {"ngrams": 1}}
    (studies / "r8.json").write_text(json.dumps({"dataset": "r8", "folds": 2, "arms": [other]}), "utf-8")
    assert "was made with other settings (ngrams)" in refused("reproduce", "r8", "--study", studies, *CPU)


def test_a_stopped_study_says_how_to_go_on(run, studies, monkeypatch):
    from arbormax.training.study import jobs

    def fit(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "fit", fit)
    words = ["reproduce", "r8", "--study", studies, "--arms", "bag", *CPU]
    told = run(*words)
    assert told.code == 130
    assert told.out == ""
    assert told.err.strip().endswith(f"go on with: {shlex.join(['arbormax', *map(str, words)])}")
