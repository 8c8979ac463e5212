"""The drawing of where two trees differ."""

from hypothesis import given
from hypothesis import strategies as st

import arbormax as am
from arbormax.induce import shuffle_classes
from arbormax.report import tree_difference_svg
from strategies import NASTY, taxonomies
from svg_checks import SVG, names, parse, texts


def notes(drawing: str) -> dict[str, str]:
    """The note of each inner node."""
    found = [(text.text, text.findtext(SVG + "tspan")) for text in texts(parse(drawing), "strong")]
    return {name: note for name, note in found if note}


def test_equal_groups_are_marked_as_equal_and_others_with_their_share():
    a = am.Taxonomy.from_nested({"p": ["u", "v"], "q": ["w", "x", "y", "z"]})
    b = am.Taxonomy.from_nested({"left": {"first": ["u", "v"], "second": ["w", "x"]}, "right": ["y", "z"]})
    drawing = tree_difference_svg(a, b, "Two trees")
    found = notes(drawing)
    assert found["p"] == "= first"
    assert found["q"].startswith("66.7") or found["q"].startswith("50")
    assert names(parse(drawing), "differs") == ["q"]


@given(tax=taxonomies(names=st.one_of(NASTY)), seed=st.integers(0, 3))
def test_every_tree_can_be_drawn(tax, seed):
    parse(tree_difference_svg(tax, tax))
    parse(tree_difference_svg(tax, shuffle_classes(tax, seed), "shuffled"))


def test_a_large_tree_is_folded():
    tax = am.Taxonomy.from_paths([(str(i // 20), f"c{i}") for i in range(1000)])
    drawing = tree_difference_svg(tax, shuffle_classes(tax), max_leaves=60)
    assert len(texts(parse(drawing))) < 130
