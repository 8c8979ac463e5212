"""The classifier of feature matrices: labels of every form, sparse rows, scikit-learn around it, tables, folders."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import arbormax as am
from arbormax.model import ModelFolderError, TrainConfig, load_model
from arbormax.sklearn.inputs import path_rows
from text_toy import LABELS, PATHS, TAX, TEXTS, small

QUICK = {"epochs": 8, "batch_size": 8, "accelerator": "cpu"}
ROWS = np.array([[*path, ""][:3] for path in PATHS])  # as hiclass has them
X = np.array([[*np.eye(5)[i % 5], 0.1 * (i % 7)] for i in range(60)])  # 60 rows that tell their class


def quick(taxonomy=None, **settings):
    return am.HierarchicalClassifier(taxonomy, **{**QUICK, "learning_rate": 0.1, **settings})


@pytest.fixture(scope="module")
def clf():
    return quick().fit(X, ROWS)


# ------------------------------------------------------------------------ labels


def test_rows_of_names_are_predicted_as_rows_of_names(clf):
    assert clf.predict(X).tolist() == ROWS.tolist()
    assert clf.predict(X).dtype.kind == "U"
    assert clf.score(X, ROWS) == 1
    assert set(clf.taxonomy_.classes) == set(TAX.classes)
    assert clf.classes_.shape == (5, 3)
    assert np.array_equal(clf.classes_[clf.predict_proba(X).argmax(1)], clf.predict(X))


@pytest.mark.parametrize(
    "form",
    [
        lambda: [list(path) for path in PATHS],
        lambda: PATHS,
        lambda: [[*path, None][:3] for path in PATHS],
        lambda: ROWS.astype(object),
        lambda: pd.DataFrame(ROWS).replace("", None),
        lambda: pd.DataFrame(ROWS).replace("", np.nan),
        lambda: pd.Series(PATHS),
    ],
    ids=["lists", "tuples", "None", "objects", "frame of None", "frame of NaN", "series of tuples"],
)
def test_rows_of_names_have_many_forms(form, clf):
    found = quick().fit(X, form())
    assert found.predict(X).tolist() == ROWS.tolist()
    assert found.score(X, form()) == 1
    assert found.taxonomy_ == clf.taxonomy_


def test_predictions_equal_those_of_hiclass():
    from hiclass import LocalClassifierPerParentNode
    from hiclass.metrics import f1

    theirs = LocalClassifierPerParentNode().fit(X, ROWS).predict(X)
    ours = quick().fit(X, ROWS).predict(X)
    assert (ours.shape, ours.tolist()) == (theirs.shape, theirs.tolist())
    assert f1(ROWS, ours) == 1


def test_names_may_repeat_under_different_parents():
    rows = np.array([["a", "other"], ["b", "other"]] * 30)
    assert quick().fit(np.arange(60)[:, None] % 2, rows).predict([[0], [1]]).tolist() == [
        ["a", "other"],
        ["b", "other"],
    ]


def test_rows_of_integers_are_predicted_as_integers():
    rows = np.array([[1, 11], [2, 21], [2, 22]] * 20)
    features = np.eye(3)[np.arange(60) % 3]
    found = quick().fit(features, rows)
    assert np.array_equal(found.predict(features), rows)
    assert found.predict(features).dtype == rows.dtype


def test_a_row_that_ends_early_trains_its_path_and_counts_as_a_mistake():
    rows = [list(path) for path in PATHS]
    rows[0] = ["comp"]
    found = quick().fit(X, rows)
    assert found.taxonomy_.num_leaves == 5
    assert found.score(X, rows) == pytest.approx(59 / 60)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([["a", "", "b"], ["a", "c", "d"]], r"row 0 contains a value that is not a name"),
        ([["a", "b"], ["", ""]], "row 1 is empty"),
        ([["a", 0.5], ["a", "b"]], "row 0 contains a value that is not a name"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (np.array([[0, 1, 1], [1, 0, 0]]), "multilabel indicator matrix"),
        ([["a", "b"]], "inconsistent numbers of samples"),
        (None, "requires y to be passed"),
        ([0.5, 0.7], "Unknown label type"),
    ],
    ids=range(8),
)
def test_invalid_labels_are_reported(labels, expected):
    with pytest.raises(ValueError, match=expected):
        quick().fit(X[:2], labels)


def test_one_column_of_labels_is_read_as_plain_labels():
    with pytest.warns(UserWarning, match="column-vector y was passed"):
        found = quick().fit(X, np.array(LABELS)[:, None])
    assert found.predict(X).tolist() == LABELS
    assert path_rows([["a"], ["b"]]) is None


@pytest.mark.parametrize("labels", [np.arange(60) % 5, (np.arange(60) % 5).astype(float), np.array(LABELS, object)])
def test_plain_labels_give_a_flat_tree_and_keep_their_values(labels):
    found = quick().fit(X, labels)
    assert np.array_equal(found.predict(X), labels)
    assert np.array_equal(found.classes_, np.unique(labels))
    assert found.taxonomy_.depth == 1
    if labels.dtype.kind == "f":
        assert found.score(X, labels.astype(int)) == 1


@pytest.mark.parametrize("separator", ["/", " > "])
def test_strings_with_a_separator_are_paths_and_predictions_follow_the_taxonomy(separator):
    labels = [separator.join(path) for path in PATHS]
    found = quick().fit(X, labels)
    assert found.taxonomy_.depth == 3
    assert found.classes_.tolist() == list(found.taxonomy_.classes)
    assert found.predict(X).tolist() == LABELS
    assert found.score(X, labels) == found.score(X, LABELS) == 1


@pytest.mark.parametrize("taxonomy", [None, TAX], ids=["inferred", "given"])
@pytest.mark.parametrize("form", [lambda: ["/".join(path) for path in PATHS], lambda: LABELS], ids=["paths", "names"])
def test_both_classifiers_have_the_same_classes_and_return_the_same_labels(taxonomy, form):
    texts, rows = small(taxonomy).fit(TEXTS, form()), quick(taxonomy).fit(X, form())
    assert texts.classes_.tolist() == rows.classes_.tolist() == list(texts.taxonomy_.classes)
    assert texts.taxonomy_ == rows.taxonomy_
    assert texts.predict(TEXTS).tolist() == rows.predict(X).tolist() == LABELS


@pytest.mark.parametrize("labels", [LABELS, ["/".join(path) for path in PATHS], ROWS])
def test_with_a_taxonomy_classes_have_its_order(labels):
    found = quick(TAX).fit(X[:40], labels[:40])
    assert found.taxonomy_ is TAX
    assert found.predict(X).tolist() == (ROWS.tolist() if labels is ROWS else LABELS)
    with pytest.raises(am.errors.LabelError, match="did you mean"):
        quick(TAX).fit(X, [*LABELS[:-1], "spacee"])


def test_classes_include_those_that_do_not_occur_in_training():
    labels = np.array(["/".join(path) for path in PATHS])
    keep = np.array(LABELS) != "mac"
    assert quick(TAX).fit(X[keep], labels[keep]).classes_.tolist() == list(TAX.classes)
    keep = np.array(LABELS) != "space"
    assert quick(TAX).fit(X[keep], ROWS[keep]).classes_[4].tolist() == ["sci", "space", ""]


def test_numbers_are_an_error_with_a_taxonomy():
    with pytest.raises(am.errors.InputError, match="turn labels into numbers"):
        quick(TAX).fit(X, np.arange(60) % 5)


def test_an_unknown_label_counts_as_a_mistake(clf):
    labels = [ROWS[0], ["sci", "bio", ""]]
    with pytest.warns(UserWarning, match=r"1 of 2 items has a label .*counts as an error: 'sci > bio' \(1\)"):
        assert clf.score(X[:2], labels) == 0.5
    with pytest.warns(UserWarning, match="sci > bio"):
        found = clf.evaluate(X[:2], labels)
    assert (found["accuracy"], found["unseen_labels"]) == (0.5, {"sci > bio": 1})


def test_numbers_that_training_did_not_see_count_as_mistakes():
    found = quick().fit(X, np.arange(60) % 3)
    with pytest.warns(UserWarning, match=r"2 of 3 items have labels .*'7' \(2\)"):
        assert found.score(X[:3], [0, 7, 7]) <= 1 / 3


# ---------------------------------------------------------------------- matrices


@pytest.mark.parametrize("hidden", [(), (8,), (8, 4)])
@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csr_array, sparse.coo_array, sparse.csc_matrix])
def test_sparse_matrices_are_never_converted_to_dense_ones(form, hidden, monkeypatch):
    for kind in (sparse.csr_matrix, sparse.csr_array, sparse.coo_array, sparse.csc_matrix):
        monkeypatch.setattr(kind, "toarray", None)
        monkeypatch.setattr(kind, "todense", None)
    found = quick(hidden=hidden, epochs=20, learning_rate=0.3 if not hidden else 0.05).fit(form(X), ROWS)
    assert found.score(form(X), ROWS) == 1
    assert found.model_.encoder.mean.tolist() == [0] * 6


def test_a_million_sparse_columns_are_supported():
    wide = sparse.random_array((30, 1_000_000), density=2e-5, format="csr", rng=0)
    assert quick(epochs=1, hidden=(2,)).fit(wide, np.arange(30) % 3).predict_proba(wide).shape == (30, 3)


@pytest.mark.parametrize("hidden", [(), (8,)])
def test_dense_and_sparse_matrices_have_the_same_predictions(hidden):
    for given in (X, sparse.csr_array(X)):
        found = quick(hidden=hidden).fit(given, ROWS)
        answers = found.predict_proba(X)
        np.testing.assert_allclose(found.predict_proba(sparse.csr_array(X)), answers, atol=1e-6)


def test_the_matrix_of_the_caller_is_not_changed():
    rows = sparse.csr_array((np.ones(4, np.float32), [2, 0, 1, 1], [0, 2, 4]), shape=(2, 3))  # unsorted, one twice
    quick(epochs=1).fit(rows, ["a", "b"]).predict(rows)
    assert rows.indices.tolist() == [2, 0, 1, 1]


def test_features_are_scaled_by_default():
    wild = X * [1e4, 1e-4, 1, 1, 1, 1e6] + 1e3
    assert quick().fit(wild, ROWS).score(wild, ROWS) == 1
    assert quick(scale=False).fit(X, ROWS).model_.encoder.factor.tolist() == [1] * 6


@pytest.mark.parametrize(("bad", "expected"), [(np.nan, "contains NaN"), (np.inf, "contains infinity")])
def test_missing_values_raise_the_errors_of_scikit_learn(bad, expected, clf):
    broken = X.copy()
    broken[3, 2] = bad
    for call in (lambda: quick().fit(broken, ROWS), lambda: clf.predict(broken)):
        with pytest.raises(ValueError, match=expected):
            call()
    with pytest.raises(ValueError, match="6 features as input"):
        clf.predict(X[:, :3])


# ---------------------------------------------------------------------- settings


def test_the_same_seed_gives_the_same_predictions(clf):
    assert np.array_equal(clone(clf).fit(X, ROWS).predict_proba(X), clf.predict_proba(X))
    assert not np.array_equal(quick(seed=1).fit(X, ROWS).predict_proba(X), clf.predict_proba(X))


@pytest.mark.parametrize("head", ["flat", "shared"])
def test_every_head_fits(head):
    assert quick(head=head).fit(X, ROWS).score(X, ROWS) == 1


def test_every_setting_of_training_is_a_parameter_of_both_classifiers():
    texts, rows = am.TextClassifier().get_params(), am.HierarchicalClassifier().get_params()
    settings = set(TrainConfig.model_fields) - {"encoder", "encoder_options", "names", "columns", "separator"}
    assert settings <= rows.keys()
    different = {name for name in settings if texts[name] != rows[name]}
    assert different == {"validation", "weight_decay"}


def test_fit_sets_its_attributes(clf):
    assert (clf.n_features_in_, clf.n_iter_, clf.run_.epochs) == (6, 8, 8)
    assert not hasattr(clf, "feature_names_in_")


def test_class_weights_accept_labels_of_any_form():
    labels = np.array([1] * 30 + [2] * 10)
    ones = np.ones((40, 1))
    for weights in ({2: 30.0}, "balanced"):
        found = quick(class_weight=weights, epochs=20).fit(ones, labels).predict_proba(ones[:1])[0]
        assert found[1] > 0.4
    rows = [["a", "x"]] * 30 + [["a", "y"]] * 10
    assert quick(class_weight={("a", "y"): 30.0}, epochs=20).fit(ones, rows).predict(ones[:1]).tolist() == [["a", "y"]]
    with pytest.raises(am.errors.OptionError, match="inner node"):
        quick(TAX, class_weight={"comp": 2}).fit(X, LABELS)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"hidden": (0.5,)}, "hidden"),
        ({"hidden": 8}, "hidden"),
        ({"head": "deep"}, "head"),
        ({"epochs": 0}, "epochs"),
        ({"taxonomy": 7}, "not int"),
        ({"class_weight": {"b": 1}}, "not a class"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_invalid_parameters_are_reported_by_fit(settings, expected):
    with pytest.raises(ValueError, match=expected):
        quick(**settings).fit(X, np.arange(60) % 2)


def test_sample_weights_are_an_error():
    with pytest.raises(am.errors.OptionError, match="class_weight='balanced'"):
        quick().fit(X, ROWS, sample_weight=np.ones(60))


# ----------------------------------------------------------------------- answers


def test_predictions_at_every_level(clf):
    tax = clf.taxonomy_
    assert clf.node_proba(X).shape == (60, tax.num_nodes)
    np.testing.assert_allclose(clf.predict_proba(X).sum(1), 1, rtol=1e-5)
    assert [tax.path(node) for node in clf.predict_nodes(X, decoder="leaf")] == PATHS
    assert clf.predict_paths(X) == PATHS
    assert clf.predict_paths(X, tau=1.0) == [()] * 60
    probabilities, classes = clf.topk(X, 2)
    assert (probabilities.shape, classes.shape) == ((60, 2), (60, 2, 3))
    assert clf.evaluate(X, ROWS)["accuracy"] == 1
    with pytest.raises(NotFittedError):
        quick().predict(X)


# ------------------------------------------------------------------ scikit-learn


def test_searches_and_folds_run_with_rows_of_names():
    assert cross_val_score(quick(), X, ROWS, cv=3).min() > 0.9
    grid = {"hidden": [(), (8,)], "head": ["hierarchical", "flat"]}
    search = GridSearchCV(quick(), grid, cv=KFold(2, shuffle=True, random_state=0), error_score="raise").fit(X, ROWS)
    assert search.predict(X).shape == (60, 3)
    proba = cross_val_predict(quick(), X, LABELS, cv=3, method="predict_proba")
    assert np.array_equal(np.unique(LABELS)[proba.argmax(1)], LABELS)


def test_columns_of_a_table_go_through_a_column_transformer():
    table = pd.DataFrame({"title": TEXTS, "size": X[:, 5]})
    columns = ColumnTransformer([("words", TfidfVectorizer(), "title"), ("numbers", StandardScaler(), ["size"])])
    pipe = make_pipeline(columns, quick(learning_rate=0.5)).fit(table, ROWS)
    assert pipe.score(table, ROWS) == 1
    texts = ColumnTransformer([("text", "passthrough", ["title"])])
    assert make_pipeline(texts, small()).fit(table, LABELS).score(table, LABELS) == 1


def test_tables_of_pandas_have_names(clf):
    names = list("abcdef")
    table = pd.DataFrame(X, columns=names)
    found = quick().fit(table, pd.DataFrame(ROWS))
    assert found.feature_names_in_.tolist() == names
    assert np.array_equal(found.predict_proba(table), clf.predict_proba(X))
    with pytest.raises(ValueError, match="feature names"):
        found.predict(table[names[::-1]])


def test_polars_tables_are_accepted(clf):
    polars = pytest.importorskip("polars")
    table = polars.DataFrame(X, schema=list("abcdef"), orient="row")
    rows = polars.DataFrame(ROWS, schema=["one", "two", "three"], orient="row")
    missing = rows.with_columns(polars.col("three").replace("", None))
    for labels in (rows, missing):
        found = quick().fit(table, labels)
        assert found.feature_names_in_.tolist() == list("abcdef")
        assert np.array_equal(found.predict_proba(table), clf.predict_proba(X))
    assert quick().fit(table, polars.Series(LABELS)).predict(table).tolist() == LABELS
    for texts in (polars.Series(TEXTS), polars.DataFrame({"text": TEXTS})):
        for labels in (polars.Series(LABELS), missing):
            assert small().fit(texts, labels).predict(texts).tolist() == LABELS


def test_the_text_classifier_accepts_pandas_tables():
    rows = pd.DataFrame(ROWS).replace("", None)
    table = pd.DataFrame({"text": TEXTS})
    assert small().fit(table, rows).predict(table["text"]).tolist() == LABELS


# ----------------------------------------------------------------- learning rate


@pytest.mark.parametrize(("hidden", "scale"), [((), True), ((), False), ((16,), True)])
def test_the_default_learning_rate_suits_wide_matrices(hidden, scale):
    draw = np.random.default_rng(0)
    truth = np.arange(900) % 12
    labels = np.where(draw.random(900) < 0.3, draw.integers(12, size=900), truth)  # a third cannot be learnt
    wide = (0.25 * draw.normal(size=(12, 300))[truth] + draw.normal(size=(900, 300))).astype(np.float32)
    train, test = slice(600), slice(600, None)

    def nll(**given):
        settings = {"hidden": hidden, "scale": scale, "head": "hierarchical", "solver": "adam", "weight_decay": 0.0}
        found = am.HierarchicalClassifier(**settings, **given).fit(wide[train], labels[train])
        return found.evaluate(wide[test], labels[test])["nll"]

    of_few_columns = 0.01 if hidden else 0.05
    assert nll() < 0.75 * nll(learning_rate=of_few_columns)


def test_the_default_learning_rate_depends_on_the_size_of_the_rows():
    def rate(rows, **given):
        return am.HierarchicalClassifier(epochs=1, **given).fit(rows, LABELS[:60]).model_.config.learning_rate

    rows = np.random.default_rng(0).normal(size=(60, 400)).astype(np.float32)
    assert rate(rows[:, :6]) == 0.05
    assert rate(rows) == rate(1000 * rows) == pytest.approx(1 / 400)
    assert rate(rows, scale=False) == pytest.approx(1 / 400, rel=0.05)
    assert rate(rows / 20, scale=False) == pytest.approx(0.05, rel=0.05)
    assert rate(100 * rows, scale=False) == pytest.approx(1e-2 / 400, rel=0.05)
    assert rate(np.zeros_like(rows), scale=False) == 0.05


# ----------------------------------------------------------------------- folders


@pytest.mark.parametrize(
    ("taxonomy", "labels"),
    [(None, ROWS), (TAX, LABELS), (None, np.arange(60) % 5), (None, [" > ".join(path) for path in PATHS])],
    ids=["rows", "names", "numbers", "strings"],
)
def test_a_loaded_classifier_has_the_same_predictions(taxonomy, labels, tmp_path):
    table = pd.DataFrame(X, columns=list("abcdef"))
    found = quick(taxonomy, hidden=(4,)).fit(table, labels)
    found.save(tmp_path, {"test": found.evaluate(table, labels)})
    loaded = am.HierarchicalClassifier.load(tmp_path)
    assert np.array_equal(loaded.predict_proba(table), found.predict_proba(table))
    assert np.array_equal(loaded.predict(table), found.predict(table))
    assert loaded.predict(table).dtype == found.predict(table).dtype
    assert loaded.score(table, labels) == found.score(table, labels)
    assert (loaded.hidden, loaded.n_features_in_, loaded.n_iter_) == ((4,), 6, 8)
    assert np.array_equal(clone(loaded).fit(table, labels).predict_proba(table), found.predict_proba(table))
    assert "HierarchicalClassifier.load" in (tmp_path / "README.md").read_text("utf-8")
    assert not list(tmp_path.rglob("*.pkl"))


def test_a_folder_of_another_kind_is_an_error(clf, tmp_path):
    small(epochs=1).fit(TEXTS, LABELS).save(tmp_path / "texts")
    with pytest.raises(am.errors.ArbormaxError, match=r"load it with TextClassifier\.load"):
        am.HierarchicalClassifier.load(tmp_path / "texts")
    clf.save(tmp_path / "rows")
    with pytest.raises(ModelFolderError, match=r"feature matrices: load it with HierarchicalClassifier\.load"):
        am.TextClassifier.load(tmp_path / "rows")
    with pytest.raises(am.errors.InputError, match="takes feature matrices"):
        list(load_model(tmp_path / "rows").features(TEXTS))
    (tmp_path / "rows" / "classifier.json").write_text("{}", "utf-8")
    with pytest.raises(am.errors.ArbormaxError, match="is not the record of a classifier"):
        am.HierarchicalClassifier.load(tmp_path / "rows")


def test_a_pickled_classifier_has_the_same_predictions(clf):
    again = pickle.loads(pickle.dumps(clf))
    assert np.array_equal(again.predict_proba(X), clf.predict_proba(X))


def test_the_default_head_suits_the_matrix_and_the_settings():
    sparse = pytest.importorskip("scipy.sparse").csr_matrix(X)
    heads = [
        am.HierarchicalClassifier(epochs=1).fit(X, ROWS),
        am.HierarchicalClassifier(epochs=1, gamma=1.0).fit(X, ROWS),
        am.HierarchicalClassifier(epochs=1, hidden=[3]).fit(X, ROWS),
        am.HierarchicalClassifier().fit(sparse, ROWS),
        am.HierarchicalClassifier(logit_adjustment=1.0).fit(sparse, ROWS),
    ]
    wanted = ["shared", "hierarchical", "blended", "blended", "hierarchical"]
    assert [clf.model_.config.head for clf in heads] == wanted
