"""The classifier with scikit-learn's conventions, through its public name: what it is, answers and labels."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, log_loss
from sklearn.utils import get_tags

import arbormax as am
from arbormax.model import Model, TrainConfig
from text_toy import LABELS, PATHS, TAX, TEXTS, TREE, WORDS, make, path_of, small

# ------------------------------------------------------------------ conventions


def test_the_constructor_only_stores_its_arguments():
    options = {"dim": 3}
    made = am.TextClassifier(TREE, encoder_options=options, epochs="many")
    assert made.encoder_options is options
    assert made.taxonomy is TREE
    assert set(vars(made)) == set(made.get_params())


def test_every_setting_of_training_is_a_parameter_with_the_same_default():
    params = am.TextClassifier().get_params()
    usual = TrainConfig.make()
    for name in TrainConfig.model_fields.keys() - {"columns", "separator"}:  # those of the inputs
        left_open = {"encoder": "tfidf", "encoder_options": {}, "head": "blended", "uncertainty_options": {}}
        default = left_open[name] if name in left_open and params[name] is None else params[name]
        assert default == getattr(usual, name), name


def test_clones_have_the_parameters_and_no_model(clf):
    copy = clone(clf)
    assert copy.get_params() == clf.get_params()
    assert copy.taxonomy is TAX
    with pytest.raises(NotFittedError):
        copy.predict(TEXTS)


def test_set_params_changes_the_next_fit(clf):
    other = clone(clf).set_params(head="flat", epochs=1).fit(TEXTS, LABELS)
    assert (other.model_.config.head, other.n_iter_) == ("flat", 1)
    with pytest.raises(ValueError, match="Invalid parameter 'epoch'"):
        other.set_params(epoch=3)


@pytest.mark.parametrize(
    "call",
    ["predict", "predict_proba", "predict_log_proba", "predict_nodes", "predict_paths", "node_proba"],
)
def test_an_unfitted_classifier_raises_an_error(call):
    with pytest.raises(NotFittedError):
        getattr(am.TextClassifier(), call)(["a"])


def test_an_unfitted_classifier_neither_scores_nor_saves(tmp_path):
    made = am.TextClassifier()
    for call in (
        lambda: made.topk(["a"], 1),
        lambda: made.score(["a"], ["b"]),
        lambda: made.evaluate(["a"], ["b"]),
        lambda: made.save(tmp_path / "m"),
    ):
        with pytest.raises(NotFittedError):
            call()
    assert not (tmp_path / "m").exists()


def test_the_tags_declare_text_input():
    tags = get_tags(am.TextClassifier())
    assert tags.estimator_type == "classifier"
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array
    assert tags.target_tags.required
    assert tags.classifier_tags.multi_class


def test_fit_returns_the_classifier_and_sets_its_attributes(clf):
    assert isinstance(clf.model_, Model)
    assert clf.taxonomy_ is TAX
    assert clf.classes_.tolist() == list(TAX.classes)
    assert clf.n_iter_ == clf.run_.epochs == 5
    made = small(epochs=1)
    assert made.fit(TEXTS, LABELS) is made


def test_the_same_seed_gives_the_same_result_and_fit_starts_anew(clf):
    again = clone(clf).fit(TEXTS[:20], LABELS[:20]).fit(TEXTS, LABELS)
    assert np.array_equal(again.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    other = clone(clf).set_params(seed=1).fit(TEXTS, LABELS)
    assert not np.array_equal(other.predict_proba(TEXTS), clf.predict_proba(TEXTS))


def test_a_failed_fit_keeps_the_former_model(clf):
    made = small(epochs=1).fit(TEXTS, LABELS)
    before = made.predict_proba(TEXTS)
    with pytest.raises(am.errors.LabelError):
        made.fit(TEXTS, ["nonsense"] * len(TEXTS))
    assert np.array_equal(made.predict_proba(TEXTS), before)


def test_pickle_keeps_the_predictions(clf):
    assert np.array_equal(pickle.loads(pickle.dumps(clf)).predict_proba(TEXTS), clf.predict_proba(TEXTS))


def test_a_hundred_texts_are_enough_for_the_default_settings():
    texts, labels = make(100)
    unseen, truth = make(50, seed=1)
    assert am.TextClassifier(TAX).fit(texts, labels).score(unseen, truth) > 0.9


def test_the_default_batch_size_depends_on_the_number_of_texts():
    assert small(batch_size=None, epochs=1).fit(TEXTS, LABELS).model_.config.batch_size == len(TEXTS) // 20
    assert small(batch_size=50, epochs=1).fit(TEXTS, LABELS).model_.config.batch_size == 50
    paper = am.TextClassifier(TAX, preset="paper", encoder_options={"hidden": 4}, epochs=1, validation=0)
    assert paper.fit(TEXTS[:10], LABELS[:10]).model_.config.batch_size == 10


# -------------------------------------------------------------------- prediction


def test_probabilities_sum_to_one_and_their_maximum_is_the_prediction(clf):
    proba = clf.predict_proba(TEXTS)
    assert proba.shape == (60, 5)
    np.testing.assert_allclose(proba.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(clf.predict_log_proba(TEXTS), np.log(proba), rtol=1e-4, atol=1e-6)
    assert (clf.classes_[proba.argmax(1)] == clf.predict(TEXTS)).all()
    assert log_loss(LABELS, proba, labels=clf.classes_) < 0.5


def test_unseen_texts_are_classified_correctly(clf):
    unseen, truth = make(seed=1)
    assert clf.score(unseen, truth) == accuracy_score(truth, clf.predict(unseen)) > 0.95


def test_probabilities_of_nodes_are_those_of_the_leaves_below(clf):
    nodes, proba = clf.node_proba(TEXTS), clf.predict_proba(TEXTS)
    assert nodes.shape == (60, TAX.num_nodes)
    np.testing.assert_allclose(nodes[:, 0], 1, rtol=1e-5)
    np.testing.assert_allclose(nodes[:, TAX.leaves], proba, rtol=1e-4)
    np.testing.assert_allclose(nodes, np.stack([TAX.sum_up(row) for row in proba]), rtol=1e-4)


def test_predicted_nodes_are_the_deepest_that_pass(clf):
    texts = [*TEXTS, "neither of these words"]
    proba = clf.node_proba(texts)
    for tau in (0.5, 0.9):
        nodes = clf.predict_nodes(texts, tau=tau)
        assert nodes.dtype == np.int64
        for node, row in zip(nodes, proba, strict=True):
            assert node == max(np.flatnonzero(row > tau), key=lambda n: TAX.node_depth[n])
    assert (clf.predict_nodes(texts, tau=0.5) == clf.predict_nodes(texts)).all()
    assert TAX.node_depth[clf.predict_nodes(texts, tau=0.999)[-1]] < TAX.node_depth[clf.predict_nodes(TEXTS)].max()


def test_a_decoder_is_a_name_or_a_function(clf):
    leaves = clf.predict_nodes(TEXTS, decoder="leaf")
    assert (np.array(TAX.classes)[TAX.class_of[leaves]] == clf.predict(TEXTS)).all()
    assert (TAX.class_of[clf.predict_nodes(TEXTS, decoder="greedy")] >= 0).all()
    assert (clf.predict_nodes(TEXTS, decoder=lambda logp, tax: am.decode.leaf(logp, tax)) == leaves).all()
    with pytest.raises(am.errors.OptionError, match="did you mean 'greedy'"):
        clf.predict_nodes(TEXTS, decoder="gredy")
    with pytest.raises(ValueError, match="tau"):
        clf.predict_nodes(TEXTS, tau=7)
    with pytest.raises(ValueError, match="tau"):
        clf.predict_nodes([], tau=7)


def test_paths_are_tuples_of_names_and_the_root_is_the_empty_one(clf):
    assert clf.predict_paths(TEXTS) == [path_of(label) for label in clf.predict(TEXTS)]
    assert clf.predict_paths(TEXTS, tau=0.5) == [TAX.path(node) for node in clf.predict_nodes(TEXTS, tau=0.5)]
    assert clf.predict_paths(["word"], tau=1.0 - 1e-7) == [()]


@pytest.mark.parametrize("node", [TAX.find("mac"), "mac", "comp/sys/mac", "comp > sys > mac", ("comp", "sys", "mac")])
def test_any_node_is_explained_by_its_number_or_its_label(clf, node):
    found = clf.explain("a pill", node=node)
    assert (found["label"], found["path"]) == ("mac", ["comp", "sys", "mac"])


def test_topk_returns_descending_probabilities_and_their_labels(clf):
    proba, labels = clf.topk(TEXTS, 3)
    assert proba.shape == labels.shape == (60, 3)
    assert (labels[:, 0] == clf.predict(TEXTS)).all()
    np.testing.assert_allclose(proba, -np.sort(-clf.predict_proba(TEXTS))[:, :3], rtol=1e-4)
    with pytest.raises(ValueError, match="k"):
        clf.topk(TEXTS, 6)


def test_any_number_of_texts_is_answered_also_none_and_empty_ones(clf):
    assert clf.predict([]).shape == (0,)
    assert clf.predict_proba([]).shape == (0, 5)
    assert clf.predict_nodes([]).shape == (0,)
    assert [part.shape for part in clf.topk([], 2)] == [(0, 2), (0, 2)]
    assert clf.predict_paths([]) == []
    assert clf.predict(["", " "]).shape == (2,)
    many = (TEXTS * 100)[:5001]
    assert (clf.predict(many) == np.resize(clf.predict(TEXTS), 5001)).all()


def test_predictions_have_the_order_of_the_texts():
    made = am.TextClassifier(TAX, encoder="lstm", encoder_options={"hidden": 8}, epochs=1, validation=0)
    made.fit(TEXTS, LABELS)
    texts = [" ".join(TEXTS[: 1 + i % 7]) for i in range(300)]
    one_by_one = np.concatenate([made.predict_proba([text]) for text in texts[:20]])
    np.testing.assert_allclose(made.predict_proba(texts)[:20], one_by_one, rtol=1e-4)


@pytest.fixture(scope="module")
def large():
    """A classifier with so many classes that its head follows the paths."""
    tax = am.Taxonomy.from_parents([-1, *(node // 17 for node in range(17 + 17**2 + 17**3))])
    texts, labels = [f"word{i % 9} text" for i in range(90)], [tax.classes[500 * (i % 9)] for i in range(90)]
    return small(tax, epochs=20, head="hierarchical").fit(texts, labels), texts, labels


@pytest.mark.parametrize("tau", [0.3, 0.5, 0.9])
def test_a_large_tree_is_searched_without_scoring_all_nodes(large, tau, monkeypatch):
    clf, texts, labels = large
    tax, texts = clf.taxonomy_, [*texts, "text", "", "word1 word2 text"]
    logp = torch.from_numpy(clf.node_proba(texts)).log()
    head = type(clf.model_.head)
    for method in ("forward", "node_log_probs"):
        monkeypatch.setattr(head, method, None)
    nodes = clf.predict_nodes(texts, tau)
    assert nodes.tolist() == am.decode.threshold(logp, tax, tau).tolist()
    assert clf.predict_paths(texts, tau) == [tax.path(node) for node in nodes]
    best = clf.predict_nodes(texts, decoder="leaf")
    assert best.tolist() == am.decode.leaf(logp, tax).tolist()
    assert clf.predict(texts).tolist() == [tax.classes[tax.class_of[node]] for node in best]
    assert clf.predict_paths(texts) == [tax.path(node) for node in best]
    assert clf.score(texts[:90], labels) == 1


def test_batches_are_bounded_if_all_nodes_are_scored(large, monkeypatch):
    clf, texts, _ = large
    made, features = [], clf.model_.features
    monkeypatch.setattr("arbormax.model.predict._CELLS", 10 * clf.taxonomy_.num_nodes)
    monkeypatch.setattr(clf.model_, "features", lambda texts, size: made.append(size) or features(texts, size))
    for call in (clf.predict, clf.predict_nodes, clf.node_proba, lambda texts: clf.predict_nodes(texts, 0.5, "greedy")):
        call(texts)
    assert made == [256, 256, 10, 10]


# ------------------------------------------------------------------------ labels


@pytest.mark.parametrize(
    "labels",
    [
        np.array(LABELS),
        np.array(LABELS, dtype=object),
        PATHS,
        [list(path) for path in PATHS],
        ["/".join(path) for path in PATHS],
        [" > ".join(path) for path in PATHS],
        np.array([[*path, ""][:3] for path in PATHS]),
        np.array([[*path, ""][:3] for path in PATHS], dtype=object),
        [np.array(path) for path in PATHS],
        np.array(LABELS)[:, None],
    ],
    ids=["array", "objects", "tuples", "lists", "slashes", "arrows", "columns", "object-columns", "arrays", "column"],
)
def test_every_form_of_label_trains_and_scores_the_same(clf, labels):
    made = small().fit(TEXTS, labels)
    assert np.array_equal(made.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    assert made.score(TEXTS, labels) == clf.score(TEXTS, LABELS)
    assert made.predict(TEXTS).tolist() == clf.predict(TEXTS).tolist()


def test_labels_and_texts_may_be_series(clf):
    class Series:
        ndim = 1

        def __init__(self, items):
            self.items = items

        def __len__(self):
            return len(self.items)

        def __getitem__(self, label):
            raise KeyError("a Series looks up its index, not the position")

        def tolist(self):
            return list(self.items)

    made = small().fit(Series(TEXTS), Series(LABELS))
    assert np.array_equal(made.predict_proba(Series(TEXTS)), clf.predict_proba(TEXTS))


def test_inner_nodes_are_labels_too():
    labels = [*LABELS, *["comp"] * 10, *["comp/sys"] * 10]
    made = small().fit([*TEXTS, *["the silicon"] * 20], labels)
    assert TAX.path(made.predict_nodes(["silicon"])[0])[0] == "comp"
    assert made.score(["the silicon"], ["comp"]) == 0
    assert made.evaluate(["silicon", "orbit"], ["comp", "space"])["items"] == 2


@pytest.mark.parametrize("form", ["file", "nested", "taxonomy"])
def test_a_taxonomy_is_a_file_nested_mappings_or_itself(form, tmp_path):
    TAX.save(tmp_path / "tree.json")
    given = {"file": str(tmp_path / "tree.json"), "nested": TREE, "taxonomy": TAX}[form]
    assert small(given, epochs=1).fit(TEXTS, LABELS).taxonomy_ == TAX
    if form == "file":
        assert small(tmp_path / "tree.json", epochs=1).fit(TEXTS, LABELS).taxonomy_ == TAX


@pytest.mark.parametrize("join", ["/", " > ", "|", None])
def test_without_a_taxonomy_it_is_inferred_from_path_labels(join):
    labels = PATHS if join is None else [join.join(path) for path in PATHS]
    made = small(None).fit(TEXTS, labels)
    assert made.taxonomy_.depth == 3
    assert set(made.classes_) == set(WORDS)
    assert (
        made.score(TEXTS, labels) == made.score(TEXTS, LABELS) == made.score(TEXTS, made.predict(TEXTS).tolist()) == 1
    )


def test_plain_names_without_a_taxonomy_make_a_flat_tree():
    made = small(None).fit(TEXTS, LABELS)
    assert made.taxonomy_.depth == 1
    assert made.classes_.tolist() == list(WORDS)
    assert made.score(TEXTS, LABELS) == 1


def test_a_name_on_two_levels_of_an_inferred_tree_means_what_it_spelt_out():
    labels = [("a", "a"), "a", ("a", "b"), "c"] * 5
    made = small(None, epochs=30).fit(["inner", "outer", "second", "third"] * 5, labels)
    assert made.predict_paths(["inner", "second", "third"]) == [("a", "a"), ("a", "b"), ("c",)]


def test_repeated_names_are_told_apart_by_their_paths():
    labels = ["kitchen/other", "garden/other", "kitchen/pan"] * 10
    made = small(None).fit(["spoon", "hose", "pan"] * 10, labels)
    assert made.predict(["spoon", "hose", "pan"]).tolist() == ["kitchen/other", "garden/other", "pan"]
    assert made.score(["spoon"], ["kitchen/other"]) == 1


def test_labels_that_training_did_not_see_count_as_errors_and_are_listed():
    made = small(None).fit(TEXTS, ["/".join(path) for path in PATHS])
    truth = ["rec/autos", "comp", *["/".join(path) for path in PATHS[2:]]]  # comp is a node, and no class
    with pytest.warns(UserWarning, match=r"1 of 60 items has a label .*counts as an error: 'rec > autos' \(1\)"):
        assert made.score(TEXTS, truth) == pytest.approx(58 / 60)
    with pytest.warns(UserWarning, match="rec > autos"):
        measures = made.evaluate(TEXTS, truth)
    assert measures["accuracy"] == pytest.approx(58 / 60)
    assert measures["unseen_labels"] == {"rec > autos": 1}
    assert "unseen_labels" not in made.evaluate(TEXTS, LABELS)


def test_a_label_that_a_given_taxonomy_does_not_have_is_an_error_of_training_only(clf):
    with pytest.warns(UserWarning, match="'spcae'"):
        assert clf.score(["orbit", "orbit"], ["spcae", "space"]) == 0.5
    with pytest.raises(am.errors.LabelError, match=r"'spcae'.*item 1"):
        small().fit(["a", "b"], ["space", "spcae"])


def test_score_weighs_the_texts(clf):
    assert clf.score(["orbit", "orbit"], ["space", "med"], sample_weight=[3, 1]) == 0.75


def test_evaluate_gives_every_measure(clf):
    measures = clf.evaluate(TEXTS, LABELS)
    assert {"accuracy", "macro_f1", "hp", "hr", "hf", "level_accuracy", "tree_distance", "nll"} <= set(measures)
    assert measures["accuracy"] == clf.score(TEXTS, LABELS)


# ------------------------------------------------------------------------ import


def test_the_name_is_there_without_its_packages_being_loaded():
    script = (
        "import sys, arbormax as am; assert 'TextClassifier' in dir(am) and 'TextClassifier' in am.__all__; "
        "print(sorted({'sklearn', 'pytorch_lightning', 'pydantic', 'arbormax.integrations'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'TextClasifier'"):
        am.TextClasifier  # noqa: B018


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("arbormax.sklearn.text", "arbormax.sklearn"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delitem(vars(am), "TextClassifier", raising=False)
    with pytest.raises(am.errors.MissingDependencyError, match=r"estimator needs .*scikit-learn.*arbormax\[sklearn\]"):
        am.TextClassifier  # noqa: B018


def test_the_example_runs(capsys):
    import runpy

    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "text.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "garden" in printed
    assert "hf" in printed
