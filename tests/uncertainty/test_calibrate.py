"""Calibrated models: saved, edited, restored, and used by everything that predicts."""

import json

import numpy as np
import pytest
import torch

import arbormax as am
from arbormax.data.examples import Examples, Unseen
from arbormax.errors import InputError, LabelError, OptionError
from arbormax.heads import HEADS
from arbormax.heads.calibrated import CalibratedHead
from arbormax.model import Model, load_model, save_model
from arbormax.model.calibration import apply_calibration, remove_calibration
from arbormax.model.predict import predict
from arbormax.studies import evaluate
from arbormax.training import fit
from arbormax.uncertainty import CALIBRATIONS
from arbormax.uncertainty.calibration import calibrate, fit_calibration
from arbormax.uncertainty.conformal import (
    SetRule,
    class_groups,
    coverage_decoding,
    coverage_scores,
    coverage_table,
    measure_coverage,
    predict_sets,
)
from oracles import leaves_below
from toy import TREE, examples, settings


def log_probs(model, inputs):
    return torch.cat(list(model.node_log_probs(inputs))).double()


def overconfident(head: str = "hierarchical", seed: int = 0) -> Model:
    """A model whose rows are random and large, so that its probabilities are wrong and extreme."""
    model = Model.new(examples(60).inputs, TREE, settings(head=head, seed=seed))
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.mul_(2000)
    return model.eval()


@pytest.fixture(scope="module")
def held_out():
    return examples(300, seed=7, inner=0.1)


@pytest.mark.parametrize("head", HEADS.names)
@pytest.mark.parametrize("method", CALIBRATIONS.names)
def test_calibration_lowers_the_loss_and_is_saved(head, method, held_out, tmp_path):
    model = overconfident(head)
    before = evaluate(model, held_out).metrics["nll"]
    report = calibrate(model, held_out, method, coverage=False)
    after = evaluate(model, held_out).metrics["nll"]
    assert after < before - 0.01
    assert report.before["nll"] == pytest.approx(before, abs=1e-4)
    assert report.after["nll"] < before
    loaded = load_model(save_model(model, tmp_path / "model"))
    torch.testing.assert_close(log_probs(loaded, held_out.inputs), log_probs(model, held_out.inputs))
    assert loaded.calibration.method == method
    version = json.loads((tmp_path / "model" / "config.json").read_text())["format_version"]
    assert version == (2 if isinstance(model.head, CalibratedHead) else 1)


def test_temperatures_are_written_into_the_rows_of_a_hierarchical_head(held_out):
    model, other = overconfident(), overconfident()
    calibration, _ = fit_calibration(model, held_out, "parent")
    apply_calibration(model, calibration)
    assert not isinstance(model.head, CalibratedHead)
    other.head = CalibratedHead(
        other.head, torch.from_numpy(calibration.scaling.scale), torch.from_numpy(calibration.scaling.shift)
    )
    torch.testing.assert_close(
        log_probs(model, held_out.inputs), log_probs(other, held_out.inputs), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("head", ["hierarchical", "blended"])
def test_a_second_calibration_replaces_the_first_and_removing_it_restores_the_model(head, held_out):
    model = overconfident(head)
    raw = log_probs(model, held_out.inputs)
    calibrate(model, held_out, "vector")
    calibrate(model, held_out, "parent")
    once = overconfident(head)
    calibrate(once, held_out, "parent")
    torch.testing.assert_close(
        log_probs(model, held_out.inputs), log_probs(once, held_out.inputs), atol=1e-4, rtol=1e-4
    )
    remove_calibration(model)
    torch.testing.assert_close(log_probs(model, held_out.inputs), raw, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("head", HEADS.names)
def test_a_calibrated_head_is_consistent(head, held_out):
    model = overconfident(head)
    calibrate(model, held_out, "vector")
    (features,) = (part.clone().requires_grad_(False) for part in model.features(held_out.inputs[:5]))
    model.requires_grad_(False)
    logp = model.head.node_log_probs(features)
    leaves = logp[:, TREE.leaves.copy()]
    torch.testing.assert_close(model.head(features), leaves)
    torch.testing.assert_close(leaves.exp().sum(-1), torch.ones(5))
    classes = torch.tensor([0, 1, 2, 3, -100])
    expected = torch.nn.functional.nll_loss(leaves, classes)
    torch.testing.assert_close(model.head.loss(features, classes), expected)
    values, ranked = model.head.topk(features, 2)
    torch.testing.assert_close(values, leaves.gather(1, ranked))
    found = list(predict(model, held_out.inputs[:5], top_k=2))
    assert [row.node for row in found] == TREE.leaves[ranked[:, 0].numpy()].tolist()


@pytest.mark.parametrize("method", ["parent", "vector"])
@pytest.mark.parametrize("head", ["hierarchical", "flat", "blended"])
def test_a_calibrated_model_is_edited_and_saved(head, method, held_out, tmp_path):
    model = overconfident(head)
    calibrate(model, held_out, method, coverage=True)
    before = log_probs(model, held_out.inputs).exp()
    edited = am.edit(model).rename("owl", "eagle").add("bee", under="animal").done()
    assert edited.head is model.head
    assert model.coverage is None
    after = log_probs(model, held_out.inputs).exp()
    cod, eel, fish = (model.taxonomy.find(name) for name in ("cod", "eel", "fish"))
    was = before[:, TREE.find("cod")] / before[:, TREE.find("fish")]
    torch.testing.assert_close(after[:, cod] / after[:, fish], was, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(after[:, cod] + after[:, eel], after[:, fish])
    loaded = load_model(save_model(model, tmp_path / "model"))
    torch.testing.assert_close(log_probs(loaded, held_out.inputs).exp(), after)


def test_coverage_is_saved_and_needs_other_items_than_the_calibration(held_out, tmp_path):
    model = overconfident()
    report = calibrate(model, held_out, "level", coverage=0.9)
    assert (report.items, report.coverage_items) == (150, 150)
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert loaded.coverage.target == 0.9
    np.testing.assert_array_equal(loaded.coverage.scores, model.coverage.scores)
    whole = calibrate(loaded, held_out, "none", coverage=True)
    assert (whole.method, whole.coverage_items) == (None, 300)
    assert loaded.calibration.method == "level"
    calibrate(loaded, held_out, "level", coverage=False)
    assert loaded.coverage is None  # the scores were those of other probabilities


@pytest.mark.parametrize(("items", "stored"), [(99, 0), (100, 50), (300, 150)])
def test_a_calibration_with_enough_items_stores_scores_for_coverage(held_out, items, stored):
    model = overconfident()
    report = calibrate(model, held_out.take(np.arange(items)))
    assert (report.items, report.coverage_items) == (items - stored, stored)
    assert (model.coverage is None) == (stored == 0)
    if stored:
        assert model.coverage.target is None
        assert len(list(predict_sets(model, held_out.inputs[:3], 0.1))) == 3


def test_a_training_estimates_the_coverage_and_guarantees_none(tmp_path):
    train = examples(800)
    labels = [TREE.label(node) for node in train.nodes.tolist()]
    clf = am.TextClassifier(TREE, encoder="bag", encoder_options={"dim": 8}, epochs=2, validation=0.2)
    clf.fit(train.inputs, labels)
    found = clf.model_.coverage
    assert (len(found.nodes), found.scores.shape, found.is_estimate) == (160, (160, 1), True)
    loaded = load_model(clf.save(tmp_path / "model"))
    assert loaded.coverage.is_estimate
    table = coverage_table(loaded)
    assert (table["items"], table["guaranteed"], table["most_in_branches"]) == (160, False, None)
    with pytest.raises(InputError, match="no held-out scores"):
        list(predict_sets(loaded, ["a"]))
    with pytest.raises(InputError, match="no held-out scores"):
        clf.predict_sets(["a"])
    clf.calibrate(train.inputs[:200], labels[:200])
    assert coverage_table(clf.model_)["guaranteed"]


def test_the_estimated_scores_are_those_of_the_calibrated_probabilities():
    train, valid = examples(300), examples(200, seed=5)
    valid.nodes[::3] = TREE.leaves[0]  # many labels are wrong, so that the model has to become less sure
    config = settings(epochs=1, calibration="temperature")
    run = fit(config, TREE, train, valid)
    assert run.calibration["applied"]
    expected = coverage_scores(run.model, valid, sizes=1)
    np.testing.assert_allclose(run.model.coverage.scores, expected, atol=1e-5)
    remove_calibration(run.model)
    assert np.abs(coverage_scores(run.model, valid, sizes=1) - expected).max() > 0.05


@pytest.mark.parametrize("groups", [None, "branch", {"animal": "a", "plant": "p", "owl": "p"}])
def test_sets_are_measured_on_labelled_examples(held_out, groups):
    model, other = overconfident(), examples(200, seed=11, inner=0.1)
    calibrate(model, held_out)
    sets = list(predict_sets(model, other.inputs, 0.2, 3, groups=groups))
    leaves = [{leaf for node in nodes for leaf in leaves_below(TREE, node)} for nodes in sets]
    truth = [set(leaves_below(TREE, node)) for node in other.nodes.tolist()]
    is_covered = np.array([true <= found for true, found in zip(truth, leaves, strict=True)])
    rule = SetRule.of(model, 0.2, 3, groups)
    found = evaluate(model, other, decoding=coverage_decoding(model, 0.8, max_nodes=3, groups=groups)).metrics["sets"]
    assert found == measure_coverage(model, other, rule)
    assert (found["items"], found["max_nodes"]) == (200, 3)
    assert found["coverage"] == pytest.approx(is_covered.mean())
    assert found["classes"] == pytest.approx(np.mean([len(each) for each in leaves]))
    assert found["nodes"] == pytest.approx(np.mean([len(each) for each in sets]))
    if groups is None:
        assert "groups" not in found
        return
    names, group_C = class_groups(TREE, groups)
    group_of = [{group_C[TREE.class_of[leaf]] for leaf in each} for each in truth]
    for number, name in enumerate(names):
        own = np.array([each == {number} for each in group_of])
        assert found["groups"][name] == {"items": own.sum(), "coverage": pytest.approx(is_covered[own].mean())}


def test_no_set_covers_a_label_that_the_model_does_not_know(held_out):
    model, known = overconfident(), examples(10, seed=3)
    calibrate(model, held_out)
    decoding = coverage_decoding(model, 0.9, max_nodes=1, groups="branch")
    unknown = Examples(known.inputs, np.full(10, TREE.num_nodes), (Unseen("bee", 1),))
    found = evaluate(model, unknown, decoding=decoding).metrics["sets"]
    assert found["coverage"] == 0.0
    assert {group["items"] for group in found["groups"].values()} == {0}


def test_what_cannot_be_calibrated_is_an_error(held_out):
    model = overconfident()
    with pytest.raises(OptionError, match="did you mean 'parent'") as raised:
        calibrate(model, held_out, "parents")
    assert raised.value.argument == "method"
    with pytest.raises(OptionError, match=r"available: temperature, level, parent, vector, none\)$"):
        calibrate(model, held_out, "platt")
    for method in ("none", None):
        with pytest.raises(OptionError, match=r"nothing to do.*; try coverage=0\.9$"):
            calibrate(model, held_out, method)
    with pytest.raises(InputError, match="no examples") as raised:
        calibrate(model, held_out.take([]))
    assert raised.value.argument == "X"
    with pytest.raises(InputError, match="needs the scores of at least 199 items, found 150") as raised:
        calibrate(model, held_out, coverage=0.995)
    assert raised.value.argument == "coverage"
    assert model.calibration is None
    for value in (0.0, 1.0, "much"):
        with pytest.raises(OptionError, match="between 0 and 1"):
            calibrate(model, held_out, coverage=value)


def test_a_classifier_of_texts_predicts_sets(tmp_path):
    train, rest = examples(120), examples(400, seed=3)
    label = [TREE.label(node) for node in train.nodes.tolist()]
    clf = am.TextClassifier(TREE, encoder="bag", encoder_options={"dim": 8}, epochs=2, refit=False)
    clf.fit(train.inputs, label)
    half, other = rest.take(np.arange(200)), rest.take(np.arange(200, 400))
    with pytest.raises(InputError, match=r"clf\.calibrate\(X, y, coverage=True\)"):
        clf.predict_sets(other.inputs)
    assert clf.calibrate(half.inputs, [TREE.label(node) for node in half.nodes.tolist()], coverage=True) is clf
    sets = clf.predict_sets(other.inputs, alpha=0.1, max_nodes=2)
    assert {len(found) for found in sets} <= {1, 2}
    covered = [
        any(TREE.path(node)[: len(path)] == path for path in found)
        for found, node in zip(sets, other.nodes.tolist(), strict=True)
    ]
    assert np.mean(covered) > 0.8
    single = [TREE.find(path) for (path,) in clf.predict_sets(other.inputs, alpha=0.1)]
    assert clf.predict_selective(other.inputs, 0.9).tolist() == single
    in_branches = clf.predict_sets(other.inputs, alpha=0.2, groups="branch")
    assert len(in_branches) == 200
    with pytest.raises(LabelError, match="add their classes") as raised:
        clf.calibrate(["an owlish text"], ["unicorn"])
    assert raised.value.argument == "y"
    with pytest.raises(LabelError) as raised:
        clf.calibrate(["an owlish text"] * 2, ["unicorn", "dragon"])
    first, *listed = str(raised.value).splitlines()
    assert first.startswith("y: 2 different labels, of 2 items, are not valid; remove these items, or add")
    assert [line.split("'")[1] for line in listed] == ["unicorn", "dragon"]
    with pytest.raises(InputError, match="at least 999 items") as raised:
        clf.predict_sets(other.inputs, alpha=0.001)
    assert raised.value.argument == "alpha"
    with pytest.raises(OptionError, match="from 1 to 5"):
        clf.predict_sets(other.inputs, max_nodes=6)
    again = am.TextClassifier.load(clf.save(tmp_path / "model"))
    assert again.predict_sets(other.inputs, alpha=0.1, max_nodes=2) == sets


def test_a_classifier_of_features_is_calibrated():
    draw = np.random.default_rng(0)
    y = np.array(["a/x", "a/y", "b/z"])[draw.integers(0, 3, 400)]
    X = draw.normal(size=(400, 3)) + 2 * np.stack([y == name for name in ("a/x", "a/y", "b/z")], 1)
    clf = am.HierarchicalClassifier({"a": ["x", "y"], "b": ["z"]}).fit(X[:200], y[:200])
    clf.calibrate(X[200:], y[200:], "temperature", coverage=0.8)
    assert {len(paths) for paths in clf.predict_sets(X[:20], alpha=0.2)} == {1}


def test_all_groups_that_are_too_small_are_named():
    model = overconfident()
    nodes = TREE.find_many([TREE.classes[0]] * 40)
    calibrate(model, Examples(["an owlish text"] * 40, nodes), None, coverage=True)
    branch = TREE.names[int(TREE.ancestor_at(nodes[0], 1))]
    with pytest.raises(InputError, match="at least 9 held-out items in each group") as raised:
        predict_sets(model, ["an owlish text"], 0.1, groups="branch")
    others = [TREE.names[node] for node in TREE.children(0).tolist() if TREE.names[node] != branch]
    assert all(f"{name!r} has 0" in raised.value.message for name in others)
    assert repr(branch) not in raised.value.message
    assert raised.value.argument == "groups"
    assert "alpha" not in raised.value.message
