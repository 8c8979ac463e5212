"""A study as a whole: nothing is chosen by a look at the test texts, and every record says how it was made."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_study import BAG, LSTM, ONE_BAG, outcomes, put_split, put_vectors, records, run, study
from study import Machine, StudyError, files, jobs
from study.summary import headline, read_results, rows
from study.texts import add_texts

from arbormax import metrics
from arbormax.data.datasets import load_split
from arbormax.data.datasets.trees import tree
from arbormax.errors import MissingDependencyError, OptionError
from arbormax.training import TrainingInterrupted

HERE = Path(__file__).parent
PYTHONPATH = os.pathsep.join([str(HERE), str(HERE.parents[1] / "experiments" / "paper"), *sys.path])
TRAININGS = 2 * 2 * 2 + 2 * 2  # of BAG: heads × points × folds, and heads × seeds; LinearSVC is not counted


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder of data with training texts only."""
    root = tmp_path / "data"
    monkeypatch.setenv("ARBORMAX_DATA", str(root))
    put_split(root, "train")
    return root


@pytest.fixture
def trained(monkeypatch):
    """Grows by the settings of every training."""
    configs = []
    real = jobs.fit
    monkeypatch.setattr(
        jobs, "fit", lambda config, *given, **named: configs.append(config) or real(config, *given, **named)
    )
    return configs


def bytes_of(results: Path, kind: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (results / "r8" / kind).glob("*.json")}


# Nothing is chosen by a look at the test texts


def test_settings_are_selected_without_a_test_split(data, tmp_path, trained):
    results = tmp_path / "results"
    with pytest.raises(StudyError) as caught:
        run(study(), results)
    result = str(caught.value)
    assert "runs/bag-flat-seed0.json failed, and 4 others: MissingDataError" in result
    assert str(data / "r8" / "r8-test-all-terms.txt") in result
    assert "test.tsv beside it" in result
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert set(bytes_of(results, "choices")) == {"bag-flat.json", "bag-hierarchical.json", "svc-svc.json"}
    assert len(records(results, "folds")) == 12
    assert records(results, "runs") == {}
    assert len(trained) == 8  # no measurement was begun

    chosen, folds = bytes_of(results, "choices"), bytes_of(results, "folds")
    put_split(data, "test", 24, seed=1)
    assert run(study(), results)
    assert len(trained) == TRAININGS
    assert all(config.validation == 0 for config in trained[8:])
    assert bytes_of(results, "choices") == chosen
    assert bytes_of(results, "folds") == folds
    assert len(records(results, "runs")) == 5


def test_choices_and_curves_do_not_depend_on_the_test_split(tmp_path, monkeypatch):
    found = []
    for number, split in enumerate(({"count": 24, "seed": 1}, {"count": 9, "seed": 2, "shift": 3})):
        root, results = tmp_path / f"data{number}", tmp_path / f"results{number}"
        monkeypatch.setenv("ARBORMAX_DATA", str(root))
        put_split(root, "train")
        put_split(root, "test", **split)
        assert run(study(), results)
        curves = {name: record["curve"] for name, record in records(results, "folds").items()}
        found.append((bytes_of(results, "choices"), curves, records(results, "runs")))
    (chosen, curves, runs), (others, other_curves, other_runs) = found
    assert chosen == others
    assert curves == other_curves
    assert {name: run["config"] for name, run in runs.items()} == {n: run["config"] for n, run in other_runs.items()}
    for name, first in runs.items():
        assert first["chosen"] == other_runs[name]["chosen"]
        assert (first["items"], other_runs[name]["items"]) == (24, 9)
        assert first["accuracy"] > 0.2 > other_runs[name]["accuracy"]


def test_the_test_split_is_read_only_after_the_choices(data, tmp_path, monkeypatch):
    put_split(data, "test", 8)
    results, opened = tmp_path / "results", []

    def load(name, split, root=None):
        opened.append((split, len(records(results, "folds")), len(records(results, "choices"))))
        return load_split(name, split, root)

    monkeypatch.setattr(files, "load_split", load)
    assert run(study(ONE_BAG), results)
    assert opened == [("train", 0, 0), ("test", 2, 1)]


def test_the_test_texts_require_a_choice(data):
    put_split(data, "test")
    plan = study(ONE_BAG)
    with pytest.raises(OptionError, match="pass the choice"):
        files.load_test_texts(plan, plan.arms[0], None)


def test_the_texts_are_read_from_the_current_folder(data, tmp_path, monkeypatch):
    plan = study(ONE_BAG)
    assert len(files.load_training_texts(plan, plan.arms[0])[1]) == 48
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path / "other"))
    put_split(tmp_path / "other", "train", 16)
    assert len(files.load_training_texts(plan, plan.arms[0])[1]) == 16


# What is chosen is what is measured


def test_the_final_runs_use_the_selected_settings_and_all_training_texts(data, tmp_path, monkeypatch):
    given = []
    real = jobs.fit

    def fit(config, taxonomy, train, *rest, **named):
        given.append((config.seed, config.learning_rate, config.epochs, len(train)))
        return real(config, taxonomy, train, *rest, **named)

    monkeypatch.setattr(jobs, "fit", fit)
    plan = study({**BAG, "heads": ["flat"]})
    with pytest.raises(StudyError, match="MissingDataError"):
        run(plan, tmp_path)
    assert given == [(0, rate, 2, 24) for rate in (0.02, 0.02, 0.1, 0.1)]
    for fold in (0, 1):  # let the lower rate be the better one, after its first epoch
        path = tmp_path / "r8" / "folds" / f"bag-flat-learning_rate0.02-fold{fold}.json"
        record = json.loads(path.read_text("utf-8"))
        record["curve"][0]["macro_f1"] = 0.9
        path.write_text(json.dumps(record), "utf-8")
    put_split(data, "test", 8)
    assert run(plan, tmp_path)
    assert given[4:] == [(seed, 0.02, 1, 48) for seed in (0, 1)]
    assert records(tmp_path, "runs")["runs/bag-flat-seed1.json"]["chosen"]["epochs"] == 1


def test_an_arm_may_have_another_tree_over_the_same_classes(data, tmp_path):
    for split, count in (("train", 12), ("test", 6)):
        labels = ["earn", "zinc", "tea"]
        (data / "r52").mkdir(exist_ok=True)
        texts = [f"{labels[n % 3]}\tword{n % 3} also{n % 3}\n" for n in range(count)]
        (data / "r52" / f"{split}.tsv").write_text("".join(texts), "utf-8")
    deep = {**ONE_BAG, "name": "bag-deep", "heads": ["hierarchical"], "tree": "deep"}
    results = tmp_path / "results"
    assert run(study(deep, dataset="r52"), results)
    (found,) = rows(read_results(results), "r52")
    assert (found.tree, len(found.levels)) == ("deep", 3)


# Records


def test_every_run_has_a_complete_record(data, tmp_path):
    put_split(data, "test", 24, seed=1)
    put_vectors(data)
    results = tmp_path / "results"
    assert run(study({**BAG, "seeds": 1}, LSTM), results)
    tax, truth = tree("r8"), load_split("r8", "test").nodes
    found = records(results, "runs")
    assert set(found) == {"runs/bag-flat-seed0.json", "runs/bag-hierarchical-seed0.json", "runs/lstm-flat-seed0.json"}
    for name, record in found.items():
        arm, head = name.removeprefix("runs/").split("-")[:2]
        assert (record["dataset"], record["arm"], record["encoder"]) == ("r8", arm, arm)
        assert (record["head"], record["seed"], record["tree"]) == (head, 0, "paper")
        expected = metrics.evaluate(truth, tax.leaves[record["predicted"]], tax)
        assert {key: record[key] for key in expected} == {
            key: pytest.approx(value, abs=1e-6) for key, value in expected.items()
        }
        assert {"nll", "ece", "operating_curve_area", "hierarchical_distance@1", "seconds", "parameters"} <= set(record)
        assert (record["items"], len(record["predicted"])) == (24, 24)
        assert set(record["chosen"]) == {"point", "epochs", "macro_f1"}
        assert record["config"]["epochs"] == record["chosen"]["epochs"]
        assert {"torch", "python", "arbormax", "pytorch-lightning"} <= set(record["versions"])
        assert "cores" in record["device"]
        assert record["command"] == "arbormax reproduce r8"
    assert found["runs/lstm-flat-seed0.json"]["vectors"] == "glove.6B.100d.subset.npz"


def test_records_are_strict_json_without_local_paths(data, tmp_path):
    put_split(data, "test", 24, seed=1)
    put_vectors(data)
    run(study(ONE_BAG, LSTM), tmp_path / "results")
    for path in (tmp_path / "results").rglob("*.json"):
        text = path.read_text("utf-8")
        for place in (tmp_path, Path.home(), Path(jobs.__file__).parents[3]):
            assert f"{place}/" not in text
        json.loads(text, parse_constant=pytest.fail)


def test_a_finished_study_leaves_no_checkpoints(data, tmp_path):
    put_split(data, "test", 8)
    run(study(ONE_BAG), tmp_path / "results")
    assert [path for path in (tmp_path / "results" / "unfinished").rglob("*") if path.is_file()] == []


def test_the_summary_reads_what_the_study_wrote(data, tmp_path):
    put_split(data, "test", 24, seed=1)
    run(study(), tmp_path / "results")
    found = rows(read_results(tmp_path / "results"), "r8")
    assert [(row.arm, row.head, row.seeds) for row in found] == [
        ("bag", "flat", (0, 1)),
        ("bag", "hierarchical", (0, 1)),
        ("svc", "svc", (0,)),
    ]
    assert not any(row.outdated for row in found)


# The machine


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": 0}, "workers: expected at least one worker, found 0"),
        ({"accelerator": "tpu"}, "found 'tpu'"),
        ({"devices": 0}, "devices: expected at least one device, found 0"),
    ],
)
def test_an_invalid_machine_is_an_error(given, message):
    with pytest.raises(OptionError, match=message):
        Machine(**given)


@pytest.mark.parametrize("error", [TrainingInterrupted("there"), MissingDependencyError("it", "Thing", "text")])
def test_errors_of_a_worker_can_be_pickled(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.slow
def test_two_workers_write_the_same_records_as_one(data, tmp_path):
    put_split(data, "test", 24, seed=1)
    run(study(), tmp_path / "one")
    assert run(study(), tmp_path / "two", machine=Machine(workers=2, accelerator="cpu"))
    assert outcomes(tmp_path / "two") == outcomes(tmp_path / "one")
    assert bytes_of(tmp_path / "two", "choices") == bytes_of(tmp_path / "one", "choices")


@pytest.mark.slow
def test_a_failure_in_a_worker_is_reported_and_the_others_finish(data, tmp_path):
    with pytest.raises(StudyError, match=r"test\.tsv beside it"):
        run(study(), tmp_path, machine=Machine(workers=2, accelerator="cpu"))
    assert len(records(tmp_path, "folds")) == 12
    assert len(records(tmp_path, "choices")) == 3


@pytest.fixture
def parent(data, tmp_path):
    """A study with two workers in a process of its own, which they can be result from; long enough to be ended in."""
    put_split(data, "test", 8)
    long = {**ONE_BAG, "settings": {**ONE_BAG["settings"], "epochs": 2000, "patience": None}}
    code = (
        "from pathlib import Path\nfrom small_study import run, study\nfrom study import Machine\n"
        f"if __name__ == '__main__':\n    run(study({long!r}), Path({str(tmp_path)!r}), machine=Machine(2, 'cpu'))\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code, "utf-8")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([*PYTHONPATH, os.environ.get("PYTHONPATH", "")]),
    }
    process = subprocess.Popen([sys.executable, script], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        states = tmp_path / "unfinished" / "r8" / "folds"
        until(lambda: len(list(states.glob("*/checkpoints/run.json"))) == 2)
        yield process, [child for child in children(process.pid) if "spawn_main" in command_of(child)]
    finally:
        process.kill()
        process.communicate()


def until(true, seconds=90):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid):
    """Its command line, or nothing when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        return "" if "\nState:\tZ" in status else Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
def test_workers_exit_when_their_parent_is_killed(parent):
    process, workers = parent
    assert len(workers) == 2
    process.kill()
    until(lambda: not any(map(command_of, workers)))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
def test_a_killed_worker_is_reported_with_a_hint(parent):
    process, workers = parent
    os.kill(workers[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert "StudyError: r8/folds/bag-flat-fold" in errors
    assert "run the same command again to continue" in errors


def test_the_test_texts_select_an_epoch_only_as_a_labelled_upper_bound(data, tmp_path):
    put_split(data, "test", seed=1)
    arm = {**ONE_BAG, "name": "bag-script", "best_on_test": True, "settings": {**BAG["settings"], "epochs": 3}}
    assert run(study(ONE_BAG, arm), tmp_path / "out")
    found = records(tmp_path / "out")
    record = found["runs/bag-script-flat-seed0.json"]
    assert record["selected_on"] == "test"
    assert len(record["curve"]) == 3
    best = max(record["curve"], key=lambda epoch: epoch["macro_f1"])
    assert record["macro_f1"] == pytest.approx(best["macro_f1"], abs=1e-5)
    assert not any(name.startswith(("folds/bag-script", "choices/bag-script")) for name in found)
    assert headline(read_results(tmp_path / "out"), "r8")["arm"] == "bag"  # never the upper bound
    with pytest.raises(ValueError, match="one point"):
        study({**BAG, "best_on_test": True})


def test_nodes_have_the_texts_of_the_study(data, tmp_path):
    put_split(data, "test", seed=1)
    arm = {**ONE_BAG, "name": "bag-names", "texts": True, "settings": {**BAG["settings"], "names": "init"}}
    assert run(study(arm), tmp_path / "out")
    [record] = records(tmp_path / "out", "runs").values()
    assert record["config"]["names"] == "init"
    tax = add_texts("r8", tree("r8"))
    assert tax.texts[tax.find("acq")] == "mergers and acquisitions of companies"
