"""A study that was stopped goes on where it was, and takes no record for one of other settings."""

import json
import os
import signal

import pytest
import pytorch_lightning as pl
from small_study import BAG, LSTM, ONE_BAG, SVC, outcomes, put_split, put_vectors, records, run, study
from study import StudyError, jobs

from arbormax.errors import InputError, OptionError
from arbormax.training import TrainingInterrupted

FLAT = {**BAG, "heads": ["flat"]}  # four folds and two measurements


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    """Training and test texts, and word vectors."""
    root = tmp_path / "data"
    monkeypatch.setenv("ARBORMAX_DATA", str(root))
    put_split(root, "train")
    put_split(root, "test", 24, seed=1)
    put_vectors(root)
    return root


class Trainings:
    """Every finished training by the name of its folder; `before` is called with the options of one to come."""

    def __init__(self, monkeypatch):
        self.names, self.before, real = [], lambda options: None, jobs.fit

        def fit(*given, **options):
            self.before(options)
            finished = real(*given, **options)
            self.names.append(options["folder"].name)
            return finished

        monkeypatch.setattr(jobs, "fit", fit)


@pytest.fixture
def trainings(monkeypatch):
    return Trainings(monkeypatch)


class Interrupt(pl.Callback):
    """Ctrl-C at the third step."""

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == 3:
            os.kill(os.getpid(), signal.SIGINT)


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")


def with_settings(arm, **settings):
    return {**arm, "settings": {**arm["settings"], **settings}}


# Stopped and gone on


@pytest.mark.parametrize("count", [0, 3, 5])
def test_a_study_stopped_between_trainings_repeats_none(tmp_path, trainings, count):
    def stop(_):
        if len(trainings.names) == count:
            raise KeyboardInterrupt

    trainings.before = stop
    with pytest.raises(KeyboardInterrupt):
        run(study(FLAT), tmp_path / "results")
    assert len(trainings.names) == count
    assert len(records(tmp_path / "results", "folds")) == min(count, 4)
    trainings.before = lambda _: None
    assert run(study(FLAT), tmp_path / "results")
    assert len(trainings.names) == len(set(trainings.names)) == 6
    assert run(study(FLAT), tmp_path / "results")
    assert len(trainings.names) == 6


@pytest.mark.parametrize("number", [0, 2])
def test_an_interrupted_training_resumes_to_the_same_records(tmp_path, trainings, number):
    plan = study(with_settings(ONE_BAG, **{"epochs": 3, "encoder_options.dropout": 0.3}))
    assert run(plan, tmp_path / "whole")
    trainings.names.clear()

    def interrupt(options):
        if len(trainings.names) == number:
            options["callbacks"] = [Interrupt()]

    trainings.before = interrupt
    with pytest.raises(TrainingInterrupted):
        run(plan, tmp_path / "stopped")
    assert len(trainings.names) == number  # and none after it
    assert len(list((tmp_path / "stopped" / "unfinished").rglob("last.ckpt"))) == 1

    steps = []
    trainings.before = lambda options: options.update(callbacks=[Count(steps)])
    assert run(plan, tmp_path / "stopped")
    whole = [9, 9, 6 * records(tmp_path / "whole", "choices")["choices/bag-flat.json"]["epochs"]]
    assert len(steps) == sum(whole[number:]) - 3  # none of the three is made again
    assert outcomes(tmp_path / "stopped") == outcomes(tmp_path / "whole")
    assert records(tmp_path / "stopped", "choices") == records(tmp_path / "whole", "choices")


class Count(pl.Callback):
    def __init__(self, steps):
        self.steps = steps

    def on_train_batch_end(self, *_):
        self.steps.append(1)


def test_a_study_without_time_starts_nothing(tmp_path, trainings):
    results = tmp_path / "results"
    assert run(study(ONE_BAG), results, minutes=0) is False
    assert (trainings.names, records(results)) == ([], {})
    assert run(study(ONE_BAG), results, minutes=10) is True
    assert run(study(ONE_BAG), results, minutes=0) is True
    assert len(trainings.names) == 3


def test_a_started_training_finishes_after_the_time_limit(tmp_path, trainings):
    assert run(study(ONE_BAG), tmp_path, minutes=1e-5) is False
    assert len(trainings.names) == len(records(tmp_path, "folds")) == 1
    assert records(tmp_path, "runs") == {}


def test_added_seeds_leave_existing_records_unchanged(tmp_path, trainings):
    run(study(ONE_BAG), tmp_path)
    before = records(tmp_path)
    assert run(study({**ONE_BAG, "seeds": 3}), tmp_path)
    assert trainings.names[3:] == ["bag-flat-seed1", "bag-flat-seed2"]
    assert before.items() <= records(tmp_path).items()


def test_progress_counts_every_training(tmp_path):
    result = []
    run(study(ONE_BAG), tmp_path, progress=lambda *now: result.append(now))
    assert result == [
        ("r8/folds/bag-flat-fold0.json", 0, 3),
        ("r8/folds/bag-flat-fold1.json", 1, 3),
        ("r8/runs/bag-flat-seed0.json", 2, 3),
        ("finished", 3, 3),
    ]


# Failures


def test_a_failed_training_is_reported_and_the_others_finish(tmp_path, trainings):
    def fail(options):
        if "learning_rate0.1-fold1" in options["folder"].name:
            raise RuntimeError("out of memory")

    trainings.before = fail
    with pytest.raises(StudyError, match=r"^r8/folds/bag-flat-learning_rate0\.1-fold1\.json failed: Runtime.*memory$"):
        run(study(FLAT, SVC), tmp_path)
    assert len(records(tmp_path, "folds")) == 4 + 4 - 1
    assert set(records(tmp_path, "choices")) == {"choices/svc-svc.json"}
    assert set(records(tmp_path, "runs")) == {"runs/svc-svc-seed0.json"}

    trainings.before = lambda _: None
    assert run(study(FLAT, SVC), tmp_path)
    assert len(trainings.names) == len(set(trainings.names)) == 6


def test_all_failures_are_counted(tmp_path, trainings):
    def fail(_):
        raise RuntimeError("out of memory")

    trainings.before = fail
    with pytest.raises(StudyError, match=r"fold0\.json failed, and 3 others: RuntimeError"):
        run(study(FLAT), tmp_path)


# Records that are not of this study


@pytest.mark.parametrize("name", ["folds/bag-flat-fold0.json", "runs/bag-flat-seed0.json"])
@pytest.mark.parametrize("content", ['{"dataset": "r', "", "[]"])
def test_an_incomplete_record_is_an_error_with_its_name(tmp_path, trainings, name, content):
    run(study(ONE_BAG), tmp_path)
    (tmp_path / "r8" / name).write_text(content, "utf-8")
    with pytest.raises(InputError, match=f"{name}.*; remove it to run that part again"):
        run(study(ONE_BAG), tmp_path)
    assert len(trainings.names) == 3
    (tmp_path / "r8" / name).unlink()
    assert run(study(ONE_BAG), tmp_path)
    assert len(trainings.names) == 4


@pytest.mark.parametrize(
    ("arm", "changed", "differing"),
    [
        (ONE_BAG, with_settings(ONE_BAG, batch_size=4, clip=1.0), "batch_size, clip"),
        (ONE_BAG, with_settings(ONE_BAG, **{"encoder_options.dim": 5}), "encoder_options"),
        (SVC, with_settings(SVC, ngrams=1), "ngrams"),
        (SVC, {**SVC, "settings": {}}, "ngrams"),
        (SVC, with_settings(SVC, max_iter=100), "max_iter"),
    ],
)
def test_records_of_other_settings_are_an_error_before_anything_runs(tmp_path, trainings, arm, changed, differing):
    run(study(arm), tmp_path)
    count, before = len(trainings.names), records(tmp_path)
    with pytest.raises(OptionError, match=rf"fold0\.json has other settings \({differing}\); remove it"):
        run(study(ONE_BAG if arm is SVC else SVC, changed), tmp_path)
    assert (len(trainings.names), records(tmp_path)) == (count, before)


@pytest.mark.parametrize("given", [{"rows": 40}, {"folds": 3}])
def test_records_with_other_rows_or_folds_are_an_error(tmp_path, given):
    run(study(SVC), tmp_path)
    with pytest.raises(OptionError, match=rf"other settings \({next(iter(given))}\)"):
        run(study(SVC, **given), tmp_path)


def test_records_of_other_vectors_are_an_error(tmp_path, data):
    run(study(LSTM), tmp_path)
    put_vectors(data, "glove.6B.100d.txt")
    with pytest.raises(OptionError, match=r"other settings \(encoder_options\)"):
        run(study(LSTM), tmp_path)


def test_a_record_of_another_tree_is_an_error(tmp_path):
    run(study(SVC), tmp_path)
    edit(tmp_path / "r8" / "folds" / "svc-svc-C1.0-fold1.json", tree="deep")
    with pytest.raises(OptionError, match=r"C1\.0-fold1\.json has other settings \(tree\)"):
        run(study(SVC), tmp_path)


def test_a_run_of_settings_that_are_no_longer_selected_is_an_error(tmp_path):
    run(study(SVC), tmp_path)
    for fold in (0, 1):  # now the other point is the better one
        for point, value in (("0.3", 0.9), ("1.0", 0.1)):
            path = tmp_path / "r8" / "folds" / f"svc-svc-C{point}-fold{fold}.json"
            edit(path, curve=[{"epoch": 1, "macro_f1": value, "accuracy": value, "hf": value}])
    with pytest.raises(OptionError, match=r"runs/svc-svc-seed0\.json has other settings \(C\)"):
        run(study(SVC), tmp_path)
