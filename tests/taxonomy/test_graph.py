"""Graphs: builders, queries, files and errors."""

from __future__ import annotations

import pickle
import random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arbormax as am
import oracles_graph as oracle
from arbormax import Graph, Taxonomy
from arbormax.errors import InputError, TaxonomyError
from arbormax.taxonomy import load_taxonomy
from strategies import graphs, taxonomies

EDGES = [("r", "pet"), ("r", "fish"), ("pet", "cat"), ("pet", "goldfish"), ("fish", "goldfish"), ("fish", "cod")]
PETS = Graph.from_edges(EDGES)


def named_edges(graph):
    return {(graph.names[parent] if parent else "", graph.names[child]) for parent, child in graph.edges.tolist()}


# Builders


def test_all_builders_give_the_same_graph():
    nested = {"pet": ["cat", "goldfish"], "fish": ["goldfish", "cod"]}
    others = [
        Graph.from_nested(nested),
        Graph.from_paths(["pet/cat", ("pet", "goldfish"), "fish/goldfish", "fish/cod"]),
        Graph.from_parents([-1, 0, [0], [1], [1, 2], [2]], ["r", "pet", "fish", "cat", "goldfish", "cod"]),
        Graph.from_networkx(nx.DiGraph(EDGES)),
        Graph.from_dict(PETS.to_dict()),
        Graph.from_networkx(PETS.to_networkx()),
        Graph.from_nested(PETS.to_nested()),
    ]
    for graph in others:
        assert graph == PETS
        assert graph.names[1:] == PETS.names[1:]
        assert graph.classes == ("cat", "goldfish", "cod")


@given(taxonomies(shuffle=False))
def test_a_graph_that_is_a_tree_is_numbered_as_the_taxonomy(tax):
    names = [f"n{node}" for node in range(tax.num_nodes)]
    tree, graph = Taxonomy.from_parents(tax.parent, names), Graph.from_parents(tax.parent, names)
    assert graph.names == tree.names
    assert graph.is_tree
    assert graph.to_tree() == tree
    for name in ("parent", "leaves", "level_start", "node_depth", "height", "leaf_counts", "edges", "ancestor_counts"):
        assert np.array_equal(getattr(graph, name), getattr(tree, name)), name
    a, b = np.divmod(np.arange(tree.num_nodes**2), tree.num_nodes)
    for mine, its in zip(graph.common(a, b), tree.common(a, b), strict=True):
        assert np.array_equal(mine, its)
    assert np.array_equal(graph.is_above(a, b), tree.is_above(a, b))


@given(st.integers(0, 10**6))
def test_the_order_of_shuffled_edges_follows_the_taxonomy(seed):
    rng = random.Random(seed)
    edges = [(f"n{rng.randrange(node)}", f"n{node}") for node in range(1, 12)]
    rng.shuffle(edges)
    assert Graph.from_edges(edges).names == Taxonomy.from_edges(edges).names


def test_classes_fix_the_class_order_and_inner_classes_get_a_stop_leaf():
    assert Graph.from_edges(EDGES, classes=["cod", "cat", "goldfish"]).classes == ("cod", "cat", "goldfish")
    with pytest.raises(TaxonomyError, match="classes lacks 1 of 3 classes: 'pet/cat'"):
        Graph.from_edges(EDGES, classes=["cod", "goldfish"])
    with pytest.raises(TaxonomyError, match=r"'pet' has other classes below it.*inner_classes='stop'"):
        Graph.from_edges(EDGES, classes=["cod", "goldfish", "cat", "pet"])
    graph = Graph.from_edges(EDGES, classes=["cod", "goldfish", "cat", "pet"], inner_classes="stop")
    assert graph.classes == ("cod", "goldfish", "cat", "pet")
    assert graph.path(graph.find("pet")) == ("pet", "pet")
    assert graph.encode(["pet", ("pet",)]).tolist() == [3, 3]
    assert Graph.from_dict(graph.to_dict()) == graph


def test_two_nodes_with_one_name_are_an_error_where_nodes_have_numbers():
    with pytest.raises(TaxonomyError, match=r"two nodes have the name 'x' \(parents\[1\] and parents\[2\]\)"):
        Graph.from_parents([-1, 0, 0], ["r", "x", "x"])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Graph.from_edges([("r", "a"), ("a", "b"), ("b", "a")]), "cycle: 'a' → 'b' → 'a'"),
        (lambda: Graph.from_edges([("r", "a"), ("r", "a")]), r"the edge \('r', 'a'\) is repeated"),
        (lambda: Graph.from_nested({"a": {"b": ["a"]}}), "cycle: 'a' → 'b' → 'a'"),
        (lambda: Graph.from_edges([("a", "x"), ("b", "x")]), "'a', 'b' have no parent"),
        (lambda: Graph.from_parents([[], [0], [0, 7]]), "the parent of '2' is 7"),
        (lambda: Graph.from_parents([[], [0], [7]]), "the parent of '2' is 7"),
        (lambda: Graph.from_parents([[], ["a"]]), "expected a list of node numbers"),
        (lambda: Graph.from_edges([]), "the taxonomy is empty"),
    ],
)
def test_defects_are_reported(build, message):
    with pytest.raises(TaxonomyError, match=message):
        build()


# Queries


@given(graphs())
def test_queries_agree_with_the_enumeration_of_all_paths(graph):
    every = [oracle.paths_to(graph, node) for node in range(graph.num_nodes)]
    sets = [oracle.above(graph, node) for node in range(graph.num_nodes)]
    assert graph.path_counts.tolist() == [len(paths) for paths in every]
    assert graph.node_depth.tolist() == [max(len(path) for path in paths) - 1 for paths in every]
    assert (np.diff(graph.node_depth) >= 0).all()
    assert graph.ancestor_counts.tolist() == [len(nodes) for nodes in sets]
    leaves = graph.leaves.tolist()
    counts = [sum(node in sets[leaf] or node == 0 for leaf in leaves) for node in range(graph.num_nodes)]
    assert graph.leaf_counts.tolist() == counts
    for node in range(graph.num_nodes):
        assert set(graph.ancestors(node).tolist()) == (sets[node] | {0}) - {node}
        named = [tuple(graph.names[step] for step in path[1:]) for path in every[node]]
        assert sorted(graph.paths(node)) == sorted(named)
        assert graph.path(node) in named
        assert all(graph.find(path) == node for path in named)
        assert graph.find(graph.names[node]) == node


@given(graphs())
def test_pairs_share_their_sets_of_ancestors(graph):
    sets = [oracle.above(graph, node) for node in range(graph.num_nodes)]
    a, b = np.divmod(np.arange(graph.num_nodes**2), graph.num_nodes)
    found = graph.common(a, b)
    for x, y, shared, deepest, way in zip(a.tolist(), b.tolist(), *map(np.ndarray.tolist, found), strict=True):
        both = sets[x] & sets[y]
        assert shared == len(both)
        assert deepest == max(both, default=0)
        assert way == oracle.distance(graph, x, y) == graph.distance(x, y)
        assert graph.lca(x, y) == deepest
        assert bool(graph.is_above(x, y)) == (x in sets[y] | {0})


def test_many_paths_are_an_error_that_says_how_many():
    edges = [("r", "a0"), ("r", "b0")]
    for level in range(60):
        edges += [(f"{x}{level}", f"{y}{level + 1}") for x in "ab" for y in "ab"]
    graph = Graph.from_edges(edges)
    assert graph.path_counts[-1] == 2.0**60
    with pytest.raises(InputError, match="has 1,152,921,504,606,846,976 paths, and the limit is 1,000"):
        graph.paths(graph.num_nodes - 1)


def test_a_part_of_a_graph_is_a_graph():
    part = Graph.from_edges([("top", "r"), ("top", "cat"), *EDGES]).below("r")
    assert part == PETS
    with pytest.raises(InputError, match="'cat' is a leaf"):
        PETS.below("cat")


def test_a_tree_keeps_the_first_parent_and_all_classes():
    graph = Graph.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("r", "y")], classes=["y", "x"])
    tree = graph.to_tree()
    assert tree.to_nested() == {"a": {"x": {}}, "y": {}}  # b would be a class of its own
    assert tree.classes == graph.classes == ("y", "x")


@given(graphs())
def test_the_tree_of_all_paths_has_one_node_for_each_path(graph):
    tree, node_of = graph.unroll()
    found = [node_of[[*tree.ancestors(node), node]].tolist() for node in range(tree.num_nodes)]
    wanted = [path for node in range(graph.num_nodes) for path in oracle.paths_to(graph, node)]
    assert sorted(found) == sorted(wanted)
    assert list(tree.names[1:]) == [graph.names[node] for node in node_of[1:]]


def test_a_tree_of_too_many_paths_is_an_error_that_says_how_many_nodes_it_would_have():
    edges = [(f"{x}{level}", f"{y}{level + 1}") for level in range(60) for x in "ab" for y in "ab"]
    graph = Graph.from_edges([("r", "a0"), ("r", "b0"), *edges])
    with pytest.raises(InputError, match=r"the tree of all paths of this graph has .* the limit is 1,000,000"):
        graph.unroll()


@given(graphs())
def test_every_node_of_a_graph_has_a_node_of_the_tree_of_first_parents(graph):
    tree, node_of = graph.to_tree_nodes()
    assert tree == graph.to_tree()
    paths = {tree.path(node) for node in range(tree.num_nodes)}
    for node in range(graph.num_nodes):
        path = graph.path(node)
        while path not in paths:  # the tree lacks inner nodes without a child that they are the first parent of
            path = path[:-1]
        assert tree.path(node_of[node]) == path


def test_what_needs_a_tree_says_so():
    message = "needs a tree, and the taxonomy is a graph: one of its nodes has several parents, such as 'goldfish'"
    for use in (lambda: PETS.parent, lambda: PETS.child_start, lambda: PETS.ancestor_at([3], 1)):
        with pytest.raises(TaxonomyError, match=message):
            use()


def test_a_drawing_opens_each_node_once():
    graph = Graph.from_edges([*EDGES, ("goldfish", "comet")])
    assert graph.render().splitlines()[1:] == [
        "├─ pet (2 classes)",
        "│  ├─ cat",
        "│  └─ goldfish (1 class)",
        "│     └─ comet",
        "└─ fish (2 classes)",
        "   ├─ goldfish (also below pet)",
        "   └─ cod",
    ]


def test_graphs_are_equal_by_content_and_survive_pickling():
    assert pickle.loads(pickle.dumps(PETS)) == PETS
    assert Graph.from_edges([EDGES[0], EDGES[1], *EDGES[2:][::-1]], classes=PETS.classes) != Graph.from_edges(
        EDGES[:-1]
    )
    assert PETS.to_tree() != PETS
    assert am.Graph is Graph


# Files


@pytest.mark.parametrize("suffix", [".json", ".csv", ".tsv", ".obo"])
@given(graph=graphs())
def test_saved_graphs_are_read_again(tmp_path_factory, suffix, graph):
    path = tmp_path_factory.mktemp("graph") / f"g{suffix}"
    texts = {graph.names[1]: 'a "text", with; marks! {and} \\ more'}
    graph = graph.with_texts(texts)
    graph.save(path, lossy=suffix != ".json")
    again = Graph.load(path)
    assert named_edges(again) == named_edges(graph)
    assert again.texts[again.find(graph.names[1])] == texts[graph.names[1]]
    if suffix == ".json":
        assert again == graph
        assert again.names == graph.names
        assert isinstance(load_taxonomy(path), Graph)


def test_a_format_for_trees_refuses_a_graph(tmp_path):
    with pytest.raises(TaxonomyError, match="TXT cannot store nodes with several parents"):
        PETS.save(tmp_path / "g.txt")


def test_a_file_with_several_parents_is_a_graph_and_no_taxonomy(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("parent,child\n" + "\n".join(map(",".join, EDGES)))
    assert Graph.load(path) == PETS
    for load in (Taxonomy.load, load_taxonomy):
        with pytest.raises(TaxonomyError, match=r"'goldfish' has two parents, .*line 5 and line 6.*am\.Graph"):
            load(path)
    PETS.save(tmp_path / "g.json")
    with pytest.raises(TaxonomyError, match=r"node 'goldfish' has several parents .*am\.Graph"):
        Taxonomy.load(tmp_path / "g.json")


OBO = """format-version: 1.2
ontology: toy

[Term]
id: T:1
name: animal

[Term]
id: T:2
name: pet
def: "An animal that \\"lives\\" with people." [book:1]
is_a: T:1 ! animal

[Term]
id: T:3
name: fish
is_a: T:1 {source="x"} ! animal

[Term]
id: T:4
name: goldfish
is_a: T:2 ! pet
is_a: T:3

[Term]
id: T:5
name: old term
is_obsolete: true

[Typedef]
id: part_of
name: part of
"""


def test_an_ontology_is_read(tmp_path):
    path = tmp_path / "toy.obo"
    path.write_text(OBO)
    graph = load_taxonomy(path)
    assert isinstance(graph, Graph)
    assert named_edges(graph) == {("", "T:2"), ("", "T:3"), ("T:2", "T:4"), ("T:3", "T:4")}
    assert graph.texts[graph.find("T:2")] == 'pet. An animal that "lives" with people.'
    assert Graph.load(path, names="name").classes == ("goldfish",)
    assert Graph.load(path, root="T:3").names == ("T:3", "T:4")
    with pytest.raises(TaxonomyError, match=r"toy.obo: node 'T:4' has several parents \(line 19\)"):
        Taxonomy.load(path)
    path.write_text(OBO.replace("is_a: T:3\n", ""))
    assert type(load_taxonomy(path)) is Taxonomy
    assert Taxonomy.load(path).classes == ("T:3", "T:4")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("is_a: T:3\n", "is_a: T:9\n", r"the parent 'T:9' of 'T:4' is not a term; did you mean .* \(line 23\)"),
        ("id: T:3", "id: T:2", r"the id 'T:2' is repeated \(line 8 and line 14\)"),
        ("id: T:3\n", "", r"a term without an id \(line 14\)"),
        ("is_a: T:3\n", "nonsense\n", r"expected 'tag: value', found 'nonsense' \(line 23\)"),
    ],
)
def test_defects_of_an_ontology_are_reported(tmp_path, old, new, message):
    path = tmp_path / "toy.obo"
    path.write_text(OBO.replace(old, new))
    with pytest.raises(TaxonomyError, match=message):
        Graph.load(path)


def test_a_hundred_thousand_nodes_take_seconds():
    rng = np.random.default_rng(0)
    count = 100_000
    parents = [[], *(np.unique(rng.integers(0, node, 2)).tolist() for node in range(1, count))]
    graph = Graph.from_parents(parents)
    assert graph.num_nodes == count
    assert graph.path_counts.max() > 1e5
