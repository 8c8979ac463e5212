"""The measures of a model against those of its arrays."""

import numpy as np
import pytest
import torch

import arbormax as am
from arbormax.data.examples import Examples, Unseen
from arbormax.errors import InputError
from arbormax.model import Model
from arbormax.model.predict import Decoding
from arbormax.studies import evaluate
from toy import TREE, examples, settings


@pytest.fixture(scope="module", params=["bag", "bilstm"])
def model(request):
    return Model.new(examples(30).inputs, TREE, settings(request.param).resolved())


@pytest.mark.parametrize("batch_size", [1, 7, 256])
@pytest.mark.parametrize("inner", [0.0, 0.4])
def test_measures_equal_those_of_arrays(model, batch_size, inner):
    data = examples(40, seed=3, inner=inner)
    found = evaluate(model, data, batch_size)
    logp = torch.cat(list(model.node_log_probs(data.inputs))).numpy()
    predicted = TREE.leaves[logp[:, TREE.leaves].argmax(1)]
    assert (found.predicted == predicted).all()
    wanted = am.metrics.evaluate(data.nodes, predicted, TREE)
    assert {name: found.metrics[name] for name in wanted} == wanted
    assert found.metrics["items"] == 40


def test_the_negative_log_likelihood_is_the_mean_over_the_true_nodes(model):
    data = examples(40, seed=3, inner=0.4)
    logp = torch.cat(list(model.node_log_probs(data.inputs))).double().numpy()
    by_hand = -logp[np.arange(40), data.nodes].mean()
    assert evaluate(model, data, 7).metrics["nll"] == pytest.approx(by_hand)


def test_a_label_at_the_root_costs_nothing(model):
    assert evaluate(model, Examples(["owlish"], np.array([0]))).metrics["nll"] == pytest.approx(0.0, abs=1e-6)


def test_progress_counts_texts(model):
    counts = []
    evaluate(model, examples(20), 8, counts.append)
    assert sum(counts) == 20


def test_no_examples_raise_an_error(model):
    with pytest.raises(InputError, match="no examples to evaluate on"):
        evaluate(model, Examples([], np.zeros(0)))


@pytest.mark.parametrize("node", [-1, TREE.num_nodes])
def test_a_label_outside_the_tree_raises_an_error(model, node):
    with pytest.raises(am.errors.ArbormaxError, match="node"):
        evaluate(model, Examples(["owlish"], np.array([node])))


@pytest.mark.parametrize("kind", ["matrix", "nodes", "labels", "function"])
def test_predictions_with_costs_have_a_mean_cost_over_the_items_of_classes(model, kind):
    every = examples(80, seed=4, inner=0.3)
    every = Examples(every.inputs, np.append(every.nodes[:-1], TREE.num_nodes), (Unseen("bee", 1),))
    costs = np.random.default_rng(0).integers(0, 9, (TREE.num_leaves, TREE.num_leaves)).astype(float)
    if kind == "nodes":
        costs = np.random.default_rng(1).random((TREE.num_nodes, TREE.num_leaves))
    elif kind == "labels":
        costs = {
            row: dict(zip(TREE.classes, values, strict=True)) for row, values in zip(TREE.classes, costs, strict=True)
        }
    elif kind == "function":
        costs = TREE.distance
    decoding = Decoding("optimal", {"metric": "risk", "costs": costs})
    found = evaluate(model, every, batch_size=7, decoding=decoding)
    logp = torch.cat(list(model.node_log_probs(every.inputs)))
    predicted = am.decode.optimal(logp, TREE, "risk", costs=costs).numpy()
    known = [(p, t) for p, t in zip(predicted, every.nodes, strict=True) if t < TREE.num_nodes and TREE.is_leaf[t]]
    if kind == "function":
        expected = [TREE.distance(int(p), int(t)) for p, t in known]
    else:
        matrix = am.decode.cost_matrix(costs, TREE).numpy()
        rows = TREE.class_of if len(matrix) == TREE.num_leaves else np.arange(TREE.num_nodes)
        expected = [matrix[rows[p], TREE.class_of[t]] for p, t in known]
    assert 0 < len(known) < 80
    assert found.metrics["cost"] == pytest.approx(np.mean(expected))


def test_without_costs_there_is_no_mean_cost(model):
    assert "cost" not in evaluate(model, examples(10)).metrics
