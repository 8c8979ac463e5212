"""The tree, its builders, queries and labels."""

from __future__ import annotations

import copy
import pickle
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from arbormax import Taxonomy
from arbormax.errors import InputError, LabelError, OptionError, TaxonomyError, did_you_mean
from strategies import NASTY, taxonomies

NESTED = {"comp": ["graphics", {"sys": ["ibm", "mac"]}], "sci": ["med", "space"]}
REPEATED = {"ENTY": ["other", "food"], "NUM": ["other", "date"]}


def defects(call) -> tuple[str, ...]:
    with pytest.raises(TaxonomyError) as caught:
        call()
    assert all(problem in str(caught.value) for problem in caught.value.problems[:20])
    return caught.value.problems


@given(taxonomies())
def test_nodes_are_breadth_first_with_contiguous_siblings_and_levels(tax):
    assert tax.parent[0] == -1
    assert (tax.parent[1:] < np.arange(1, tax.num_nodes)).all()
    assert (np.diff(tax.parent) >= 0).all()  # siblings are contiguous
    depths = [len(oracles.ancestors_of(tax, node)) for node in range(tax.num_nodes)]
    assert depths == sorted(depths) == tax.node_depth.tolist()
    assert tax.depth == max(depths)
    for level in range(tax.depth + 1):
        assert set(depths[tax.level_start[level] : tax.level_start[level + 1]]) == {level}


@given(taxonomies())
def test_queries_agree_with_plain_recursion(tax):
    nodes = range(tax.num_nodes)
    for node in nodes:
        assert tax.children(node).tolist() == oracles.children_of(tax, node)
        assert tax.ancestors(node).tolist() == oracles.ancestors_of(tax, node)
        assert tax.path(node) == oracles.path_of(tax, node)
        assert tax.leaf_counts[node] == len(oracles.leaves_below(tax, node))
        assert tax.height[node] == oracles.height_of(tax, node)
        assert tax.is_leaf[node] == (not oracles.children_of(tax, node))
        assert tax.num_children[node] == len(oracles.children_of(tax, node))
    assert sorted(tax.leaves.tolist()) == [node for node in nodes if not oracles.children_of(tax, node)]
    assert tax.num_parents + tax.num_leaves == tax.num_nodes
    assert tax.class_of[tax.leaves].tolist() == list(range(tax.num_leaves))
    assert (tax.class_of >= 0).sum() == tax.num_leaves


@given(taxonomies())
def test_lowest_common_ancestors_and_distances_agree_with_plain_recursion(tax):
    nodes = np.arange(tax.num_nodes)
    lca, distance = tax.lca(nodes[:, None], nodes), tax.distance(nodes[:, None], nodes)
    for a in nodes.tolist():
        for b in nodes.tolist():
            expected = oracles.lca_of(tax, a, b)
            steps = tax.node_depth[a] + tax.node_depth[b] - 2 * tax.node_depth[expected]
            assert (lca[a, b], distance[a, b]) == (expected, steps)
    assert type(tax.lca(0, 1)) is int
    assert type(tax.distance(0, 1)) is int
    assert tax.lca([], []).shape == (0,)


@given(taxonomies(), st.data())
def test_sums_and_ancestors_at_a_depth_agree_with_plain_recursion(tax, data):
    values = np.array(data.draw(st.lists(st.integers(-9, 9), min_size=tax.num_leaves, max_size=tax.num_leaves)))
    by_node = dict(zip(tax.leaves.tolist(), values.tolist(), strict=True))
    totals = tax.sum_up(values)
    for node in range(tax.num_nodes):
        assert totals[node] == sum(by_node[leaf] for leaf in oracles.leaves_below(tax, node))
        line = [*oracles.ancestors_of(tax, node), node]
        for depth in range(tax.depth + 2):
            assert tax.ancestor_at(node, depth) == (line[depth] if depth < len(line) else -1)


@given(taxonomies(names=NASTY))
def test_every_class_label_and_every_path_finds_its_node(tax):
    assert len(set(tax.classes)) == tax.num_leaves
    assert [tax.find(label) for label in tax.classes] == tax.leaves.tolist()
    assert tax.find_many(tax.classes).tolist() == tax.leaves.tolist()
    assert [tax.find(tax.path(node)) for node in range(tax.num_nodes)] == list(range(tax.num_nodes))


def test_class_labels_stay_distinct_when_a_name_looks_like_the_path_of_another():
    # 'b' repeats, so one leaf has the label 'a/b', which is the name of another; the path of that one is a third name
    tax = Taxonomy.from_nested([{"a": ["b"]}, {"c": ["b"]}, "a/b", r"a\/b"])
    assert tax.classes == ("a/b", "c/b", r"a\/b", r"a\\\/b")
    assert [tax.find(label) for label in tax.classes] == tax.leaves.tolist()


@given(taxonomies(names=NASTY))
def test_the_builders_agree_on_the_same_tree(tax):
    paths = [tax.path(leaf) for leaf in tax.leaves.tolist()]
    assert Taxonomy.from_nested(tax.to_nested(), classes=paths) == tax
    rebuilt = Taxonomy.from_paths(paths)
    assert [rebuilt.path(leaf) for leaf in rebuilt.leaves.tolist()] == paths
    assert rebuilt.classes == tax.classes
    again = Taxonomy.from_parents(tax.parent, tax.names, classes=paths)
    assert again == tax
    assert again.source_index.tolist() == list(range(tax.num_nodes))
    if len(set(tax.names)) == tax.num_nodes:
        edges = [(tax.names[parent], name) for parent, name in zip(tax.parent[1:], tax.names[1:], strict=True)]
        assert Taxonomy.from_edges(edges, classes=paths) == tax


@given(taxonomies(), st.randoms())
def test_a_shuffled_parents_array_keeps_its_numbers_in_source_index(tax, rng: random.Random):
    order = list(range(tax.num_nodes))
    rng.shuffle(order)
    place = {node: index for index, node in enumerate(order)}
    parents = [place[int(tax.parent[node])] if node else -1 for node in order]
    other = Taxonomy.from_parents(parents, [tax.names[node] for node in order])
    for node, source in enumerate(other.source_index.tolist()):
        assert other.path(node) == tax.path(order[source])
    assert {other.path(leaf) for leaf in other.leaves} == {tax.path(leaf) for leaf in tax.leaves}


def test_leaves_are_classes_in_the_order_in_which_they_appear():
    assert Taxonomy.from_nested(NESTED).classes == ("graphics", "ibm", "mac", "med", "space")
    assert Taxonomy.from_paths(["sci/med", "comp/sys/mac", "comp/sys/ibm"]).classes == ("med", "mac", "ibm")
    assert Taxonomy.from_edges([("r", "b"), ("r", "a"), ("b", "z"), ("b", "y")]).classes == ("a", "z", "y")
    assert Taxonomy.from_parents([-1, 0, 0, 1], ["r", "b", "a", "z"]).classes == ("a", "z")
    assert Taxonomy.from_nested(REPEATED).classes == ("ENTY/other", "food", "NUM/other", "date")


def test_classes_fix_the_order_and_must_name_each_class_once():
    tax = Taxonomy.from_nested(REPEATED, classes=["date", "NUM/other", ("ENTY", "other"), "food"])
    assert tax.classes == ("date", "NUM/other", "ENTY/other", "food")
    assert "is repeated" in defects(lambda: Taxonomy.from_nested(["a", "b"], classes=["a", "b", "a"]))[0]
    assert "lacks 1 of 2 classes: 'b'" in defects(lambda: Taxonomy.from_nested(["a", "b"], classes=["a"]))[0]
    assert "did you mean 'food'" in defects(lambda: Taxonomy.from_nested(REPEATED, classes=["fod"]))[0]
    assert "root cannot be" in defects(lambda: Taxonomy.from_nested(["a", "b"], classes=[(), "a", "b"]))[0]
    with pytest.raises(OptionError, match="list of labels"):
        Taxonomy.from_nested(["a", "b"], classes="ab")


def test_an_inner_class_is_an_error_or_gets_a_stop_leaf():
    paths = ["LOC", "LOC/city", "NUM"]
    with pytest.raises(TaxonomyError, match=r"'LOC' has other classes below it.*inner_classes='stop'"):
        Taxonomy.from_paths(paths)
    tax = Taxonomy.from_paths(paths, inner_classes="stop")
    assert tax.classes == ("LOC", "city", "NUM")
    assert tax.path(int(tax.leaves[0])) == ("LOC", "LOC")
    assert tax.stops.tolist() == [int(tax.leaves[0])]
    assert tax.source_index[tax.stops].tolist() == [-1]
    named = Taxonomy.from_nested({"a": ["b", "a"]}, classes=[("a",), ("a", "b"), ("a", "a")], inner_classes="stop")
    assert named.classes == ("a (itself)", "b", "a/a")  # the inner node is called 'a' too
    with pytest.raises(OptionError, match="'error' or 'stop'"):
        Taxonomy.from_paths(paths, inner_classes="leaf")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: Taxonomy.from_nested({"a": ["x", "x"]}), ["'x' is repeated below 'a'"]),
        (lambda: Taxonomy.from_nested({"a": ["", " "]}), ["empty name", "empty name"]),
        (lambda: Taxonomy.from_nested({}), ["the taxonomy is empty"]),
        (lambda: Taxonomy.from_nested({"a": [3, None]}), ["found 3 of type int", "found None"]),
        (lambda: Taxonomy.from_nested("abc"), ["a mapping or a list, not str"]),
        (lambda: Taxonomy.from_nested(LOOP), ["cycle"]),
        (lambda: Taxonomy.from_paths([]), ["is empty"]),
        (lambda: Taxonomy.from_paths(["a/b", "a/b"]), ["the class 'a/b' is repeated (paths[0] and paths[1])"]),
        (lambda: Taxonomy.from_paths(["a//b", (), (1,)]), ["empty name", "found () (paths[1])", "(1,)"]),
        (lambda: Taxonomy.from_paths([5]), ["a path is a tuple of names, found 5 (paths[0])"]),
        (lambda: Taxonomy.from_paths("a/b"), ["expected a list of paths, found str"]),
        (lambda: Taxonomy.from_edges([("a", "b"), ("c", "b"), ("r", "a"), ("r", "c")]), ["two parents, 'a' and 'c'"]),
        (lambda: Taxonomy.from_edges([("r", "x"), ("a", "b"), ("b", "a")]), ["cycle: 'a' → 'b' → 'a'"]),
        (lambda: Taxonomy.from_edges([("r", "a"), ("q", "b")]), ["'r', 'q' have no parent"]),
        (lambda: Taxonomy.from_edges([("r", "a"), ("r", "a")]), ["is repeated (edges[0] and edges[1])"]),
        (lambda: Taxonomy.from_edges([("r", None)]), ["an edge without a child"]),
        (lambda: Taxonomy.from_edges([("r", " "), "rb", ("r", 3)]), ["empty name", "a pair", "found ('r', 3)"]),
        (lambda: Taxonomy.from_edges([("r", "a")], root="a"), ["the root 'a' has a parent"]),
        (lambda: Taxonomy.from_edges([("r", "a")], root=" "), ["empty name of the root"]),
        (lambda: Taxonomy.from_edges([]), ["is empty"]),
        (lambda: Taxonomy.from_parents([]), ["is empty"]),
        (lambda: Taxonomy.from_parents([-1]), ["is empty"]),
        (
            lambda: Taxonomy.from_parents([-1, 7, -5]),
            ["is 7, but nodes are numbered from 0 to 2 (parents[1])", "is -5"],
        ),
        (lambda: Taxonomy.from_parents([-1, 2, 1]), ["cycle: '1' → '2' → '1'"]),
        (lambda: Taxonomy.from_parents([-1, 1, 0]), ["cycle: '1' → '1'"]),
        (lambda: Taxonomy.from_parents([-1, 0, 0], ["r", "a", "a"]), ["'a' is repeated below the root"]),
        (lambda: Taxonomy.from_parents([-1, 0], ["r"]), ["expected 2 names, one for each parent, found 1"]),
        (lambda: Taxonomy.from_parents([-1, 0], ["r", 5]), ["found 5 of type int (names[1])"]),
        (lambda: Taxonomy.from_parents([[0.5]]), ["expected a list of integers"]),
    ],
)
def test_one_error_reports_all_defects_of_an_input(build, expected):
    found = defects(build)
    assert len(found) == len(expected)
    for problem, part in zip(found, expected, strict=True):
        assert part in problem


LOOP: dict = {"a": {}}
LOOP["a"]["b"] = LOOP


def test_a_long_list_of_defects_is_truncated_in_the_message_only():
    with pytest.raises(TaxonomyError, match="10 more") as caught:
        Taxonomy.from_nested([""] * 15 + [3] * 15 + ["a"])
    assert len(caught.value.problems) == 15 + 15


def test_the_root_of_edges():
    given_none = Taxonomy.from_edges([(None, "a"), (None, "b"), ("a", "x")])
    named = Taxonomy.from_edges([("a", "x"), ("r", "a"), ("r", "b")])
    outside = Taxonomy.from_edges([("a", "x"), ("b", "y")], root="top")
    assert given_none.classes == ("b", "x")
    assert given_none.names[0] == "root"
    assert given_none.source_index[0] == -1
    assert named.names[0] == "r"
    assert outside.names == ("top", "a", "b", "x", "y")
    own_row = Taxonomy.from_edges([(None, "r"), ("r", "a"), (None, "b")], root="r")
    assert own_row.names == ("r", "a", "b")


def test_find_takes_a_class_label_then_a_unique_name_then_a_path():
    tax = Taxonomy.from_nested({"a": ["x", {"b": ["y"]}], "c": [{"b": ["z"]}], "d": ["a/x"]})
    assert tax.path(tax.find("a/x")) == ("d", "a/x")  # a class label comes first
    assert tax.path(tax.find("c")) == ("c",)
    assert tax.path(tax.find("c/b")) == ("c", "b")
    assert tax.path(tax.find(r"d/a\/x")) == ("d", "a/x")
    assert tax.find(()) == 0
    assert tax.find("root") == 0


@given(taxonomies())
def test_a_path_with_arrows_is_a_label_of_every_node(tax):
    nodes = [node for node in range(1, tax.num_nodes) if len(tax.path(node)) > 1]
    labels = [" > ".join(tax.path(node)) for node in nodes]
    assert [tax.find(label) for label in labels] == nodes
    assert tax.find_many(labels).tolist() == nodes


def test_a_path_with_arrows_comes_after_names_and_other_paths():
    tax = Taxonomy.from_nested({"a": ["x", "y/z"], "b": ["a > x", "x"], "c": [{"a > x": ["y"]}, "w"], "d": ["a > y/z"]})
    assert tax.path(tax.find("a>x", missing=0)) == ()  # the separator is " > "
    with pytest.raises(LabelError, match="'a > x' names 2 nodes; use one of their paths: b/a > x, c/a > x"):
        tax.find("a > x")
    assert tax.path(tax.find("b/a > x")) == ("b", "a > x")
    assert tax.path(tax.find("a > y/z")) == ("d", "a > y/z")
    assert tax.path(tax.find("b  >  x")) == ("b", "x")


def test_a_suggestion_is_a_label_that_find_accepts():
    tax = Taxonomy.from_nested({"doc": ["python", "java"], "code": ["python"], "python": ["cli"]})
    with pytest.raises(LabelError, match=r"did you mean '/python', 'doc/python' or 'code/python'\?"):
        tax.find("pyton")
    assert [tax.path(tax.find(label))[0] for label in ("/python", "doc/python")] == ["python", "doc"]


def test_a_name_shared_by_a_leaf_and_an_inner_node_is_ambiguous():
    tax = Taxonomy.from_nested({"sport": ["golf"], "news": ["sport", "weather"]})
    assert tax.classes == ("golf", "news/sport", "weather")
    with pytest.raises(LabelError, match="'sport' names 2 nodes; use one of their paths: /sport, news/sport"):
        tax.find("sport")
    assert tax.find("sport", missing=-1) == -1
    assert [tax.path(tax.find(label)) for label in ("/sport", ("sport",), "news/sport", "/news/sport")] == [
        ("sport",),
        ("sport",),
        ("news", "sport"),
        ("news", "sport"),
    ]


def test_inner_nodes_with_the_same_name_do_not_change_class_labels():
    tax = Taxonomy.from_nested({"a": {"other": ["x"]}, "b": {"other": ["y"]}})
    assert tax.classes == ("x", "y")


def test_a_class_at_the_top_level_is_found_by_its_path():
    tax = Taxonomy.from_paths(["other", "a/other/x", "b/other"])
    assert tax.classes == ("other", "x", "b/other")
    assert tax.path(tax.find("other")) == ("other",)


def test_the_name_of_the_root_does_not_change_labels():
    tree = {"a": ["top", "x"]}
    for root in ("top", "root"):
        tax = Taxonomy.from_parents([-1, 0, 1, 1], [root, "a", "top", "x"])
        assert tax.classes == Taxonomy.from_nested(tree).classes == ("top", "x")
        assert tax.find("top") == 2


@given(taxonomies(names=NASTY))
def test_the_label_of_every_node_finds_it(tax):
    assert [tax.find(tax.label(node)) for node in range(1, tax.num_nodes)] == list(range(1, tax.num_nodes))
    assert tuple(tax.label(leaf) for leaf in tax.leaves.tolist()) == tax.classes
    assert tax.label(0) == ""


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("b", r"'b' names 2 nodes; use one of their paths: a/b, c/b"),
        ("xx", r"no node 'xx'; did you mean 'x'\?"),
        ("a/xx", r"no node 'a/xx'; 'a' has no child 'xx'; did you mean 'x'\?"),
        ("a > xx", r"no node 'a > xx'; 'a' has no child 'xx'; did you mean 'x'\?"),
        (("a", "x", "q"), "'a/x' is a leaf"),
        (("q",), "the root has no child 'q'"),
        (5, r"not 5 \(int\)"),
        (("a", 5), "a tuple of names"),
    ],
)
def test_the_error_of_an_unknown_label_gives_the_reason(label, message):
    tax = Taxonomy.from_nested({"a": ["x", {"b": ["y"]}], "c": [{"b": ["z"]}]})
    with pytest.raises(LabelError, match=message):
        tax.find(label)


def test_one_error_reports_all_unknown_labels():
    tax = Taxonomy.from_nested(NESTED)
    assert tax.find_many(["mac", ("sci",), ["sci", "med"]]).tolist() == [tax.find(x) for x in ("mac", "sci", "med")]
    with pytest.raises(
        LabelError, match=r"(?s)2 different labels, of 3 items, are not valid.*'mak'.*items 0, 2.*'xyz'.*item 3"
    ):
        tax.find_many(["mak", "mac", "mak", "xyz"])


def test_only_the_unknown_labels_that_are_shown_get_a_hint():
    with pytest.raises(LabelError) as caught:
        Taxonomy.from_nested(NESTED).find_many([f"mac{number}" for number in range(30)])
    assert ["did you mean 'mac'" in problem for problem in caught.value.problems] == [True] * 20 + [False] * 10


@pytest.mark.parametrize("count", [2, 20, 21, 30])
def test_every_unknown_label_is_among_the_problems_and_the_first_are_shown(count):
    tax = Taxonomy.from_nested(NESTED)
    labels = [f"no such {number}" for number in range(count)]
    with pytest.raises(LabelError) as caught:
        tax.find_many([*labels, "mac", *labels])
    problems, text = caught.value.problems, str(caught.value).splitlines()
    assert problems == tuple(
        f"the taxonomy has no node {label!r} (items {at}, {at + count + 1})" for at, label in enumerate(labels)
    )
    more = [f"  - … and {count - 20} more"] if count > 20 else []
    assert text == [
        f"{count} different labels, of {2 * count} items, are not valid:",
        *(f"  - {problem}" for problem in problems[:20]),
        *more,
    ]


def test_a_single_unknown_label_is_reported_in_one_line():
    with pytest.raises(LabelError, match=r"^the taxonomy has no node 'x' \(items 0, 2\)$"):
        Taxonomy.from_nested(["mac"]).find_many(["x", "mac", "x"])


def test_suggestions_ignore_case():
    assert did_you_mean("MAC", ["mac", "ibm"]) == "; did you mean 'mac'?"
    assert did_you_mean("zzz", ["mac", "ibm"]) == ""


@given(taxonomies(names=NASTY))
def test_copies_and_pickles_are_equal_and_hash_alike(tax):
    assert copy.deepcopy(tax) is tax
    assert copy.copy(tax) is tax
    again = pickle.loads(pickle.dumps(tax))
    assert again == tax
    assert hash(again) == hash(tax)
    assert (again.names, again.stops.tolist()) == (tax.names, tax.stops.tolist())
    assert again.source_index.tolist() == tax.source_index.tolist()
    with pytest.raises(ValueError, match="read-only"):
        again.parent[0] = 3


def test_arrays_and_fields_are_read_only():
    tax = Taxonomy.from_nested(NESTED)
    arrays = ["parent", "leaves", "source_index", "stops", "child_start", "num_children", "level_start", "node_depth"]
    for name in [*arrays, "class_of", "is_leaf", "leaf_counts", "height"]:
        with pytest.raises(ValueError, match="read-only"):
            getattr(tax, name)[...] = 0
    with pytest.raises(AttributeError):
        tax.names = ()


def test_the_parents_array_of_the_caller_is_copied():
    parents = np.array([-1, 0, 0])
    tax = Taxonomy.from_parents(parents)
    parents[1] = 5
    assert tax.parent.tolist() == [-1, 0, 0]


def test_the_fingerprint_depends_on_tree_names_and_class_order():
    trees = [
        Taxonomy.from_nested(["a", "b"]),
        Taxonomy.from_nested(["a", "b"], classes=["b", "a"]),
        Taxonomy.from_nested(["b", "a"]),
        Taxonomy.from_nested(["ab", "c"]),
        Taxonomy.from_nested(["a", "bc"]),
        Taxonomy.from_nested({"a": ["b"]}),
    ]
    assert len({tax.fingerprint for tax in trees}) == len(trees)
    assert Taxonomy.from_edges([("other root", "a"), ("other root", "b")]) == trees[0]
    assert trees[0] != "a tree"


def test_the_fingerprint_of_a_tree_never_changes():
    # saved weights are checked against it, so it must not change between versions
    expected = "a2a367a4b38022b838a3524fabd50fda44787cf3e13f5520f698521f6d44b940"
    assert Taxonomy.from_nested(NESTED).fingerprint == expected


def test_render_draws_the_tree_with_counts():
    text = Taxonomy.from_nested(NESTED).render(counts=[1, 2, 3, 4, 5])
    assert text.splitlines() == [
        "root (5 classes, 9 nodes, depth 3, 15 items)",
        "├─ comp (3 classes, 6 items)",
        "│  ├─ graphics (1 item)",
        "│  └─ sys (2 classes, 5 items)",
        "│     ├─ ibm (2 items)",
        "│     └─ mac (3 items)",
        "└─ sci (2 classes, 9 items)",
        "   ├─ med (4 items)",
        "   └─ space (5 items)",
    ]


@given(taxonomies(max_nodes=40, names=NASTY), st.integers(1, 12), st.integers(1, 5))
def test_render_folds_large_trees_and_never_breaks_a_line(tax, max_lines, max_children):
    rows = tax.render(max_lines=max_lines, max_children=max_children).split("\n")
    assert len(rows) <= max_lines + 2
    assert all(row.isprintable() for row in rows)
    whole = tax.render(max_lines=1000, max_children=1000).split("\n")
    assert len(whole) == tax.num_nodes


@pytest.mark.parametrize("wrong", [-1, 9, 1.5])
def test_node_ids_out_of_range_are_errors(wrong):
    tax = Taxonomy.from_nested(NESTED)
    for ask in (
        tax.path,
        tax.children,
        tax.ancestors,
        lambda node: tax.lca(node, 0),
        lambda node: tax.lca([node], [0]),
    ):
        with pytest.raises(InputError, match="node ids"):
            ask(wrong)
    with pytest.raises(InputError, match="one value for each"):
        tax.sum_up([1, 2])
    with pytest.raises(InputError, match="at least 0"):
        tax.ancestor_at(0, -1)
    with pytest.raises(OptionError, match="at least 1"):
        tax.render(max_lines=0)


def test_a_chain_of_a_hundred_thousand_and_a_star_work():
    chain = Taxonomy.from_parents(np.arange(-1, 99_999))
    assert (chain.depth, chain.num_leaves) == (99_999, 1)
    assert chain.lca(99_999, 50_000) == 50_000
    assert chain.distance(99_999, 0) == 99_999
    assert chain.leaf_counts.min() == 1
    assert chain.height[0] == 99_999
    assert len(chain.path(99_999)) == 99_999
    assert chain.find(chain.classes[0]) == 99_999
    assert len(chain.render().splitlines()) <= 82
    nested: dict = {}
    for _ in range(100_000):
        nested = {"n": nested}
    assert Taxonomy.from_nested(nested).depth == 100_000
    while nested:  # taken apart step by step: freeing it whole would recurse in some Pythons
        nested = nested["n"]
    star = Taxonomy.from_parents(np.concatenate(([-1], np.zeros(200_000, np.int64))))
    assert (star.depth, star.num_leaves) == (1, 200_000)
    assert star.find("77777") == 77_777
    assert star.leaf_counts[0] == 200_000


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_hundred_thousand_random_nodes_are_built_in_about_a_second(seed):
    rng = np.random.default_rng(seed)
    parents = np.concatenate(([-1], (rng.random(99_999) * np.arange(1, 100_000)).astype(np.int64)))
    start = time.perf_counter()
    tax = Taxonomy.from_parents(parents)
    assert time.perf_counter() - start < 5  # generous: the machine may be busy
    assert sorted(tax.source_index.tolist()) == list(range(100_000))


def test_encode_returns_class_ids_also_of_inner_classes():
    tax = Taxonomy.from_paths(["home/garden", "home/garden/hose", "home/pan"], inner_classes="stop")
    assert tax.encode(["home/garden", "garden", "hose", ("home", "pan")]).tolist() == [0, 0, 1, 2]
    with pytest.raises(LabelError, match="1 labels name inner nodes, not classes, such as 'home'"):
        tax.encode(["hose", "home"])
    with pytest.raises(LabelError, match="expected a list of labels"):
        tax.encode("hose")
