"""Decoders by name, restricted predictions and reasons, in both classifiers."""

import numpy as np
import pytest
import torch

import arbormax as am
from arbormax.errors import OptionError

TREE = {"animal": {"bird": ["owl", "hen"], "fish": ["cod", "eel"]}, "plant": ["oak", "rye"]}
NAMES = ["owl", "hen", "cod", "eel", "oak", "rye"]
TEXTS = [f"{word} {name}" for name in NAMES for word in ("the", "a", "an old")]
ASKED = ["an owl", "the hen and the cod", "a thing", "old rye"]


@pytest.fixture(scope="module")
def clf():
    labels = [text.split()[-1] for text in TEXTS]
    tax = am.Taxonomy.from_nested(TREE)
    return am.TextClassifier(tax, encoder_options={"char_ngrams": 0}, validation=0).fit(TEXTS, labels)


def logp(clf, texts=ASKED):
    return torch.from_numpy(clf.node_proba(texts)).log()


@pytest.mark.parametrize("name", am.decode.NAMES)
def test_every_decoder_predicts_by_name(clf, name):
    nodes = getattr(am.decode, name)(logp(clf), clf.taxonomy_)
    nodes = nodes if nodes.ndim == 1 else nodes[:, 0]
    assert clf.predict_nodes(ASKED, decoder=name).tolist() == nodes.tolist()
    assert clf.predict(ASKED, decoder=name).tolist() == [clf.taxonomy_.label(node) for node in nodes.tolist()]
    assert [found.node for found in clf.predict_details(ASKED, name)] == nodes.tolist()


def test_the_nll_is_infinite_if_the_right_class_is_excluded(clf):
    measures = clf.evaluate(ASKED[:1], ["oak"], without=["plant > oak"])
    assert measures["accuracy"] == 0
    assert measures["nll"] == float("inf")
    assert 1 < measures["brier"] <= 2


@pytest.mark.parametrize("metric", ["hf", "tree_distance", "risk", "information"])
def test_predict_takes_the_metric_of_the_optimal_decoder(clf, metric):
    nodes = am.decode.optimal(logp(clf), clf.taxonomy_, metric)
    assert clf.predict_nodes(ASKED, decoder="optimal", metric=metric).tolist() == nodes.tolist()
    assert clf.evaluate(ASKED, nodes_as_labels(clf, nodes), "optimal", metric=metric)["accuracy"] == 1.0


def nodes_as_labels(clf, nodes):
    return [clf.taxonomy_.path(node) or ("animal",) for node in nodes.tolist()]


def test_an_unknown_option_of_a_decoder_is_an_error(clf):
    with pytest.raises(OptionError, match="did you mean 'metric'"):
        clf.predict(ASKED, decoder="optimal", metrik="hf")


def test_beam_lists_its_paths_as_alternatives(clf):
    (found,) = clf.predict_details(ASKED[:1], "beam", k=3)
    values, labels = clf.topk(ASKED[:1], 3)
    assert [label for label, _ in found.alternatives] == labels[0].tolist()
    assert [p for _, p in found.alternatives] == pytest.approx(values[0].tolist(), abs=1e-6)
    assert found.label == labels[0, 0]


def test_a_prediction_above_the_classes_has_a_label_and_a_reason(clf):
    tau = 0.9
    for found in clf.predict_details(["the hen and the cod"], "threshold", tau=tau):
        assert found.reason.startswith(f"With a threshold of 90 %, the prediction stops at {found.label or 'the root'}")
    assert clf.predict(["a thing"], "threshold", tau=1.0).tolist() == [""]
    (found,) = clf.predict_details(["an owl"])
    assert found.reason is None
    why = clf.explain("the hen and the cod", tau=tau)
    assert why["reason"] == clf.predict_details(["the hen and the cod"], "threshold", tau=tau)[0].reason


def test_within_and_without_restrict_all_predictions(clf):
    allowed = {"cod", "eel"}
    assert set(clf.predict(ASKED, within=["fish"])) <= allowed
    assert set(clf.predict(ASKED, within=["animal"], without=["bird", "cod"])) == {"eel"}
    values = clf.predict_proba(ASKED, within=["fish"])
    assert values.sum(1) == pytest.approx(1, abs=1e-6)
    whole = clf.predict_proba(ASKED)
    inside = np.isin(clf.classes_, list(allowed))
    assert (values[:, ~inside] == 0).all()
    assert values[:, inside] == pytest.approx(whole[:, inside] / whole[:, inside].sum(1, keepdims=True), abs=1e-6)
    assert clf.node_proba(ASKED, within=["fish"])[:, clf.taxonomy_.find("bird")].max() == 0
    assert {label for label, p in clf.predict_details(ASKED, top_k=3, within="fish")[0].alternatives if p} == allowed
    assert set(clf.topk(ASKED, 2, within=inside)[1].ravel()) == allowed
    assert all("fish" in path for path in clf.predict_paths(ASKED, 0.5, within=["fish"]))
    assert clf.explain("an owl", within=["fish"])["path"][:2] == ["animal", "fish"]
    for oak in (("plant", "oak"), "plant > oak", "plant/oak"):
        assert (clf.predict_nodes(ASKED, within=[oak]) == clf.taxonomy_.find("oak")).all()


def test_each_text_may_have_its_own_restriction(clf):
    each = [["fish"], None, ["oak"], ["plant", "owl"]]
    found = clf.predict(ASKED, within=each)
    for text, nodes, label in zip(ASKED, each, found, strict=True):
        assert clf.predict([text], within=nodes).tolist() == [label]
    many = ASKED * 200  # several batches
    assert clf.predict(many, within=each * 200).tolist() == found.tolist() * 200


@pytest.mark.parametrize(
    ("restriction", "message"),
    [
        ({"within": [["fish"], None]}, "found 2 for at least 4 items"),
        ({"within": [["fish"]] * 5}, "for each of 4 items, found 5"),
        ({"within": ["birds"]}, "did you mean 'bird'"),
        ({"within": ["fish"], "without": ["animal"]}, "leaves no class"),
    ],
)
def test_a_wrong_restriction_is_an_error(clf, restriction, message):
    with pytest.raises(ValueError, match=message):
        clf.predict(ASKED, **restriction)


def test_inner_nodes_have_labels_in_the_form_of_the_training():
    X = np.eye(6, dtype=np.float32).repeat(4, 0)
    rows = [[*am.Taxonomy.from_nested(TREE).path(n), ""][:3] for n in (6, 7, 8, 9, 4, 5) for _ in range(4)]
    padded = [[*row, *[""] * (3 - len(row))] for row in rows]
    clf = am.HierarchicalClassifier(accelerator="cpu", epochs=30).fit(X, padded)
    found = clf.predict(np.zeros((1, 6), np.float32), decoder="threshold", tau=0.99)
    assert found.tolist() == [["", "", ""]]
    numbers = am.HierarchicalClassifier(accelerator="cpu", epochs=30).fit(X, np.arange(6).repeat(4))
    assert numbers.predict(np.zeros((1, 6), np.float32), "threshold", tau=0.99).tolist() == [""]
    assert numbers.predict(X[:1], within=np.array([0, 1, 0, 0, 0, 0], bool)).tolist() == [1]


def test_a_searched_tree_is_restricted():
    tax = am.Taxonomy.from_parents(np.r_[-1, np.zeros(200, np.int64), np.repeat(np.arange(1, 201), 30)])
    X = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    labels = [tax.classes[i * 150] for i in range(20)]
    clf = am.HierarchicalClassifier(tax, head="hierarchical", accelerator="cpu", epochs=1).fit(X, labels)
    nodes = clf.predict_nodes(X, decoder="leaf", within=[3])
    assert (tax.parent[nodes] == 3).all()
    assert nodes.tolist() == am.decode.leaf(am.decode.within(logp(clf, X), tax, [3]), tax).tolist()


def test_only_allowed_classes_are_alternatives(clf):
    each = [["fish"], None, ["owl"], ["fish", "plant"]]
    found = clf.predict_details(ASKED, top_k=3, within=each)
    assert [len(row.alternatives) for row in found] == [2, 3, 1, 3]
    assert {label for label, _ in found[0].alternatives} == {"cod", "eel"}
    (row,) = clf.predict_details(ASKED[:1], "beam", k=4, without=["fish", "plant"])
    assert {label for label, _ in row.alternatives} == {"owl", "hen"}


def test_the_alternatives_of_beam_are_its_paths(clf):
    (by_k,) = clf.predict_details(ASKED[:1], "beam", k=3)
    (by_top_k,) = clf.predict_details(ASKED[:1], "beam", top_k=3)
    (by_both,) = clf.predict_details(ASKED[:1], "beam", k=3, top_k=3)
    assert by_k.alternatives == by_top_k.alternatives == by_both.alternatives
    assert len(by_k.alternatives) == 3
    with pytest.raises(OptionError, match="give k or top_k"):
        clf.predict_details(ASKED[:1], "beam", k=3, top_k=5)


@pytest.mark.parametrize("side", ["within", "without"])
def test_a_guaranteed_coverage_refuses_a_restriction(clf, side):
    for method in (clf.predict_sets, clf.predict_selective):
        with pytest.raises(OptionError, match=f"{side}: a guaranteed coverage cannot"):
            method(ASKED, **{side: ["fish"]})


def test_an_option_of_another_decoder_or_metric_names_it(clf):
    with pytest.raises(OptionError, match=r"tau: decoder 'leaf' .* of the decoder 'threshold' or 'climb'"):
        clf.predict(ASKED, tau=0.9)
    with pytest.raises(OptionError, match=r"lam: decoder 'leaf' .* of the decoder 'optimal'"):
        clf.predict_details(ASKED, lam=2)
    with pytest.raises(OptionError, match=r"lam: the metric 'hf' .* of the metric 'information'"):
        clf.predict(ASKED, "optimal", lam=2)
