"""Cross-validation: every example measured once, by a model that never saw it."""

import json
from importlib import import_module

import numpy as np
import pytest

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.data.folds import assign_folds
from arbormax.errors import InputError, OptionError
from arbormax.model import TrainConfig
from arbormax.studies.crossval import crossval

MODULE = import_module("arbormax.studies.crossval")  # the package has a function of this name
TAX = am.Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]})
TINY = TrainConfig(encoder="bag", encoder_options={"dim": 8}, epochs=2, batch_size=8, validation=0.2)


def toy(count: int = 40) -> Examples:
    nodes = TAX.leaves[np.arange(count) % TAX.num_leaves]
    return Examples([f"{TAX.names[node]} number {place}" for place, node in enumerate(nodes)], nodes)


@pytest.fixture
def trainings(monkeypatch):
    """The training and validation texts of every call of `fit`, in order."""
    seen, real = [], am.training.fit

    def spy(config, taxonomy, train, valid=None, **options):
        seen.append((set(train.inputs), None if valid is None else set(valid.inputs)))
        return real(config, taxonomy, train, valid, **options)

    monkeypatch.setattr(MODULE, "fit", spy)
    return seen


def test_every_example_is_predicted_once_by_a_model_not_trained_on_it(trainings):
    examples = toy()
    found = crossval(TINY, TAX, examples, folds=4)
    assert (found.predicted >= 0).all()
    assert found.never_validated == 0
    assert found.fold.tolist() == assign_folds(examples.nodes, 4, TINY.seed).tolist()
    for fold, (trained, valid) in enumerate(trainings):
        assert trained == {text for text, own in zip(examples.inputs, found.fold, strict=True) if own != fold}
        assert valid is None  # early stopping takes its share from what is trained on
    assert found.pooled["accuracy"] == (found.predicted == examples.nodes).mean()
    for number, fold in enumerate(found.folds):
        at = found.fold == number
        assert fold["items"] == at.sum()
        assert fold["macro_f1"] == am.metrics.evaluate(examples.nodes[at], found.predicted[at], TAX)["macro_f1"]
        assert fold["seconds"] > 0
        assert fold["best_epoch"] in (1, 2)
    scores = [fold["macro_f1"] for fold in found.folds]
    assert found.mean["macro_f1"] == pytest.approx(np.mean(scores))
    assert found.std["macro_f1"] == pytest.approx(np.std(scores, ddof=1))
    assert found.pooled["nll"] == pytest.approx(found.mean["nll"])  # folds of equal size


def test_epochs_from_the_fold_stop_early_on_the_fold_itself(trainings):
    examples = toy(24)
    found = crossval(TINY, TAX, examples, folds=2, epochs_from="fold")
    assert found.epochs_from == "fold"
    for trained, valid in trainings:
        assert valid == set(examples.inputs) - trained
    for fold in found.folds:
        assert fold["valid_macro_f1"] == pytest.approx(fold["macro_f1"])


def test_the_only_example_of_a_label_is_always_trained_on(trainings):
    inner = TAX.find("a")
    examples = Examples([*toy(20).inputs, "alone"], np.append(toy(20).nodes, inner))
    found = crossval(TINY, TAX, examples, folds=2)
    assert found.never_validated == 1
    assert found.predicted[-1] == -1
    assert all("alone" in trained for trained, _ in trainings)
    assert found.pooled["items"] == 20


def test_the_result_is_the_same_every_time_and_ready_for_json():
    one, other = (crossval(TINY, TAX, toy(), folds=2).to_dict() for _ in range(2))
    for result in (one, other):
        json.dumps(result, allow_nan=False)
        for part in (*result["folds"], result["mean"], result["std"], result["pooled"]):
            part.pop("seconds")
    assert one == other
    assert len(one["predicted"]) == 40


def test_a_restart_skips_the_finished_folds_and_ends_the_same(tmp_path, monkeypatch):
    whole = crossval(TINY, TAX, toy(), folds=3)
    real, calls = am.training.fit, []

    def dies_in_the_second(*args, **options):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(MODULE, "fit", dies_in_the_second)
    with pytest.raises(KeyboardInterrupt):
        crossval(TINY, TAX, toy(), folds=3, folder=tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["fold-0.json", "identity.json"]
    outcome = []
    again = crossval(TINY, TAX, toy(), folds=3, folder=tmp_path, progress=lambda *call: outcome.append(call))
    assert len(calls) == 4
    assert again.predicted.tolist() == whole.predicted.tolist()
    assert [fold["nll"] for fold in again.folds] == [fold["nll"] for fold in whole.folds]
    assert not list(tmp_path.rglob("checkpoints"))
    assert outcome == [("fold 1 of 3", 0, 3), ("fold 2 of 3", 1, 3), ("fold 3 of 3", 2, 3), ("finished", 3, 3)]


def test_an_interrupted_fold_is_resumed(tmp_path, monkeypatch):
    whole = crossval(TINY, TAX, toy(), folds=2)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MODULE, "evaluate", stop)  # trained, but not yet measured
        with pytest.raises(KeyboardInterrupt):
            crossval(TINY, TAX, toy(), folds=2, folder=tmp_path)
    assert (tmp_path / "fold-0" / "checkpoints").is_dir()
    again = crossval(TINY, TAX, toy(), folds=2, folder=tmp_path)
    assert again.predicted.tolist() == whole.predicted.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": TINY.model_copy(update={"seed": 1})}, "seed was 0, now 1"),
        ({"examples": toy(36)}, "other training examples"),
        ({"folds": 3}, "folds was 2, now 3"),
        ({"epochs_from": "fold"}, "epochs_from was 'inner', now 'fold'"),
        ({"taxonomy": am.Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "u"]})}, "another taxonomy"),
    ],
)
def test_a_folder_of_another_cross_validation_is_an_error(tmp_path, change, message):
    given = {"config": TINY, "taxonomy": TAX, "examples": toy(), "folds": 2, "folder": tmp_path}
    crossval(**given)
    with pytest.raises(OptionError, match=message):
        crossval(**{**given, **change})


def test_an_incomplete_record_is_an_error_with_its_name(tmp_path):
    crossval(TINY, TAX, toy(), folds=2, folder=tmp_path)
    (tmp_path / "fold-1.json").write_text("{")
    with pytest.raises(InputError, match=r"fold-1\.json is not valid JSON: .*; remove it to run that part again"):
        crossval(TINY, TAX, toy(), folds=2, folder=tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 1}, "folds: expected 2 to"),
        ({"epochs_from": "outer"}, "epochs_from: expected"),
        (
            {"epochs_from": "fold", "config": TINY.model_copy(update={"validation": 0})},
            "try validation=0.1",
        ),
        ({"examples": Examples([], np.zeros(0))}, "no examples"),
        ({"examples": Examples(["u", "v"], [99, 99])}, "node ids"),
    ],
)
def test_invalid_arguments_are_an_error(change, message):
    with pytest.raises((InputError, OptionError), match=message):
        crossval(**{"config": TINY, "taxonomy": TAX, "examples": toy(), **change})
