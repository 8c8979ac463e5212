"""The search for settings: shared by workers, taken up after a kill, the same every time."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.errors import InputError, MissingDependencyError, OptionError
from arbormax.model import TrainConfig
from arbormax.studies.crossval import crossval
from arbormax.studies.search import SearchError, SearchSpace, search

MODULE = import_module("arbormax.studies.search")  # the package has a function of this name
TAX = am.Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]})
TINY = TrainConfig(encoder="bag", encoder_options={"ngrams": 1}, epochs=2, batch_size=16, validation=0.25)
SMALL = SearchSpace(encoders=("bag",), heads=("flat", "hierarchical"), width=(2, 16), learning_rate=(1e-4, 1e-1))


def toy(count: int = 48) -> Examples:
    nodes = TAX.leaves[np.arange(count) % TAX.num_leaves]
    return Examples([f"{TAX.names[node]} number {place % 7}" for place, node in enumerate(nodes)], nodes)


def worker(storage: Path, trials: int, body: str = "") -> subprocess.Popen:
    """A process of its own that searches in this storage when it is sent a line, after the lines of `body`."""
    search_there = f"search(TINY, TAX, toy(), trials={trials}, storage={str(storage)!r}, space=SMALL, heartbeat=1)"
    folder = str(Path(__file__).parent)
    lines = [
        f"import sys, time; sys.path.insert(0, {folder!r})",
        "from test_search import *",
        body,
        "print('ready', flush=True); sys.stdin.readline()",
        search_there,
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout.readline() == "ready\n"
    return process


def states(trials) -> list[str]:
    return [trial["state"] for trial in trials]


def test_a_search_returns_the_best_settings():
    result = []
    found = search(TINY, TAX, toy(), trials=4, space=SMALL, progress=lambda *call: result.append(call))
    assert found.complete == states(found.trials).count("complete") == 4
    assert (found.pruned, found.failed) == (0, 0)
    best = max((trial for trial in found.trials), key=lambda trial: trial["value"])
    assert found.value == best["value"]
    assert found.config.encoder_options["dim"] == best["params"]["bag.dim"]
    assert found.config.encoder_options["ngrams"] == 1  # what is not searched stays
    assert found.config.learning_rate == best["params"]["bag.learning_rate"]
    assert found.config.head == best["params"]["head"]
    assert am.training.fit(found.config, TAX, toy()).valid_macro_f1 == pytest.approx(found.value)
    assert result[0] == ("trials", 0, 4)
    assert result[-1] == ("trials", 4, 4)
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_same_seed_tries_the_same_settings_also_after_a_restart(tmp_path):
    def tried(found):
        return [(trial["params"], trial["value"]) for trial in found.trials]

    whole = search(TINY, TAX, toy(), trials=12, space=SMALL)
    search(TINY, TAX, toy(), trials=5, space=SMALL, storage=tmp_path / "study.db")
    again = search(TINY, TAX, toy(), trials=12, space=SMALL, storage=tmp_path / "study.db")
    assert tried(again) == tried(whole)
    assert tried(search(TINY, TAX, toy(), trials=2, space=SMALL, seed=1)) != tried(whole)[:2]


def test_a_finished_study_runs_no_more_trials(tmp_path, monkeypatch):
    given = {"trials": 2, "space": SMALL, "storage": f"sqlite:///{tmp_path}/study.db"}
    first = search(TINY, TAX, toy(), **given)
    monkeypatch.setattr(MODULE, "fit", None)
    assert search(TINY, TAX, toy(), **given).to_dict() == first.to_dict()


@pytest.mark.slow
def test_two_workers_share_a_study(tmp_path):
    storage = tmp_path / "study.db"
    other = worker(storage, 6)
    other.stdin.write("\n")
    other.stdin.flush()
    search(TINY, TAX, toy(), trials=6, space=SMALL, storage=storage, heartbeat=1)  # both make the tables, at once
    other.communicate(timeout=60)
    assert other.returncode == 0
    found = search(TINY, TAX, toy(), trials=6, space=SMALL, storage=storage)
    assert 6 <= found.complete <= 7  # the other worker may be in a trial when the last one is complete
    assert found.failed == 0
    params = [json.dumps(trial["params"]) for trial in found.trials]
    assert len(set(params)) == len(params)  # no worker repeats another's


@pytest.mark.slow
def test_the_trial_of_a_killed_worker_is_run_again(tmp_path):
    storage = tmp_path / "study.db"
    hangs = """
real, calls = MODULE.fit, []
def fit(*args, **options):
    calls.append(1)
    time.sleep(600 if len(calls) == 2 else 0)
    return real(*args, **options)
MODULE.fit = fit
"""
    process = worker(storage, 3, hangs)
    try:
        process.stdin.write("\n")
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while _running(storage) != [1]:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    time.sleep(3.5)  # twice the heartbeat, and the second that the database rounds to
    found = search(TINY, TAX, toy(), trials=3, space=SMALL, storage=storage, heartbeat=1)
    assert states(found.trials) == ["complete", "failed", "complete", "complete"]
    assert found.trials[2]["retry_of"] == 1
    assert found.trials[2]["params"] == found.trials[1]["params"]


def test_the_settings_of_an_interrupted_trial_are_tried_again(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MODULE, "fit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            search(TINY, TAX, toy(), trials=1, space=SMALL, storage=tmp_path / "study.db")
    found = search(TINY, TAX, toy(), trials=1, space=SMALL, storage=tmp_path / "study.db")
    assert states(found.trials) == ["failed", "complete"]
    assert found.trials[1]["params"] == found.trials[0]["params"]


def _running(storage: Path) -> list[int]:
    """The numbers of the trials that have all their parameters and are not finished."""
    if not storage.exists():
        return []
    try:
        with closing(sqlite3.connect(storage)) as database:
            rows = database.execute(
                "select number from trials join trial_params using (trial_id) join trial_heartbeats using (trial_id)"
                " where state = 'RUNNING' group by number having count(*) = 5"
            ).fetchall()
    except sqlite3.OperationalError:
        return []
    return [number for (number,) in rows]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"examples": toy(40)}, "other training examples"),
        ({"space": SMALL.model_copy(update={"width": (2, 8)})}, "space was"),
        ({"config": TINY.model_copy(update={"epochs": 1})}, "epochs was 2, now 1"),
        ({"folds": 2}, "folds was 1, now 2"),
    ],
)
def test_a_study_of_another_search_is_an_error(tmp_path, change, message):
    given = {"config": TINY, "taxonomy": TAX, "examples": toy(), "trials": 1, "space": SMALL}
    search(**given, storage=tmp_path / "study.db")
    with pytest.raises(OptionError, match=message):
        search(**{**given, **change}, storage=tmp_path / "study.db")
    assert search(**{**given, **change}, storage=tmp_path / "study.db", study="another").complete == 1


def test_settings_that_do_not_train_are_recorded_as_failed(monkeypatch):
    real = am.training.fit

    def fit(config, *args, **options):
        if config.head == "flat":
            raise RuntimeError("CUDA out of memory")
        return real(config, *args, **options)

    monkeypatch.setattr(MODULE, "fit", fit)
    found = search(TINY, TAX, toy(), trials=3, space=SMALL)
    assert found.complete == 3
    assert found.failed > 0
    for trial in found.trials:
        assert (trial["state"] == "failed") == (trial["params"]["head"] == "flat")
        assert trial["error"] == ("RuntimeError: CUDA out of memory" if trial["state"] == "failed" else None)


def test_a_nan_loss_is_a_failed_trial(monkeypatch):
    from arbormax.training.module import TrainingModule

    real = TrainingModule._loss
    monkeypatch.setattr(TrainingModule, "_loss", lambda *given: real(*given) * float("nan"))
    with pytest.raises(SearchError, match=r"first 3 trials failed.*the loss is not finite in epoch 1"):
        search(TINY, TAX, toy(), trials=3, space=SMALL)


def test_an_error_in_the_data_stops_the_search(monkeypatch):
    calls = []

    def fit(*_, **__):
        calls.append(1)
        raise InputError("no word in any text")

    monkeypatch.setattr(MODULE, "fit", fit)
    with pytest.raises(InputError, match="no word"):
        search(TINY, TAX, toy(), trials=3, space=SMALL)
    assert len(calls) == 1


def test_trials_worse_than_the_median_are_pruned():
    space = SMALL.model_copy(update={"width": (8, 8), "dropout": None, "learning_rate": (1e-6, 0.3)})
    config = TINY.model_copy(update={"epochs": 8, "patience": None, "batch_size": 8})
    found = search(config, TAX, toy(), trials=9, space=space)
    assert found.complete == 9
    pruned = [trial for trial in found.trials if trial["state"] == "pruned"]
    assert len(pruned) == found.pruned > 0
    assert all(trial["value"] is None and trial["epochs"] < 8 for trial in pruned)


def test_a_study_ends_after_five_times_as_many_trials(monkeypatch):
    import optuna

    calls, real = [], am.training.fit

    def fit(*args, **options):
        calls.append(1)
        if len(calls) > 1:
            raise optuna.TrialPruned
        return real(*args, **options)

    monkeypatch.setattr(MODULE, "fit", fit)
    found = search(TINY, TAX, toy(), trials=2, space=SMALL)
    assert (found.complete, found.pruned) == (1, 9)


def test_folds_give_the_mean_over_them():
    found = search(TINY, TAX, toy(), trials=2, space=SMALL, folds=2)
    mean = crossval(found.config, TAX, toy(), 2, epochs_from="fold").mean["macro_f1"]
    assert found.value == pytest.approx(mean)


def test_each_encoder_has_its_own_parameters():
    space = SearchSpace(encoders=("bag", "bilstm"), heads=("hierarchical",), width=(4, 8))
    base = TINY.model_copy(update={"encoder_options": {"ngrams": 1, "tokens": "whitespace"}})
    found = search(base, TAX, toy(24), trials=6, space=space)
    assert {trial["params"]["encoder"] for trial in found.trials} == {"bag", "bilstm"}
    for trial in found.trials:
        own = {"bag": "bag.dim", "bilstm": "bilstm.hidden"}[trial["params"]["encoder"]]
        encoder = trial["params"]["encoder"]
        assert set(trial["params"]) == {"encoder", "head", own, f"{encoder}.dropout", f"{encoder}.learning_rate"}
        low = {"bag": 1e-3, "bilstm": 1e-4}[encoder]  # a tenth of the usual rate, and a hundred times as much
        assert low <= trial["params"][f"{encoder}.learning_rate"] <= 100 * low
    assert space.settings_for(base, "bilstm", "flat", {}).encoder_options == {"tokens": "whitespace"}


def test_a_search_without_a_complete_trial_is_an_error():
    with pytest.raises(SearchError, match="no trial of the study 'arbormax' is complete; try a longer timeout"):
        search(TINY, TAX, toy(), trials=2, space=SMALL, timeout=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trials": 0}, "trials: expected a number of at least 1"),
        ({"folds": 0}, "folds: expected a number of at least 1"),
        ({"seed": -1}, "seed: expected a number of at least 0"),
        ({"config": TINY.model_copy(update={"validation": 0})}, "validation: a search needs held-out examples"),
        ({"config": TINY.model_copy(update={"gamma": 1.0})}, "gamma: acts on sibling groups"),
        ({"config": TINY.model_copy(update={"encoder": "bag", "encoder_options": {"dimm": 3}})}, "did you mean 'dim'"),
        ({"space": SearchSpace(encoders=())}, "at least one encoder and one head"),
        ({"storage": "sqlite:////no/such/folder/study.db"}, "storage: cannot open"),
        ({"storage": "/tmp"}, "storage: cannot open"),
    ],
)
def test_invalid_arguments_are_an_error_before_the_first_trial(change, message, monkeypatch):
    monkeypatch.setattr(MODULE, "fit", None)
    with pytest.raises(OptionError, match=message):
        search(**{"config": TINY, "taxonomy": TAX, "examples": toy(), "space": SMALL, **change})


def test_the_folder_of_the_storage_must_exist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for storage in ("studies/study.db", tmp_path / "studies" / "study.db"):
        with pytest.raises(OptionError, match="storage: cannot open"):
            search(TINY, TAX, toy(), space=SMALL, storage=storage)
    assert not list(tmp_path.iterdir())


def test_one_error_lists_all_problems_of_a_space():
    with pytest.raises(OptionError, match=r"(?s)width: .*minimum, maximum.*head.*did you mean 'heads'"):
        SearchSpace.make(width=(9, 3), head=["flat"])
    with pytest.raises(OptionError, match="unknown encoder 'bagg'; did you mean 'bag'"):
        SearchSpace.make(encoders=["bagg"])


def test_without_optuna_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingDependencyError, match=r"arbormax\[train\]"):
        search(TINY, TAX, toy())


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list a process's files there")
def test_the_database_is_closed_at_the_end(tmp_path):
    search(TINY, TAX, toy(), trials=1, space=SMALL, storage=tmp_path / "study.db")
    opened = [os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    assert not [name for name in opened if name.startswith(str(tmp_path))]
