"""Predictions of models with uncertainty: the same values in Python, in tables and in the service."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import arbormax as am
from arbormax.data.columns import InputColumns
from arbormax.data.tables.writing import open_writer
from arbormax.decode import Restriction
from arbormax.model.draws import decompose, node_draws, restrict_draws
from arbormax.model.posterior import UNCERTAINTIES
from arbormax.model.predict import Decoding, decode_batches, predict
from arbormax.model.rows import predict_rows, read_rows
from arbormax.training import fit
from arbormax.uncertainty import predict_uncertainty
from strategies import taxonomies
from text_toy import LABELS, TEXTS, make, small
from toy import TREE, examples, settings

NAMES = ("std", "total", "aleatoric", "epistemic")


@pytest.fixture(scope="module")
def model():
    return fit(settings(uncertainty="ensemble", uncertainty_options={"members": 3}, epochs=4), TREE, examples(60)).model


def test_a_prediction_has_the_uncertainty_of_each_step(model):
    texts = examples(9, seed=2).inputs
    whole = predict_uncertainty(model, texts)
    for item, found in enumerate(predict(model, iter(texts), batch_size=4, decoder="greedy")):
        nodes = [TREE.find(found.path[: depth + 1]) for depth in range(len(found.path))]
        np.testing.assert_allclose(found.probabilities, whole["probability"][item, nodes], atol=1e-5)
        for name in NAMES:
            values = [getattr(step, name) for step in found.uncertainty]
            np.testing.assert_allclose(values, whole[name][item, nodes], atol=1e-5)
            assert found.to_dict()["uncertainty"][name] == values


def test_a_restriction_holds_for_every_draw(model):
    (found,) = predict(model, ["an owlish text"], within=["fish"])
    assert found.probabilities[1] == pytest.approx(1, abs=1e-5)
    assert found.uncertainty[1].std == pytest.approx(0, abs=1e-5)
    assert found.uncertainty[1].total == pytest.approx(0, abs=1e-5)
    assert found.uncertainty[2].total > 0


@given(taxonomies(), st.integers(0, 1000), st.data())
def test_the_weighted_mean_of_restricted_draws_is_the_restricted_mean(tax, seed, data):
    torch.manual_seed(seed)
    logp = am.functional.node_log_probs(3 * torch.randn(4, 2, tax.num_nodes - 1, dtype=torch.float64), tax)
    allowed = data.draw(st.lists(st.integers(0, tax.num_nodes - 1), min_size=1, max_size=3))
    restriction = Restriction(tax, allowed)
    restricted, weights = restrict_draws(logp, restriction, tax)
    found = decompose(restricted, tax, weights)
    expected = am.decode.within(logp.exp().mean(0).log(), tax, allowed).exp()
    torch.testing.assert_close(found["probability"], expected)
    torch.testing.assert_close(found["total"], found["aleatoric"] + found["epistemic"], atol=1e-9, rtol=1e-9)


def mean_of_members(model, texts):
    """(n, N) the mean probabilities of an ensemble, computed one member at a time."""
    members = [model, *model.posterior.others]
    logp = [torch.cat(list(member.node_log_probs(texts))).double() for member in members]
    return torch.stack(logp).exp().mean(0).numpy()


def test_everything_that_reads_probabilities_takes_the_mean_over_the_draws(tmp_path):
    clf = small(uncertainty="ensemble", uncertainty_options={"members": 3}, epochs=2).fit(TEXTS, LABELS)
    texts, labels = TEXTS[:12], LABELS[:12]
    p = mean_of_members(clf.model_, texts)
    leaves = clf.taxonomy_.leaves
    assert not np.allclose(p, np.exp(np.concatenate([b.numpy() for b in clf.model_.node_log_probs(texts)])))
    np.testing.assert_allclose(clf.node_proba(texts), p, atol=1e-5)
    np.testing.assert_allclose(clf.predict_proba(texts), p[:, leaves], atol=1e-5)
    np.testing.assert_allclose(clf.predict_uncertainty(texts)["probability"], p, atol=1e-5)
    np.testing.assert_allclose(clf.topk(texts, 1)[0][:, 0], p[:, leaves].max(1), atol=1e-5)
    assert clf.predict(texts).tolist() == clf.classes_[p[:, leaves].argmax(1)].tolist()
    true = np.array([clf.taxonomy_.find(label) for label in labels])
    assert clf.evaluate(texts, labels)["nll"] == pytest.approx(-np.log(p[np.arange(12), true]).mean(), abs=1e-5)
    explained = clf.explain(texts[0])
    assert explained["probability"] == pytest.approx(p[0, explained["node"]], abs=1e-5)
    within = clf.predict_details(texts[:1], within=["sci"])[0]
    sci = clf.taxonomy_.find("sci")
    assert within.probabilities[1] == pytest.approx(p[0, within.node] / p[0, sci], abs=1e-5)
    again = am.TextClassifier.load(clf.save(tmp_path / "model"))
    np.testing.assert_allclose(again.node_proba(texts), p, atol=1e-5)


def test_a_calibration_is_fitted_to_the_mean_and_coverage_holds_for_it():
    clf = small(uncertainty="ensemble", uncertainty_options={"members": 3}, epochs=2).fit(TEXTS, LABELS)
    held_out, truth = make(60, seed=7)
    p = mean_of_members(clf.model_, held_out)
    nodes = np.array([clf.taxonomy_.find(label) for label in truth])
    clf.calibrate(held_out, truth, "temperature")
    assert clf.calibration_.before["nll"] == pytest.approx(-np.log(p[np.arange(60), nodes]).mean(), abs=1e-5)
    assert clf.evaluate(held_out, truth)["nll"] < clf.calibration_.before["nll"]
    clf.calibrate(held_out, truth, "temperature", coverage=True)
    leaves = clf.predict_sets(held_out[:3], alpha=0.2)
    assert len(leaves) == 3


def test_an_export_of_a_model_with_uncertainty_is_an_error(model, tmp_path):
    from arbormax.integrations.onnx import ExportError, export_model

    with pytest.raises(ExportError, match="predicts with many networks"):
        export_model(model, tmp_path / "graph", "torch-export")


def test_without_uncertainty_nothing_changes(model):
    plain = fit(settings(epochs=1), TREE, examples(12)).model
    (found,) = predict(plain, ["an owlish text"])
    assert found.uncertainty is None
    assert "uncertainty" not in found.to_dict()
    (batch,) = decode_batches(model, ["an owlish text"], Decoding())
    assert batch.uncertainty is None  # labels alone take one pass


def test_a_table_of_predictions_has_the_uncertainty(model, tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text\nan owlish text\n")
    (row,) = predict_rows(model, read_rows(str(path), InputColumns()), on_bad_rows=print)
    assert {name: len(values) for name, values in row["uncertainty"].items()} == dict.fromkeys(NAMES, len(row["path"]))
    json.dumps(row)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_of_paths_of_any_length_fit_one_table(model, suffix, tmp_path):
    source, out = tmp_path / "texts.csv", tmp_path / f"out.{suffix}"
    source.write_text("text\nan owlish text\nthe oakish\nold\n")
    rows = read_rows(str(source), InputColumns())
    decoding = Decoding("threshold", {"tau": 0.999_999})
    for options in (Decoding(), decoding):  # the second one predicts the root
        with open_writer(out) as write:
            for row in predict_rows(model, rows, options, on_bad_rows=print):
                write(row)
        rows = read_rows(str(source), InputColumns())
    if suffix == "csv":
        header, *lines = out.read_text().splitlines()
        assert [name for name in header.split(",") if "uncertainty" in name] == [f"uncertainty_{n}" for n in NAMES]
        assert len(lines) == 3
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        assert parquet.read_table(out).schema.field("uncertainty").type.field("std").type.value_type == "double"


def test_the_estimator_returns_it_for_feature_matrices(tmp_path):
    draw = np.random.default_rng(0)
    y = np.array(["a/x", "a/y", "b/z"])[draw.integers(0, 3, 200)]
    X = draw.normal(size=(200, 3)) + 2 * np.stack([y == name for name in ("a/x", "a/y", "b/z")], 1)
    clf = am.HierarchicalClassifier({"a": ["x", "y"], "b": ["z"]}, uncertainty="laplace").fit(X, y)
    found = clf.predict_uncertainty(X[:4])
    assert found["epistemic"].shape == (4, clf.taxonomy_.num_nodes)
    assert found["epistemic"].max() > 0
    assert clf.predict_details(X[:1])[0].uncertainty is not None
    again = am.HierarchicalClassifier.load(clf.save(tmp_path / "model"))
    np.testing.assert_allclose(again.predict_uncertainty(X[:4])["epistemic"], found["epistemic"], atol=1e-6)


@pytest.mark.parametrize("encoder", ["bag", "bilstm"])
@pytest.mark.parametrize("method", UNCERTAINTIES.names)
def test_an_item_has_the_same_draws_in_every_batch(method, encoder):
    given = {"uncertainty_options": {"members": 2} if method == "ensemble" else {"draws": 6}}
    model = fit(settings(encoder, uncertainty=method, epochs=2, **given), TREE, examples(40)).model
    texts = examples(9, seed=2).inputs
    together = torch.cat(list(node_draws(model, texts)), 1)
    apart = torch.cat([next(node_draws(model, [text])) for text in texts], 1)
    torch.testing.assert_close(together, apart, atol=1e-4, rtol=1e-4)
