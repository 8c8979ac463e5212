"""Predictions of models with uncertainty: the same values in Python, in tables and in the service."""

import json

import numpy as np
import pytest
import torch

import arbormax as am
from arbormax.model.draws import node_draws
from arbormax.model.posterior import UNCERTAINTIES
from arbormax.model.predict import Decoding, decode_batches, predict
from arbormax.model.rows import predict_rows
from arbormax.training import fit
from arbormax.uncertainty import predict_uncertainty
from toy import TREE, examples, settings

NAMES = ("probability", "total", "aleatoric", "epistemic")


@pytest.fixture(scope="module")
def model():
    return fit(settings(uncertainty="ensemble", uncertainty_options={"members": 3}, epochs=4), TREE, examples(60)).model


def test_a_prediction_has_the_uncertainty_of_each_step(model):
    texts = examples(9, seed=2).inputs
    whole = predict_uncertainty(model, texts)
    for item, found in enumerate(predict(model, iter(texts), batch_size=4, decoder="greedy")):
        nodes = [TREE.find(found.path[: depth + 1]) for depth in range(len(found.path))]
        for name in NAMES:
            values = [getattr(step, name) for step in found.uncertainty]
            np.testing.assert_allclose(values, whole[name][item, nodes], atol=1e-5)
        assert found.to_dict()["uncertainty"][0].keys() == set(NAMES)


def test_a_restriction_holds_for_every_draw(model):
    (found,) = predict(model, ["an owlish text"], within=["fish"])
    assert found.uncertainty[1].probability == pytest.approx(1, abs=1e-5)
    assert found.uncertainty[1].total == pytest.approx(0, abs=1e-5)
    assert found.uncertainty[2].total > 0


def test_without_uncertainty_nothing_changes(model):
    plain = fit(settings(epochs=1), TREE, examples(12)).model
    (found,) = predict(plain, ["an owlish text"])
    assert found.uncertainty is None
    assert "uncertainty" not in found.to_dict()
    (batch,) = decode_batches(model, ["an owlish text"], Decoding())
    assert batch.uncertainty is None  # labels alone take one pass


def test_a_table_of_predictions_has_the_uncertainty(model, tmp_path):
    from arbormax.model.rows import read_rows

    path = tmp_path / "texts.csv"
    path.write_text("text\nan owlish text\n")
    batches, column = read_rows(str(path), "text")
    (row,) = predict_rows(model, batches, column, on_bad_rows=print)
    assert [step["probability"] for step in row["uncertainty"]] == pytest.approx(row["probabilities"], abs=0.5)
    json.dumps(row)


def test_the_estimator_returns_it_for_feature_matrices():
    draw = np.random.default_rng(0)
    y = np.array(["a/x", "a/y", "b/z"])[draw.integers(0, 3, 200)]
    X = draw.normal(size=(200, 3)) + 2 * np.stack([y == name for name in ("a/x", "a/y", "b/z")], 1)
    clf = am.HierarchicalClassifier({"a": ["x", "y"], "b": ["z"]}, uncertainty="laplace").fit(X, y)
    found = clf.predict_uncertainty(X[:4])
    assert found["epistemic"].shape == (4, clf.taxonomy_.num_nodes)
    assert found["epistemic"].max() > 0
    assert clf.predict_details(X[:1])[0].uncertainty is not None


@pytest.mark.parametrize("encoder", ["bag", "bilstm"])
@pytest.mark.parametrize("method", UNCERTAINTIES.names)
def test_an_item_has_the_same_draws_in_every_batch(method, encoder):
    given = {"uncertainty_options": {"members": 2} if method == "ensemble" else {"draws": 6}}
    model = fit(settings(encoder, uncertainty=method, epochs=2, **given), TREE, examples(40)).model
    texts = examples(9, seed=2).inputs
    together = torch.cat(list(node_draws(model, texts)), 1)
    apart = torch.cat([next(node_draws(model, [text])) for text in texts], 1)
    torch.testing.assert_close(together, apart, atol=1e-4, rtol=1e-4)
