"""The registered calibrations on probabilities whose right temperatures are known."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arbormax import Taxonomy
from arbormax import functional as AF
from arbormax.model.calibration import Scaling
from arbormax.uncertainty import CALIBRATIONS
from arbormax.uncertainty.scaling import step_losses
from arbormax.uncertainty.steps import find_steps, join_steps
from scored import examples, scored_trees

TREE = Taxonomy.from_nested({f"b{i}": [f"c{i}{j}" for j in range(4)] for i in range(5)})


def draw_items(count: int, temperature, seed: int = 0):
    """Log-probabilities whose logits are the true ones times the temperature of the node, and labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(count, TREE.num_nodes - 1, generator=generator, dtype=torch.float64)
    true = AF.leaf_log_probs(logits, TREE).exp()
    classes = torch.multinomial(true, 1, generator=generator)[:, 0].numpy()
    wrong = logits * torch.as_tensor(temperature, dtype=torch.float64)
    return AF.node_log_probs(wrong, TREE).numpy(), TREE.leaves[classes]


def loss(logp, nodes, scaling: Scaling) -> float:
    scale, shift = (torch.from_numpy(values) for values in (scaling.scale, scaling.shift))
    scaled = AF.scale_siblings(torch.from_numpy(logp), scale, shift, TREE).numpy()
    return -float(scaled[np.arange(len(nodes)), nodes].mean())


@pytest.mark.parametrize("name", CALIBRATIONS.names)
def test_every_calibration_finds_a_known_temperature(name):
    logp, nodes = draw_items(4000, 2.0)
    scaling = CALIBRATIONS[name](find_steps(logp, nodes, TREE), TREE)
    assert (1 / scaling.scale).mean() == pytest.approx(2.0, rel=0.1)
    fresh = draw_items(4000, 2.0, seed=1)
    assert loss(*fresh, scaling) < loss(*fresh, Scaling(np.ones(25), np.zeros(25))) - 0.1


@pytest.mark.parametrize("name", ["level", "parent"])
def test_levels_get_their_own_temperatures(name):
    by_level = np.where(TREE.node_depth[1:] == 1, 3.0, 1.0)
    logp, nodes = draw_items(4000, by_level)
    scaling = CALIBRATIONS[name](find_steps(logp, nodes, TREE), TREE)
    assert 1 / scaling.scale[0] == pytest.approx(3.0, rel=0.15)
    assert (1 / scaling.scale[5:]).mean() == pytest.approx(1.0, rel=0.15)


def test_a_parent_with_many_items_gets_its_own_temperature_and_one_without_items_that_of_its_level():
    by_parent = np.where(TREE.parent[1:] == 1, 3.0, 1.0)
    logp, nodes = draw_items(20_000, by_parent)
    seen = TREE.parent[nodes] != 5
    scaling = CALIBRATIONS["parent"](find_steps(logp[seen], nodes[seen], TREE), TREE)
    temperature = {parent: 1 / scaling.scale[TREE.children(parent)[0] - 1] for parent in range(6)}
    assert temperature[1] == pytest.approx(3.0, rel=0.15)
    assert max(temperature[parent] for parent in (0, 2, 3, 4)) < 1.3
    level = CALIBRATIONS["level"](find_steps(logp[seen], nodes[seen], TREE), TREE)
    assert temperature[1] > temperature[5] > 1
    assert temperature[5] == pytest.approx(1 / level.scale[5], rel=0.3)


def test_vector_scaling_removes_the_bias_of_a_node():
    logits = torch.zeros(6000, TREE.num_nodes - 1, dtype=torch.float64)
    classes = np.random.default_rng(0).choice(TREE.num_leaves, 6000, p=[0.81, *[0.01] * 19])
    logp, nodes = AF.node_log_probs(logits, TREE).numpy(), TREE.leaves[classes]
    vector = CALIBRATIONS["vector"](find_steps(logp, nodes, TREE), TREE)
    assert loss(logp, nodes, vector) < loss(logp, nodes, Scaling(np.ones(25), np.zeros(25))) - 1


@pytest.mark.parametrize("name", CALIBRATIONS.names)
def test_few_items_change_little(name):
    logp, nodes = draw_items(3, 3.0)
    scaling = CALIBRATIONS[name](find_steps(logp, nodes, TREE), TREE)
    assert (scaling.scale > 0).all()
    wide = draw_items(2000, 1.0, seed=2)  # calibrated before
    assert loss(*wide, scaling) < loss(*wide, Scaling(np.ones(25), np.zeros(25))) + 0.2


@examples
@given(scored_trees(), st.randoms(use_true_random=False))
def test_the_losses_of_the_steps_sum_to_the_loss_of_the_label(scored, random):
    tax, logp = scored
    nodes = np.array([random.randrange(tax.num_nodes) for _ in logp], dtype=np.int64)
    possible = np.array([bool(row[node] > -50) for row, node in zip(logp, nodes, strict=True)], dtype=bool)
    logp_n, nodes_n = logp.numpy()[possible], nodes[possible]
    steps = find_steps(logp_n, nodes_n, tax)
    same = Scaling(np.ones(tax.num_nodes - 1), np.zeros(tax.num_nodes - 1))
    losses = np.bincount(steps.item, step_losses(steps, same), minlength=len(nodes_n))
    np.testing.assert_allclose(losses, -logp_n[np.arange(len(nodes_n)), nodes_n], atol=1e-9)


def test_steps_of_batches_are_joined_and_taken():
    logp, nodes = draw_items(30, 1.0)
    whole = find_steps(logp, nodes, TREE)
    joined = join_steps([find_steps(logp[:11], nodes[:11], TREE), find_steps(logp[11:], nodes[11:], TREE)])
    taken = whole.take(np.arange(30) >= 11)
    last = find_steps(logp[11:], nodes[11:], TREE)
    for name in ("item", "parent", "target", "start", "node", "logp"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
        np.testing.assert_array_equal(getattr(taken, name), getattr(last, name))
    assert taken.items == last.items == 19
