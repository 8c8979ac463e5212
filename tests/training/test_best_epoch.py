"""The best epoch, and when training stops."""

import pytest

from arbormax.errors import OptionError
from arbormax.model import TrainConfig
from arbormax.training import fit
from arbormax.training.module import TrainingModule
from toy import TREE, examples, settings


@pytest.fixture
def run(monkeypatch):
    """A function that trains with given validation measures, and returns the number of epochs and the best one."""

    def run(rows, **given):
        left = iter(rows)

        def log(module):
            loss, score = next(left)
            for name, value in {"loss": loss, "macro_f1": score, "accuracy": 1 - score, "hf": 0.0}.items():
                module.log(f"valid/{name}", value)

        monkeypatch.setattr(TrainingModule, "on_validation_epoch_end", log)
        done = fit(settings(epochs=len(rows), **given), TREE, examples(24))
        return done.epochs, done.best_epoch

    return run


@pytest.mark.parametrize(
    ("rows", "best"),
    [
        ([(2.0, 0.1), (1.5, 0.3), (1.2, 0.2)], 3),  # the loss falls: macro-F1 at a high loss counts less
        ([(2.0, 0.1), (1.5, 0.3), (1.55, 0.4), (1.7, 0.5)], 3),  # the last loss is too high
        ([(2.0, 0.1), (1.5, 0.3), (1.49, 0.2)], 2),
        ([(1.50, 0.3), (1.56, 0.4), (1.48, 0.2)], 3),  # the second is not near the lowest any more
        ([(0.001, 0.9), (0.009, 1.0)], 2),  # near zero, a small difference is no sign of overfitting
        ([(float("nan"), 0.9), (1.0, 0.1)], 2),
        ([(1.0, 0.1), (float("nan"), 0.9)], 1),
        ([(1.0, 0.5), (1.0, 0.5)], 1),
    ],
)
def test_the_best_epoch_has_a_high_macro_f1_and_nearly_the_lowest_loss(run, rows, best):
    assert run(rows) == (len(rows), best)


@pytest.mark.parametrize(("monitor", "best"), [("macro_f1", 4), ("loss", 2), ("accuracy", 1), ("both", 3)])
def test_another_measure_can_select_the_epoch(run, monitor, best):
    rows = [(2.0, 0.1), (1.5, 0.3), (1.55, 0.4), (1.7, 0.5)]
    assert run(rows, monitor=monitor) == (4, best)


def test_training_stops_when_the_loss_rises_although_macro_f1_does_too(run):
    rows = [(2.0, 0.1), (1.5, 0.2), (1.7, 0.3), (1.9, 0.4), (2.1, 0.5)]
    assert run(rows, patience=2) == (4, 2)
    assert run(rows, patience=2, monitor="macro_f1") == (5, 5)


def test_an_unknown_measure_is_an_error():
    with pytest.raises(OptionError, match="monitor: expected 'both', 'macro_f1', 'accuracy' or 'loss'"):
        TrainConfig.make(monitor="f1")
