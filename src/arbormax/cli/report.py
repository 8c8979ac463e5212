"""`arbormax report`: one HTML file about one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arbormax.cli import output

NoTexts = Annotated[
    bool,
    typer.Option("--no-texts", help="Write no example texts to the JSON file, so that `arbormax report` shows none."),
]


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Model folders, files of `evaluate --out`, or a folder of `compare --out`. Several runs are compared.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="HTML file; by default report.html next to the first run."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
    max_nodes: Annotated[int, typer.Option(min=10, help="Maximum number of nodes to draw; the others are folded.")] = (
        4000
    ),
) -> None:
    """Write an HTML report: measures, tree, confusions, calibration, thresholds and learning curves.

    The file is self-contained and loads nothing from other addresses. Runs that were evaluated on the same texts are
    compared with paired bootstrap intervals.

    Example: `arbormax report runs/trec-bag-hierarchical runs/trec-bag-flat --out report.html`
    """
    from arbormax.report.html import write_report

    with output.progress_bar("writing the report"):
        written = write_report(runs, out, title=title, max_nodes=max_nodes)
    output.print_result(f"Report written to {written} ({written.stat().st_size / 1e6:.1f} MB).")
