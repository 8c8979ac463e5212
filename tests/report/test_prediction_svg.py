"""The picture of one prediction, read back as XML."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbormax.errors import InputError
from arbormax.report import prediction_svg, tree_svg
from arbormax.taxonomy import Taxonomy
from strategies import NASTY

SVG = "{http://www.w3.org/2000/svg}"


def node(number, name, parent, depth, probability, conditional, on_path=False, children=0, hidden=0, rest=0.0):
    return {
        "node": number,
        "name": name,
        "label": name,
        "parent": parent,
        "depth": depth,
        "probability": probability,
        "conditional": conditional,
        "on_path": on_path,
        "classes": max(children, 1),
        "children": children,
        "hidden": hidden,
        "hidden_probability": rest,
    }


def explanation(first="LOC", second="city", stopped=2):
    """As `explain` gives it, words left out."""
    nodes = [
        node(0, "root", None, 0, 1.0, 1.0, True, 3, 1, 0.02),
        node(1, first, 0, 1, 0.8, 0.8, True, 15, 12, 0.004),
        node(2, "HUM", 0, 1, 0.18, 0.18, children=4, hidden=4, rest=0.18),
        node(7, second, 1, 2, 0.6, 0.75, True),
        node(8, "state", 1, 2, 0.15, 0.1875),
        node(9, "lake", 1, 2, 0.046, 0.0575),
    ]
    answer = (0, 1, 7)[stopped]
    return {"label": second, "node": answer, "nodes": nodes, "steps": [], "stopped_at": stopped}


def read(drawing: str) -> ET.Element:
    root = ET.fromstring(drawing)
    assert root.get("role") == "img"
    assert "<script" not in drawing
    assert "prefers-color-scheme: dark" in root.findtext(SVG + "style")
    assert re.findall(r"https?://[^\"' ]*", drawing) == ["http://www.w3.org/2000/svg"]
    return root


def texts(root: ET.Element) -> list[str]:
    return ["".join(text.itertext()) for text in root.iter(SVG + "text")]


def test_every_edge_has_its_probability_and_every_node_its_name():
    lines = texts(read(prediction_svg(explanation(), "Where is it?")))
    assert {"80.0 %", "18.0 %", "75.0 %", "18.8 %", "5.8 %"} <= set(lines)
    assert {"root", "LOC", "HUM", "Where is it?"} <= set(lines)
    assert any(line.startswith("city") and "60.0 %" in line and "the answer" in line for line in lines)


def test_hidden_children_are_summed_up():
    lines = texts(read(prediction_svg(explanation())))
    assert "… 12 more (0.4 %)" in lines
    assert "… 1 more (2.0 %)" in lines
    assert not any("4 more" in line for line in lines)  # below a node that is off the path


def test_the_path_differs_in_more_than_its_colour():
    root = read(prediction_svg(explanation(stopped=1)))
    path = [edge for edge in root.iter(SVG + "path") if "c0" in edge.get("class")]
    assert len(path) == 2
    assert [edge.get("stroke-dasharray") is None for edge in path] == [True, False]  # it stops at the answer
    bold = {text.text for text in root.iter(SVG + "text") if text.get("class") == "strong"}
    assert bold == {"root", "LOC", "city"}


def test_a_more_probable_edge_is_thicker():
    root = read(prediction_svg(explanation()))
    thick = [float(re.search(r"stroke-width:([\d.]+)px", edge.get("style"))[1]) for edge in root.iter(SVG + "path")]
    assert max(thick) == 4.2
    assert min(thick) == 1.0


@given(NASTY, NASTY, NASTY)
def test_any_name_and_title_give_valid_xml_inside_the_picture(first, second, title):
    root = read(prediction_svg(explanation(first, second), title))
    width, height = (float(root.get(name)) for name in ("width", "height"))
    for text in root.iter(SVG + "text"):
        assert 0 <= float(text.get("x")) <= width
        assert 0 <= float(text.get("y")) <= height


def test_markup_in_a_name_is_text():
    drawing = prediction_svg(explanation("<script>alert(1)</script>", '"><b>&'), "<script>")
    lines = texts(read(drawing))
    assert "<script>alert(1)</script>" in lines
    assert any(line.startswith('"><b>&') for line in lines)


@pytest.mark.parametrize("wrong", [{}, {"nodes": []}, {**explanation(), "nodes": []}, {**explanation(), "nodes": [1]}])
def test_anything_but_an_explanation_raises_an_error(wrong):
    with pytest.raises(InputError, match="expected an explanation"):
        prediction_svg(wrong)


@given(st.integers(1, 60))
def test_a_tree_folds_to_the_given_number_of_lines(rows):
    tax = Taxonomy.from_nested({"a": [f"x{i}" for i in range(30)], "b": {"c": [f"y{i}" for i in range(20)]}})
    ends = [text for text in read(tree_svg(tax, max_leaves=rows)).iter(SVG + "text") if text.get("class") != "strong"]
    assert len(ends) <= rows
