"""`arbormax reproduce`: the paper's experiments, by its protocol."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import show, trouble
from arbormax.cli.options import MACHINE, Json
from arbormax.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from arbormax.training.study import Study
    from arbormax.training.study.differences import Found
    from arbormax.training.study.summary import Results

DATASETS = ("trec", "20ng", "r8", "r52")
PLACE = Path("experiments/paper")


def reproduce(
    ctx: typer.Context,
    dataset: Annotated[str, typer.Argument(metavar="trec|20ng|r8|r52|all", help="Of the paper.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Small and in minutes: 2,000 texts, two folds, one seed; shows how it goes.")
    ] = False,
    arms: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="These arms alone, such as bilstm,svc; blend brings those it is made of."),
    ] = None,
    study: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the studies, a JSON file each.")] = PLACE,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the results; else `results`, or `quick`, in --study.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Trainings at a time, spread over the devices.", rich_help_panel=MACHINE)
    ] = 1,
    accelerator: Annotated[str, typer.Option(help="auto, cpu or gpu.", rich_help_panel=MACHINE)] = "auto",
    devices: Annotated[int | None, typer.Option(min=1, help="So many GPUs; else all.", rich_help_panel=MACHINE)] = None,
    minutes: Annotated[float | None, typer.Option(help="Begin nothing new after so many minutes.")] = None,
    json: Json = False,
) -> None:
    """Run the paper's experiments: cross-validation chooses, then every seed is measured once on the test texts.

    What is finished is kept, a file for each training, and the same command goes on. The texts and the GloVe vectors
    lie in ARBORMAX_DATA (`arbormax data list`).

    Example: `arbormax reproduce trec --quick`, or `arbormax reproduce all --workers 8`
    """
    if dataset not in (*DATASETS, "all"):
        near = did_you_mean(dataset, (*DATASETS, "all"))
        raise OptionError(f"expected one of {', '.join(DATASETS)} or all, found {dataset!r}{near}")
    names = DATASETS if dataset == "all" else (dataset,)
    from arbormax.training.study import Machine, Study, run_studies

    studies = [_asked(Study.load(study / f"{name}.json"), quick, arms) for name in names]
    results = out or study / ("quick" if quick else "results")
    machine = Machine(workers, accelerator, devices)
    logging.getLogger("arbormax").setLevel(logging.WARNING)  # the same word vectors, for every training
    with show.stages("reproduce") as progress, trouble.going_on(results, trouble.command_line(ctx)):
        finished = run_studies(
            studies,
            results,
            machine=machine,
            minutes=minutes,
            command=trouble.command_line(ctx),
            progress=progress if show.on_terminal() else _say,
        )
    _tell(studies, results, quick, json)
    if not finished:
        show.say("Not finished in the time given: the same command goes on.")
    show.say(f"written: {results}")


def _say(stage: str, done: int, total: int) -> None:
    """Progress for a log: a line for every training."""
    show.say(f"{done} of {total} trainings done: {stage}")


def _asked(study: Study, quick: bool, arms: str | None) -> Study:
    if quick and arms is not None:
        raise OptionError("--quick has an arm of its own, so leave --arms out")
    if quick:
        return study.quick()
    return study if arms is None else study.only([name.strip() for name in arms.split(",") if name.strip()])


def _tell(studies: list[Study], results: Path, quick: bool, json: bool) -> None:
    from arbormax.training.study import markdown
    from arbormax.training.study.differences import store_differences
    from arbormax.training.study.summary import read_results

    found = read_results(results)
    differences = store_differences(found, results)
    if json:
        show.tell_json({study.dataset: _plain(study, found, differences) for study in studies})
        return
    from rich.markdown import Markdown

    for study in studies:
        planned = {(arm.name, head): arm.seeds for arm, head in study.groups()}
        show.tell(Markdown(markdown.section(found, study.dataset, differences.get(study.dataset, {}), planned=planned)))
    if quick:
        show.tell("This was the quick study: a small one that shows how it goes, not what the paper's protocol gives.")


def _plain(study: Study, found: Results, differences: Found) -> dict[str, Any]:
    """What a script may want to know of one dataset."""
    from arbormax.training.study.summary import headline, rows

    arms = differences.get(study.dataset, {})
    return {
        "rows": [vars(row) for row in rows(found, study.dataset)],
        "differences": {arm: [one.to_dict() for one in entry.differences] for arm, entry in arms.items()},
        "headline": headline(found, study.dataset),
    }
