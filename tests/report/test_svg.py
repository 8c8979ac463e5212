"""The drawings, read back as XML."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbormax import Taxonomy
from arbormax.data.datasets.trees import tree
from arbormax.errors import InputError, OptionError
from arbormax.report import Curve, Interval, curves_svg, intervals_svg, panels_svg, tree_svg
from strategies import NASTY, taxonomies

SVG = "{http://www.w3.org/2000/svg}"
UNEVEN = {"comp": ["graphics", {"sys": ["ibm", {"mac": ["old", "new"]}]}], "sci": ["med"], "misc": None}
RISING = Curve([1, 2, 3, 4], [0.2, 0.5, 0.6, 0.65], [0.1, 0.45, 0.5, 0.6], [0.3, 0.6, 0.7, 0.7], mark=3)
ROWS = [
    Interval("tree − flat", "TREC", 1.2, 0.3, 2.1),
    Interval("shared − flat", "TREC", 0.1, -0.6, 0.8),
    Interval("tree − flat", "R52", -2.0, -3.1, -0.9),
]
NUMBERS = st.floats(-1e100, 1e100, allow_subnormal=True)


def parse(drawing: str) -> ET.Element:
    """The root element, once what holds for every drawing has been seen to hold."""
    root = ET.fromstring(drawing)
    assert root.tag == SVG + "svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == root.findtext(SVG + "title") != ""
    assert "prefers-color-scheme: dark" in root.findtext(SVG + "style")
    assert "<script" not in drawing
    assert re.findall(r"https?://[^\"' ]*", drawing) == ["http://www.w3.org/2000/svg"]
    assert min(map(int, re.findall(r"font-size:(\d+)px", drawing))) >= 11
    body = drawing.split("</style>")[1]
    assert not [
        found for found in re.findall(r"\d+\.\d+", re.sub(r">[^<]*<", "><", body)) if len(found.split(".")[1]) > 1
    ]
    return root


def texts(root: ET.Element, css: str = "") -> list[ET.Element]:
    return [text for text in root.iter(SVG + "text") if css in text.get("class", "").split() or not css]


def shown(text: ET.Element) -> str:
    """What stands on the page: the tooltip and the grey note left out."""
    title = text.find(SVG + "title")
    return (text.text or "") if title is None else title.tail or ""


def names(root: ET.Element, css: str = "") -> list[str]:
    return [shown(text) for text in texts(root, css)]


def box(root: ET.Element) -> tuple[float, float]:
    left, top, width, height = map(float, root.get("viewBox").split())
    assert (left, top) == (0, 0)
    return width, height


def places(root: ET.Element) -> list[tuple[float, float]]:
    """Every point that a path, a circle or a text stands at, with the panels' shifts added."""
    found = []

    def walk(element: ET.Element, dx: float, dy: float) -> None:
        if moved := re.match(r"translate\((\S+) (\S+)\)", element.get("transform", "")):
            dx, dy = dx + float(moved[1]), dy + float(moved[2])
        if element.tag == SVG + "path":
            found.extend(
                (dx + float(x), dy + float(y)) for x, y in re.findall(r"[ML](\S+?) ([-\d.]+)", element.get("d"))
            )
        for across, down in (("cx", "cy"), ("x", "y")):
            if across in element.attrib:
                found.append((dx + float(element.get(across)), dy + float(element.get(down))))
        for child in element:
            walk(child, dx, dy)

    walk(root, 0.0, 0.0)
    return found


def assert_inside(root: ET.Element) -> None:
    width, height = box(root)
    points = places(root)
    assert points
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)


# ---------------------------------------------------------------------- trees


@pytest.mark.parametrize("name", ["trec", "r52", "r8", "20ng"])
def test_every_name_of_the_papers_trees_is_drawn_once(name):
    tax = tree(name)
    root = parse(tree_svg(tax, "A title"))
    assert sorted(names(root, "leaf")) == sorted(tax.classes)
    assert names(root, "strong") == [name for node, name in enumerate(tax.names) if not tax.is_leaf[node]]
    assert root.get("aria-label") == "A title"
    assert_inside(root)


def test_inner_nodes_tell_the_number_of_leaves_below_them():
    root = parse(tree_svg(Taxonomy.from_nested(UNEVEN)))
    notes = {shown(text): text.findtext(SVG + "tspan") for text in texts(root, "strong")}
    assert notes == {"root": "6 leaves", "comp": "4", "sys": "3", "mac": "2", "sci": "1"}


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
def test_folding_keeps_to_the_number_of_lines_and_loses_no_leaf(tax, rows):
    root = parse(tree_svg(tax, max_leaves=rows))
    leaves, more = names(root, "leaf"), [name for name in names(root, "muted") if name.startswith("… and")]
    notes = [text.findtext(SVG + "tspan") for text in texts(root, "strong")]
    folded = [note for note in notes if note.endswith("…")]
    assert len(leaves) + len(more) + len(folded) <= rows
    hidden = sum(int(re.search(r"\d+", text)[0]) for text in more + folded)
    assert len(leaves) + hidden == tax.num_leaves
    assert hidden == 0 or tax.num_leaves > rows


@given(taxonomies(), st.integers(1, 24), st.integers(1, 4), st.integers(1, 4))
def test_folding_keeps_to_the_depth_and_the_number_of_children_and_loses_no_leaf(tax, rows, depth, children):
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
        with pytest.raises(OptionError, match=f"{next(iter(wrong))} is at least 1"):
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


def test_a_long_name_is_cut_and_stands_whole_in_a_tooltip():
    long = "a name that goes on and on " * 20 + "to its end"
    (leaf,) = texts(parse(tree_svg(Taxonomy.from_nested([long]))), "leaf")
    assert shown(leaf).endswith("…")
    assert len(shown(leaf)) < 60
    assert leaf.findtext(SVG + "title") == long


def test_a_long_title_is_wrapped():
    root = parse(tree_svg(tree("r8"), "many words " * 20))
    assert len(names(root, "title")) > 2
    assert " ".join(names(root, "title")) == ("many words " * 20).strip()


def test_max_leaves_has_to_be_positive():
    with pytest.raises(OptionError, match="max_leaves is at least 1, found 0"):
        tree_svg(tree("r8"), max_leaves=0)


# --------------------------------------------------------------------- curves


def test_curves_have_lines_bands_dots_and_names():
    root = parse(
        curves_svg({"flat <1>": RISING, "tree": RISING._replace(low=None, high=None, mark=None)}, "T", x="step")
    )
    paths = [path.get("class").split()[0] for path in root.iter(SVG + "path")]
    assert (paths.count("line"), paths.count("band")) == (4, 1)  # two lines and their samples in the legend
    assert len(list(root.iter(SVG + "circle"))) == 1
    assert {"flat <1>", "tree", "step", "validation macro-F1", "T"} <= set(names(root))
    assert_inside(root)


def test_no_two_curves_look_alike():
    root = parse(curves_svg({str(number): RISING._replace(low=None, high=None) for number in range(35)}))
    looks = [(path.get("class"), path.get("stroke-dasharray")) for path in root.iter(SVG + "path")]
    lines = [look for look in looks if look[0].startswith("line")]
    assert len(lines) == 70
    assert len(set(lines)) == 35
    with pytest.raises(InputError, match="36 curves"):
        curves_svg({str(number): RISING for number in range(36)})


def test_the_entries_of_a_legend_do_not_overlap():
    series = {f"a rather long name of a method {number}" * (1 + number % 3): RISING for number in range(12)}
    root = parse(curves_svg(series))
    samples = [path.get("d") for path in root.iter(SVG + "path") if "h30" in path.get("d")]
    entries = [tuple(map(float, re.match(r"M(\S+) (\S+)h30", sample).groups())) for sample in samples]
    assert len(entries) == 12
    assert_inside(root)
    for (x, y), (next_x, next_y), name in zip(entries, entries[1:], series, strict=False):
        assert next_y >= y + 20 or next_x > x + 30 + 6 * min(len(name), 40)


def test_the_dot_stands_on_the_line():
    root = parse(curves_svg({"a": Curve([1, 2, 4], [0.0, 1.0, 0.0], mark=3)}))
    (line,) = [
        path.get("d")
        for path in root.iter(SVG + "path")
        if path.get("class").startswith("line") and "L" in path.get("d")
    ]
    points = np.array([list(map(float, point.split())) for point in line[1:].split("L")])
    (dot,) = root.iter(SVG + "circle")
    assert float(dot.get("cx")) == pytest.approx(points[1:, 0].mean(), abs=0.11)
    assert float(dot.get("cy")) == pytest.approx(points[1:, 1].mean(), abs=0.11)


def test_epochs_have_whole_ticks():
    labels = names(parse(curves_svg({"a": Curve([1, 2, 3], [0.5, 0.6, 0.7])})), "middle")
    assert labels[:3] == ["1", "2", "3"]


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5, unique_by=lambda point: point[0]))
def test_any_numbers_are_drawn_inside_the_picture(points):
    points.sort()
    xs, ys = zip(*points, strict=True)
    assert_inside(parse(curves_svg({"a": Curve(xs, ys, ys, ys, mark=xs[0])})))
    assert_inside(parse(intervals_svg([Interval(str(x), "g", y, min(x, y), max(x, y)) for x, y in points])))


def test_panels_share_one_legend_and_the_look_of_a_name():
    panels = {"TREC": {"flat": RISING, "tree": RISING}, "R52": {"tree": RISING}, "R8": {"flat": RISING}}
    root = parse(panels_svg(panels, "Three", columns=2))
    for name in ("flat", "tree", "TREC", "R52", "R8", "Three"):
        assert names(root).count(name) == 1
    assert names(root).count("epoch") == 2  # below the lowest plot of each column
    groups = list(root.iter(SVG + "g"))
    looks = [[path.get("class") for path in group if path.get("class", "").startswith("line")] for group in groups]
    assert looks == [["line c0", "line c1"], ["line c1"], ["line c0"]]
    assert_inside(root)


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        (Curve([], []), "at least one x"),
        (Curve([1, 2], [0.1]), "as many values in mean as in x, 2"),
        (Curve([1, 2], [0.1, float("nan")]), "mean: found nan at place 1"),
        (Curve([1, float("inf")], [0.1, 0.2]), "x: found inf at place 1"),
        (Curve([1, 1], [0.1, 0.2]), "expected x to rise"),
        (Curve([1, 2], [0.1, 0.2], low=[0.0, 0.1]), "only one of them"),
        (Curve([1, 2], [0.1, 0.2], [0.0], [0.3]), "as many values in low"),
        (Curve([1, 2], [0.1, 0.2], [0.0, 0.4], [0.3, 0.3]), "low lies above high at x = 2"),
        (Curve([1, 2], [0.1, 0.2], mark=5), "the mark 5 lies outside its x, 1 to 2"),
        (Curve(["one"], [0.1]), "expected numbers"),
    ],
)
def test_a_bad_curve_is_named_with_its_fault(curve, message):
    with pytest.raises(InputError, match=rf"curve 'bad'.*{message}"):
        curves_svg({"good": RISING, "bad": curve})
    with pytest.raises(InputError, match=rf"curve 'bad' of panel 'P'.*{message}"):
        panels_svg({"P": {"bad": curve}})


def test_nothing_to_draw_is_an_error():
    with pytest.raises(InputError, match="series is empty"):
        curves_svg({})
    with pytest.raises(InputError, match="panels is empty"):
        panels_svg({})
    with pytest.raises(InputError, match=r"panels \['R8'\]"):
        panels_svg({"TREC": {"flat": RISING}, "R8": {}})
    with pytest.raises(InputError, match="rows is empty"):
        intervals_svg([])
    with pytest.raises(OptionError, match="columns is at least 1"):
        panels_svg({"TREC": {"flat": RISING}}, columns=0)


# ------------------------------------------------------------------ intervals


def test_intervals_stand_below_the_names_of_their_groups():
    root = parse(intervals_svg([ROWS[0], ROWS[2], ROWS[1]], "Forest", x="points of F1"))
    assert names(root, "strong") == ["TREC", "R52"]
    order = [name for name in names(root) if name in {"TREC", "R52"} or "flat" in name]
    assert order == ["TREC", "tree − flat", "shared − flat", "R52", "tree − flat"]
    assert {"points of F1", "+1.2 [+0.3, +2.1]", "−2.0 [−3.1, −0.9]"} <= set(names(root))
    assert_inside(root)


def test_an_interval_that_holds_zero_has_a_hollow_dot():
    root = parse(intervals_svg(ROWS))
    assert [dot.get("class") for dot in root.iter(SVG + "circle")] == ["dot c0", "ring c4", "dot c1"]
    assert any(name.startswith("hollow") for name in names(root))
    assert not any(name.startswith("hollow") for name in names(parse(intervals_svg(ROWS[:1]))))


def test_a_bad_interval_is_named_with_its_fault():
    with pytest.raises(InputError, match="interval 'a' of 'G': low, 2, lies above high, 1"):
        intervals_svg([Interval("a", "G", 1.5, 2.0, 1.0)])
    with pytest.raises(InputError, match="interval 'a': found nan"):
        intervals_svg([Interval("a", "", float("nan"), 0.0, 1.0)])


def test_the_same_input_gives_the_same_bytes():
    for draw in (
        lambda: tree_svg(Taxonomy.from_nested(UNEVEN), "T"),
        lambda: panels_svg({"P": {"a": RISING}, "Q": {"a": RISING}}),
        lambda: intervals_svg(ROWS),
    ):
        assert draw() == draw()


def test_logarithmic_axes_have_powers_of_ten():
    drawn = curves_svg({"a": Curve([1e3, 1e5, 1e7], [0.1, 1, 200]), "b": Curve([1e3], [5])}, x="classes", log=True)
    for label in ("1,000", "10,000", "10⁵", "10⁶", "10⁷", "0.1", "100"):
        assert f">{label}<" in drawn
    heights = [float(place.split()[1]) for place in drawn.split('class="line c0" d="M')[-1].split('"')[0].split("L")]
    assert heights[0] > heights[1] > heights[2]
    with pytest.raises(InputError, match="above 0"):
        curves_svg({"a": Curve([0, 1], [1, 2])}, log=True)
    assert "10⁻⁵" in curves_svg({"a": Curve([2e-5], [2e-5])}, log=True)
