"""Drawings of trees, learning curves and intervals as self-contained SVG text. numpy only."""

from arbormax.report.curves import Curve, curves_svg, panels_svg
from arbormax.report.intervals import Interval, intervals_svg
from arbormax.report.tree import tree_svg

__all__ = ["Curve", "Interval", "curves_svg", "intervals_svg", "panels_svg", "tree_svg"]
