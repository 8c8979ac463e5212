"""Edits of a taxonomy: the tree, the class order, the maps, and errors."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arbormax as am
from arbormax import Taxonomy
from arbormax.errors import InputError, TaxonomyError
from arbormax.taxonomy.edits import TaxonomyEdits
from oracles_edit import make_random
from strategies import NASTY, taxonomies

ZOO = {"mammal": ["cat", "cow"], "bird": [], "fish": {"river": ["trout", "carp"], "sea": ["cod"]}}
TREE = Taxonomy.from_nested(ZOO, classes=["cod", "cat", "bird", "cow", "carp", "trout"])


def edit(tax=TREE):
    return TaxonomyEdits(tax)


def problems(edits):
    with pytest.raises(TaxonomyError) as caught:
        edits.done()
    return caught.value.problems


# The tree


@settings(max_examples=150, deadline=None)
@given(taxonomies(names=st.one_of(st.sampled_from(["a", "b", "c"]), NASTY)), st.integers(0, 2**32), st.integers(0, 7))
def test_random_edits_agree_with_plain_python(tax, seed, count):
    edits = TaxonomyEdits(tax)
    plain = make_random(edits, tax, random.Random(seed), count)
    edited = edits.done()
    new = edited.taxonomy
    assert [new.path(leaf) for leaf in new.leaves] == [plain.path(node) for node in plain.classes()]
    assert {new.path(node) for node in range(new.num_nodes)} == {plain.path(node) for node in plain.parents}
    for node, number in enumerate(edited.node_map.tolist()):
        assert (new.path(number) if number >= 0 else None) == (plain.path(node) if node in plain.parents else None)
    for number, leaf in enumerate(tax.leaves.tolist()):
        now = edited.class_map[number]
        assert now == (new.class_of[edited.node_map[leaf]] if edited.node_map[leaf] >= 0 else -1)
    assert np.all(np.diff(new.parent[1:]) >= 0)
    assert np.all(new.parent[1:] < np.arange(1, new.num_nodes))


@settings(max_examples=60, deadline=None)
@given(taxonomies(), st.integers(0, 2**32), st.integers(0, 5))
def test_groups_that_are_not_touched_keep_their_children(tax, seed, count):
    edits = TaxonomyEdits(tax)
    make_random(edits, tax, random.Random(seed), count)
    edited = edits.done()
    for node, number in enumerate(edited.node_map.tolist()):
        if number >= 0 and number not in edited.touched and not edited.taxonomy.is_leaf[number]:
            assert edited.node_map[tax.children(node)].tolist() == edited.taxonomy.children(number).tolist()


def test_adding_classes_keeps_all_class_ids():
    edited = edit().add("dog", under="mammal").add("whale", under="mammal").add("insect", under=()).done()
    assert edited.taxonomy.classes == (*TREE.classes, "dog", "whale", "insect")
    assert edited.class_map.tolist() == list(range(6))


def test_removing_a_class_shifts_the_ids_after_it():
    edited = edit().remove("bird").done()
    assert edited.taxonomy.classes == ("cod", "cat", "cow", "carp", "trout")
    assert edited.class_map.tolist() == [0, 1, -1, 2, 3, 4]
    assert edited.node_map[TREE.find("bird")] == -1


def test_a_split_class_is_an_inner_node_and_its_children_come_last():
    edited = edit().split("bird", ["owl", "duck"]).done()
    assert edited.taxonomy.classes == ("cod", "cat", "cow", "carp", "trout", "owl", "duck")
    assert edited.taxonomy.path(edited.node_map[TREE.find("bird")]) == ("bird",)
    assert edited.class_map[TREE.classes.index("bird")] == -1


def test_a_subtree_moves_as_one():
    edited = edit().move("river", under="mammal").done()
    assert edited.taxonomy.find("mammal/river/trout") == edited.node_map[TREE.find("trout")]
    assert edited.taxonomy.classes == TREE.classes
    assert edited.class_map.tolist() == list(range(6))


def test_an_edit_refers_to_the_tree_after_the_edits_before_it():
    edits = edit().add("pet", under=()).move("cat", under="pet").rename("pet", "home").add("dog", under="home")
    edited = edits.split("dog", ["pug", "beagle"]).remove("pug").rename("mammal/cow", "bull").done()
    assert edited.taxonomy.to_nested()["home"] == {"cat": {}, "dog": {"beagle": {}}}
    assert "bull" in edited.taxonomy.to_nested()["mammal"]


def test_a_removed_name_can_be_used_again():
    edited = edit().remove("cat").add("cat", under="mammal").done()
    assert edited.class_map[TREE.classes.index("cat")] == -1
    assert edited.taxonomy.classes[-1] == "cat"


def test_no_edits_give_the_same_taxonomy():
    edited = edit().done()
    assert edited.taxonomy == TREE
    assert edited.node_map.tolist() == list(range(TREE.num_nodes))
    assert edited.touched.size == 0


def test_a_parent_without_children_becomes_a_class_or_is_removed():
    as_class = edit().remove("cod", emptied="class").done()
    assert as_class.taxonomy.classes == ("cat", "bird", "cow", "carp", "trout", "sea")
    gone = edit().remove("cod", emptied="remove").done()
    assert ("fish", "sea") not in [gone.taxonomy.path(node) for node in range(gone.taxonomy.num_nodes)]
    moved = edit().move("cod", under="river", emptied="remove").done()
    assert moved.taxonomy.classes == TREE.classes
    assert moved.node_map[TREE.find("sea")] == -1


def test_removing_also_removes_ancestors_that_become_empty():
    tax = Taxonomy.from_nested({"a": {"b": {"c": ["x"]}}, "y": []})
    assert edit(tax).remove("x", emptied="remove").done().taxonomy.classes == ("y",)


def test_an_inner_class_keeps_its_stop_leaf():
    tax = Taxonomy.from_paths(["sport", "sport/golf", "news"], inner_classes="stop")
    edited = edit(tax).rename("sport", "games").add("chess", under="games").move("news", under=("games",)).done()
    assert edited.taxonomy.classes == ("games", "golf", "news", "chess")
    assert [edited.taxonomy.path(stop) for stop in edited.taxonomy.stops] == [("games", "games")]
    assert edited.taxonomy.encode(["games"]).tolist() == [0]
    assert "add the classes under 'sport'" in problems(edit(tax).split("sport", ["a"]))[0]
    assert edit(tax).remove("sport").done().taxonomy.classes == ("golf", "news")
    assert edit(tax).remove(("sport",)).done().taxonomy.classes == ("news",)


def test_source_index_is_kept_and_minus_one_for_new_nodes():
    tax = Taxonomy.from_parents([2, 2, -1, 1], names=["a", "b", "root", "c"])
    edited = edit(tax).add("d", under="b").done()
    assert edited.taxonomy.source_index.tolist() == [2, 0, 1, 3, -1]


def test_the_summary_lists_the_edits():
    text = edit().add("dog", under="mammal").remove("cod", emptied="class").done().changed
    assert "6 classes, 11 nodes → 7 classes, 11 nodes" in text
    assert "added 'mammal/dog'" in text
    assert "removed 'fish/sea/cod'; 'fish/sea' is a class now" in text
    assert "changed sibling groups: 'mammal'" in text


def test_am_edit_takes_a_taxonomy():
    assert am.edit(TREE).add("dog", under="mammal").done().head is None
    with pytest.raises(InputError, match="a taxonomy has no features"):
        am.edit(TREE).done(at=[0.0])
    with pytest.raises(InputError, match=r"edit takes a Taxonomy, a head, .* not dict"):
        am.edit(ZOO)


def test_a_hundred_thousand_nodes_and_a_thousand_edits():
    tax = Taxonomy.from_parents([-1, *(node // 46 for node in range(46 + 46**2 + 46**3))])
    edits = edit(tax)
    for number in range(250):
        edits.add(f"new {number}", under=("5",)).split(str(90_000 + number), ["a", "b"])
        edits.move(str(30_000 + 46 * number), under=("7",)).remove(str(50_000 + 46 * number))
    edited = edits.done()
    assert edited.taxonomy.num_nodes == tax.num_nodes + 250 + 500 - 250
    assert edited.taxonomy.num_leaves == tax.num_leaves + 250 + 250 - 250
    assert edited.taxonomy.path(edited.node_map[tax.find("30000")]) == ("7", "30000")
    assert np.count_nonzero(edited.node_map < 0) == 250


# Errors


def test_one_error_reports_all_impossible_edits():
    edits = edit().remove("fsh").move("fish", under="river").add("cat", under="mammal").split("mammal", ["a"])
    edits.remove(()).remove("cod").add("x", under="bird").add(" ", under=()).rename("cat", "cow")
    found = problems(edits)
    for text, wanted in zip(
        found,
        [
            "remove('fsh'): the taxonomy has no node 'fsh'; did you mean 'fish'?",
            "cycle: 'fish/river' is the node itself or below it",
            "'mammal' already has a child 'cat'",
            "'mammal' is an inner node; only a class can be split",
            "the root cannot be removed",
            "it is the last child of 'fish/sea'; make 'fish/sea' a class, or remove it too",
            "'bird' is a class without children; split it instead",
            "a name is a string that is not empty",
            "'mammal' already has a child 'cow'",
        ],
        strict=True,
    ):
        assert wanted in text
    with pytest.raises(TaxonomyError, match="no edit was applied, because of 9 defects"):
        edits.done()


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda e: e.move("cat", under="cat"), "is a class without children"),
        (lambda e: e.move("fish", under="fish"), "cycle: 'fish' is the node itself"),
        (lambda e: e.move("cat", under="mammal"), "is its parent already"),
        (lambda e: e.move((), under="mammal"), "the root cannot be moved"),
        (lambda e: e.move("cat", under="mamal"), "no node 'mamal'; did you mean 'mammal'"),
        (lambda e: e.add("dog", under="fish/seaa"), "'fish' has no child 'seaa'; did you mean 'sea'"),
        (lambda e: e.add("dog", under=("fish", "cat")), r"no node has the path ('fish', 'cat')"),
        (lambda e: e.add("dog", under=3), "a label is a string or a tuple of names"),
        (lambda e: e.add(3, under=()), "a name is a string that is not empty, found 3"),
        (lambda e: e.add("dog", under="mammal", share=1.0), "expected a share between 0 and 1"),
        (lambda e: e.add("a", under=()).add("b", under="a", share=0.5), "an only child has probability one"),
        (lambda e: e.split("bird", []), "at least one name"),
        (lambda e: e.split("bird", "owl"), "at least one name"),
        (lambda e: e.split("bird", ["owl", "owl"]), "'owl' is repeated"),
        (lambda e: e.split("bird", ["a", "b"], shares=[1.0]), "expected 2 shares, one for each name, found 1"),
        (lambda e: e.split("bird", ["a", "b"], shares=[0.5, 0.6]), "sum to 1"),
        (lambda e: e.remove("cod", emptied="no"), "expected emptied to be 'error', 'class' or 'remove'"),
        (lambda e: e.move("cat", under="fish", keep_row=True, share=0.1), "give one of share and keep_row"),
        (lambda e: e.remove("cat").rename("cat", "dog"), "no node 'cat'"),
        (lambda e: e.remove("fish").remove("trout"), "no node 'trout'"),
        (lambda e: e.rename("cat", ""), "a name is a string that is not empty"),
        (lambda e: e.remove("mammal").remove("bird").remove("fish"), "no class would be left"),
    ],
)
def test_the_message_of_an_impossible_edit(ask, text):
    (found,) = problems(ask(edit()))
    assert text in found


def test_an_ambiguous_name_is_an_error_that_lists_paths():
    tax = Taxonomy.from_nested({"a": ["other", "x"], "b": ["other", "y"]})
    assert "names several nodes; use a path: 'a/other', 'b/other'" in problems(edit(tax).remove("other"))[0]
    assert edit(tax).remove("a/other").remove("other", emptied="class").done().taxonomy.classes == ("x", "y")


def test_a_suggestion_is_a_label_that_an_edit_accepts():
    tax = Taxonomy.from_nested({"a": ["other", "x"], "b": ["other", "y"], "others": ["z"]})
    asked = edit(tax).remove("othr")
    assert "did you mean 'a/other', 'b/other' or 'others'?" in problems(asked)[0]
    removed = edit().remove("trout").remove("trou")  # a removed node is not suggested
    assert problems(removed) == ("remove('trou'): the taxonomy has no node 'trou'",)


def test_an_edit_takes_a_path_with_arrows():
    tax = Taxonomy.from_nested({"a": ["x"], "b": ["x"]})
    assert edit(tax).rename("b > x", "y").done().taxonomy.classes == ("x", "y")
    assert "no node 'b > xx'; 'b' has no child 'xx'; did you mean 'x'?" in problems(edit(tax).remove("b > xx"))[0]


def test_a_name_that_is_also_a_path_is_an_error():
    tax = Taxonomy.from_nested({"a": ["b", "c"], "a/b": []})
    assert "give a tuple" in problems(edit(tax).remove("a/b"))[0]
    assert edit(tax).remove(("a/b",)).done().taxonomy.classes == ("b", "c")


def test_edits_do_not_change_the_old_taxonomy():
    before = TREE.fingerprint, TREE.names
    edit().remove("fish").add("x", under="mammal").done()
    assert (Taxonomy.from_nested(ZOO, classes=TREE.classes).fingerprint, TREE.names) == before
