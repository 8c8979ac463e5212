"""The classifier in use: its settings, what it refuses, scikit-learn around it, and folders."""

import inspect
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

import arbormax as am
from arbormax.model import TrainConfig
from text_toy import LABELS, PATHS, SMALL, TAX, TEXTS, small

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
    ("settings", "expected"),
    [
        ({"class_weight": {"comp": 2.0}}, "found an inner node: 'comp'"),
        ({"class_weight": {"spcae": 2.0}}, "did you mean 'space'"),
        ({"class_weight": "even"}, "class_weight"),
        ({"encoder": "bagg"}, "did you mean 'bag'"),
        ({"encoder": "bag", "encoder_options": {"dims": 3}}, "did you mean 'dim'"),
        ({"head": "deep"}, "head"),
        ({"preset": "papper"}, "did you mean 'paper'"),
        ({"epochs": 0, "learning_rate": -1}, "(?s)epochs.*learning_rate"),
        ({"head": "flat", "gamma": 2.0}, "gamma"),
        ({"resume": True}, "folder: expected a folder"),
        ({"taxonomy": 7}, "not int"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_invalid_parameters_are_reported_by_fit(settings, expected):
    made = am.TextClassifier(**{"taxonomy": TAX, **settings})
    with pytest.raises(ValueError, match=expected):
        made.fit(TEXTS, LABELS)


def test_numpy_numbers_are_accepted_as_parameters(tmp_path):
    made = small(
        epochs=np.int64(1),
        seed=np.int32(3),
        learning_rate=np.float32(0.1),
        encoder="bag",
        encoder_options={"dim": np.int64(4)},
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
    ("texts", "labels", "expected"),
    [
        ("a text", ["med"], "X: expected a list of texts, found a single string"),
        (["a"], "med", "y: expected a list of labels, found a single string"),
        ((text for text in TEXTS), LABELS, "found generator"),
        ({"a": 1}, LABELS, "found dict"),
        ({"a"}, LABELS, "found set"),
        (7, LABELS, "found int"),
        ([], [], "X: expected at least one text"),
        (TEXTS, LABELS[:-1], "60 texts in X and 59 labels in y"),
        (["a", None, "b", float("nan"), 3], ["med"] * 5, r"3 items are not a text: at 1 \(None\), 3 \(nan\), 4 \(3\)"),
        (["a", b"b"], ["med"] * 2, r"one item is not a text: at 1 \(b'b'\)"),
        ([None] * 50, ["med"] * 50, "and 40 more"),
        (np.array([["a", "c"], ["b", "d"]]), ["med"] * 2, r"shape \(2, 2\)"),
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
def test_invalid_texts_and_labels_are_reported_with_their_positions(texts, labels, expected):
    with pytest.raises(ValueError, match=expected):
        small().fit(texts, labels)


def test_prediction_checks_its_texts_too(clf):
    for call in (clf.predict, clf.predict_proba, clf.predict_nodes, clf.predict_paths, clf.node_proba):
        with pytest.raises(am.errors.InputError, match="expected a list of texts"):
            call("a text")
        with pytest.raises(am.errors.InputError, match="at 1"):
            call(["a", None])
    with pytest.raises(am.errors.InputError, match="X: expected at least one text"):
        clf.score([], [])


def test_sample_weights_are_an_error():
    with pytest.raises(am.errors.OptionError, match=r"found sample_weight; try class_weight='balanced'"):
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


def test_a_class_missing_in_a_fold_affects_only_its_texts():
    order = np.argsort(LABELS, kind="stable")
    texts, labels = [TEXTS[i] for i in order], [LABELS[i] for i in order]
    with pytest.warns(UserWarning, match="that training did not see"):
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


def test_cross_validated_probabilities_are_an_error():
    with pytest.raises(am.errors.InputError, match="scikit-learn turn labels into numbers"):
        cross_val_predict(small(), TEXTS, LABELS, cv=3, method="predict_proba")


def test_calibration_wraps_it():
    calibrated = CalibratedClassifierCV(small(), cv=3).fit(TEXTS, LABELS)
    assert calibrated.score(TEXTS, LABELS) > 0.8


def test_grid_search_runs_over_heads_and_options_of_the_encoder():
    grid = {"head": ["hierarchical", "flat"], "encoder": ["bag"], "encoder_options": [{"dim": 4}, {"dim": 8}]}
    search = GridSearchCV(small(), grid, cv=2, error_score="raise").fit(TEXTS, LABELS)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_estimator_.model_.config.head == search.best_params_["head"]
    assert search.predict(["orbit"]).tolist() == ["space"]


def test_a_search_can_maximise_a_hierarchical_measure():
    def hf(clf, texts, labels):
        return clf.evaluate(texts, labels)["hf"]

    search = GridSearchCV(small(), {"epochs": [1, 5]}, cv=2, scoring=hf, error_score="raise").fit(TEXTS, LABELS)
    assert 0.5 < search.best_score_ <= 1


# ----------------------------------------------------------------------- folders


def test_a_loaded_classifier_has_the_same_predictions_and_parameters(clf, tmp_path):
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


def test_a_loaded_classifier_reads_labels_like_the_saved_one(tmp_path):
    labels = ["|".join(path) for path in PATHS]
    made = small(None).fit(TEXTS, labels)
    made.save(tmp_path)
    loaded = am.TextClassifier.load(tmp_path)
    with pytest.warns(UserWarning, match="rec > autos"):
        assert loaded.score([*TEXTS, "a"], [*labels, "rec|autos"]) == pytest.approx(60 / 61)


def test_class_weights_are_saved(tmp_path):
    weights = {("sci", "space"): 2.0}
    small(class_weight=weights, epochs=1).fit(TEXTS, LABELS).save(tmp_path)
    assert am.TextClassifier.load(tmp_path).class_weight == {"space": 2.0}


def test_loading_a_folder_without_a_model_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="is not a model"):
        am.TextClassifier.load(tmp_path)


def test_the_record_of_a_former_model_is_ignored(clf, tmp_path):
    from arbormax.model import save_model

    small(None, epochs=1).fit(TEXTS, LABELS).save(tmp_path)  # leaves a record that is not of the next model
    save_model(clf.model_, tmp_path)
    loaded = am.TextClassifier.load(tmp_path)
    assert loaded.run_ is None
    assert np.array_equal(loaded.predict_proba(TEXTS), clf.predict_proba(TEXTS))


def test_training_in_a_folder_writes_logs_and_the_model(clf, tmp_path):
    made = small(folder=tmp_path / "run").fit(TEXTS, LABELS)
    assert np.array_equal(made.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    assert np.array_equal(am.TextClassifier.load(tmp_path / "run").predict_proba(TEXTS), clf.predict_proba(TEXTS))
    assert list((tmp_path / "run" / "logs").iterdir())
    assert not (tmp_path / "run" / "checkpoints").exists()
    made.fit(TEXTS, LABELS)  # a finished run is no obstacle
    resumed = made.set_params(resume=True).fit(TEXTS, LABELS)
    assert np.array_equal(resumed.predict_proba(TEXTS), clf.predict_proba(TEXTS))


def test_a_resumed_run_gives_the_same_weights(clf, tmp_path):
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
def test_an_invalid_record_is_an_error(clf, tmp_path, content):
    clf.save(tmp_path)
    (tmp_path / "classifier.json").write_text(content.replace("?", TAX.fingerprint), "utf-8")
    with pytest.raises(am.errors.ArbormaxError, match=r"classifier\.json is not the record"):
        am.TextClassifier.load(tmp_path)


def test_loading_and_predicting_import_no_training_library(clf, tmp_path):
    clf.save(tmp_path)
    program = (
        "import sys, arbormax as am; "
        f"clf = am.TextClassifier.load({str(tmp_path)!r}); print(clf.predict(['orbit']).tolist()); "
        "heavy = ('pytorch_lightning', 'transformers', 'optuna', 'torchmetrics'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["['space']", "[]"]


def test_the_best_epoch_is_the_last_one_without_validation(clf):
    assert clf.run_.best_epoch == clf.run_.epochs == 5
