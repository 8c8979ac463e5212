"""The program and its commands."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from arbormax._version import __version__
from arbormax.cli import output
from arbormax.cli.calibrate import calibrate
from arbormax.cli.data import data
from arbormax.cli.demo import demo
from arbormax.cli.errors import Program
from arbormax.cli.evaluate import evaluate
from arbormax.cli.explain import explain
from arbormax.cli.export import export
from arbormax.cli.induce import induce
from arbormax.cli.predict import predict
from arbormax.cli.report import report
from arbormax.cli.reproduce import CONTEXT, reproduce
from arbormax.cli.search import search
from arbormax.cli.serve import serve
from arbormax.cli.studies import compare, crossval
from arbormax.cli.taxonomy import taxonomy
from arbormax.cli.train import train
from arbormax.cli.tree_studies import compare as compare_trees
from arbormax.cli.tree_studies import refine

app = typer.Typer(
    cls=Program,
    name="arbormax",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


class _StatusHandler(logging.Handler):
    """Prints log messages of the library on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        output.print_status(record.getMessage())


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"arbormax {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def arbormax(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback prints it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[  # noqa: ARG001 - `Program` reads it
        bool, typer.Option("--debug", envvar="ARBORMAX_DEBUG", help="Show a traceback for errors.")
    ] = False,
) -> None:
    """Hierarchical text classification: the classes form a tree, and the model uses it.

    Example: `arbormax demo`, then `arbormax train my-texts.csv`
    """
    if not (log := logging.getLogger("arbormax")).handlers:
        log.addHandler(_StatusHandler())
        log.setLevel(logging.INFO)
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


for command in (demo, train, evaluate, predict, compare, crossval, search, calibrate, explain, export, report, serve):
    app.command()(command)
app.command(context_settings=CONTEXT)(reproduce)
for name, tree_command in (("induce", induce), ("compare", compare_trees), ("refine", refine)):
    taxonomy.command(name)(tree_command)
app.add_typer(taxonomy, name="taxonomy")
app.add_typer(data, name="data")
