"""Conversion from and to networkx and anytree."""

from __future__ import annotations

import sys

import anytree
import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from arbormax import Taxonomy
from arbormax.errors import MissingDependencyError, TaxonomyError
from strategies import NASTY, taxonomies


@given(taxonomies(names=NASTY))
def test_a_taxonomy_round_trips_through_networkx_and_anytree(tax):
    for back in (Taxonomy.from_networkx(tax.to_networkx()), Taxonomy.from_anytree(tax.to_anytree())):
        assert back == tax
        assert back.names[0] == tax.names[0]


@given(taxonomies())
def test_a_graph_contains_node_ids_names_and_class_ids(tax):
    graph = tax.to_networkx()
    assert nx.is_arborescence(graph)
    assert [graph.nodes[node]["name"] for node in range(tax.num_nodes)] == list(tax.names)
    assert {node: data["class_id"] for node, data in graph.nodes.items() if "class_id" in data} == {
        int(leaf): number for number, leaf in enumerate(tax.leaves)
    }
    root = tax.to_anytree()
    for node in anytree.PreOrderIter(root):
        assert tax.path(node.node_id) == tuple(step.name for step in node.path[1:])
        assert tax.class_of[node.node_id] == node.class_id


def test_source_index_follows_the_order_of_the_graph():
    graph = nx.DiGraph([("r", "b"), ("b", "x"), ("r", "a")])
    tax = Taxonomy.from_networkx(graph)
    assert [list(graph.nodes)[index] for index in tax.source_index] == ["r", "b", "a", "x"] == list(tax.names)
    assert tax.classes == ("x", "a")
    assert Taxonomy.from_networkx(graph, classes=["a", "x"]).classes == ("a", "x")


def test_names_are_the_attribute_or_the_node_itself():
    graph = nx.DiGraph([(0, 1), (0, 2)])
    graph.nodes[1]["name"] = "one"
    assert Taxonomy.from_networkx(graph).names == ("0", "one", "2")


def test_class_ids_order_the_classes_if_all_leaves_have_different_ones():
    graph = nx.DiGraph([(0, 1), (0, 2), (0, 3)])
    nx.set_node_attributes(graph, {1: 30, 2: 10, 3: 20}, "class_id")
    assert Taxonomy.from_networkx(graph).classes == ("2", "3", "1")
    graph.nodes[3]["class_id"] = 10
    assert Taxonomy.from_networkx(graph).classes == ("1", "2", "3")


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.Graph([(0, 1)]), "undirected"),
        (nx.DiGraph(), "is empty"),
        (nx.DiGraph([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x")]), "'x' has two parents, 'a' and 'b'"),
        (nx.DiGraph([("r", "a"), ("b", "c"), ("c", "b")]), r"cycle: 'b' → 'c' → 'b'.*node 'b' and node 'c'"),
        (nx.DiGraph([("a", "a")]), "cycle: 'a' → 'a'"),
        (nx.DiGraph([("a", "x"), ("b", "y")]), "2 nodes have no parent: 'a', 'b'; add one root"),
        (nx.MultiDiGraph([("a", "x"), ("a", "x")]), "the edge from 'a' to 'x' is repeated"),
        (nx.DiGraph([("r", ""), ("r", "a")]), "empty name"),
        (nx.DiGraph([("r", 1), ("r", "1")]), "'1' is repeated below the root"),
        ([("a", "x")], "expected a networkx graph, found list"),
    ],
)
def test_a_graph_that_is_not_a_tree_is_an_error(graph, message):
    with pytest.raises(TaxonomyError, match=message):
        Taxonomy.from_networkx(graph)


def test_an_anytree_node_below_others_becomes_the_root():
    top = anytree.Node("top")
    middle = anytree.Node("middle", parent=top)
    anytree.Node("x", parent=middle)
    assert Taxonomy.from_anytree(middle).names == ("middle", "x")


def test_an_invalid_anytree_is_an_error():
    root = anytree.AnyNode()
    anytree.AnyNode(parent=root, name="a")
    anytree.AnyNode(parent=root, name="a")
    with pytest.raises(
        TaxonomyError, match=r"(?s)2 defects.*a node below the root has no name.*'a' is repeated below the root"
    ):
        Taxonomy.from_anytree(root)
    with pytest.raises(TaxonomyError, match="is empty"):
        Taxonomy.from_anytree(anytree.Node("alone"))
    with pytest.raises(TaxonomyError, match="expected an anytree node, found dict"):
        Taxonomy.from_anytree({})


def test_conversion_of_deep_trees_does_not_recurse():
    chain = Taxonomy.from_parents(np.arange(-1, 19_999))
    root = chain.to_anytree()
    assert Taxonomy.from_anytree(root) == chain
    assert Taxonomy.from_networkx(chain.to_networkx()) == chain
    while root.children:  # taken apart from the top: freeing a long chain at once would recurse
        (below,) = root.children
        below.parent = None
        root = below


@pytest.mark.parametrize("package", ["networkx", "anytree"])
def test_a_missing_package_is_named_in_the_error(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    tax = Taxonomy.from_nested(["a"])
    for ask in (getattr(tax, f"to_{package}"), lambda: getattr(Taxonomy, f"from_{package}")(None)):
        with pytest.raises(MissingDependencyError, match=f"needs the package {package}: pip install '{package}'"):
            ask()
