"""The calibration at the end of a training."""

import numpy as np
import pytest
import torch

from arbormax.data.folds import hold_out
from arbormax.errors import OptionError
from arbormax.heads.calibrated import CalibratedHead
from arbormax.model import TrainConfig
from arbormax.model.calibration import remove_calibration
from arbormax.studies import evaluate
from arbormax.training import fit
from toy import TREE, examples, settings

NOISY = examples(200)
NOISY.nodes[::4] = np.roll(NOISY.nodes, 1)[::4]  # labels that no text explains: a long training becomes too sure


def train(**given):
    return fit(settings(epochs=25, monitor="macro_f1", validation=0.3, **given), TREE, NOISY)


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("head", ["hierarchical", "flat"])
def test_a_training_calibrates_a_network_on_its_validation_part(head, refit):
    run = train(head=head, refit=refit, calibration="parent")
    assert run.model.calibration.method == "parent"
    assert isinstance(run.model.head, CalibratedHead) == (head == "flat")
    assert run.calibration["applied"]
    assert run.calibration["after"]["nll"] < run.calibration["before"]["nll"]
    fresh = examples(200, seed=3)
    fresh.nodes[::4] = np.roll(fresh.nodes, 1)[::4]
    calibrated = evaluate(run.model, fresh).metrics["nll"]
    remove_calibration(run.model)
    assert calibrated < evaluate(run.model, fresh).metrics["nll"] - 0.05


def test_none_and_no_validation_part_leave_the_model_as_it_is():
    for run in (train(calibration="none"), fit(settings(validation=0, calibration=None), TREE, NOISY)):
        assert run.calibration is None
        assert run.model.calibration is None


def test_probabilities_that_calibration_would_not_improve_stay_as_they_are():
    config = TrainConfig.make(encoder="tfidf", validation=0.3, calibration="vector")
    plain = config.model_copy(update={"calibration": "none"})
    run, other = (fit(each, TREE, examples(300)) for each in (config, plain))
    assert run.calibration["applied"] == (run.model.calibration is not None)
    if not run.calibration["applied"]:
        _, held_out = hold_out(examples(300), 0.3, 0)
        one, two = (torch.cat(list(each.model.node_log_probs(held_out.inputs))) for each in (run, other))
        assert torch.equal(one, two)
    assert (run.calibration["after"]["nll"] < run.calibration["before"]["nll"]) == run.calibration["applied"]


def test_an_unknown_calibration_is_an_error_before_training():
    with pytest.raises(OptionError, match="did you mean 'parent'") as raised:
        train(calibration="parents")
    assert raised.value.argument == "calibration"
