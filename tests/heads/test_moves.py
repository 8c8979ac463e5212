"""Predictions of nodes that an edit moves, and the rows of a head that new examples update."""

import numpy as np
import pytest
import torch

import arbormax as am
from arbormax.functional import flat_cross_entropy
from arbormax.heads.update import RowPrior, update_rows

TREE = am.Taxonomy.from_nested(
    {"kids": ["toys", "books", "games"], "home": ["chairs", "lamps"], "men": ["shoes", "hats"]}
)
KINDS = [am.HierarchicalSoftmax, am.BlendedSoftmax, am.FlatSoftmax, am.SharedSoftmax]
MOVED = "toys"


def items(n=700, width=12, seed=0):
    """Features around a point for each class, and the classes."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, TREE.num_leaves, n)
    centers = np.random.default_rng(1).normal(size=(TREE.num_leaves, width))
    return torch.tensor(centers[y] + 0.4 * draw.normal(size=(n, width)), dtype=torch.float32), torch.tensor(y)


def trained(kind):
    torch.manual_seed(0)
    h, y = items()
    head = kind(12, TREE)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.05)
    for _ in range(100):
        optimiser.zero_grad()
        head.loss(h, y).backward()
        optimiser.step()
    return head


def accuracy(edited, h, y):
    """The share of right predictions, of the moved class and of the others."""
    right = edited.head.predict(h) == torch.from_numpy(edited.class_map)[y]
    is_moved = y == TREE.classes.index(MOVED)
    return float(right[is_moved].float().mean()), float(right[~is_moved].float().mean())


@pytest.mark.parametrize("kind", KINDS)
def test_a_moved_class_keeps_most_of_its_predictions(kind):
    h, y = items(seed=2)
    edited = am.edit(trained(kind)).move(MOVED, under="men").done()
    moved, others = accuracy(edited, h, y)
    assert moved > 0.8
    assert others > 0.75


@pytest.mark.parametrize("kind", [am.HierarchicalSoftmax, am.BlendedSoftmax])
def test_features_keep_the_predictions_of_a_moved_class(kind):
    h, y = items(seed=2)
    edited = am.edit(trained(kind)).move(MOVED, under="men").done(features=items(seed=3)[0])
    assert min(accuracy(edited, h, y)) > 0.93
    assert edited.kept[edited.taxonomy.find(MOVED)] > 0.9


@pytest.mark.parametrize("kind", [am.HierarchicalSoftmax, am.BlendedSoftmax])
def test_the_report_states_the_share_of_predictions_that_stay(kind):
    edited = am.edit(trained(kind)).move(MOVED, under="men").done(features=items(seed=3)[0])
    share = edited.kept[edited.taxonomy.find(MOVED)]
    assert f"notice: {share:.0%} of the predictions of 'men/toys' stay the same" in edited.changed
    assert ("continue the training with examples" in edited.changed) == (share < 1)
    without = am.edit(trained(kind)).move(MOVED, under="men").done()
    assert "how many predictions of 'men/toys' stay the same is not known" in without.changed
    assert not without.kept


@pytest.mark.parametrize("kind", [am.HierarchicalSoftmax, am.BlendedSoftmax])
def test_few_items_of_the_moved_class_are_not_worse_than_none(kind):
    h, y = items(seed=2)
    head, (some, labels) = trained(kind), items(seed=3)
    without = accuracy(am.edit(head).move(MOVED, under="men").done(), h, y)
    others = some[labels != TREE.classes.index(MOVED)][:50]
    given = accuracy(am.edit(head).move(MOVED, under="men").done(features=others), h, y)
    assert given[0] > without[0] - 0.05
    assert given[1] > 0.85


@pytest.mark.parametrize("kind", [am.HierarchicalSoftmax, am.BlendedSoftmax])
def test_the_items_that_the_moved_class_needs_are_chosen_among_many(kind, monkeypatch):
    monkeypatch.setattr("arbormax.heads.preserve._MOST_ITEMS", 200)
    h, y = items(seed=2)
    some, labels = items(n=4000, seed=3)
    rare = torch.cat([some[labels != 0], some[labels == 0][:60]])  # the last sixty of thousands
    edited = am.edit(trained(kind)).move(MOVED, under="men").done(features=rare)
    assert min(accuracy(edited, h, y)) > 0.85


@pytest.mark.parametrize("kind", [am.FlatSoftmax, am.SharedSoftmax])
def test_a_head_that_keeps_all_predictions_gives_no_notice(kind):
    edited = am.edit(trained(kind)).move(MOVED, under="men").done()
    assert not edited.kept
    assert "notice" not in edited.changed


@pytest.mark.parametrize("options", [{"keep_row": True}, {"share": 0.2}])
def test_a_row_that_is_chosen_by_the_caller_is_not_fitted(options):
    edited = am.edit(trained(am.HierarchicalSoftmax)).move(MOVED, under="men", **options).done()
    assert not edited.kept


def test_features_of_another_width_are_an_error():
    with pytest.raises(am.errors.InputError, match="features: expected \\(n, 12\\) features, found the shape"):
        am.edit(trained(am.HierarchicalSoftmax)).move(MOVED, under="men").done(features=torch.zeros(3, 5))


def test_the_old_row_of_each_row_is_known():
    head = trained(am.HierarchicalSoftmax)
    edited = am.edit(head).add("new", under="men").done()
    old = edited.row_map >= 0
    assert torch.equal(edited.head.weight[torch.from_numpy(old)], head.weight[edited.row_map[old]])
    assert np.flatnonzero(~old).tolist() == (edited.new_rows - 1).tolist()


# New examples and old rows


def update(head, h, y, counts, base=0.05):
    loss = lambda logp, place: flat_cross_entropy(logp, y[place], TREE, reduction="sum")  # noqa: E731
    prior = RowPrior(base, counts=torch.full((head.num_rows(TREE),), float(counts)))
    update_rows(head, h, loss, prior)
    return head.loss(h, y).item(), head


@pytest.mark.parametrize("kind", KINDS)
def test_new_examples_lower_their_loss_and_old_ones_hold_the_rows(kind):
    h, y = items(60, seed=4)
    y = (y + 1) % TREE.num_leaves  # they contradict the old ones
    start = trained(kind)
    weights, before = start.weight.detach().clone(), start.loss(h, y).item()
    few, free = update(trained(kind), h, y, counts=0)
    many, held = update(trained(kind), h, y, counts=1e4)
    assert few < 0.5 * before
    assert few < many < before
    assert (held.weight - weights).norm() < 0.2 * (free.weight - weights).norm()


@pytest.mark.parametrize("kind", [am.HierarchicalSoftmax, am.BlendedSoftmax, am.FlatSoftmax])
def test_sparse_rows_are_updated_as_dense_ones(kind):
    h, y = items(60, seed=4)
    dense, sparse = kind(12, TREE, init="zeros"), kind(12, TREE, init="zeros", sparse_weight=True)
    (a, _), (b, _) = update(dense, h, y, 3), update(sparse, h.to_sparse(), y, 3)
    assert a == pytest.approx(b, abs=0.01)


def test_a_head_with_adapters_cannot_be_updated_by_rows():
    with pytest.raises(am.errors.OptionError, match="adapters"):
        update(am.HierarchicalSoftmax(12, TREE, adapter=2), *items(10), 1)


# ---------------------------------------------------------------------- merged classes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("into", ["books", "shoes"])
def test_a_merged_class_has_most_of_both_predictions(kind, into):
    h, y = items(seed=2)
    edited = am.edit(trained(kind)).merge("toys", into=into).done(features=items(seed=3)[0])
    old = TREE.classes.index("toys")
    assert edited.taxonomy.classes[edited.class_map[old]] == into
    assert edited.node_map[TREE.find("toys")] == edited.taxonomy.find(into)
    right = edited.head.predict(h) == torch.from_numpy(edited.class_map)[y]
    is_merged = torch.isin(y, torch.tensor([old, TREE.classes.index(into)]))
    assert right[is_merged].float().mean() > 0.85
    assert right[~is_merged].float().mean() > 0.9
    assert edited.kept[edited.taxonomy.find(into)] > 0.85


@pytest.mark.parametrize("kind", KINDS)
def test_a_merged_class_has_the_sum_of_two_equal_rows(kind):
    head = kind(12, TREE)
    toys, books = TREE.find("toys"), TREE.find("books")
    with torch.no_grad():
        for row in np.flatnonzero(head.row_nodes() == toys):
            (other,) = (r for r in np.flatnonzero(head.row_nodes() == books) if abs(r - row) < 3)
            head.weight[row] = head.weight[other]
            head.bias[row] = head.bias[other]
    h = torch.randn(50, 12)
    edited = am.edit(head).merge("toys", into="books").done(features=h)
    before, after = head.node_log_probs(h).exp(), edited.head.node_log_probs(h).exp()
    both = before[:, toys] + before[:, books]
    assert (after[:, edited.taxonomy.find("books")] - both).abs().max() < 2e-3
    lamps = TREE.find("lamps")
    assert (after[:, edited.taxonomy.find("lamps")] - before[:, lamps]).abs().max() < 2e-3


def test_merges_chain_and_follow_later_edits():
    edits = am.edit(TREE).merge("toys", into="books").merge("books", into="games").rename("games", "play")
    edited = edits.merge("chairs", into="play").merge("lamps", into="hats", emptied="remove").done()
    assert edited.taxonomy.classes == ("play", "shoes", "hats")
    assert edited.class_map.tolist() == [0, 0, 0, 0, 2, 1, 2]
    assert edited.taxonomy.find("home", missing=-1) == -1
    assert "merged 'kids/toys' into 'kids/books'" in edited.changed


@pytest.mark.parametrize(
    ("node", "into", "message"),
    [
        ("kids", "home", "'kids' is an inner node; only a class can be merged"),
        ("toys", "home", "'home' is an inner node"),
        ("toys", "toys", "cannot be merged into itself"),
        ("toys", "boks", "did you mean 'books'"),
    ],
)
def test_impossible_merges_are_errors(node, into, message):
    with pytest.raises(am.errors.TaxonomyError, match=message):
        am.edit(TREE).merge(node, into=into).done()
    with pytest.raises(am.errors.TaxonomyError, match="it is the last child of 'home'"):
        am.edit(TREE).remove("lamps").merge("chairs", into="hats").done()
