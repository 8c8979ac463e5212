"""scikit-learn's own checks of estimators; each that is left out is listed with its reason."""

import numpy as np
import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.metrics import accuracy_score
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

import arbormax as am
from arbormax.sklearn.inputs import LabelFormat, Labels
from text_toy import small

FEATURES_FAIL = {
    "check_methods_sample_order_invariance": "asks for equality to 1e-9; sums in float32 differ in the last bit with a "
    "row's place in its batch (test_predictions_do_not_depend_on_the_order_of_rows asks for 1e-6)",
}
QUICK = {"epochs": 5, "batch_size": 16, "accelerator": "cpu"}


@parametrize_with_checks(
    [am.HierarchicalClassifier(**QUICK, learning_rate=0.1), am.HierarchicalClassifier(**QUICK, hidden=(8,))],
    expected_failed_checks=lambda _: FEATURES_FAIL,
    xfail_strict=False,  # how sums are rounded depends on the processor
)
def test_the_classifier_of_features_passes(estimator, check):
    check(estimator)


def test_predictions_do_not_depend_on_the_order_of_rows():
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(60, 5)), draw.integers(0, 4, 60)
    clf, order = am.HierarchicalClassifier(**QUICK).fit(X, y), draw.permutation(60)
    np.testing.assert_allclose(clf.predict_proba(X[order]), clf.predict_proba(X)[order], rtol=1e-6)


# ------------------------------------------------------------- the classifier of texts

# scikit-learn makes matrices of numbers and runs no check on an estimator whose tags say that it takes no such array.
# The checks that make no data run on the text classifier as it is; all others run on one that writes each number of a
# row as a word, and each label as a name, and leaves the rest to it.

NO_DATA = [
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_valid_tag_types,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
    estimator_checks.check_mixin_order,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
]
TEXTS_FAIL = {
    **FEATURES_FAIL,
    "check_class_weight_classifiers": "labels of texts are strings, so weights by number cannot be given "
    "(test_class_weights_shift_the_answers)",
}


class OnNumbers(am.TextClassifier):
    """The text classifier on rows of numbers, each written as a word."""

    def fit(self, X, y=None):
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self._labels = np.unique(y)
        super().fit(_texts(X), [str(label) for label in y.tolist()])
        self.classes_ = self._labels
        return self

    def partial_fit(self, X, y, classes=None):
        if not hasattr(self, "model_"):
            return self.fit(X, y)
        X, y = validate_data(self, X, y, reset=False, dtype=np.float64)
        return super().partial_fit(_texts(X), [str(label) for label in y.tolist()])

    def _read_labels(self, y, taxonomy):
        tax = am.Taxonomy.from_paths([(str(label),) for label in self._labels.tolist()])
        return Labels(tax, tax.find_many(y), LabelFormat(None, "\0", is_given=False), np.array(tax.classes))

    def _check_inputs(self, X):
        return super()._check_inputs(_texts(validate_data(self, X, reset=False, dtype=np.float64)))

    def score(self, X, y, sample_weight=None):
        return accuracy_score(y, self.predict(X), sample_weight=sample_weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.no_validation = False, True, False
        return tags


def _texts(X):
    words = np.clip(np.round(2 * X), -99, 99).astype(int) + 100
    return [" ".join(f"c{column}x{word}" for column, word in enumerate(row)) for row in words.tolist()]


@parametrize_with_checks(
    [
        OnNumbers(
            encoder="bag",
            encoder_options={"dim": 16, "dropout": 0.0, "ngrams": 1},
            learning_rate=0.1,
            validation=0,
            **QUICK,
        )
    ],
    expected_failed_checks=lambda _: TEXTS_FAIL,
    xfail_strict=False,
)
def test_the_classifier_of_texts_passes_with_numbers_as_words(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", NO_DATA, ids=lambda check: check.__name__)
def test_the_classifier_of_texts_passes_what_needs_no_numbers(check):
    check("TextClassifier", small())


def test_the_tags_declare_what_the_text_classifier_accepts():
    tags = get_tags(am.TextClassifier())
    assert (tags.input_tags.string, tags.input_tags.two_d_array) == (True, False)
    with pytest.warns(SkipTestWarning, match="requires input"):
        list(estimator_checks.estimator_checks_generator(am.TextClassifier()))
