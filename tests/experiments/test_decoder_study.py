"""The study of decoders: its measures agree with those of the library, and its table is up to date."""

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import arbormax as am

SCRIPT = Path(__file__).parents[2] / "experiments" / "probabilities" / "decoders.py"
TREE = am.Taxonomy.from_nested({"a": ["x", "y"], "b": {"c": ["z", "w"]}})


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("decoder_study", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_measures_agree_with_those_of_the_library(study):
    true = TREE.leaves[[0, 1, 2, 3, 3]]
    pred = np.array([TREE.find(name) for name in ("x", "a", "w", "b", "c")])
    found = am.metrics.evaluate(true, pred, TREE)
    values = {name: measure.value(TREE, true, pred) for name, measure in study.MEASURES.items()}
    assert values["accuracy"].mean() == found["accuracy"]
    assert values["tree_distance"].mean() == found["tree_distance"]
    assert values["hf"][1] == pytest.approx(am.metrics.evaluate(true[1:2], pred[1:2], TREE)["hf"])
    assert values["cost"].tolist()[:3] == [0.0, 0.25, 0.25]


def test_every_optimal_decoder_has_the_best_expectation_of_its_measure(study):
    torch.manual_seed(0)
    logp = am.functional.flat_node_log_probs(torch.randn(300, 4, dtype=torch.float64) * 1.5, TREE)
    pred = study.decode_all(logp, TREE, [1.0] * TREE.depth)
    p_BC = logp[:, TREE.leaves.tolist()].exp().numpy()
    true_BC = np.broadcast_to(TREE.leaves, p_BC.shape)

    def expected(measure, decoder):
        pred_BC = np.repeat(pred[decoder][:, None], TREE.num_leaves, 1)
        return measure.sign * (p_BC * measure.value(TREE, true_BC, pred_BC)).sum(1)

    for name, measure in study.MEASURES.items():
        for rival in ("leaf", "greedy") if measure.only_classes else study.RIVALS:
            assert (expected(measure, name) >= expected(measure, rival) - 1e-9).all(), (name, rival)


def test_temperatures_of_levels_are_recovered(study):
    torch.manual_seed(0)
    right = am.functional.node_log_probs(torch.randn(6000, TREE.num_nodes - 1) * 2, TREE)
    draw = torch.multinomial(right[:, TREE.leaves.tolist()].exp(), 1, generator=torch.Generator().manual_seed(1))
    wrong = study.rescale(right, TREE, [0.5, 2.0, 1.0])
    found = study.level_temperatures(wrong, TREE.leaves[draw[:, 0].numpy()], TREE)
    assert found[:2] == pytest.approx([2.0, 0.5], rel=0.15)


@pytest.mark.parametrize("script", ["decoders.py", "restrictions.py"])
def test_the_table_is_up_to_date(script):
    found = subprocess.run([sys.executable, SCRIPT.parent / script, "--check"], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_restriction_allows_the_true_class(study, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    restrictions = importlib.import_module("restrictions")
    logp = am.functional.flat_node_log_probs(torch.randn(50, 4), TREE)
    true = TREE.leaves[np.arange(50) % 4]
    found = restrictions.measure(logp, true, TREE)
    assert all(np.isfinite(rows["nll"]).all() for rows in found.values())
    for name in ("half", "tenth", "branch"):
        assert (found[name]["nll"] <= found["none"]["nll"] + 1e-6).all()
        assert (found[name]["right"] >= found["none"]["right"]).all()
