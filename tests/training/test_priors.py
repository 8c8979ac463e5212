"""Rows that are drawn towards the row of the parent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.errors import OptionError
from arbormax.model.settings import TrainConfig
from arbormax.training import fit
from arbormax.training.priors import fit_towards

TREE = am.Taxonomy.from_nested({"animal": ["cat", "dog", "cow"], "plant": ["oak", "rose", "fern"], "stone": []})
FACTOR, STRENGTH = 0.7, 0.5


def naive_row(X: np.ndarray, is_own: np.ndarray, costs: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """The weight and, last, the bias of one SVM, from the formula and numerical gradients."""
    signs = np.where(is_own, 1.0, -1.0)

    def cost(row: np.ndarray) -> float:
        gaps = np.maximum(0.0, 1.0 - signs * (X @ row[:-1] + row[-1]))
        return float(0.5 * ((row[:-1] - prior) ** 2).sum() + 0.5 * row[-1] ** 2 + (costs * gaps**2).sum())

    found: np.ndarray = minimize(cost, np.zeros(X.shape[1] + 1), method="BFGS", options={"gtol": 1e-5}).x
    return found


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("has_weights", [False, True])
def test_rows_have_the_lowest_cost(is_sparse: bool, has_weights: bool) -> None:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(30, 5)).astype(np.float32)
    targets = draw.integers(3, size=30)
    weights = draw.random(30) + 0.1 if has_weights else None
    prior = draw.normal(size=(3, 5))
    is_own = targets[:, None] == np.arange(3)
    weight, bias = fit_towards(csr_matrix(X) if is_sparse else X, is_own, weights, 0.3, prior)
    costs = np.full(30, 0.3) if weights is None else 0.3 * weights
    for k in range(3):
        expected = naive_row(X.astype(np.float64), is_own[:, k], costs, prior[k])
        assert np.allclose(np.append(weight[k], bias[k]), expected, atol=0.01)


def data() -> tuple[np.ndarray, np.ndarray]:
    """Features around a centre for each class, which is near that of its parent."""
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(TREE.num_nodes, 6))
    nodes = np.repeat(TREE.leaves, 12)
    X = centres[nodes] + centres[TREE.parent[nodes]] + draw.normal(size=(len(nodes), 6))
    return np.abs(X).astype(np.float32), nodes


def train(head: str, is_sparse: bool = True, **settings: Any) -> am.model.Model:
    X, nodes = data()
    options = {"inputs": X.shape[1], "sparse": is_sparse, "scale": False}
    config = TrainConfig.make(
        encoder="features",
        encoder_options=options,
        head=head,
        validation=0,
        prune=0,
        strength=STRENGTH,
        convex_loss="squared_hinge",
        **settings,
    )
    return fit(config, TREE, Examples(csr_matrix(X) if is_sparse else X, nodes)).model


def rows(model: am.model.Model) -> np.ndarray:
    """(rows, features) the weight of the head, with the bias as the last column."""
    head, size = model.head, model.head.in_features
    with torch.no_grad():
        bias = head.row_scores(torch.zeros(1, size))
        found: np.ndarray = torch.cat([head.row_scores(torch.eye(size)) - bias, bias]).T.numpy()
    return found


@pytest.mark.parametrize("is_sparse", [True, False])
def test_rows_of_a_hierarchical_head_are_drawn_towards_those_of_their_parents(is_sparse: bool) -> None:
    X, nodes = data()
    found = rows(train("hierarchical", is_sparse, parent_prior=FACTOR)) / 3.0  # the scale of the scores
    for parent in TREE.find_many(["animal", "plant"]).tolist():
        below = np.flatnonzero(TREE.parent[nodes] == parent)
        strength = STRENGTH / np.square(X[below], dtype=np.float64).sum(1).mean()
        for child in TREE.children(parent):
            prior = FACTOR * found[parent - 1, :-1]
            expected = naive_row(X[below], nodes[below] == child, np.full(len(below), strength), prior)
            assert np.allclose(found[child - 1], expected, atol=0.01)
    top = rows(train("hierarchical", is_sparse))[TREE.children(0) - 1] / 3.0
    assert np.allclose(found[TREE.children(0) - 1], top, atol=0.01)


@pytest.mark.parametrize("few", [0, 200])
def test_rows_of_classes_of_a_blended_head_are_drawn_towards_those_of_their_parents(
    monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    # all examples of other classes are rivals of a class, since there are fewer than ten classes
    monkeypatch.setattr("arbormax.training.convex.FEW_CLASSES", few)
    X, nodes = data()
    found = rows(train("blended", parent_prior=FACTOR))
    count = TREE.num_nodes - 1
    paths, classes = found[:count] / 3.0, found[count:] / 2.0  # the scales of the scores
    strength = STRENGTH / np.square(X, dtype=np.float64).sum(1).mean()
    for c, leaf in enumerate(TREE.leaves.tolist()):
        parent = TREE.parent[leaf]
        prior = FACTOR * paths[parent - 1, :-1] if parent else np.zeros(X.shape[1])
        expected = naive_row(X, nodes == leaf, np.full(len(X), strength), prior)
        assert np.allclose(classes[c], expected, atol=0.01)
    assert np.allclose(paths, rows(train("blended"))[:count] / 3.0, atol=1e-4)


def test_a_feature_that_no_rival_has_keeps_the_weight_of_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arbormax.training.convex.FEW_CLASSES", 0)
    monkeypatch.setattr("arbormax.training.rivals.NUM_RIVALS", 1)
    X, nodes = data()
    X = np.hstack([X, np.zeros((len(X), 1), np.float32)])
    is_cow = nodes == TREE.find("cow")
    X[is_cow, -1] = 1.0  # a feature of cows, which separates animals from plants
    config = TrainConfig.make(
        encoder="features",
        encoder_options={"inputs": 7, "sparse": True, "scale": False},
        validation=0,
        prune=0,
        parent_prior=FACTOR,
    )
    found = rows(fit(config, TREE, Examples(csr_matrix(X), nodes)).model)
    row = found[TREE.num_nodes - 1 + TREE.class_of[TREE.find("cat")]] / 2.0
    assert row[-2] == pytest.approx(FACTOR * found[TREE.find("animal") - 1, -2] / 3.0, rel=0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head": "flat", "parent_prior": 0.5}, "parent_prior: the head 'flat' has no rows of parents"),
        ({"convex_loss": "log", "parent_prior": 0.5}, "parent_prior: is not possible with convex_loss 'log'"),
        ({"encoder": "bag", "parent_prior": 0.5}, "parent_prior: a setting of the convex solver"),
        ({"parent_prior": -1.0}, "parent_prior"),
    ],
)
def test_settings_without_a_prior_are_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        TrainConfig.make(**settings).resolved()


def test_no_prior_is_no_setting_of_the_convex_solver() -> None:
    assert TrainConfig.make(encoder="bag", parent_prior=0.0).resolved().solver == "adam"
