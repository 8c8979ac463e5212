"""The classifier with scikit-learn's conventions, through its public name."""

import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

import arbormax as am
from arbormax.training import TextModel, TrainConfig

TREE = {"comp": ["graphics", {"sys": ["ibm", "mac"]}], "sci": ["med", "space"]}
TAX = am.Taxonomy.from_nested(TREE)
WORDS = {
    "graphics": ["pixel", "shader"],
    "ibm": ["bios", "dos"],
    "mac": ["apple", "finder"],
    "med": ["pill", "doctor"],
    "space": ["orbit", "rocket"],
}
SMALL = {
    "encoder_options": {"dim": 16, "dropout": 0.0},
    "learning_rate": 0.1,
    "batch_size": 6,
    "epochs": 5,
    "validation": 0,
    "accelerator": "cpu",
}


def make(count=60, seed=0):
    """Texts that one word gives away, and their classes."""
    draw = np.random.default_rng(seed)
    labels = [list(WORDS)[i % len(WORDS)] for i in range(count)]
    return [
        f"{draw.choice(['the', 'of', 'in'])} {draw.choice(WORDS[label])} {i}" for i, label in enumerate(labels)
    ], labels


def small(taxonomy=TAX, **settings):
    return am.TextClassifier(taxonomy, **{**SMALL, **settings})


def path_of(label):
    return TAX.path(TAX.find(label))


TEXTS, LABELS = make()
PATHS = [path_of(label) for label in LABELS]


@pytest.fixture(scope="module")
def clf():
    return small().fit(TEXTS, LABELS)


# ------------------------------------------------------------------ conventions


def test_the_constructor_stores_what_it_is_given_and_nothing_else():
    options = {"dim": 3}
    made = am.TextClassifier(TREE, encoder_options=options, epochs="many")
    assert made.encoder_options is options
    assert made.taxonomy is TREE
    assert set(vars(made)) == set(made.get_params())


def test_every_setting_of_training_is_a_parameter_with_the_same_default():
    params = am.TextClassifier().get_params()
    usual = TrainConfig.make()
    for name in TrainConfig.model_fields:
        left_open = {"encoder": "bag", "encoder_options": {}}
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
def test_an_unfitted_classifier_says_so(call):
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


def test_the_tags_tell_scikit_learn_of_texts():
    tags = get_tags(am.TextClassifier())
    assert tags.estimator_type == "classifier"
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array
    assert tags.target_tags.required
    assert tags.classifier_tags.multi_class


def test_fit_gives_back_the_classifier_with_its_attributes(clf):
    assert isinstance(clf.model_, TextModel)
    assert clf.taxonomy_ is TAX
    assert clf.classes_.tolist() == list(TAX.classes)
    assert clf.n_iter_ == clf.run_.epochs == 5
    made = small(epochs=1)
    assert made.fit(TEXTS, LABELS) is made


def test_the_same_seed_gives_the_same_result_and_a_second_fit_starts_anew(clf):
    again = clone(clf).fit(TEXTS[:20], LABELS[:20]).fit(TEXTS, LABELS)
    assert np.array_equal(again.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    other = clone(clf).set_params(seed=1).fit(TEXTS, LABELS)
    assert not np.array_equal(other.predict_proba(TEXTS), clf.predict_proba(TEXTS))


def test_a_fit_that_fails_leaves_the_former_model(clf):
    made = small(epochs=1).fit(TEXTS, LABELS)
    before = made.predict_proba(TEXTS)
    with pytest.raises(am.errors.LabelError):
        made.fit(TEXTS, ["nonsense"] * len(TEXTS))
    assert np.array_equal(made.predict_proba(TEXTS), before)


def test_pickle_keeps_the_answers(clf):
    assert np.array_equal(pickle.loads(pickle.dumps(clf)).predict_proba(TEXTS), clf.predict_proba(TEXTS))


def test_a_hundred_texts_are_enough_for_the_default_settings():
    texts, labels = make(100)
    unseen, truth = make(50, seed=1)
    assert am.TextClassifier(TAX).fit(texts, labels).score(unseen, truth) > 0.9


def test_a_batch_size_that_is_given_is_kept_and_one_that_is_not_leaves_steps_to_make():
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


def test_it_learns(clf):
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


def test_other_decoders_go_by_name_or_as_a_function(clf):
    leaves = clf.predict_nodes(TEXTS, decoder="leaf")
    assert (np.array(TAX.classes)[TAX.class_of[leaves]] == clf.predict(TEXTS)).all()
    assert (TAX.class_of[clf.predict_nodes(TEXTS, decoder="greedy")] >= 0).all()
    assert (clf.predict_nodes(TEXTS, decoder=lambda logp, tax: am.decode.leaf(logp, tax)) == leaves).all()
    with pytest.raises(am.errors.OptionError, match="did you mean 'greedy'"):
        clf.predict_nodes(TEXTS, decoder="gredy")
    with pytest.raises(ValueError, match="tau"):
        clf.predict_nodes(TEXTS, tau=7)


def test_paths_are_tuples_of_names_and_the_root_is_the_empty_one(clf):
    assert clf.predict_paths(TEXTS) == [path_of(label) for label in clf.predict(TEXTS)]
    assert clf.predict_paths(TEXTS, tau=0.5) == [TAX.path(node) for node in clf.predict_nodes(TEXTS, tau=0.5)]
    assert clf.predict_paths(["word"], tau=1.0 - 1e-7) == [()]


def test_topk_gives_falling_probabilities_and_their_labels(clf):
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


def test_an_encoder_that_sorts_by_length_answers_in_the_order_of_the_texts():
    made = am.TextClassifier(TAX, encoder="lstm", encoder_options={"hidden": 8}, epochs=1, validation=0)
    made.fit(TEXTS, LABELS)
    texts = [" ".join(TEXTS[: 1 + i % 7]) for i in range(300)]
    one_by_one = np.concatenate([made.predict_proba([text]) for text in texts[:20]])
    np.testing.assert_allclose(made.predict_proba(texts)[:20], one_by_one, rtol=1e-4)


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


def test_labels_unseen_in_training_count_as_errors_where_the_tree_was_inferred():
    made = small(None).fit(TEXTS, ["/".join(path) for path in PATHS])
    truth = ["/".join(path) for path in PATHS]
    assert made.score(TEXTS, ["rec/autos", "comp", *truth[2:]]) == pytest.approx(58 / 60)
    with pytest.raises(am.errors.LabelError, match="no child 'rec'"):
        made.evaluate(["a"], ["rec/autos"])


def test_a_label_that_a_given_taxonomy_does_not_have_is_an_error(clf):
    with pytest.raises(am.errors.LabelError, match="did you mean 'space'"):
        clf.score(["a"], ["spcae"])
    with pytest.raises(am.errors.LabelError, match=r"'spcae'.*item 1"):
        small().fit(["a", "b"], ["space", "spcae"])


def test_score_weighs_the_texts(clf):
    assert clf.score(["orbit", "orbit"], ["space", "med"], sample_weight=[3, 1]) == 0.75


def test_evaluate_gives_every_measure(clf):
    measures = clf.evaluate(TEXTS, LABELS)
    assert {"accuracy", "macro_f1", "hp", "hr", "hf", "level_accuracy", "tree_distance", "nll"} <= set(measures)
    assert measures["accuracy"] == clf.score(TEXTS, LABELS)


# ---------------------------------------------------------------------- settings


def test_a_preset_fills_in_what_is_left_at_its_default():
    made = am.TextClassifier(TAX, preset="paper", encoder_options={"hidden": 4}, batch_size=30, epochs=1, validation=0)
    config = made.fit(TEXTS, LABELS).model_.config
    assert (config.encoder, config.batch_size, config.schedule) == ("bilstm", 30, "constant")
    assert config.encoder_options == {"hidden": 4, "dropout": 0.5, "tokens": "whitespace"}
    other = am.TextClassifier(TAX, preset="paper", encoder="bag", epochs=1, validation=0).fit(TEXTS, LABELS).model_
    assert (other.config.encoder, other.config.batch_size) == ("bag", 10)


def test_class_weights_shift_the_answers():
    texts, labels = ["the word"] * 40, ["med"] * 30 + ["space"] * 10
    settings = {"batch_size": 40, "epochs": 40}
    assert small(**settings).fit(texts, labels).predict(["the word"]) == ["med"]
    for weights in ({"space": 30.0, "med": 1}, {("sci", "space"): 30, "sci/med": np.float32(1)}):
        assert small(class_weight=weights, **settings).fit(texts, labels).predict(["the word"]) == ["space"]
    even = small(class_weight="balanced", **settings).fit(texts, labels).predict_proba(["the word"])[0]
    assert even[3] == pytest.approx(even[4], abs=0.1)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_weights_of_classes_act_in_the_smallest_batches_too(batch_size):
    texts, labels = ["the word"] * 40, ["med"] * 30 + ["space"] * 10
    settings = {"batch_size": batch_size, "epochs": 10}
    even = small(class_weight="balanced", **settings).fit(texts, labels).predict_proba(["the word"])[0]
    assert even[3] == pytest.approx(even[4], abs=0.1)
    assert small(class_weight={"med": 0.0}, **settings).fit(texts, labels).predict(["the word"]) == ["space"]


def test_a_training_that_diverged_is_told():
    with pytest.raises(am.errors.ArbormaxError, match="training diverged"):
        small(learning_rate=1e30, clip=None, epochs=3).fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"class_weight": {"comp": 2.0}}, "inner nodes are 'comp'"),
        ({"class_weight": {"spcae": 2.0}}, "did you mean 'space'"),
        ({"class_weight": "even"}, "class_weight"),
        ({"encoder": "bagg"}, "did you mean 'bag'"),
        ({"encoder_options": {"dims": 3}}, "did you mean 'dim'"),
        ({"head": "deep"}, "head"),
        ({"preset": "papper"}, "did you mean 'paper'"),
        ({"epochs": 0, "learning_rate": -1}, "(?s)epochs.*learning_rate"),
        ({"head": "flat", "gamma": 2.0}, "gamma"),
        ({"resume": True}, "give folder="),
        ({"taxonomy": 7}, "not int"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_setting_that_is_wrong_is_told_when_fitting(settings, told):
    made = am.TextClassifier(**{"taxonomy": TAX, **settings})
    with pytest.raises(ValueError, match=told):
        made.fit(TEXTS, LABELS)


def test_numbers_of_numpy_are_numbers(tmp_path):
    made = small(
        epochs=np.int64(1), seed=np.int32(3), learning_rate=np.float32(0.1), encoder_options={"dim": np.int64(4)}
    )
    assert made.fit(TEXTS, LABELS).model_.encoder.out_features == 4
    made.save(tmp_path)
    assert am.TextClassifier.load(tmp_path).encoder_options == {"dim": 4}


def test_verbose_shows_the_progress(capfd):
    small(epochs=2).fit(TEXTS, LABELS)
    assert "".join(capfd.readouterr()) == ""
    small(epochs=2, verbose=True).fit(TEXTS, LABELS)
    assert "Epoch 1" in "".join(capfd.readouterr())


# ------------------------------------------------------------------------ inputs


@pytest.mark.parametrize(
    ("texts", "labels", "told"),
    [
        ("a text", ["med"], "X is one string: give a list of texts"),
        (["a"], "med", "y is one string: give a list of labels"),
        ((text for text in TEXTS), LABELS, "not a generator"),
        ({"a": 1}, LABELS, "not a dict"),
        ({"a"}, LABELS, "not a set"),
        (7, LABELS, "not a int"),
        ([], [], "X is empty"),
        (TEXTS, LABELS[:-1], "60 texts in X and 59 labels in y"),
        (["a", None, "b", float("nan"), 3], ["med"] * 5, r"3 items are not a text: at 1 \(None\), 3 \(nan\), 4 \(3\)"),
        (["a", b"b"], ["med"] * 2, r"one item is not a text: at 1 \(b'b'\)"),
        ([None] * 50, ["med"] * 50, "and 40 more"),
        (np.array([["a"], ["b"]]), ["med"] * 2, r"shape \(2, 1\)"),
        (["a", "b"], ["med", None], r"y: one item is not a string or a tuple of names: at 1 \(None\)"),
        (["a", "b"], ["med", float("nan")], r"at 1 \(nan\)"),
        (["a", "b"], [3, 4], "2 items are not a string.*see docs/classifier.md"),
        (["a", "b"], [("sci", 3), "med"], r"at 0 \(\('sci', 3\)\)"),
        (["a", "b"], np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (["a", "b"], [("sci", "med"), ()], "root"),
        (["a", "b"], np.array([["sci", "med"], ["", ""]]), "root"),
        (["a"], None, "requires y to be passed, but the target y is None"),
    ],
    ids=range(20),
)
def test_texts_and_labels_that_cannot_be_used_are_told_with_their_positions(texts, labels, told):
    with pytest.raises(ValueError, match=told):
        small().fit(texts, labels)


def test_prediction_checks_its_texts_too(clf):
    for call in (clf.predict, clf.predict_proba, clf.predict_nodes, clf.predict_paths, clf.node_proba):
        with pytest.raises(am.errors.InputError, match="give a list of texts"):
            call("a text")
        with pytest.raises(am.errors.InputError, match="at 1"):
            call(["a", None])
    with pytest.raises(am.errors.InputError, match="X is empty"):
        clf.score([], [])


def test_weights_of_texts_are_refused():
    with pytest.raises(am.errors.OptionError, match=r"not sample_weight; to weigh classes give class_weight="):
        small().fit(TEXTS, LABELS, sample_weight=np.ones(60))
    assert "sample_weight" not in inspect.signature(am.TextClassifier.fit).parameters


# ------------------------------------------------------------------ scikit-learn


def test_it_works_at_the_end_of_a_pipeline(clf):
    pipe = Pipeline(
        [("lower", FunctionTransformer(lambda texts: [text.lower() for text in texts])), ("clf", clone(clf))]
    )
    shouted = [text.upper() for text in TEXTS]
    assert pipe.fit(shouted, LABELS).score(shouted, LABELS) == clf.score(TEXTS, LABELS)
    assert pipe.classes_.tolist() == clf.classes_.tolist()


@pytest.mark.parametrize("taxonomy", [TAX, None])
def test_cross_validation_scores(taxonomy):
    assert cross_val_score(small(taxonomy), TEXTS, LABELS, cv=3).min() > 0.8
    assert cross_val_score(small(taxonomy), np.array(TEXTS), np.array(LABELS), cv=3, scoring="f1_macro").min() > 0.8


def test_a_class_that_a_fold_lacks_costs_its_texts_only():
    order = np.argsort(LABELS, kind="stable")
    texts, labels = [TEXTS[i] for i in order], [LABELS[i] for i in order]
    assert cross_val_score(small(None, epochs=1), texts, labels, cv=KFold(5)).tolist() == [0] * 5
    found = cross_val_score(small(epochs=1), texts, labels, cv=KFold(5), error_score="raise")
    assert np.isfinite(found).all()


def test_path_columns_and_tuples_cross_validate():
    columns = np.array([[*path, ""][:3] for path in PATHS])
    assert cross_val_score(small(), TEXTS, columns, cv=3).min() > 0.8
    assert cross_val_score(small(), TEXTS, PATHS, cv=KFold(3)).min() > 0.8


def test_cross_validated_predictions_are_labels():
    predicted = cross_val_predict(small(), TEXTS, LABELS, cv=3)
    assert accuracy_score(LABELS, predicted) > 0.8


def test_cross_validated_probabilities_are_refused_for_scikit_learn_turns_the_labels_into_numbers():
    with pytest.raises(am.errors.InputError, match="scikit-learn turns labels into numbers"):
        cross_val_predict(small(), TEXTS, LABELS, cv=3, method="predict_proba")


def test_calibration_wraps_it():
    calibrated = CalibratedClassifierCV(small(), cv=3).fit(TEXTS, LABELS)
    assert calibrated.score(TEXTS, LABELS) > 0.8


def test_grid_search_runs_over_heads_and_options_of_the_encoder():
    grid = {"head": ["hierarchical", "flat"], "encoder_options": [{"dim": 4}, {"dim": 8}]}
    search = GridSearchCV(small(), grid, cv=2, error_score="raise").fit(TEXTS, LABELS)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_estimator_.model_.config.head == search.best_params_["head"]
    assert search.predict(["orbit"]).tolist() == ["space"]


def test_a_measure_of_the_tree_can_be_what_a_search_maximises():
    def hf(clf, texts, labels):
        return clf.evaluate(texts, labels)["hf"]

    search = GridSearchCV(small(), {"epochs": [1, 5]}, cv=2, scoring=hf, error_score="raise").fit(TEXTS, LABELS)
    assert 0.5 < search.best_score_ <= 1


# ----------------------------------------------------------------------- folders


def test_a_saved_classifier_answers_as_before_and_knows_its_settings(clf, tmp_path):
    clf.save(tmp_path / "model", {"test": clf.evaluate(TEXTS, LABELS)})
    loaded = am.TextClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    assert np.array_equal(loaded.node_proba(TEXTS), clf.node_proba(TEXTS))
    assert loaded.taxonomy == loaded.taxonomy_ == TAX
    assert (loaded.encoder_options, loaded.learning_rate) == (SMALL["encoder_options"], 0.1)
    assert (loaded.n_iter_, loaded.run_.seconds) == (clf.n_iter_, clf.run_.seconds)
    assert "| test | 60 |" in (tmp_path / "model" / "README.md").read_text("utf-8")
    again = clone(loaded).fit(TEXTS, LABELS)
    assert np.array_equal(again.predict_proba(TEXTS), clf.predict_proba(TEXTS))


def test_a_loaded_classifier_reads_labels_as_the_one_that_was_saved(tmp_path):
    labels = ["|".join(path) for path in PATHS]
    made = small(None).fit(TEXTS, labels)
    made.save(tmp_path)
    assert am.TextClassifier.load(tmp_path).score([*TEXTS, "a"], [*labels, "rec|autos"]) == pytest.approx(60 / 61)


def test_class_weights_survive_the_folder(tmp_path):
    weights = {("sci", "space"): 2.0}
    small(class_weight=weights, epochs=1).fit(TEXTS, LABELS).save(tmp_path)
    assert am.TextClassifier.load(tmp_path).class_weight == {"space": 2.0}


def test_a_folder_without_a_model_is_told(tmp_path):
    with pytest.raises(ValueError, match="is not a model"):
        am.TextClassifier.load(tmp_path)


def test_the_model_of_another_program_in_the_folder_is_read_without_what_it_lacks(clf, tmp_path):
    from arbormax.training import save_model

    small(None, epochs=1).fit(TEXTS, LABELS).save(tmp_path)  # leaves a record that is not of the next model
    save_model(clf.model_, tmp_path)
    loaded = am.TextClassifier.load(tmp_path)
    assert loaded.run_ is None
    assert np.array_equal(loaded.predict_proba(TEXTS), clf.predict_proba(TEXTS))


def test_training_in_a_folder_leaves_logs_and_the_model_there(clf, tmp_path):
    made = small(folder=tmp_path / "run").fit(TEXTS, LABELS)
    assert np.array_equal(made.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    assert np.array_equal(am.TextClassifier.load(tmp_path / "run").predict_proba(TEXTS), clf.predict_proba(TEXTS))
    assert list((tmp_path / "run" / "logs").iterdir())
    assert not (tmp_path / "run" / "checkpoints").exists()
    made.fit(TEXTS, LABELS)  # a finished run is no obstacle
    resumed = made.set_params(resume=True).fit(TEXTS, LABELS)
    assert np.array_equal(resumed.predict_proba(TEXTS), clf.predict_proba(TEXTS))


def test_a_run_that_was_stopped_is_resumed_to_the_same_weights(clf, tmp_path):
    import pytorch_lightning as pl

    from arbormax.data import Examples
    from arbormax.training import fit

    class Stop(pl.Callback):
        def on_train_epoch_start(self, trainer, module):
            if trainer.current_epoch == 3:
                raise InterruptedError

    config = TrainConfig.make(**{name: value for name, value in SMALL.items() if name in TrainConfig.model_fields})
    with pytest.raises(InterruptedError):
        fit(config, TAX, Examples(TEXTS, TAX.find_many(LABELS)), folder=tmp_path, callbacks=[Stop()], every_steps=1)
    made = small(folder=tmp_path)
    with pytest.raises(am.errors.OptionError, match="unfinished run"):
        made.fit(TEXTS, LABELS)
    made.set_params(resume=True).fit(TEXTS, LABELS)
    assert np.array_equal(made.predict_proba(TEXTS), clf.predict_proba(TEXTS))


@pytest.mark.parametrize("content", ["{", "[]", '{"taxonomy": "?", "run": {"epochs": 1}}'])
def test_a_broken_record_is_told(clf, tmp_path, content):
    clf.save(tmp_path)
    (tmp_path / "classifier.json").write_text(content.replace("?", TAX.fingerprint), "utf-8")
    with pytest.raises(am.errors.ArbormaxError, match=r"classifier\.json is not the record"):
        am.TextClassifier.load(tmp_path)


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
    monkeypatch.delitem(sys.modules, "arbormax.integrations.text", raising=False)
    monkeypatch.delitem(vars(am), "TextClassifier", raising=False)
    with pytest.raises(
        am.errors.MissingDependencyError, match=r"TextClassifier needs .*scikit-learn.*arbormax\[sklearn\]"
    ):
        am.TextClassifier  # noqa: B018


def test_the_example_runs(capsys):
    import runpy

    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "text.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "garden" in printed
    assert "hf" in printed
