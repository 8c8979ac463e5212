"""Models with uncertainty: trained, saved, calibrated and edited, with every registered method."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import arbormax as am
from arbormax.errors import InputError, OptionError
from arbormax.model import TrainConfig, load_model, save_model
from arbormax.model.calibration import Scaling, apply_calibration, remove_calibration
from arbormax.model.posterior import UNCERTAINTIES
from arbormax.model.predict import predict
from arbormax.report import report_html
from arbormax.studies import evaluate
from arbormax.training import fit
from arbormax.uncertainty import predict_uncertainty
from arbormax.uncertainty.calibration import calibrate, fit_calibration
from arbormax.uncertainty.predictive import FIELDS
from text_toy import LABELS, TAX, TEXTS, small
from toy import TREE, examples, settings

OPTIONS = {"ensemble": {"members": 3}}
QUERY = [*examples(6, seed=5).inputs, "unheard words"]


def options_of(method):
    return OPTIONS.get(method, {"draws": 8})


def train(method, encoder="bag", **given):
    given = {"uncertainty_options": options_of(method), "epochs": 4, **given}
    return fit(settings(encoder, uncertainty=method, **given), TREE, examples(60)).model


@pytest.mark.parametrize("encoder", ["bag", "bilstm"])
@pytest.mark.parametrize("method", UNCERTAINTIES.names)
def test_every_method_describes_every_node_and_is_saved(method, encoder, tmp_path):
    model = train(method, encoder)
    found = predict_uncertainty(model, QUERY)
    assert tuple(found) == FIELDS
    for values in found.values():
        assert values.shape == (7, TREE.num_nodes)
        assert values.dtype == np.float32
        assert np.isfinite(values).all()
        assert (values >= 0).all()
    np.testing.assert_allclose(found["total"], found["aleatoric"] + found["epistemic"], atol=1e-6)
    np.testing.assert_allclose(found["probability"][:, TREE.leaves].sum(1), 1, atol=1e-5)
    assert found["epistemic"].max() > 1e-6
    again = predict_uncertainty(load_model(save_model(model, tmp_path / "model")), QUERY)
    for name in FIELDS:
        np.testing.assert_allclose(again[name], found[name], atol=1e-5)


@pytest.mark.parametrize("method", UNCERTAINTIES.names)
def test_the_draws_of_a_calibrated_model_are_calibrated_and_its_rows_are_kept(method):
    model = train(method)
    before = predict_uncertainty(model, QUERY)["probability"]
    weights = {name: value.clone() for name, value in model.head.state_dict().items()}
    calibrate(model, examples(60, seed=9, inner=0.3), "temperature")
    after = predict_uncertainty(model, QUERY)["probability"]
    assert np.abs(after - before).max() > 1e-3
    base = model.head.base.state_dict()
    assert all(torch.equal(base[name], weights[name]) for name in weights)


def test_a_calibration_is_the_best_for_the_mean_over_the_scaled_draws():
    model, held_out = train("ensemble", epochs=2), examples(600, seed=9)
    generator = torch.Generator().manual_seed(0)
    for member in (model, *model.posterior.others):  # networks that are sure and disagree
        with torch.no_grad():
            member.head.weight.add_(torch.randn(member.head.weight.shape, generator=generator)).mul_(3)
    calibration, report = fit_calibration(model, held_out, "temperature")
    assert report.before["nll"] == pytest.approx(evaluate(model, held_out).metrics["nll"], abs=1e-4)

    def loss(factor):
        scale = calibration.scaling.scale * factor
        apply_calibration(model, replace(calibration, scaling=Scaling(scale, calibration.scaling.shift)))
        found = evaluate(model, held_out).metrics["nll"]
        remove_calibration(model)
        return found

    best = loss(1.0)
    assert best < report.before["nll"] - 0.005
    assert best < min(loss(1.1), loss(1 / 1.1))


@pytest.mark.parametrize("method", UNCERTAINTIES.names)
def test_a_training_calibrates_the_mean_over_the_draws(method):
    config = settings(uncertainty=method, uncertainty_options=options_of(method), epochs=1, calibration="temperature")
    valid = examples(200, seed=5)
    run = fit(config, TREE, examples(60), valid)
    assert run.calibration["applied"]
    after = evaluate(run.model, valid).metrics["nll"]
    assert after == pytest.approx(run.calibration["after"]["nll"], abs=0.01)  # each item is scaled by other folds
    remove_calibration(run.model)
    before = evaluate(run.model, valid).metrics["nll"]
    assert before == pytest.approx(run.calibration["before"]["nll"], abs=1e-4)


def test_an_ensemble_is_the_mean_of_its_members():
    model = train("ensemble")
    members = [model, *model.posterior.others]
    assert len({float(member.head.weight.detach().sum()) for member in members}) == 3
    mean = torch.stack([torch.cat(list(member.node_log_probs(QUERY))).exp() for member in members]).mean(0)
    np.testing.assert_allclose(predict_uncertainty(model, QUERY)["probability"], mean.numpy(), atol=1e-6)


def test_snapshots_continue_the_training_and_stay_closer_than_other_seeds():
    apart = train("ensemble")
    near = train("ensemble", uncertainty_options={"members": 3, "snapshots": True})

    def distances(model):
        first = model.head.weight.detach()
        return [float((other.head.weight.detach() - first).norm()) for other in model.posterior.others]

    assert 0 < max(distances(near)) < min(distances(apart))


def test_the_mean_over_dropout_is_near_the_network_without_it():
    model = train("dropout", uncertainty_options={"draws": 400}, epochs=2)
    mean = predict_uncertainty(model, QUERY)["probability"]
    plain = torch.cat(list(model.node_log_probs(QUERY))).exp().numpy()
    np.testing.assert_allclose(mean, plain, atol=0.05)


def test_refitted_models_have_members_of_all_texts():
    model = train("ensemble", refit=True, validation=0.2)
    assert {len(member.encoder.vocabulary) for member in model.posterior.others} == {len(model.encoder.vocabulary)}


def test_a_classifier_with_a_linear_model_knows_what_it_has_not_seen(tmp_path):
    clf = am.TextClassifier(
        {"comp": ["graphics", {"sys": ["ibm", "mac"]}], "sci": ["med", "space"]}, uncertainty="laplace"
    )
    clf.fit(TEXTS, LABELS)
    assert clf.model_.config.head == "hierarchical"  # the default head of the encoder is another one
    seen, unseen = clf.predict_uncertainty(["the pixel"]), clf.predict_uncertainty(["zebra"])
    assert seen["probability"].shape == (1, clf.taxonomy_.num_nodes)
    again = am.TextClassifier.load(clf.save(tmp_path / "model"))
    np.testing.assert_allclose(again.predict_uncertainty(["the pixel"])["epistemic"], seen["epistemic"], atol=1e-6)
    assert again.get_params()["uncertainty"] == "laplace"
    assert unseen["total"][0, 1] > seen["total"][0, 1]


def test_an_ensemble_of_linear_models_is_trained_with_adam():
    config = TrainConfig.make(uncertainty="ensemble").resolved()
    assert config.solver == "adam"


def test_an_edited_model_has_no_uncertainty():
    model = train("laplace")
    am.edit(model).add("bee", under="animal").done()
    with pytest.raises(InputError, match="an edit of its taxonomy has removed the uncertainty"):
        predict_uncertainty(model, QUERY)
    assert all(found.uncertainty is None for found in predict(model, QUERY))


def test_a_model_without_uncertainty_says_how_to_get_it():
    with pytest.raises(InputError, match="train it with the setting uncertainty"):
        small().fit(TEXTS, LABELS).predict_uncertainty(TEXTS)


def test_uncertainty_needs_training_data():
    tax = TAX.with_texts({name: name for name in TAX.classes})
    with pytest.raises(OptionError, match="needs training data"):
        am.TextClassifier(tax, uncertainty="laplace").fit_texts()


def test_the_card_and_the_record_say_that_probabilities_are_means(tmp_path):
    clf = small(uncertainty="dropout", encoder_options={"dim": 8, "dropout": 0.2}).fit(TEXTS, LABELS)
    clf.evaluate(TEXTS, LABELS)
    folder = clf.save(tmp_path / "model")
    assert "means over 30 draws of the network (dropout)" in (folder / "README.md").read_text()
    details = json.loads((folder / "metrics.json").read_text())["details"]
    assert details["probabilities"] == "means over 30 draws of dropout"
    page = report_html([folder])
    assert "means over 30 draws of dropout" in page


def test_a_training_with_uncertainty_is_calibrated_only_on_request():
    plain = small(uncertainty="dropout", encoder_options={"dim": 8, "dropout": 0.2}, validation=0.2)
    assert plain.fit(TEXTS, LABELS).run_.calibration is None
    wanted = plain.set_params(calibration="temperature").fit(TEXTS, LABELS)
    assert wanted.run_.calibration["method"] == "temperature"


@pytest.mark.parametrize(
    ("given", "argument", "message"),
    [
        ({"uncertainty": "laplas"}, "uncertainty", "did you mean 'laplace'"),
        ({"uncertainty": "ensemble", "solver": "convex"}, "solver", "cannot train for the uncertainty 'ensemble'"),
        (
            {"uncertainty": "bbb", "encoder": "transformer", "encoder_options": {"model": "any"}},
            "uncertainty",
            "not possible with encoder 'transformer'",
        ),
        ({"uncertainty": "dropout"}, "uncertainty", "not possible with encoder 'tfidf'"),
        ({"uncertainty": "bbb", "encoder": "bag", "head": "blended"}, "uncertainty", "head 'blended'"),
        ({"uncertainty": "laplace", "encoder": "bag", "head": "shared"}, "uncertainty", "head 'shared'"),
        ({"uncertainty": "laplace", "encoder": "bag", "adapter": 2}, "uncertainty", "adapters"),
        (
            {"uncertainty": "dropout", "encoder": "bag", "uncertainty_options": {"draw": 3}},
            "uncertainty_options",
            "did you mean 'draws'",
        ),
        ({"uncertainty_options": {"draws": 3}}, "uncertainty_options", "none is chosen"),
        (
            {"uncertainty": "laplace", "uncertainty_options": {"precision": 0}},
            "uncertainty_options.precision",
            "greater than 0",
        ),
    ],
)
def test_wrong_settings_are_errors(given, argument, message):
    with pytest.raises(OptionError, match=message) as raised:
        TrainConfig.make(**given).resolved()
    found = [raised.value, *raised.value.parts]
    assert argument in [error.argument for error in found]


def test_what_a_model_cannot_do_is_an_error():
    with pytest.raises(OptionError, match="needs a dropout above 0"):
        train("dropout", encoder_options={"dropout": 0.0})
    with pytest.raises(OptionError, match="needs dense features"):
        small(encoder=None, encoder_options=None, epochs=None, batch_size=None, learning_rate=None,
              uncertainty="laplace", uncertainty_options={"structure": "full"}).fit(TEXTS, LABELS)  # fmt: skip


def test_a_tree_that_is_too_large_for_draws_is_an_error_before_the_training():
    tax = am.Taxonomy.from_parents([-1, *([0] * 300), *(1 + i % 300 for i in range(60_000))])
    config = TrainConfig.make(encoder="bag", encoder_options={"dim": 2}, head="hierarchical", uncertainty="laplace")
    data = examples(8)
    with pytest.raises(OptionError, match="too slow for a tree") as raised:
        fit(config, tax, type(data)(data.inputs, tax.leaves[:8]))
    assert raised.value.argument == "uncertainty"


def test_with_sparse_features_held_out_texts_choose_the_factor_of_the_precision():
    clf = am.TextClassifier(TAX, uncertainty="laplace").fit(TEXTS, LABELS)
    chosen = clf.model_.posterior.options.factor
    assert 1 <= chosen <= 10_000
    evidence = am.TextClassifier(TAX, uncertainty="laplace", uncertainty_options={"factor": 1}).fit(TEXTS, LABELS)
    median = [model.model_.posterior.describe()["precision"]["median"] for model in (clf, evidence)]
    assert median[0] == pytest.approx(chosen * median[1])
    with pytest.raises(InputError, match="chosen on held-out examples") as raised:
        am.TextClassifier(TAX, uncertainty="laplace", validation=0).fit(TEXTS, LABELS)
    assert raised.value.argument == "uncertainty_options.factor"
