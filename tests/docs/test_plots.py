"""The figures of docs and experiments: curves and intervals, read back as XML."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interval_plot import Interval, intervals_svg
from line_plot import Curve, curves_svg, panels_svg

from arbormax.errors import InputError, OptionError
from svg_checks import SVG, assert_inside, names, parse

RISING = Curve([1, 2, 3, 4], [0.2, 0.5, 0.6, 0.65], [0.1, 0.45, 0.5, 0.6], [0.3, 0.6, 0.7, 0.7], mark=3)
ROWS = [
    Interval("tree − flat", "TREC", 1.2, 0.3, 2.1),
    Interval("shared − flat", "TREC", 0.1, -0.6, 0.8),
    Interval("tree − flat", "R52", -2.0, -3.1, -0.9),
]
NUMBERS = st.floats(-1e100, 1e100, allow_subnormal=True)


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


def test_the_dot_is_on_the_line():
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


def test_panels_share_one_legend_and_the_style_of_each_name():
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
        (Curve([1, 2], [0.1, float("nan")]), "mean: found nan at position 1"),
        (Curve([1, float("inf")], [0.1, 0.2]), "x: found inf at position 1"),
        (Curve([1, 1], [0.1, 0.2]), "expected increasing x"),
        (Curve([1, 2], [0.1, 0.2], low=[0.0, 0.1]), "only one of them"),
        (Curve([1, 2], [0.1, 0.2], [0.0], [0.3]), "as many values in low"),
        (Curve([1, 2], [0.1, 0.2], [0.0, 0.4], [0.3, 0.3]), "low is above high at x = 2"),
        (Curve([1, 2], [0.1, 0.2], mark=5), "the mark 5 is outside its x, 1 to 2"),
        (Curve(["one"], [0.1]), "expected numbers"),
    ],
)
def test_the_error_for_an_invalid_curve_names_it(curve, message):
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
    with pytest.raises(OptionError, match="columns: expected at least 1"):
        panels_svg({"TREC": {"flat": RISING}}, columns=0)


def test_intervals_are_listed_below_the_names_of_their_groups():
    root = parse(intervals_svg([ROWS[0], ROWS[2], ROWS[1]], "Forest", x="points of F1"))
    assert names(root, "strong") == ["TREC", "R52"]
    order = [name for name in names(root) if name in {"TREC", "R52"} or "flat" in name]
    assert order == ["TREC", "tree − flat", "shared − flat", "R52", "tree − flat"]
    assert {"points of F1", "+1.2 [+0.3, +2.1]", "−2.0 [−3.1, −0.9]"} <= set(names(root))
    assert_inside(root)


def test_an_interval_that_contains_zero_has_a_hollow_dot():
    root = parse(intervals_svg(ROWS))
    assert [dot.get("class") for dot in root.iter(SVG + "circle")] == ["dot c0", "ring c4", "dot c1"]
    assert any(name.startswith("hollow") for name in names(root))
    assert not any(name.startswith("hollow") for name in names(parse(intervals_svg(ROWS[:1]))))


def test_the_error_for_an_invalid_interval_names_it():
    with pytest.raises(InputError, match="interval 'a' of 'G': low, 2, is above high, 1"):
        intervals_svg([Interval("a", "G", 1.5, 2.0, 1.0)])
    with pytest.raises(InputError, match="interval 'a': found nan"):
        intervals_svg([Interval("a", "", float("nan"), 0.0, 1.0)])


def test_the_same_input_gives_the_same_bytes():
    for draw in (
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
