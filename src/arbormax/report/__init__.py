"""Reports about runs, and drawings of trees and predictions; each is one self-contained file. numpy only."""

from arbormax.report.html import report_html, write_report
from arbormax.report.prediction import prediction_svg
from arbormax.report.tree import tree_dot, tree_svg
from arbormax.report.tree_difference import tree_difference_svg

__all__ = ["prediction_svg", "report_html", "tree_difference_svg", "tree_dot", "tree_svg", "write_report"]
