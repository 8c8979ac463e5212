"""Classifiers on graphs: training, prediction, files, and what they cannot do."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import arbormax as am
from arbormax.errors import ArbormaxError, OptionError

EDGES = [("r", "pet"), ("r", "fish"), ("pet", "cat"), ("pet", "goldfish"), ("fish", "goldfish"), ("fish", "cod")]
GRAPH = am.Graph.from_edges(EDGES)
WORDS = {"cat": "purr fur", "goldfish": "gold bowl", "cod": "sea north", "fish": "fin scale"}


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(0)
    labels = [rng.choice(list(WORDS)) for _ in range(120)]
    return [f"{WORDS[label]} {rng.choice('abc')}" for label in labels], labels


@pytest.fixture(scope="module")
def clf(texts):
    return am.TextClassifier(GRAPH, epochs=20, validation=0, learning_rate=0.05, seed=0).fit(*texts)


def test_a_text_classifier_of_a_graph(clf, texts, tmp_path):
    X, y = texts
    classes = np.array([label if label != "fish" else "" for label in y])
    assert (clf.model_.config.encoder, clf.model_.config.head) == ("bag", "hierarchical")
    assert (clf.predict(X) == classes)[classes != ""].all()
    (found,) = clf.predict_details(["gold bowl a"], top_k=2)
    assert found.path == ("pet", "goldfish")
    assert found.alternatives[0][0] == "goldfish"
    assert [GRAPH.names[node] for node in clf.predict_nodes(["purr fur b", "sea north b"])] == ["cat", "cod"]
    values = clf.evaluate(X, y)
    assert values["hf"] > 0.9
    clf.save(tmp_path / "model")
    again = am.TextClassifier.load(tmp_path / "model")
    assert isinstance(again.taxonomy_, am.Graph)
    assert again.taxonomy_ == GRAPH
    assert np.array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert "nodes of a graph" in (tmp_path / "model" / "README.md").read_text()


def test_a_graph_is_read_from_its_file(texts, tmp_path):
    GRAPH.save(tmp_path / "pets.obo")
    clf = am.TextClassifier(tmp_path / "pets.obo", epochs=1, validation=0, head="flat").fit(*texts)
    assert clf.taxonomy_ == GRAPH


def test_a_classifier_of_feature_matrices_takes_a_graph(texts):
    _, y = texts
    X = np.eye(len(WORDS), dtype=np.float32)[[list(WORDS).index(label) for label in y]]
    clf = am.HierarchicalClassifier(GRAPH, epochs=30, validation=0, learning_rate=0.1, batch_size=16).fit(X, y)
    known = np.array([label != "fish" for label in y])
    assert (clf.predict(X)[known] == np.array(y)[known]).all()


def test_settings_that_need_a_tree_are_reported_together(texts):
    clf = am.TextClassifier(GRAPH, head="blended", solver="convex", uncertainty="laplace", calibration="level")
    with pytest.raises(OptionError, match="uncertainty: needs a tree, and the taxonomy is a graph") as caught:
        clf.fit(*texts)
    assert [part.argument for part in caught.value.parts] == ["uncertainty", "calibration", "head", "solver"]
    with pytest.raises(OptionError, match="gamma: needs a tree"):
        am.TextClassifier(GRAPH, gamma=1.0).fit(*texts)


def test_the_nearest_node_is_predicted_on_a_graph(clf, texts):
    found = clf.predict(texts[0], decoder="optimal", metric="tree_distance")
    graph, logp = clf.taxonomy_, torch.from_numpy(np.log(clf.node_proba(texts[0])))
    assert found.tolist() == [graph.names[node] for node in am.decode.optimal(logp, graph, "tree_distance").tolist()]


def test_methods_that_need_a_tree_say_so(clf, texts):
    for use in (
        lambda: clf.explain("a fin"),
        lambda: clf.calibrate(*texts),
        lambda: clf.predict(["a fin"], within=["fish"]),
    ):
        with pytest.raises(ArbormaxError, match="needs a tree"):
            use()
