"""Training that continues with new examples."""

import numpy as np
import pytest

import arbormax as am
from arbormax.errors import LabelError, OptionError

WORDS = {
    "news/sport": ["ball", "goal", "match", "team"],
    "news/weather": ["rain", "snow", "wind", "sun"],
    "shop/shoes": ["boot", "heel", "sole", "lace"],
}
MUSIC = {"news/music": ["song", "piano", "choir", "drum"]}
BAG = {"encoder": "bag", "encoder_options": {"dim": 8}, "epochs": 3, "learning_rate": 0.1, "accelerator": "cpu"}


def texts(words, n, seed=0):
    draw = np.random.default_rng(seed)
    labels = draw.choice(sorted(words), n).tolist()
    return [" ".join(draw.choice(words[label], 3)) for label in labels], labels


def fitted(**options):
    tax = am.Taxonomy.from_paths([tuple(label.split("/")) for label in WORDS])
    return am.TextClassifier(tax, **options).fit(*texts(WORDS, 120))


@pytest.mark.parametrize("options", [{}, {"head": "hierarchical"}, BAG, {**BAG, "freeze_encoder": True}], ids=str)
def test_a_continued_classifier_learns_an_added_class_and_keeps_the_others(options):
    clf = fitted(**options)
    am.edit(clf).add("music", under="news").done()
    new, labels = texts({**WORDS, **MUSIC}, 60, seed=1)
    if options.get("encoder") == "bag":  # its vocabulary is fixed, so the class needs known words
        new = [text.replace("song", "ball rain").replace("drum", "ball rain") for text in new]
    clf.partial_fit(new, labels)
    old = texts(WORDS, 60, seed=2)
    assert clf.score(*old) > 0.9
    assert clf.continued_.after >= clf.continued_.before
    if options.get("encoder") != "bag":
        assert (clf.predict(["ball", "rain"]) == ["sport", "weather"]).all()


@pytest.mark.parametrize("options", [{}, BAG], ids=["convex", "adam"])
def test_the_same_seed_gives_the_same_weights(options):
    new = texts(WORDS, 40, seed=1)
    first, second = (fitted(**options).partial_fit(*new) for _ in range(2))
    for name, value in first.model_.state_dict().items():
        assert value.equal(second.model_.state_dict()[name]), name


def test_a_frozen_encoder_does_not_change():
    clf = fitted(**BAG, freeze_encoder=True)
    before = {name: value.clone() for name, value in clf.model_.encoder.state_dict().items()}
    head = clf.model_.head.base.weight.detach().clone()  # of a calibrated one
    clf.partial_fit(*texts(WORDS, 40, seed=1))
    assert all(value.equal(before[name]) for name, value in clf.model_.encoder.state_dict().items())
    assert not clf.model_.head.base.weight.equal(head)


def test_warm_start_continues_and_the_vocabulary_stays():
    clf = fitted()
    terms = clf.model_.encoder.terms
    clf.set_params(warm_start=True).fit(*texts(WORDS, 40, seed=1))
    assert clf.model_.encoder.terms == terms
    clf.set_params(warm_start=False).fit(*texts(WORDS, 10, seed=1))
    assert clf.model_.encoder.terms != terms


def test_a_class_that_the_model_does_not_have_is_an_error_that_names_the_way():
    with pytest.raises(LabelError, match=r"'news' has no child 'music'.*am\.edit"):
        fitted().partial_fit(["a song"], ["news/music"])


@pytest.mark.parametrize("change", [{"head": "flat"}, {"encoder": "bag"}])
def test_a_trained_model_keeps_its_parts(change):
    with pytest.raises(OptionError, match=f"{next(iter(change))}: a trained model keeps its"):
        fitted().set_params(**change).partial_fit(*texts(WORDS, 10))


def test_the_numbers_of_old_examples_are_saved_and_follow_edits(tmp_path):
    clf = fitted()
    clf.save(tmp_path / "model")
    loaded = am.TextClassifier.load(tmp_path / "model")
    assert loaded.model_.row_counts.tolist() == clf.model_.row_counts.tolist()
    counts = dict(zip(clf.model_.head.row_nodes().tolist(), clf.model_.row_counts.tolist(), strict=True))
    below = sum(counts[clf.taxonomy_.find(name)] for name in ("sport", "weather"))
    assert counts[clf.taxonomy_.find("news")] == below + 1  # its own name is an example, too
    edited = am.edit(loaded).add("music", under="news").done()
    places = np.flatnonzero(loaded.model_.head.row_nodes() == edited.taxonomy.find("music"))
    assert loaded.model_.row_counts[places].tolist() == [0, 0]  # of its step and of the class
    loaded.partial_fit(*texts(WORDS, 40, seed=1))
    assert loaded.model_.row_counts.max() > clf.model_.row_counts.max()


def test_matrices_continue_from_nothing():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(120, 4))
    y = (X[:, 0] > 0).astype(int)
    clf = am.HierarchicalClassifier().partial_fit(X[:60], y[:60], classes=[0, 1, 2])
    assert clf.partial_fit(X[60:], y[60:]).score(X, y) > 0.9
    assert clf.classes_.tolist() == [0, 1, 2]


def test_a_calibration_stays():
    clf = fitted()
    clf.calibrate(*texts(WORDS, 60, seed=3), method="vector")
    clf.partial_fit(*texts(WORDS, 40, seed=1))
    assert clf.model_.calibration.method == "vector"
    assert clf.score(*texts(WORDS, 60, seed=2)) > 0.9


def test_a_model_with_uncertainty_cannot_continue():
    clf = fitted(encoder="tfidf", head="hierarchical", uncertainty="laplace")
    with pytest.raises(OptionError, match="uncertainty"):
        clf.partial_fit(*texts(WORDS, 10))
