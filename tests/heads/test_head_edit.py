"""Heads after edits: rows that are copied bit for bit, and probabilities that must not change."""

import copy
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from many_heads import HEADS, D, features, make

import arbormax as am
from arbormax.errors import TaxonomyError
from oracles_edit import make_random
from oracles_heads import conditionals
from strategies import taxonomies

ZOO = {"mammal": ["cat", "cow"], "bird": [], "fish": {"river": ["trout", "carp"], "sea": ["cod"]}}
TREE = am.Taxonomy.from_nested(ZOO, classes=["cod", "cat", "bird", "cow", "carp", "trout"])
every_head = pytest.mark.parametrize("kind", HEADS, ids=lambda kind: kind.__name__)
H = features(7)
close = torch.testing.assert_close


def row(head, node):
    """The weight and the bias of a node's row."""
    place = head.taxonomy.class_of[node] if isinstance(head, am.FlatSoftmax) else node - 1
    return head.weight[place].detach(), None if head.bias is None else head.bias[place].detach()


def probabilities(head, h=H):
    return head.node_log_probs(h).exp().detach()


def of(head, label, h=H):
    return probabilities(head, h)[..., head.taxonomy.find(label)]


def given_parent(head, label, h=H):
    node = head.taxonomy.find(label)
    p = probabilities(head, h)
    return p[..., node] / p[..., head.taxonomy.parent[node]]


# Random edits


@every_head
@settings(max_examples=30)
@given(data=st.data())
def test_rows_that_are_not_new_are_copied_bit_for_bit(kind, data):
    tax = data.draw(taxonomies(max_nodes=16))
    head = make(kind, tax, dtype=torch.float32)
    edits = am.edit(head)
    make_random(edits, tax, random.Random(data.draw(st.integers(0, 2**32))), data.draw(st.integers(0, 6)))
    edited = edits.done()
    old_of = {new: old for old, new in enumerate(edited.node_map.tolist()) if new > 0}
    nodes = edited.taxonomy.leaves if kind is am.FlatSoftmax else range(1, edited.taxonomy.num_nodes)
    for node in nodes:
        if node not in edited.new_rows:
            for new, old in zip(row(edited.head, node), row(head, old_of[node]), strict=True):
                assert torch.equal(new, old)
    assert bool(edited.head.weight.isfinite().all())
    assert bool(edited.head.bias.isfinite().all())
    close(edited.head(H.float()).exp().sum(-1), torch.ones(7))


@settings(max_examples=30)
@given(data=st.data())
def test_untouched_groups_keep_their_conditionals(data):
    tax = data.draw(taxonomies(max_nodes=16))
    head = make(am.HierarchicalSoftmax, tax)
    edits = am.edit(head)
    make_random(edits, tax, random.Random(data.draw(st.integers(0, 2**32))), data.draw(st.integers(1, 6)))
    edited = edits.done()
    before = conditionals((head.weight @ H[0] + head.bias).tolist(), tax)
    after = conditionals((edited.head.weight @ H[0] + edited.head.bias).tolist(), edited.taxonomy)
    p, q = probabilities(head), probabilities(edited.head)
    for node, new in enumerate(edited.node_map.tolist()):
        if new > 0 and edited.taxonomy.parent[new] not in edited.touched:
            assert after[new] == pytest.approx(before[node], abs=1e-12)
        if new > 0 and not set(edited.taxonomy.ancestors(new).tolist()) & set(edited.touched.tolist()):
            close(q[:, new], p[:, node], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", [am.FlatSoftmax, am.SharedSoftmax])
@settings(max_examples=30)
@given(data=st.data())
def test_with_one_softmax_remaining_classes_keep_their_ratios(kind, data):
    tax = data.draw(taxonomies(max_nodes=16))
    head = make(kind, tax)
    edits = am.edit(head)
    make_random(edits, tax, random.Random(data.draw(st.integers(0, 2**32))), data.draw(st.integers(1, 6)))
    if kind is am.SharedSoftmax and any(edit.keep_row for edit in edits._edits):
        return  # asked for: the row stays and the probability follows its new ancestors
    edited = edits.done()
    stay = torch.from_numpy(edited.class_map >= 0)
    now = torch.from_numpy(edited.class_map)[stay]
    if len(now):
        gone = edited.head(H)[:, now] - head(H)[:, stay]
        close(gone, gone[:, :1].expand_as(gone), rtol=0, atol=1e-10)


# Adding


def test_adding_changes_one_softmax_and_leaves_the_ratios_in_it():
    head = make(am.HierarchicalSoftmax, TREE)
    new = am.edit(head).add("dog", under="mammal").done().head
    for label in ("mammal", "bird", "fish", "river", "sea", "trout", "carp", "cod"):
        close(of(new, label), of(head, label), rtol=1e-12, atol=0)
    factor = given_parent(new, "cat") / given_parent(head, "cat")
    close(given_parent(new, "cow"), factor * given_parent(head, "cow"))
    close(factor, 1 - given_parent(new, "dog"))


@every_head
@pytest.mark.parametrize("share", [None, 0.05, 0.9])
@pytest.mark.parametrize("at", [None, H[3]])
def test_a_new_class_has_its_share_at_the_point_and_at_most_that_elsewhere(kind, share, at):
    head = make(kind, TREE)
    new = am.edit(head).add("eel", under="fish", share=share).done(at=at).head
    others = 2 if kind in (am.HierarchicalSoftmax, am.BlendedSoftmax) else 3  # children, or classes, below 'fish'
    wanted = share or 1 / (others + 1)
    point = torch.zeros(D, dtype=torch.float64) if at is None else at
    close(given_parent(new, "eel", point), torch.tensor(wanted, dtype=torch.float64))
    everywhere = given_parent(new, "eel", 3 * features(500, seed=5))
    if kind is not am.BlendedSoftmax:  # log-probabilities on its paths are not convex
        assert float(everywhere.max()) <= wanted + 1e-12
    assert float(everywhere.min()) < wanted - 0.01


@every_head
def test_a_new_row_among_equal_rows_has_its_share_everywhere(kind):
    head = make(kind, TREE)
    with torch.no_grad():
        head.weight[:] = head.weight[0]
        head.bias[:] = head.bias[0]
    new = am.edit(head).add("dog", under="mammal").done().head
    close(given_parent(new, "dog"), torch.full((7,), 1 / 3, dtype=torch.float64))
    close(given_parent(new, "cat"), torch.full((7,), 1 / 3, dtype=torch.float64))


def test_a_new_row_has_the_slope_of_the_parents_prior():
    head = make(am.HierarchicalSoftmax, TREE)
    new = am.edit(head).add("dog", under="mammal").done().head
    share = head.bias[[TREE.find("cat") - 1, TREE.find("cow") - 1]].softmax(0)
    mean = share[0] * row(head, TREE.find("cat"))[0] + share[1] * row(head, TREE.find("cow"))[0]
    close(row(new, new.taxonomy.find("dog"))[0], mean)


@every_head
def test_classes_added_below_a_new_node_share_its_probability(kind):
    head = make(kind, TREE)
    one = am.edit(head).add("reptile", under=()).done().head
    three = (
        am.edit(head).add("reptile", under=()).add("snake", under="reptile").add("newt", under="reptile").done().head
    )
    if kind is am.HierarchicalSoftmax:
        close(of(three, "reptile"), of(one, "reptile"))
    close(given_parent(three, "snake"), torch.full((7,), 0.5, dtype=torch.float64))
    close(
        of(three, "snake") / of(three, "cat"),
        of(one, "reptile") / of(one, "cat") / (2 if kind in (am.HierarchicalSoftmax, am.BlendedSoftmax) else 1),
    )


# Removing


def test_removing_renormalises_one_softmax():
    head = make(am.HierarchicalSoftmax, TREE)
    new = am.edit(head).remove("bird").done().head
    close(of(new, "mammal"), of(head, "mammal") / (1 - of(head, "bird")))
    close(of(new, "carp"), of(head, "carp") / (1 - of(head, "bird")))
    close(given_parent(new, "cat"), given_parent(head, "cat"), rtol=1e-12, atol=0)


def test_a_remaining_only_child_has_probability_one():
    new = am.edit(make(am.HierarchicalSoftmax, TREE)).remove("cow").done().head
    assert torch.equal(of(new, "cat"), of(new, "mammal"))


@pytest.mark.parametrize("kind", [am.FlatSoftmax, am.SharedSoftmax])
def test_removing_from_one_softmax_renormalises_it(kind):
    head = make(kind, TREE)
    new = am.edit(head).remove("mammal").done().head
    close(of(new, "carp"), of(head, "carp") / (1 - of(head, "mammal")))


@every_head
def test_a_parent_that_becomes_a_class_keeps_its_probability(kind):
    head = make(kind, TREE)
    new = am.edit(head).remove("cod", emptied="class").done().head
    close(of(new, "sea"), of(head, "sea"))
    close(of(new, "cat"), of(head, "cat"))


def test_a_softmax_per_parent_can_fold_any_subtree_into_a_class():
    head = make(am.HierarchicalSoftmax, TREE)
    new = am.edit(head).remove("trout").remove("carp", emptied="class").done().head
    close(of(new, "river"), of(head, "river"), rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", [am.FlatSoftmax, am.SharedSoftmax])
def test_one_softmax_keeps_the_probability_of_a_folded_subtree_at_the_point(kind):
    tax = am.Taxonomy.from_nested({"a": {"b": ["x", {"c": ["y", "z"]}]}, "d": []})
    head = make(kind, tax)
    new = am.edit(head).remove("b", emptied="class").done(at=H[2]).head
    close(of(new, "a", H[2]), of(head, "a", H[2]))
    assert bool((of(new, "a") <= of(head, "a") + 1e-12).all())


# Splitting


@every_head
@pytest.mark.parametrize("shares", [None, [0.7, 0.2, 0.1]])
def test_a_split_class_keeps_its_probability_and_its_children_have_their_shares(kind, shares):
    head = make(kind, TREE)
    edited = am.edit(head).split("bird", ["owl", "duck", "emu"], shares=shares).done()
    new = edited.head
    for label in ("bird", "mammal", "cat", "fish", "cod", "carp"):
        close(of(new, label), of(head, label), rtol=1e-12, atol=0)
    for label, share in zip(("owl", "duck", "emu"), shares or [1 / 3] * 3, strict=True):
        close(given_parent(new, label), torch.full((7,), share, dtype=torch.float64))
    if kind is not am.FlatSoftmax:
        for new_part, old in zip(row(new, new.taxonomy.find("bird")), row(head, TREE.find("bird")), strict=True):
            assert torch.equal(new_part, old)


def test_labels_of_a_split_class_train_its_softmax_as_nodes():
    edited = am.edit(make(am.HierarchicalSoftmax, TREE)).split("bird", ["owl", "duck"]).done()
    y = TREE.encode(["bird"])
    nodes = torch.from_numpy(edited.node_map[TREE.leaves[y]])
    close(edited.head.loss(H[:1], nodes, target_kind="node"), -of(edited.head, "bird", H[0]).log())


# Moving


def test_a_moved_subtree_keeps_its_conditionals_and_gets_a_new_row():
    head = make(am.HierarchicalSoftmax, TREE)
    edited = am.edit(head).move("river", under="mammal", share=0.25).done()
    new = edited.head
    close(given_parent(new, "trout"), given_parent(head, "trout"), rtol=1e-12, atol=0)
    for label in ("mammal", "bird", "fish"):
        close(of(new, label), of(head, label), rtol=1e-12, atol=0)
    zero = torch.zeros(D, dtype=torch.float64)
    close(given_parent(new, "river", zero), torch.tensor(0.25, dtype=torch.float64))
    close(given_parent(new, "cat", zero), 0.75 * given_parent(head, "cat", zero))
    assert torch.equal(of(new, "sea"), of(new, "fish"))
    assert edited.new_rows.tolist() == [new.taxonomy.find("river")]


def test_a_kept_row_competes_with_its_new_siblings():
    head = make(am.HierarchicalSoftmax, TREE)
    edited = am.edit(head).move("river", under="mammal", keep_row=True).done()
    assert edited.new_rows.size == 0
    logits = {
        name: (row(head, TREE.find(name))[0] @ H.T + row(head, TREE.find(name))[1]) for name in ("cat", "cow", "river")
    }
    close(given_parent(edited.head, "river"), torch.stack(list(logits.values())).softmax(0)[2])


def test_classes_moved_together_with_their_rows_keep_their_ratio():
    head = make(am.HierarchicalSoftmax, TREE)
    edits = am.edit(head).add("swims", under="fish")
    for label in ("trout", "carp"):
        edits.move(label, under="swims", keep_row=True, emptied="remove")
    new = edits.done().head
    close(of(new, "trout") / of(new, "carp"), of(head, "trout") / of(head, "carp"))


@pytest.mark.parametrize("kind", [am.FlatSoftmax, am.SharedSoftmax])
def test_with_one_softmax_a_move_does_not_change_class_probabilities(kind):
    head = make(kind, TREE)
    edited = am.edit(head).move("river", under="mammal").done()
    close(edited.head(H), head(H))
    close(of(edited.head, "mammal"), of(head, "mammal") + of(head, "river"))
    assert len(edited.new_rows) == (0 if kind is am.FlatSoftmax else 1)


def test_a_kept_shared_row_is_added_to_its_new_ancestors():
    head = make(am.SharedSoftmax, TREE)
    edited = am.edit(head).move("river", under="mammal", keep_row=True).done()
    assert edited.new_rows.size == 0
    change = [row(head, TREE.find(n))[0] @ H.T + row(head, TREE.find(n))[1] for n in ("mammal", "fish")]
    trout = (of(edited.head, "trout") / of(edited.head, "cat")).log() - (of(head, "trout") / of(head, "cat")).log()
    close(trout, change[0] - change[1])


@pytest.mark.parametrize("kind", [am.FlatSoftmax, am.SharedSoftmax])
def test_a_parent_whose_last_child_moved_away_starts_as_an_added_class(kind):
    head = make(kind, TREE)
    new = am.edit(head).move("cod", under="river", emptied="class").done().head
    zero = torch.zeros(D, dtype=torch.float64)
    close(given_parent(new, "sea", zero), torch.tensor(1 / 4, dtype=torch.float64))
    close(of(new, "cod") / of(new, "cat"), of(head, "cod") / of(head, "cat"))


# Other properties of a head


@every_head
def test_renaming_does_not_change_any_number(kind):
    head = make(kind, TREE)
    edited = am.edit(head).rename("mammal", "mammals").rename("cat", "kitten").done()
    assert torch.equal(edited.head.weight, head.weight)
    assert torch.equal(edited.head.node_log_probs(H), head.node_log_probs(H))
    assert edited.taxonomy.classes[1] == "kitten"


@every_head
def test_the_old_head_does_not_change(kind):
    head = make(kind, TREE)
    before = copy.deepcopy(head.state_dict())
    new = am.edit(head).add("dog", under="mammal").remove("bird").done().head
    with torch.no_grad():
        new.weight.zero_()
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())


@every_head
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_precision_is_kept(kind, dtype):
    head = make(kind, TREE, dtype=dtype)
    edited = am.edit(head).add("dog", under="mammal").move("river", under="mammal").split("bird", ["owl", "emu"]).done()
    assert {parameter.dtype for parameter in edited.head.parameters()} == {dtype}
    assert torch.equal(row(edited.head, edited.taxonomy.find("cod"))[0], row(head, TREE.find("cod"))[0])


@every_head
def test_a_head_on_the_meta_device(kind):
    edited = am.edit(kind(D, TREE, device="meta")).add("dog", under="mammal").move("river", under="mammal").done()
    assert {tensor.device.type for tensor in edited.head.state_dict().values()} == {"meta"}
    assert edited.head.out_features == 7


def test_options_modes_and_frozen_rows_are_kept():
    head = make(am.HierarchicalSoftmax, TREE, sparse=True, init="torch").eval()
    head.weight.requires_grad_(False)
    new = am.edit(head).add("dog", under="mammal").done().head
    assert (new.sparse, new.init, new.training) == (True, "torch", False)
    assert not new.weight.requires_grad
    assert new.bias.requires_grad


def test_edits_do_not_use_random_numbers():
    head = make(am.HierarchicalSoftmax, TREE)
    state = torch.get_rng_state()
    am.edit(head).add("dog", under="mammal").done()
    assert torch.equal(torch.get_rng_state(), state)


@every_head
def test_classes_can_be_added_to_a_head_without_bias(kind):
    head = make(kind, TREE, bias=False)
    new = am.edit(head).add("dog", under="mammal").remove("bird").done().head
    assert new.bias is None
    close(given_parent(new, "dog", torch.zeros(D, dtype=torch.float64)), torch.tensor(1 / 3, dtype=torch.float64))


@every_head
def test_shares_and_points_without_a_bias_are_errors(kind):
    edits = am.edit(make(kind, TREE, bias=False)).add("dog", under="mammal", share=0.1).remove("brid")
    edits.split("bird", ["a", "b"], shares=[0.5, 0.5])
    with pytest.raises(TaxonomyError) as caught:
        edits.done(at=H[0])
    text = "\n".join(caught.value.problems)
    assert "did you mean 'bird'" in text
    assert text.count("needs a bias") == (3 if kind is am.HierarchicalSoftmax else 4)


def test_priors_are_kept_and_normalised_in_changed_groups():
    head = make(am.HierarchicalSoftmax, TREE)
    head.set_priors([1, 2, 3, 4, 5, 6])
    edited = am.edit(head).add("dog", under="mammal", share=0.1).split("bird", ["a", "b"]).remove("trout").done()
    tax, shares = edited.taxonomy, edited.head.log_priors.exp()
    sums = [float(shares[tax.children(p) - 1].sum()) for p in range(tax.num_nodes) if not tax.is_leaf[p]]
    assert sums == pytest.approx([1.0] * tax.num_parents)
    assert float(shares[tax.find("dog") - 1]) == pytest.approx(0.1)
    cat, cow = (float(shares[tax.find(name) - 1]) for name in ("cat", "cow"))
    assert (cat / cow, float(shares[tax.find("a") - 1])) == (pytest.approx(2 / 4), pytest.approx(0.5))
    assert torch.equal(edited.head.log_priors[tax.children(0) - 1], head.log_priors[TREE.children(0) - 1])
    edited.head.loss(H, torch.zeros(7, dtype=torch.long), tau=1.0)


@settings(max_examples=30)
@given(data=st.data())
def test_priors_after_random_edits_are_normalised_and_untouched_ones_identical(data):
    tax = data.draw(taxonomies(max_nodes=12))
    head = am.HierarchicalSoftmax(D, tax)
    head.set_priors(range(1, tax.num_leaves + 1))
    edits = am.edit(head)
    make_random(edits, tax, random.Random(data.draw(st.integers(0, 2**32))), data.draw(st.integers(0, 8)))
    edited = edits.done()
    new, shares = edited.taxonomy, edited.head.log_priors.exp()
    if not head.log_priors.any():
        assert not edited.head.log_priors.any()  # only children, which look like priors that were never set
        return
    for parent in range(new.num_nodes):
        if not new.is_leaf[parent]:
            assert float(shares[new.children(parent) - 1].sum()) == pytest.approx(1.0, abs=1e-5)
    for node, number in enumerate(edited.node_map.tolist()):
        if number > 0 and new.parent[number] not in edited.touched:
            assert edited.head.log_priors[number - 1] == head.log_priors[node - 1]


def test_priors_that_were_never_set_stay_unset():
    head = am.edit(make(am.HierarchicalSoftmax, TREE)).add("dog", under="mammal").done().head
    assert not head.log_priors.any()


@every_head
def test_the_edited_head_learns_the_new_class(kind):
    torch.manual_seed(0)
    head = am.edit(make(kind, TREE)).add("dog", under="mammal").done().head
    dog = torch.full((7,), head.taxonomy.classes.index("dog"))
    optimiser = torch.optim.Adam(head.parameters(), lr=0.1)
    for _ in range(60):
        optimiser.zero_grad()
        head.loss(H, dog).backward()
        optimiser.step()
    assert head.loss(H, dog).item() < 0.2
    head.load_state_dict(copy.deepcopy(head.state_dict()))
    with pytest.raises(TaxonomyError, match="another taxonomy"):
        make(kind, TREE).load_state_dict(head.state_dict())


def test_edits_of_a_hundred_thousand_rows():
    tax = am.Taxonomy.from_parents([-1, *(node // 46 for node in range(46 + 46**2 + 46**3))])
    head = am.HierarchicalSoftmax(4, tax, sparse=True)
    edited = am.edit(head).add("x", under="5").move("3000", under="7").remove("90000").split("80000", ["a"]).done()
    stay = (edited.node_map[1:] > 0) & ~np.isin(edited.node_map[1:], edited.new_rows)
    assert torch.equal(edited.head.weight[edited.node_map[1:][stay] - 1], head.weight[stay])
    # the added class, the part of the split one, the moved node, and the ancestors on its old and new path
    assert len(edited.new_rows) == 6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_head
def test_a_head_on_a_gpu_gives_the_same_rows(kind):
    ask = lambda head: am.edit(head).add("dog", under="mammal").move("river", under="mammal").done().head  # noqa: E731
    head = make(kind, TREE)
    here, there = ask(head), ask(copy.deepcopy(head).cuda())
    assert there.weight.is_cuda
    close(there.weight.cpu(), here.weight)
    close(there.bias.cpu(), here.bias)


# The blended head


def test_edits_of_a_blended_head_take_the_share_of_the_path_into_account():
    head = make(am.BlendedSoftmax, TREE)
    head.path_share.fill_(0.6)
    split = am.edit(head).split("cod", ["young", "old"], shares=[0.2, 0.8]).done().head
    assert float(split.path_share) == pytest.approx(0.6)
    close(of(split, "cod"), of(head, "cod"))
    close(given_parent(split, "young"), torch.full((7,), 0.2, dtype=torch.float64))
    added = am.edit(head).add("eel", under="fish", share=0.3).done().head
    close(given_parent(added, "eel", torch.zeros(D, dtype=torch.float64)), torch.tensor(0.3, dtype=torch.float64))


def test_a_moved_class_of_a_blended_head_keeps_its_own_row():
    head = make(am.BlendedSoftmax, TREE)
    edited = am.edit(head).move("cow", under="river").done()
    old, new = (h.class_rows(h.taxonomy)[h.taxonomy.class_of[h.taxonomy.find("cow")]] for h in (head, edited.head))
    assert torch.equal(edited.head.weight[new], head.weight[old])
