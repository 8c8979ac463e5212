"""The deeper tree of Reuters-52."""

from study.deep_tree import COMMODITIES, deep_r52

from arbormax.data.datasets.trees import R52, tree


def test_the_deeper_tree_of_reuters_has_the_same_classes_under_the_same_categories():
    deep, flat = deep_r52(), tree("r52")
    assert deep.classes == flat.classes
    assert (deep.depth, deep.num_nodes) == (3, flat.num_nodes + len(COMMODITIES))
    for name in flat.classes:
        top, *between, leaf = deep.path(deep.find(name))
        assert (top, leaf) == flat.path(flat.find(name))
        assert between == (
            [g for g, below in COMMODITIES.items() if name in below.split()] if top == "commodities" else []
        )
    assert " ".join(COMMODITIES.values()) == R52["commodities"]
