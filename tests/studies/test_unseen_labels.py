"""Test labels that training never saw count as errors in every measure."""

import numpy as np
import pytest
import torch

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.data.labels import find_test_nodes, infer_taxonomy, label_nodes
from arbormax.errors import LabelError
from arbormax.studies.evaluate import evaluate_log_probs

TAX = am.Taxonomy.from_nested({"shop": ["shoes", "hats"], "news": ["sport", "rain"]})
LABELS = ["shop/shoes", "shop/boots", "news/sport", "art", "shop/shoes/red", "shop/boots"]


def test_an_unseen_label_is_a_class_below_the_deepest_known_node():
    nodes, unseen = find_test_nodes(LABELS, TAX)
    assert nodes.tolist() == [TAX.find("shoes"), 7, TAX.find("sport"), 8, 9, 7]
    assert [(each.label, each.parent) for each in unseen] == [
        ("shop > boots", TAX.find("shop")),
        ("art", 0),
        ("shop > shoes > red", TAX.find("shop")),  # a class stays one
    ]
    repeated = am.Taxonomy.from_nested({"a": ["other", "x"], "b": ["other", "y"]})
    with pytest.raises(LabelError, match="names 2 nodes"):
        find_test_nodes(["other", "x"], repeated)


def test_the_measures_are_those_of_a_tree_with_the_unseen_classes():
    nodes, unseen = find_test_nodes(LABELS, TAX)
    examples = Examples([""] * len(LABELS), nodes, unseen)
    logits = torch.randn(len(LABELS), TAX.num_nodes - 1, generator=torch.Generator().manual_seed(0))
    logp = am.functional.node_log_probs(logits, TAX)
    found = evaluate_log_probs(logp.split(4), examples, TAX)
    grown = found.taxonomy
    assert [grown.path(node)[-1] for node in found.true[[1, 3, 4]]] == ["shop > boots", "art", "shop > shoes > red"]
    expected = am.metrics.evaluate(found.true, found.predicted, grown)
    for name, value in expected.items():
        np.testing.assert_allclose(found.metrics[name], value, err_msg=name)
    known = nodes < TAX.num_nodes
    right = am.decode.leaf(logp, TAX).numpy()[known] == nodes[known]
    assert found.metrics["accuracy"] == pytest.approx(right.sum() / len(LABELS))
    assert examples.unseen_counts(TAX) == {"shop > boots": 2, "art": 1, "shop > shoes > red": 1}


@pytest.mark.parametrize("labels", [[["x/y", "x/z"]], [["x/y", "w/z"], ["x/y"]], [["x > y", "x > z"], "x > y"]])
def test_several_labels_for_one_text_are_an_error(labels):
    with pytest.raises(LabelError, match="are several labels, and a text has one"):
        infer_taxonomy(labels)
    with pytest.raises(LabelError, match="are several labels, and a text has one"):
        am.TextClassifier().fit(["a"] * len(labels), labels)


def test_lists_of_classes_of_a_tree_are_several_labels():
    with pytest.raises(LabelError, match="are several labels"):
        label_nodes([["shoes", "news/sport"]], TAX)
    with pytest.raises(LabelError, match="no node has the path"):
        label_nodes([["shop", "sport"]], TAX)
    assert infer_taxonomy([["net", "TCP/IP"], ["A/B", "C/D"]]).num_leaves == 2
