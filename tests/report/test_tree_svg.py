"""Drawings of class trees, read back as XML."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbormax import Graph, Taxonomy
from arbormax.data.datasets.trees import tree
from arbormax.errors import OptionError
from arbormax.report import tree_svg
from strategies import NASTY, taxonomies
from svg_checks import SVG, assert_inside, names, parse, shown, texts

UNEVEN = {"comp": ["graphics", {"sys": ["ibm", {"mac": ["old", "new"]}]}], "sci": ["med"], "misc": None}


@pytest.mark.parametrize("name", ["trec", "r52", "r8", "20ng"])
def test_every_name_of_the_papers_trees_is_drawn_once(name):
    tax = tree(name)
    root = parse(tree_svg(tax, "A title"))
    assert sorted(names(root, "leaf")) == sorted(tax.classes)
    assert names(root, "strong") == [name for node, name in enumerate(tax.names) if not tax.is_leaf[node]]
    assert root.get("aria-label") == "A title"
    assert_inside(root)


def test_inner_nodes_show_the_number_of_leaves_below_them():
    root = parse(tree_svg(Taxonomy.from_nested(UNEVEN)))
    notes = {shown(text): text.findtext(SVG + "tspan") for text in texts(root, "strong")}
    assert notes == {"root": "6 leaves", "comp": "4", "sys": "3", "mac": "2", "sci": "1"}


def test_a_node_of_a_graph_is_drawn_once_for_each_path():
    root = parse(tree_svg(Graph.from_paths(["pet/cat", "pet/goldfish", "fish/goldfish", "fish/cod"])))
    assert names(root, "strong") == ["root", "pet", "fish"]
    assert names(root, "leaf") == ["cat", "goldfish", "goldfish", "cod"]
    assert root.get("aria-label") == "Class graph of 3 leaves, depth 2"


@given(taxonomies())
def test_levels_are_columns_and_leaves_have_a_line_each(tax):
    root = parse(tree_svg(tax))
    leaves = texts(root, "leaf")
    assert len(leaves) == tax.num_leaves
    heights = sorted(float(leaf.get("y")) for leaf in leaves)
    assert (np.diff(heights) >= 18 - 1e-6).all()
    assert len({text.get("x") for text in texts(root)}) == tax.depth + 1
    assert_inside(root)


@given(taxonomies(), st.integers(1, 24))
def test_folding_respects_the_number_of_lines_and_loses_no_leaf(tax, rows):
    root = parse(tree_svg(tax, max_leaves=rows))
    leaves, more = names(root, "leaf"), [name for name in names(root, "muted") if name.startswith("… and")]
    notes = [text.findtext(SVG + "tspan") for text in texts(root, "strong")]
    folded = [note for note in notes if note.endswith("…")]
    assert len(leaves) + len(more) + len(folded) <= rows
    hidden = sum(int(re.search(r"\d+", text)[0]) for text in more + folded)
    assert len(leaves) + hidden == tax.num_leaves
    assert hidden == 0 or tax.num_leaves > rows


@given(taxonomies(), st.integers(1, 24), st.integers(1, 4), st.integers(1, 4))
def test_folding_respects_depth_and_number_of_children_and_loses_no_leaf(tax, rows, depth, children):
    root = parse(tree_svg(tax, max_leaves=rows, depth=depth, max_children=children))
    leaves, more = names(root, "leaf"), [name for name in names(root, "muted") if name.startswith("… and")]
    notes = [text.findtext(SVG + "tspan") for text in texts(root, "strong")]
    folded = [note for note in notes if note.endswith("…")]
    assert len(leaves) + len(more) + len(folded) <= rows
    assert len(leaves) + sum(int(re.search(r"\d+", text)[0]) for text in more + folded) == tax.num_leaves
    assert len({text.get("x") for text in texts(root)}) <= depth + 1


def test_a_picture_can_be_cut_below_a_level_or_after_some_children():
    root = parse(tree_svg(tree("trec"), depth=1))
    assert sorted(names(root, "strong")[1:]) == ["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"]
    assert not names(root, "leaf")
    root = parse(tree_svg(tree("trec"), max_children=2))
    assert names(root)[:5] == ["root", "ABBR", "ABBR:abb", "ABBR:exp", "ENTY"]
    assert names(root)[7:] == ["… and 20 more", "… and 26 more"]
    for wrong in ({"depth": 0}, {"max_children": 0}):
        with pytest.raises(OptionError, match=f"{next(iter(wrong))}: expected at least 1"):
            tree_svg(tree("trec"), **wrong)


def test_a_large_category_is_folded_before_a_small_one():
    root = parse(tree_svg(tree("r52"), max_leaves=20))
    assert {"earn", "acq", "dlr", "crude", "… and 26 more"} <= set(names(root))
    assert "cotton" not in names(root)


def test_a_subtree_with_a_single_line_is_its_name_with_an_ellipsis():
    root = parse(tree_svg(tree("r52"), max_leaves=3))
    assert names(root)[1:] == ["corporate", "commodities", "… and 19 more"]
    assert [text.findtext(SVG + "tspan") for text in texts(root, "strong")] == ["52 leaves", "2 …", "31 …"]


def test_a_tree_of_very_many_leaves_stays_small():
    assert len(tree_svg(Taxonomy.from_nested({"a": [str(leaf) for leaf in range(20_000)]}), max_leaves=50)) < 10_000


@given(taxonomies(max_nodes=8, names=NASTY))
def test_any_name_gives_valid_xml(tax):
    drawing = tree_svg(tax, title="".join(tax.names))
    assert len(texts(parse(drawing), "leaf")) == tax.num_leaves
    drawing.encode("utf-8")


def test_names_are_escaped_and_lose_control_characters():
    tax = Taxonomy.from_nested(['<b a="1">&amp;', "be\x07ll", "two\nlines", "\x01", "\u202eright to left"])
    root = parse(tree_svg(tax, "R & <D>"))
    assert names(root, "leaf") == ['<b a="1">&amp;', "bell", "two lines", "(unnamed)", "right to left"]
    assert names(root, "title") == ["R & <D>"]


def test_a_long_name_is_cut_with_the_whole_name_in_a_tooltip():
    long = "a name that goes on and on " * 20 + "to its end"
    (leaf,) = texts(parse(tree_svg(Taxonomy.from_nested([long]))), "leaf")
    assert shown(leaf).endswith("…")
    assert len(shown(leaf)) < 60
    assert leaf.findtext(SVG + "title") == long


def test_a_long_title_is_wrapped():
    root = parse(tree_svg(tree("r8"), "many words " * 20))
    assert len(names(root, "title")) > 2
    assert " ".join(names(root, "title")) == ("many words " * 20).strip()


def test_max_leaves_must_be_positive():
    with pytest.raises(OptionError, match="max_leaves: expected at least 1, found 0"):
        tree_svg(tree("r8"), max_leaves=0)


def test_the_same_tree_gives_the_same_bytes():
    assert tree_svg(Taxonomy.from_nested(UNEVEN), "T") == tree_svg(Taxonomy.from_nested(UNEVEN), "T")
