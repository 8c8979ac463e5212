"""Taxonomies learned from data, through `arbormax.induce`."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import arbormax as am
from arbormax.errors import ArbormaxError, InputError, LabelError, OptionError
from arbormax.induce import INDUCERS, flatten, induce, shuffle_classes

METHODS = INDUCERS.names
GROUPS = {
    "bird": ["owl", "hen", "duck"],
    "fish": ["cod", "eel", "carp"],
    "tree": ["oak", "elm", "pine"],
}


def toy(copies: int = 6, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts with a word of the class and words of its group."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for group, classes in GROUPS.items():
        for label in classes:
            for _ in range(copies):
                own = rng.choice([f"{group}{i}" for i in range(4)], 3)
                texts.append(" ".join([f"{label}ish", *own]))
                labels.append(label)
    return texts, labels


def points(seed: int = 0, copies: int = 5) -> tuple[np.ndarray, list[str]]:
    """Features in which the classes of a group are close to each other."""
    rng = np.random.default_rng(seed)
    rows, labels = [], []
    for number, classes in enumerate(GROUPS.values()):
        for place, label in enumerate(classes):
            centre = np.array([100.0 * number + 5 * place, 100.0 * number**2 - 5 * place])
            rows.append(centre + rng.normal(size=(copies, 2)))
            labels += [label] * copies
    return np.concatenate(rows), labels


def groups_of(tax: am.Taxonomy) -> set[frozenset[str]]:
    """The classes below each inner node."""
    classes = [[tax.names[leaf] for leaf in tax.leaves if node in tax.ancestors(leaf)] for node in range(tax.num_nodes)]
    return {frozenset(names) for names in classes if names}


def random_data(classes: int, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    rng = np.random.default_rng(seed)
    labels = [f"c{i}" for i in range(classes) for _ in range(2 + i % 3)]
    return rng.normal(size=(len(labels), 5)), labels


@pytest.mark.parametrize("method", ["centroids", "confusion", "kmeans"])
def test_groups_in_the_texts_are_found(method):
    texts, labels = toy()
    tax = induce(texts, labels, method, branching=3)
    assert {frozenset(classes) for classes in GROUPS.values()} <= groups_of(tax)


@pytest.mark.parametrize("method", ["centroids", "confusion", "kmeans"])
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_groups_in_a_feature_matrix_are_found(method, kind):
    rows, labels = points()
    tax = induce(kind(rows), labels, method, branching=3)
    assert {frozenset(classes) for classes in GROUPS.values()} <= groups_of(tax)


def test_similar_names_are_grouped():
    labels = ["red apple", "green apple", "blue whale", "grey whale"]
    tax = induce(None, labels, "names", branching=2)
    assert frozenset(["red apple", "green apple"]) in groups_of(tax)
    texts = {"a": "red apple", "b": "blue whale", "c": "green apple", "d": "grey whale"}
    assert frozenset("ac") in groups_of(induce(None, list("abcd"), "names", branching=2, texts=texts))


@given(counts=st.lists(st.integers(1, 50), min_size=2, max_size=12), branching=st.integers(2, 4))
def test_huffmans_tree_has_the_lowest_mean_depth(counts, branching):
    labels = [f"c{i:02}" for i, count in enumerate(counts) for _ in range(count)]
    tax = induce(None, labels, "huffman", branching=branching)
    found = sum(int(tax.node_depth[leaf]) * counts[int(tax.names[leaf][1:])] for leaf in tax.leaves)
    # the cost of the code is the sum of all merged weights; zeros fill the first merge
    weights = sorted([0] * ((1 - len(counts)) % (branching - 1) if branching > 2 else 0) + counts)
    cost = 0
    while len(weights) > 1:
        merged = sum(weights[:branching])
        weights, cost = sorted([*weights[branching:], merged]), cost + merged
    assert found == cost


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_branching_and_depth_are_limits(method, data):
    classes = data.draw(st.integers(2, 20))
    branching = data.draw(st.integers(2, 6))
    least = next(depth for depth in range(1, 9) if branching**depth >= classes)
    depth = data.draw(st.sampled_from([None, least, least + 1]))
    X, labels = random_data(classes, seed=data.draw(st.integers(0, 5)))
    tax = induce(X, labels, method, branching, depth)
    assert tax.num_children.max() <= branching
    assert depth is None or tax.depth <= depth
    assert (tax.num_children != 1).all()
    assert tax.classes == tuple(sorted(set(labels)))


@pytest.mark.parametrize("method", METHODS)
def test_no_branching_is_the_smallest_that_suffices(method):
    X, labels = random_data(30)
    tax = induce(X, labels, method, branching=None, depth=3)
    assert tax.depth <= 3
    assert tax.num_children.max() <= 4


@pytest.mark.parametrize("method", METHODS)
def test_equal_arguments_give_equal_trees(method):
    X, labels = random_data(20)
    order = np.random.default_rng(0).permutation(len(labels))
    one, two = (induce(X, labels, method, 3, seed=4) for _ in range(2))
    assert one == two
    if method not in ("confusion",):  # its folds depend on the order
        shuffled = induce(X[order], [labels[i] for i in order], method, 3, seed=4)
        assert groups_of(shuffled) == groups_of(one)


def test_another_seed_gives_another_random_tree():
    _, labels = random_data(20)
    assert induce(None, labels, "random", 3, seed=1) != induce(None, labels, "random", 3, seed=2)


@pytest.mark.parametrize("method", METHODS)
def test_classes_fix_the_order(method):
    X, labels = random_data(9)
    order = sorted(set(labels), reverse=True)
    assert induce(X, labels, method, 3, classes=order).classes == tuple(order)


@pytest.mark.parametrize("method", ["names", "huffman", "random"])
def test_classes_without_examples_are_possible_where_no_features_are_needed(method):
    tax = induce(None, ["a", "b"], method, 2, classes=["a", "b", "c"])
    assert tax.classes == ("a", "b", "c")


@pytest.mark.parametrize("method", METHODS)
def test_classes_stay_together(method):
    X, labels = random_data(15)
    together = [["c0", "c7"], ["c7", "c12"], ["c3", "c9"]]
    tax = induce(X, labels, method, 4, together=together)
    for names in (["c0", "c7", "c12"], ["c3", "c9"]):
        assert len({int(tax.parent[tax.find(name)]) for name in names}) == 1
    assert tax.num_children.max() <= 4
    limited = induce(X, labels, method, 4, depth=3, together=together)
    assert limited.depth <= 3


@pytest.mark.parametrize("method", METHODS)
def test_a_tree_on_top_is_kept(method):
    X, labels = random_data(15)
    top = am.Taxonomy.from_nested({"even": [f"c{i}" for i in range(0, 12, 2)], "odd": {"low": ["c1", "c3"]}})
    tax = induce(X, labels, method, 3, top=top)
    for leaf in top.leaves:
        kept = top.path(leaf)
        assert tax.path(tax.find(kept[-1]))[: len(kept) - 1] == kept[:-1]
    assert tax.classes == tuple(sorted(set(labels)))
    assert induce(X, labels, method, 3, top=top.to_nested()) == tax
    below = tax.num_children[tax.find("even")]
    assert below <= 3


def test_a_tree_on_top_that_fills_its_nodes_keeps_room_for_others():
    top = {"a": ["x"], "b": ["y"]}
    tax = induce(None, list("xyzw"), "random", 2, top=top)
    assert set(tax.names) >= {"a", "b"}
    assert {len(tax.path(tax.find(name))) for name in "zw"} == {2}


def test_names_say_what_the_classes_share():
    labels = ["comp.graphics", "comp.windows", "sci.space", "sci.med"]
    top = {"x": labels[:2], "y": labels[2:]}
    tax = induce(None, labels, "huffman", 2, top=None, together=[labels[:2], labels[2:]])
    assert {tax.names[node] for node in tax.children(0)} == {"comp", "sci"}
    assert set(induce(None, labels, "random", 2, top=top).names) >= {"x", "y"}
    texts, classes = toy()
    found = induce(texts, classes, branching=3)
    named = {name.rstrip("0123456789, ")[:4] for name in found.names if name[:4] in GROUPS}
    assert named == set(GROUPS)


@pytest.mark.parametrize("method", METHODS)
def test_every_name_is_unique(method):
    rng = np.random.default_rng(0)
    labels = [f"item {i}" for i in range(40)]
    tax = induce(rng.normal(size=(40 * 3, 4)), labels * 3, method, 3)
    assert len(set(tax.names[1:])) == tax.num_nodes - 1
    assert tax.classes == tuple(sorted(labels))


def test_the_texts_of_classes_are_those_of_the_taxonomy():
    tax = induce(None, ["a", "b", "c"], "random", 2, texts={"a": "an apple"})
    assert tax.texts[tax.find("a")] == "an apple"


def test_the_tree_trains_a_classifier():
    texts, labels = toy()
    clf = am.TextClassifier(taxonomy=am.induce(texts, labels, branching=3))
    assert clf.fit(texts, labels).score(texts, labels) > 0.9


def test_the_package_is_the_function():
    import arbormax.induce

    assert arbormax.induce is am.induce
    assert am.induce(None, ["a", "b", "c"], "random", 2) == induce(None, ["a", "b", "c"], "random", 2)


def test_too_many_classes_for_all_pairs_name_the_method_that_works(monkeypatch):
    monkeypatch.setattr("arbormax.induce.agglomerative.MOST_ITEMS", 10)
    X, labels = random_data(12)
    with pytest.raises(OptionError, match=r"method: 'centroids' .* at most 10 classes.* GB; try method='kmeans'"):
        induce(X, labels)
    assert induce(X, labels, "kmeans").num_leaves == 12


def test_very_many_classes_are_clustered():
    rng = np.random.default_rng(0)
    labels = [f"c{i}" for i in range(5_000)]
    tax = induce(rng.normal(size=(5_000, 8)), labels, "kmeans", branching=10)
    assert tax.depth == 4
    assert tax.num_leaves == 5_000


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"labels": ["a", "b"]}, InputError, "X: expected 2 texts"),
        ({"labels": ["a"] * 4}, OptionError, "labels: a tree needs at least two classes, found 1"),
        ({"labels": ["a", "b", "c", 4]}, LabelError, "expected a string that is not empty, found 4"),
        ({"labels": ["a", "b", "c", ("d", "e")]}, LabelError, "expected a string"),
        ({"labels": "abcd"}, LabelError, "expected a list of labels"),
        ({"method": "kmean"}, OptionError, "method: unknown method 'kmean'; did you mean 'kmeans'?"),
        ({"branching": 1}, OptionError, "branching: expected an integer of at least 2, found 1"),
        ({"branching": 2.5}, OptionError, "branching: expected an integer"),
        ({"branching": None}, OptionError, "branching: expected a number of children, or a depth"),
        ({"depth": 0}, OptionError, "depth: expected an integer of at least 1"),
        ({"branching": 2, "depth": 1}, OptionError, "depth: 4 classes do not fit .* they need 2 levels"),
        ({"classes": ["a", "b", "c"]}, LabelError, "'d' is not among the classes"),
        ({"classes": ["a", "a", "b", "c", "d"]}, OptionError, "classes: expected different strings"),
        ({"classes": [*"abcde"]}, OptionError, "examples of all classes; 'e' has none; try method='names'"),
        ({"classes": list("abcdef")}, OptionError, "'e', 'f' have none"),
        ({"encoder": "bag"}, OptionError, "encoder: the features of 'bag' mean nothing before training"),
        ({"encoder": "tfid"}, OptionError, "unknown encoder 'tfid'; did you mean 'tfidf'"),
        ({"encoder_options": {"ngram": 2}}, OptionError, "ngram"),
        ({"texts": {"z": "zoo"}}, LabelError, "texts: 'z' is not a class"),
        ({"together": [["a", "z"]]}, LabelError, "together: 'z' is not a class"),
        ({"together": ["ab"]}, OptionError, "together: expected lists of classes"),
        ({"together": [["a", "b", "c"]], "branching": 2}, OptionError, "together: 3 classes .*; try branching=3"),
        ({"top": {"x": ["a", "z"]}}, LabelError, "top: .*'z' is not a class of the data"),
        ({"top": 3}, OptionError, "top: expected a Taxonomy or nested mappings"),
        ({"top": {"x": ["a"], "y": ["b"]}, "together": [["a", "b"]]}, OptionError, "together: .* different parents"),
        ({"together": "ab"}, OptionError, "together: expected lists of classes, found the string 'ab'"),
        ({"together": [["a"]]}, OptionError, r"together: expected at least two classes in a list, found \['a'\]"),
        ({"together": [["a", "b"]], "branching": 4, "depth": 1}, OptionError, "depth: sets of classes .* need more"),
        ({"top": {"x": {"y": ["a", "b"]}}, "depth": 2}, OptionError, "depth: the tree on top needs more levels than 2"),
        ({"top": {"a": ["b", "c"]}}, LabelError, "top: an inner node .* has the name of a class, 'a'; rename it"),
        ({"X": None}, OptionError, "X: this method needs texts or features"),
        ({"X": [1, 2, 3, 4]}, InputError, "X: expected texts or a feature matrix, found int"),
        ({"X": ["an owl", "a hen", "a cod", None]}, InputError, "X: expected texts or .* found NoneType"),
        ({"X": np.zeros(4)}, InputError, "X: expected texts or a feature matrix, found float64"),
        ({"X": np.ones((4, 2, 2))}, InputError, "X: expected texts or a feature matrix, found ndarray"),
        ({"X": np.zeros((4, 0))}, InputError, "X: expected a matrix with at least one column"),
        ({"X": np.full((4, 2), np.nan)}, InputError, "X: expected finite numbers"),
        ({"X": np.array([["a"]] * 4)}, InputError, "X: expected texts or a matrix of numbers"),
        ({"method": "confusion"}, OptionError, "needs classes with at least two examples"),
    ],
)
def test_every_misuse_is_an_error_that_says_what_to_do(arguments, error, message):
    usual = {"X": ["an owl", "a hen", "a cod", "an eel"], "labels": list("abcd"), "branching": 2}
    with pytest.raises(error, match=message) as caught:
        induce(**{**usual, **arguments})
    assert isinstance(caught.value, ArbormaxError)


def test_one_set_of_all_classes_needs_no_level_of_its_own():
    tax = induce(None, list("abcd"), "huffman", branching=4, depth=1, together=[list("abcd")])
    assert tax.depth == 1


def test_a_shuffled_tree_has_the_same_shape_and_classes():
    tax = am.Taxonomy.from_nested({"a": ["u", "v"], "b": ["w", {"c": ["x", "y", "z"]}]})
    shuffled = shuffle_classes(tax, seed=1)
    assert shuffled.classes == tax.classes
    assert np.array_equal(shuffled.parent, tax.parent) or shuffled.num_nodes == tax.num_nodes
    assert sorted(shuffled.node_depth[shuffled.leaves]) == sorted(tax.node_depth[tax.leaves])
    assert groups_of(shuffled) != groups_of(tax)
    assert flatten(tax).classes == tax.classes
    assert flatten(tax).depth == 1
