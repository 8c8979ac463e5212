"""Reports and drawings of trees, predictions, learning curves and intervals, each self-contained. numpy only."""

from arbormax.report.curves import Curve, curves_svg, panels_svg
from arbormax.report.dot import tree_dot
from arbormax.report.html import report_html, write_report
from arbormax.report.intervals import Interval, intervals_svg
from arbormax.report.prediction import prediction_svg
from arbormax.report.tree import tree_svg

__all__ = [
    "Curve",
    "Interval",
    "curves_svg",
    "intervals_svg",
    "panels_svg",
    "prediction_svg",
    "report_html",
    "tree_dot",
    "tree_svg",
    "write_report",
]
