"""The triplet distance of two trees, against enumeration."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbormax import Taxonomy
from arbormax.errors import LabelError
from arbormax.taxonomy.distance import shared_groups, triplet_distance


@st.composite
def trees(draw, classes: int) -> Taxonomy:
    """Trees over the classes c0, c1, … with only children and any number of children."""
    labels = draw(st.permutations([f"c{i}" for i in range(classes)]))
    names = iter(range(10_000))

    def nest(own: list[str]):
        if len(own) == 1:
            return {f"n{next(names)}": own} if draw(st.booleans()) else own[0]
        cuts = draw(st.lists(st.integers(1, len(own) - 1), unique=True, max_size=3))
        bounds = [0, *sorted(cuts), len(own)]
        if not cuts:
            return {f"n{next(names)}": list(own)}
        parts = [own[a:b] for a, b in pairwise(bounds)]
        return {f"n{next(names)}": [nest(part) for part in parts]}

    tree = nest(list(labels))
    return Taxonomy.from_nested(tree if isinstance(tree, dict) else [tree], classes=[f"c{i}" for i in range(classes)])


sizes = st.shared(st.integers(1, 8), key="classes")
trees_of_one_size = sizes.flatmap(lambda classes: trees(classes))


def grouping(tax: Taxonomy, triple: tuple[int, ...]) -> tuple[int, int] | None:
    """The two of three classes that the tree puts closer together."""
    depth = {
        pair: tax.node_depth[tax.lca(int(tax.leaves[pair[0]]), int(tax.leaves[pair[1]]))]
        for pair in combinations(triple, 2)
    }
    best = [pair for pair in depth if depth[pair] == max(depth.values())]
    return best[0] if len(best) == 1 else None


def groups(tax: Taxonomy) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(tax.lca(tax.leaves, node) == node).tolist()) for node in range(tax.num_nodes)}


@given(a=trees_of_one_size, b=trees_of_one_size)
def test_the_distance_is_the_share_of_triples_that_differ(a, b):
    triples = list(combinations(range(a.num_leaves), 3))
    different = sum(grouping(a, triple) != grouping(b, triple) for triple in triples)
    assert triplet_distance(a, b) == pytest.approx(different / len(triples) if triples else 0.0)


@given(a=trees_of_one_size, b=trees_of_one_size)
def test_the_distance_is_symmetric_and_zero_only_for_equal_groups(a, b):
    assert triplet_distance(a, b) == triplet_distance(b, a)
    if a.num_leaves > 2:
        assert (triplet_distance(a, b) == 0) == (groups(a) == groups(b))


@given(a=trees_of_one_size, b=trees_of_one_size, c=trees_of_one_size)
def test_the_triangle_inequality_holds(a, b, c):
    assert triplet_distance(a, c) <= triplet_distance(a, b) + triplet_distance(b, c) + 1e-12


@given(a=trees_of_one_size, b=trees_of_one_size, data=st.data())
def test_names_of_inner_nodes_and_the_order_of_classes_do_not_count(a, b, data):
    names = [name if a.is_leaf[node] else f"other {node}" for node, name in enumerate(a.names)]
    order = data.draw(st.permutations(a.classes))
    renamed = Taxonomy.from_parents(a.parent, names, classes=order)
    assert triplet_distance(renamed, b) == triplet_distance(a, b)


@given(a=trees_of_one_size, b=trees_of_one_size)
def test_the_most_similar_node_has_the_largest_share_of_common_classes(a, b):
    def below(tax: Taxonomy, node: int) -> set[int]:
        return set(np.flatnonzero(tax.lca(tax.leaves, node) == node).tolist())

    nodes, shares = shared_groups(a, b)
    for node in range(a.num_nodes):
        own = below(a, node)
        similar = [len(own & below(b, other)) / len(own | below(b, other)) for other in range(b.num_nodes)]
        assert shares[node] == pytest.approx(max(similar))
        assert similar[nodes[node]] == pytest.approx(max(similar))


def test_a_large_tree_is_compared_exactly():
    a = Taxonomy.from_paths([(str(i // 1000), str(i // 50), f"c{i}") for i in range(20_000)])
    b = Taxonomy.from_paths([(f"c{i}",) for i in range(20_000)])
    resolved = sum(n * (n - 1) // 2 * (20_000 - n) for n in [1000] * 20)
    resolved += 400 * (50 * 49 // 2) * 950  # of three classes below one of the 20 nodes, two are below one of the 400
    assert triplet_distance(a, b) == pytest.approx(resolved / (20_000 * 19_999 * 19_998 / 6))


def test_trees_with_different_classes_are_not_compared():
    with pytest.raises(LabelError, match="'y' is a class of the first tree only") as caught:
        triplet_distance(Taxonomy.from_nested(["x", "y"]), Taxonomy.from_nested(["x", "z"]))
    assert len(caught.value.problems) == 2
