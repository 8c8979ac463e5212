"""Growing sets, their scores and thresholds, on random trees and on 200 random splits."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arbormax import Taxonomy, decode
from arbormax import functional as AF
from arbormax.errors import InputError
from arbormax.uncertainty.conformal import SetRule, class_groups, items_needed, set_scores, threshold
from arbormax.uncertainty.grow import GrowingSets, LeafOrder
from oracles import leaves_below
from scored import examples, scored_trees

TREE = Taxonomy.from_nested({f"b{i}": [f"c{i}{j}" for j in range(3 + i)] for i in range(4)})


def leaves_of(tax, nodes):
    return {leaf for node in nodes if node >= 0 for leaf in leaves_below(tax, int(node))}


def history(p_BN, tax, size):
    """The nodes and the probability of each set of one item, up to the root."""
    sets = GrowingSets(p_BN, LeafOrder(tax), size)
    found = [(sets.nodes[0].copy(), float(sets.mass[0]))]
    while not sets.is_root[0]:
        sets.step()
        found.append((sets.nodes[0].copy(), float(sets.mass[0])))
    return found


@examples
@given(scored_trees(max_rows=1), st.integers(1, 4))
def test_sets_contain_one_another_and_have_at_most_so_many_nodes(scored, size):
    tax, logp = scored
    if not len(logp):
        return
    p_BN = logp.exp().numpy()
    found = history(p_BN, tax, size)
    for (before, mass), (after, more) in pairwise(found):
        assert leaves_of(tax, before) <= leaves_of(tax, after)
        assert mass <= more + 1e-12
    for nodes, mass in found:
        own = nodes[nodes >= 0].tolist()
        assert 1 <= len(own) <= size
        leaves = leaves_of(tax, own)
        assert sum(len(leaves_below(tax, node)) for node in own) == len(leaves)  # no node is below another
        assert mass == pytest.approx(p_BN[0, sorted(leaves)].sum())
    assert leaves_of(tax, found[-1][0]) == set(tax.leaves.tolist())


@examples
@given(scored_trees(max_rows=1), st.floats(0, 1))
def test_a_set_of_one_node_is_the_answer_of_the_decoder_climb(scored, tau):
    tax, logp = scored
    if not len(logp):
        return
    found = history(logp.exp().numpy(), tax, 1)
    chosen = next((nodes[0] for nodes, mass in found if mass > tau + 1e-9), 0)
    if all(abs(mass - tau) > 1e-6 for _, mass in found):
        assert leaves_of(tax, [int(decode.climb(logp, tax, tau))]) == leaves_of(tax, [chosen])


@examples
@given(scored_trees(), st.integers(1, 4), st.data())
def test_a_set_covers_a_node_exactly_if_the_threshold_reaches_its_score(scored, size, data):
    tax, logp = scored
    p_BN, order = logp.exp().numpy(), LeafOrder(tax)
    nodes = np.array([data.draw(st.integers(0, tax.num_nodes - 1)) for _ in p_BN], dtype=np.int64)
    scores = set_scores(p_BN, nodes, order, size)
    for q in (0.0, 0.3, 0.7, *scores.tolist()):
        rule = SetRule(order, size, np.array([q]), tax.sum_up(np.ones(tax.num_leaves, np.int64))[:, None])
        for found, node, score in zip(rule.nodes(p_BN), nodes.tolist(), scores.tolist(), strict=True):
            assert (set(leaves_below(tax, node)) <= leaves_of(tax, found)) == (score <= q)


@examples
@given(scored_trees(), st.integers(1, 4), st.floats(0, 1))
def test_an_only_child_stands_for_its_parent_in_a_set(scored, size, q):
    tax, logp = scored
    rule = SetRule(LeafOrder(tax), size, np.array([q]), tax.sum_up(np.ones(tax.num_leaves, np.int64))[:, None])
    nodes = rule.nodes(logp.exp().numpy())
    assert not (tax.num_children[nodes[nodes >= 0]] == 1).any()


def draw_scores(count: int, seed: int):
    """Overconfident log-probabilities and labels, some of which are inner nodes."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(count, TREE.num_nodes - 1, generator=generator, dtype=torch.float64)
    true = AF.leaf_log_probs(logits, TREE).exp()
    nodes = TREE.leaves[torch.multinomial(true, 1, generator=generator)[:, 0].numpy()]
    inner = torch.rand(count, generator=generator).numpy() < 0.1
    nodes = np.where(inner, TREE.parent[nodes], nodes)
    return AF.node_log_probs(2 * logits, TREE).exp().numpy(), nodes


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_coverage_holds_over_200_random_splits(size, alpha):
    p_BN, nodes = draw_scores(400, seed=size)
    order = LeafOrder(TREE)
    scores = set_scores(p_BN, nodes, order, size)
    draw, held_out, covered = np.random.default_rng(0), 150, []
    for _ in range(200):
        shuffled = draw.permutation(scores)
        covered.append((shuffled[held_out:] <= threshold(shuffled[:held_out], alpha)).mean())
    deviation = np.std(covered) / np.sqrt(200)
    assert np.mean(covered) >= 1 - alpha - 3 * deviation
    # without ties the coverage is at most 1 - alpha + 1 / (n + 1); the scores 0 of the first sets are tied
    if np.mean(scores > 0) > alpha + 0.1:
        assert np.mean(covered) <= 1 - alpha + 1 / (held_out + 1) + 3 * deviation


def test_coverage_holds_within_each_branch_over_200_random_splits():
    alpha, size, order = 0.2, 2, LeafOrder(TREE)
    p_BN, nodes = draw_scores(500, seed=5)
    scores = set_scores(p_BN, nodes, order, size)
    names, group_C = class_groups(TREE, "branch")
    counts = np.stack([TREE.sum_up((group_C == g).astype(np.int64)) for g in range(len(names))], 1)
    branch = TREE.ancestor_at(nodes, 1) - 1
    draw, covered = np.random.default_rng(0), {g: [] for g in range(len(names))}
    for _ in range(200):
        held_out = draw.random(500) < 0.5
        thresholds = [threshold(scores[held_out & (branch == g)], alpha) for g in range(len(names))]
        rule = SetRule(order, size, np.array(thresholds), counts)
        rest = np.flatnonzero(~held_out & (branch >= 0))
        found = order.covers(rule.nodes(p_BN[rest]), nodes[rest])
        for g in covered:
            covered[g].append(found[branch[rest] == g].mean())
    for shares in covered.values():
        assert np.mean(shares) >= 1 - alpha - 3 * np.std(shares) / np.sqrt(200)


def test_a_confident_threshold_holds_in_most_splits():
    draw, alpha, held_out = np.random.default_rng(1), 0.1, 100
    missed = 0
    for _ in range(400):
        scores = draw.random(held_out)
        missed += threshold(scores, alpha, confidence=0.9) < 1 - alpha  # the scores are uniform: coverage = threshold
    assert missed / 400 <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 400)


@pytest.mark.parametrize(("alpha", "confidence"), [(0.1, None), (0.05, None), (0.3, None), (0.1, 0.95), (0.2, 0.5)])
def test_as_many_items_as_needed_are_enough_and_one_less_is_not(alpha, confidence):
    needed = items_needed(alpha, confidence)
    assert 0 <= threshold(np.linspace(0, 1, needed), alpha, confidence) <= 1
    with pytest.raises(InputError, match=f"at least {needed} items") as raised:
        threshold(np.linspace(0, 1, needed - 1), alpha, confidence)
    assert raised.value.argument == "alpha"


def test_groups_follow_labels_of_inner_nodes_unless_a_class_has_its_own():
    groups = {"b0": "easy", "b1": "easy", "b2": "hard", "b3": "hard", "c00": "hard"}
    names, group_C = class_groups(TREE, groups)
    by_class = {label: names[group] for label, group in zip(TREE.classes, group_C.tolist(), strict=True)}
    assert by_class["c00"] == by_class["c21"] == "hard"
    assert by_class["c01"] == by_class["c13"] == "easy"
    with pytest.raises(InputError, match="have no group") as raised:
        class_groups(TREE, {"b0": "easy"})
    assert raised.value.argument == "groups"
