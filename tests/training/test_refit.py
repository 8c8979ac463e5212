"""After early stopping has chosen the number of epochs, the model is trained again on all examples."""

import hashlib
import os
import signal

import pytest
import pytorch_lightning as pl

from arbormax.data.examples import Examples
from arbormax.data.folds import hold_out
from arbormax.errors import OptionError
from arbormax.model import TrainConfig, load_model, save_model
from arbormax.studies.record import Record
from arbormax.studies.train import train_model
from arbormax.training import Hardware, TrainingInterrupted, fit
from toy import TREE, examples, same_weights, settings


def test_the_second_training_is_that_of_all_examples_for_the_chosen_epochs():
    data, config = examples(60), settings(epochs=6, refit=True)
    run = fit(config, TREE, data)
    assert run.refit_epochs == run.best_epoch  # the learning rate is constant
    assert 0 < run.best_epoch <= run.epochs == len(run.curve)
    plain = fit(settings(epochs=run.refit_epochs, validation=0), TREE, data)
    assert same_weights(run.model, plain.model)
    assert run.model.config == config.resolved(len(data))


def test_the_second_training_uses_the_held_out_examples():
    data = examples(60)
    data = Examples([f"{text} rare{i}" for i, text in enumerate(data.inputs)], data.nodes)
    part, held_out = hold_out(data, 0.1)
    run = fit(settings(epochs=2, refit=True), TREE, data)
    words = set(run.model.encoder.vocabulary.words)
    assert all(text.split()[-1] in words for text in [*part.inputs, *held_out.inputs])


def test_a_falling_learning_rate_gets_as_many_epochs_as_its_sum_needs():
    config = settings(epochs=8, refit=True, schedule="linear", patience=1, learning_rate=1.0)
    run = fit(config, TREE, examples(60))
    best, all_epochs = run.best_epoch, config.epochs
    assert abs(run.refit_epochs - (2 * best - best**2 / all_epochs)) < 0.51
    plain = fit(
        settings(epochs=run.refit_epochs, validation=0, schedule="linear", learning_rate=1.0), TREE, examples(60)
    )
    assert same_weights(run.model, plain.model)


@pytest.mark.parametrize("reason", ["given", "none held out", "disabled"])
def test_there_is_no_second_training_without_own_held_out_examples(reason):
    config = settings(epochs=2, refit=reason != "disabled", validation=0 if reason == "none held out" else 0.1)
    run = fit(config, TREE, examples(30), examples(12, seed=3) if reason == "given" else None)
    assert run.refit_epochs is None
    off = fit(
        config.model_copy(update={"refit": False}),
        TREE,
        examples(30),
        examples(12, seed=3) if reason == "given" else None,
    )
    assert same_weights(run.model, off.model)


class SignalAt(pl.Callback):
    """Sends a signal to this process after the given number of steps, over both trainings."""

    def __init__(self, step):
        self.step, self.calls = step, 0

    def on_train_batch_end(self, *_):
        self.calls += 1
        if self.calls == self.step:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def never_stopped():
    """A run of 3 epochs of 7 steps on a part of the examples and 3 of 8 steps on all of them."""
    run = fit(settings(epochs=3, refit=True, learning_rate=0.01, monitor="loss"), TREE, examples(60))
    assert (run.epochs, run.refit_epochs) == (3, 3)
    return run


def digest(model):
    values = [value.numpy().tobytes() for _, value in sorted(model.state_dict().items())]
    return hashlib.sha256(b"".join(values)).hexdigest()


@pytest.mark.parametrize("step", [2, 7, 20, 22, 25, 30])
def test_a_run_that_is_stopped_in_either_training_resumes_to_the_same_weights(step, never_stopped, tmp_path):
    config, data = settings(epochs=3, refit=True, learning_rate=0.01, monitor="loss"), examples(60)
    with pytest.raises(TrainingInterrupted):
        fit(config, TREE, data, folder=tmp_path, callbacks=[SignalAt(step)])
    resumed = fit(config, TREE, data, folder=tmp_path, resume=True)
    assert digest(resumed.model) == digest(never_stopped.model)
    assert resumed.curve == never_stopped.curve
    again = fit(config, TREE, data, folder=tmp_path, resume=True)  # nothing is left to do
    assert digest(again.model) == digest(never_stopped.model)
    assert again.seconds <= resumed.seconds
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"last.ckpt", "last.sha256", "refit.ckpt", "refit.sha256", "lock", "run.json"}
    assert list((tmp_path / "logs" / "refit").glob("metrics*.csv"))


def test_a_checkpoint_of_the_second_training_is_not_overwritten(never_stopped, tmp_path):
    config, data = settings(epochs=3, refit=True, learning_rate=0.01, monitor="loss"), examples(60)
    fit(config, TREE, data, folder=tmp_path)
    (tmp_path / "checkpoints" / "last.ckpt").unlink()
    with pytest.raises(OptionError, match="contains an unfinished run"):
        fit(config, TREE, data, folder=tmp_path)
    with pytest.raises(OptionError, match="refit was True, now False"):
        fit(config.model_copy(update={"refit": False}), TREE, data, folder=tmp_path, resume=True)
    assert digest(fit(config, TREE, data, folder=tmp_path, resume=True).model) == digest(never_stopped.model)


@pytest.mark.slow
def test_several_devices_train_twice_to_the_weights_of_one():
    config = settings(epochs=2, refit=True, batch_size=8, encoder="bag", encoder_options={"dropout": 0.0})
    one = fit(config, TREE, examples(60))
    two = fit(config.model_copy(update={"batch_size": 4}), TREE, examples(60), hardware=Hardware("cpu", 2))
    assert two.refit_epochs == one.refit_epochs
    for mine, theirs in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert mine.allclose(theirs, atol=1e-5)


def test_the_folder_of_a_model_says_that_it_was_trained_again(tmp_path):
    trained = train_model(settings(epochs=2, refit=True), TREE, examples(60), tmp_path, test=examples(12, seed=1))
    training = Record.read(tmp_path).training
    assert training.refit_epochs == trained.run.refit_epochs is not None
    assert len(training.curve) == 2
    assert training.valid_macro_f1 == trained.run.valid_macro_f1
    card = (tmp_path / "README.md").read_text("utf-8")
    assert "the model was then trained again on all examples, for " in card
    assert load_model(tmp_path).config.refit
    plain = save_model(fit(settings(epochs=1), TREE, examples(60)).model, tmp_path / "plain")
    assert "trained again" not in (plain / "README.md").read_text("utf-8")


def test_the_progress_bar_says_which_training_runs(capfd):
    fit(settings(epochs=1, refit=True), TREE, examples(60), progress=True)
    shown = capfd.readouterr().err
    assert "phase: selection" in shown
    assert "phase: refit" in shown


def test_the_settings_of_the_paper_have_no_second_training():
    config = TrainConfig.make(preset="paper")
    assert (config.refit, config.monitor) == (False, "macro_f1")
