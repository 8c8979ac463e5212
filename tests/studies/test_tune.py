"""The short search for settings: within its time, on the training examples only, with the best so far at the end."""

import json
import logging
from importlib import import_module

import numpy as np
import pytest

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.errors import MissingDependencyError, OptionError
from arbormax.model import TrainConfig
from arbormax.studies import train_model
from arbormax.studies.record import Record
from arbormax.studies.tune import read_duration, tune

MODULE = import_module("arbormax.studies.tune")  # the module has a function of this name
TAX = am.Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]})
CONFIG = TrainConfig.make(validation=0.25)


def toy(count: int = 60) -> Examples:
    nodes = TAX.leaves[np.arange(count) % TAX.num_leaves]
    return Examples([f"{TAX.names[node]} number {place % 7}" for place, node in enumerate(nodes)], nodes)


@pytest.fixture
def clock(monkeypatch):
    """A clock that each training advances by a second, and the settings of these trainings."""
    now, tried, train = [0.0], [], MODULE.fit

    def fit(config, *rest, **options):
        tried.append(config)
        now[0] += 1
        return train(config, *rest, **options)

    monkeypatch.setattr(MODULE, "fit", fit)
    monkeypatch.setattr(MODULE.time, "monotonic", lambda: now[0])
    return tried


@pytest.mark.parametrize(
    ("given", "seconds"), [("90s", 90), ("5min", 300), ("1.5 min", 90), ("1h", 3600), (20, 20), ("0.5", 0.5)]
)
def test_a_duration_is_a_number_with_a_unit(given, seconds):
    assert read_duration(given) == seconds


@pytest.mark.parametrize("given", ["5 parsecs", "", "0s", "-1min", "5m", True, "inf", None])
def test_another_duration_is_an_error_with_examples(given):
    with pytest.raises(OptionError, match="tune: expected a duration such as 90s, 5min or 1h"):
        read_duration(given)


def test_the_first_trial_has_the_default_settings_and_no_trial_starts_that_would_end_too_late(clock):
    found = tune(CONFIG, TAX, toy(), budget="4.5s")
    usual = CONFIG.resolved()
    assert len(clock) == len(found.trials) == 4
    assert found.trials[0].settings == {"strength": usual.strength, "ngrams": 2, "char_ngrams": 4}
    assert found.seconds == 4


def test_the_default_settings_are_tried_however_short_the_time_is(clock):
    found = tune(CONFIG, TAX, toy(), budget="0.1s")
    assert (len(clock), found.best) == (1, 0)
    assert "enough for the default settings only" in MODULE.describe(found)
    assert found.config.strength == CONFIG.resolved().strength


def test_the_best_trial_is_trained_with_and_recorded(clock, tmp_path, monkeypatch):
    del clock
    train = MODULE.fit

    def fit(config, *rest, **options):  # unigrams are the best
        run = train(config, *rest, **options)
        loss = 0.1 if config.options.ngrams == 1 else 1.0
        return type(run)(**{**vars(run), "curve": ({**run.curve[0], "loss": loss},)})

    monkeypatch.setattr(MODULE, "fit", fit)
    trained = train_model(CONFIG, TAX, toy(), tmp_path / "model", budget=12)
    assert trained.run.model.encoder.options.ngrams == 1
    tuning = Record.read(tmp_path / "model").tuning
    assert tuning["settings"]["ngrams"] == 1
    assert tuning["settings"] == tuning["trials"][tuning["best"]]["settings"]
    assert trained.run.model.config.strength == tuning["settings"]["strength"]
    assert not (tmp_path / "model" / "checkpoints").exists()
    json.dumps(tuning, allow_nan=False)


def test_settings_that_are_given_stay(clock):
    config = TrainConfig.make(validation=0.25, strength=3.0, encoder_options={"ngrams": 1})
    found = tune(config, TAX, toy(), budget="4s")
    assert {tuple(trial.settings) for trial in found.trials} == {("char_ngrams",)}
    assert {(each.strength, each.options.ngrams) for each in clock} == {(3.0, 1)}
    with pytest.raises(OptionError, match="nothing is left to search"):
        tune(
            config.model_copy(update={"encoder_options": {"ngrams": 1, "char_ngrams": 0}}),
            TAX,
            toy(),
            budget="4s",
        )


def test_adam_searches_its_learning_rate_and_epochs(clock):
    config = TrainConfig.make(encoder="bag", encoder_options={"dim": 4}, validation=0.25)
    found = tune(config, TAX, toy(), budget="4s")
    assert list(found.trials[0].settings) == ["learning_rate", "epochs", "ngrams", "char_ngrams"]
    usual = config.resolved()
    for each in clock:
        assert usual.learning_rate / 5 <= each.learning_rate <= usual.learning_rate * 5
        assert usual.epochs // 2 <= each.epochs <= usual.epochs * 2
        assert not each.refit


def test_only_the_training_examples_or_the_given_ones_are_measured_on(monkeypatch):
    seen = []
    train = MODULE.fit
    monkeypatch.setattr(MODULE, "fit", lambda *rest, **kw: (seen.append(rest), train(*rest, **kw))[1])
    examples, valid = toy(), toy(8)
    tune(CONFIG, TAX, examples, valid, budget="0.01s")
    assert seen[0][2] is examples
    assert seen[0][3] is valid


def test_the_same_seed_tries_the_same_settings(clock):
    del clock
    runs = [tune(CONFIG, TAX, toy(), budget="6s") for _ in range(2)]
    assert [t.settings for t in runs[0].trials] == [t.settings for t in runs[1].trials]


def test_an_interruption_keeps_the_best_so_far(clock, monkeypatch, caplog):
    train, calls = MODULE.fit, []

    def fit(*rest, **options):
        calls.append(rest)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return train(*rest, **options)

    monkeypatch.setattr(MODULE, "fit", fit)
    with caplog.at_level(logging.INFO, "arbormax"):
        found = tune(CONFIG, TAX, toy(), budget="50s")
    assert len(found.trials) == len(clock) == 2
    assert "interrupted" in caplog.text


def test_an_interruption_of_the_first_trial_stops_everything(monkeypatch):
    def fit(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(MODULE, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        tune(CONFIG, TAX, toy(), budget="50s")


@pytest.mark.parametrize(
    ("encoder", "settings"), [("bag", {"learning_rate": 0.01, "epochs": 2}), ("tfidf", {"strength": 1.0})]
)
def test_a_trial_ends_with_the_time_and_is_not_used(encoder, settings):
    config = TrainConfig.make(encoder=encoder, encoder_options={"ngrams": 1, "char_ngrams": 0}, validation=0.25)
    space = MODULE.TuneSpace.of(config, TAX, 60)
    changed = MODULE.change_settings(space.config, settings)
    hardware = MODULE.ONE_DEVICE
    found = MODULE.try_settings(changed, settings, TAX, toy(), None, deadline=0.0, hardware=hardware)
    assert found.error == "the time is over"
    assert found.measures == {}


def test_trials_that_fail_do_not_end_the_search(clock, monkeypatch, caplog):
    train = MODULE.fit

    def fit(config, *rest, **options):
        run = train(config, *rest, **options)
        if len(clock) > 1:
            raise FloatingPointError("too large")
        return run

    monkeypatch.setattr(MODULE, "fit", fit)
    with caplog.at_level(logging.INFO, "arbormax"):
        found = tune(CONFIG, TAX, toy(), budget="4s")
    assert found.best == 0
    assert found.trials[1].error == "FloatingPointError: too large"
    assert "too large" in caplog.text


def test_a_resumed_training_does_not_search_again(clock, tmp_path):
    first = tune(CONFIG, TAX, toy(), budget="5s", folder=tmp_path)
    count = len(clock)
    again = tune(CONFIG, TAX, toy(), budget="5s", folder=tmp_path, resume=True)
    assert len(clock) == count
    assert (again.config, again.best, again.trials) == (first.config, first.best, first.trials)


def test_errors_name_the_argument(monkeypatch):
    with pytest.raises(OptionError, match="only one example"):
        tune(CONFIG, TAX, toy(4), budget=1)
    with pytest.raises(OptionError, match="no training data"):
        tune(TrainConfig.make(names="only"), TAX, toy(), budget=1)
    with pytest.raises(OptionError, match="one device"):
        tune(CONFIG, TAX, toy(), budget=1, hardware=am.training.Hardware("cpu", 2))

    def missing(*given):
        raise MissingDependencyError(*given[1:])

    monkeypatch.setattr(MODULE, "import_extra", missing)
    with pytest.raises(MissingDependencyError, match=r"pip install 'optuna', or pip install 'arbormax\[train\]'"):
        tune(CONFIG, TAX, toy(), budget=1)


def test_a_classifier_tunes_what_its_parameters_leave_open(clock):
    examples = toy()
    labels = [TAX.label(node) for node in examples.nodes.tolist()]
    clf = am.TextClassifier(TAX, tune="3s", strength=1.0).fit(examples.inputs, labels)
    assert set(clf.tuned_.trials[0].settings) == {"ngrams", "char_ngrams"}
    assert clf.model_.config.encoder_options["ngrams"] == clf.tuned_.trials[clf.tuned_.best].settings["ngrams"]
    assert {each.strength for each in clock} == {1.0}
    with pytest.raises(OptionError, match="tune: expected a duration"):
        am.TextClassifier(TAX, tune="soon").fit(examples.inputs, labels)


def test_a_classifier_of_matrices_tunes_around_its_own_defaults(clock):
    rows = np.random.default_rng(0).normal(size=(60, 5))
    clf = am.HierarchicalClassifier(tune="3s", epochs=3).fit(rows, ["x/y", "x/z"] * 30)
    assert len(clock) == 3
    assert list(clf.tuned_.trials[0].settings) == ["learning_rate"]
    assert [each.validation for each in clock] == [0.1] * 3
    assert clf.model_.config.validation == 0  # the final training has all rows
    assert clf.tuned_.trials[0].settings["learning_rate"] > 0.01  # not the default of networks
