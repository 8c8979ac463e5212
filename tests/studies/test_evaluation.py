"""The measures of a model against those of its arrays."""

import numpy as np
import pytest
import torch

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.errors import InputError
from arbormax.model import Model
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
