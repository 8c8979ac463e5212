"""`arbormax curves`: how training went, as a picture."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arbormax.cli import output
from arbormax.cli.options import Json
from arbormax.errors import InputError, OptionError, did_you_mean

if TYPE_CHECKING:
    from arbormax.report import Curve

MEASURES = {
    "macro_f1": ("valid/macro_f1", "validation macro-F1"),
    "accuracy": ("valid/accuracy", "validation accuracy"),
    "hf": ("valid/hf", "validation hierarchical F1"),
    "loss": ("valid/loss", "validation loss"),
    "train_loss": ("train/loss", "training loss"),
}


def curves(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of models, also of one in training.")],
    svg: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the picture.")],
    measure: Annotated[str, typer.Option(help=", ".join(MEASURES))] = "macro_f1",
    title: Annotated[str, typer.Option(metavar="TEXT", help="Above the picture.")] = "",
    json: Json = False,
) -> None:
    """Draw the learning curves of one or several runs; a dot marks the best epoch.

    Example: `arbormax curves model-flat model-tree --svg curves.svg --measure accuracy`
    """
    if measure not in MEASURES:
        raise OptionError(
            f"--measure is one of {', '.join(MEASURES)}; found {measure!r}{did_you_mean(measure, MEASURES)}"
        )
    column, told = MEASURES[measure]
    from arbormax.cli.drawn import write_drawing
    from arbormax.report import curves_svg

    lines = {name: epochs_of(run, column) for name, run in zip(_names(runs), runs, strict=True)}
    best = min if measure.endswith("loss") else max
    drawn = {name: _curve(line, best(line, key=line.__getitem__)) for name, line in lines.items()}
    write_drawing(svg, curves_svg(drawn, title, y=told))
    if json:
        output.print_json(
            {name: [{"epoch": epoch, measure: value} for epoch, value in line.items()] for name, line in lines.items()}
        )


def epochs_of(run: Path, column: str) -> dict[int, float]:
    """The value at each epoch, counted from 1, that a run has written into its logs, over all its restarts."""
    logs = run / "logs"
    newest = logs / "metrics.csv"
    if not newest.is_file():
        raise InputError(f"{run} holds no logs/metrics.csv: expected the folder of a model that `arbormax train` made")
    before = sorted(logs.glob("metrics-*.csv"), key=lambda path: (len(path.name), path.name))
    values: dict[int, float] = {}
    for path in [*before, newest]:
        try:
            with path.open(newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    if row.get(column) and math.isfinite(value := float(row[column])):
                        values[int(float(row["epoch"])) + 1] = value
        except (ValueError, KeyError, TypeError, OverflowError, csv.Error) as error:
            raise InputError(f"{path} is not the log of a training: {error}") from error
    if not values:
        raise InputError(f"{run} has no {column} in its logs yet; without held-out texts there is train_loss alone")
    return dict(sorted(values.items()))


def _curve(line: dict[int, float], best: int) -> Curve:
    from arbormax.report import Curve

    return Curve(list(line), list(line.values()), mark=best)


def _names(runs: list[Path]) -> list[str]:
    """A name for each run: that of its folder, or its path where folders share one."""
    folders = [run.resolve().name for run in runs]
    names = [folder if folders.count(folder) == 1 else str(run) for folder, run in zip(folders, runs, strict=True)]
    if len(set(names)) < len(names):
        raise OptionError(f"a run is given twice: {', '.join(sorted({n for n in names if names.count(n) > 1}))}")
    return names
