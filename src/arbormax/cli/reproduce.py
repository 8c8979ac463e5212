"""`arbormax reproduce`: run the experiments of a study folder."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from arbormax.cli import output
from arbormax.errors import InputError

RUNNER = "run.py"
CONTEXT = {"allow_interspersed_args": False}  # the options behind the folder belong to the study


def reproduce(
    study: Annotated[
        Path, typer.Argument(metavar="STUDY_FOLDER", help=f"A folder with a {RUNNER}, such as experiments/paper.")
    ],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTIONS]…", help="Passed to the study; --help lists its own.")
    ] = None,
) -> None:
    """Run a study: its folder contains a run.py, which is executed with the options behind the folder.

    This runs Python code from the folder, so name only folders that you trust. The studies of arbormax are in
    `experiments` of its repository; they work with an installed arbormax, too.

    Example: `arbormax reproduce experiments/paper --dataset trec --quick`
    """
    script = study / RUNNER
    if not script.is_file():
        found = "does not exist" if not study.exists() else f"contains no {RUNNER}"
        raise InputError(f"{study} {found}: expected the folder of a study, such as experiments/paper")
    output.print_status(f"running {script}")
    arguments = sys.argv
    sys.argv = [str(script), *(options or [])]
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = arguments
