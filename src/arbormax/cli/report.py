"""`arbormax report`: one HTML file that shows how good a model is, and where it goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arbormax.cli import output

NoTexts = Annotated[
    bool,
    typer.Option("--no-texts", help="Keep example texts out of the JSON, and so out of `arbormax report`."),
]


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Model folders, files of `evaluate --out`, or a folder of `compare --out`; several are compared.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The HTML file; report.html beside the first run by default.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
    max_nodes: Annotated[int, typer.Option(min=10, help="Nodes of the tree that are drawn; the others are folded.")] = (
        4000
    ),
) -> None:
    """Write one HTML file to look at: the tree, confusions, calibration, what is answered at which certainty.

    It holds everything it needs, opens from disk, loads nothing from elsewhere and is made without torch. With a flat
    and a hierarchical run on the same texts it tells how sure their difference is.

    Example: `arbormax report runs/trec-bag-hierarchical runs/trec-bag-flat --out report.html`
    """
    from arbormax.report.html import write_report

    with output.progress_bar("writing the report", unit="runs"):
        written = write_report(runs, out, title=title, max_nodes=max_nodes)
    output.print_result(f"The report is in {written} ({written.stat().st_size / 1e6:.1f} MB): open it in a browser.")
