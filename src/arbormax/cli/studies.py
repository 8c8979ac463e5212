"""`arbormax crossval` and `arbormax compare`: the measures of many trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arbormax.cli import errors, output
from arbormax.cli.groups import NameOption, expand_options
from arbormax.cli.inputs import is_dataset, read_labelled
from arbormax.cli.options import ComparedOptions, Json, MachineOptions, ModelOptions, TrainingDataOptions
from arbormax.cli.report import NoTexts
from arbormax.cli.threads import set_threads
from arbormax.errors import OptionError
from arbormax.metrics.registry import COSTS, shown_measures

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A dataset, of which the training texts are used, or a file.")
]
Folder = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Folder of the results; the same command resumes from it."),
]
Folds = Annotated[int, typer.Option(min=2, help="Number of folds.")]
EpochsFrom = Annotated[
    str,
    typer.Option(
        metavar="inner|fold",
        help="Texts for early stopping: held out from the training texts, or the fold itself, which is optimistic.",
    ),
]


@expand_options
def crossval(
    ctx: typer.Context,
    data: Data,
    model: ModelOptions,
    table: TrainingDataOptions,
    machine: MachineOptions,
    folds: Folds = 4,
    epochs_from: EpochsFrom = "inner",
    out: Folder = None,
    json: Json = False,
) -> None:
    """Evaluate settings by cross-validation: each text is predicted by a model that was not trained on it.

    Example: `arbormax crossval reviews.csv --encoder bilstm --folds 5`
    """
    config, hardware = model.config(), machine.hardware()
    set_threads(machine.threads)
    texts = read_labelled(data, table)
    from arbormax.studies.crossval import crossval as run
    from arbormax.studies.result_folder import write_results

    with output.stage_progress("cross-validation") as progress, errors.resume_hint(out, errors.command_line(ctx)):
        result = run(
            config,
            texts.taxonomy,
            texts.train,
            folds,
            hardware=hardware,
            folder=out,
            progress=progress,
            epochs_from=epochs_from,  # type: ignore[arg-type]  # checked there
        )
    if out is not None:
        write_results(out, result.to_dict())
    if json:
        output.print_json(result.to_dict())
        return
    names = [name for name in (*shown_measures("main"), "seconds") if name in result.mean]
    rows = [
        (
            name,
            *(output.format_number(fold[name]) for fold in result.folds),
            _mean_and_std(result.mean[name], result.std.get(name)),
        )
        for name in names
    ]
    columns = ("measure", *(f"fold {number + 1}" for number in range(folds)), "mean ± std")
    output.print_result(output.table(columns, rows, f"{data}, {config.encoder}, {config.head}"))
    if result.never_validated:
        output.print_result(
            f"{result.never_validated:,} texts are the only one of their label and are never in a validation fold."
        )
    if out is not None:
        output.print_status(f"written: {out}")


@expand_options
def compare(
    ctx: typer.Context,
    data: Data,
    model: ComparedOptions,
    table: TrainingDataOptions,
    machine: MachineOptions,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Evaluate on these texts instead of by cross-validation.")
    ] = None,
    on_test: Annotated[bool, typer.Option("--on-test", help="Evaluate on the test texts of the dataset.")] = False,
    heads: Annotated[
        str | None,
        NameOption("arbormax.heads:HEADS", "Heads to compare, by default all that the solver can train", metavar="A,B"),
    ] = None,
    seeds: Annotated[
        str, typer.Option(metavar="0,1,2", help="Random seeds; each head is trained once with each.")
    ] = "0,1,2",
    folds: Folds = 4,
    epochs_from: EpochsFrom = "inner",
    resamples: Annotated[int, typer.Option(min=1, help="Number of bootstrap resamples.")] = 2000,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    out: Folder = None,
    no_texts: NoTexts = False,
    json: Json = False,
) -> None:
    """Compare heads that are trained with the same seeds, folds and batches.

    Example: `arbormax compare trec --encoder bilstm --heads flat,hierarchical --seeds 0,1,2`
    """
    config, hardware = model.config(), machine.hardware()
    set_threads(machine.threads)
    if on_test and not is_dataset(data):
        raise OptionError(f"{data} is a file, which has no test texts of its own; use --test FILE", argument="on_test")
    if on_test and test is not None:
        raise OptionError("cannot be combined with --test", argument="on_test")
    selected, numbers = None if heads is None else _split(heads), _parse_seeds(seeds)
    texts = read_labelled(data, table, test=test, needs_known_labels=True)
    from arbormax.studies.compare import compare as run
    from arbormax.studies.record import comparison
    from arbormax.studies.result_folder import write_results

    tested = texts.test if on_test or test is not None else None
    with output.stage_progress("comparison") as progress, errors.resume_hint(out, errors.command_line(ctx)):
        result = run(
            config,
            texts.taxonomy,
            texts.train,
            tested,
            heads=selected,
            seeds=numbers,
            folds=folds,
            hardware=hardware,
            folder=out,
            progress=progress,
            resamples=resamples,
            level=level,
            epochs_from=epochs_from,  # type: ignore[arg-type]  # checked there
        )
    if out is not None:
        command = errors.command_line(ctx)
        measured_on = texts.train if tested is None else tested
        write_results(
            out,
            comparison(result, measured_on, texts.taxonomy, data=texts.origin, command=command, texts=not no_texts),
        )
    if json:
        output.print_json(result.to_dict())
        return
    rows = result.table()
    names = [name for name in (*shown_measures("main"), *COSTS) if all(name in row for row in rows.values())]
    body = [
        (name, *(_mean_and_std(row[name]["mean"], row[name]["std"], name == "parameters") for row in rows.values()))
        for name in names
    ]
    where = f"test, seeds {seeds}" if result.measured_on == "test" else f"{folds} folds, seeds {seeds}"
    output.print_result(output.table(("measure", *rows), body, f"{data}, {config.encoder}, {where}"))
    for difference in result.differences:
        output.print_result(difference.sentence)
    if out is not None:
        output.print_status(f"written: {out}")


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parse_seeds(text: str) -> list[int]:
    parts = _split(text)
    if not all(part.isdigit() for part in parts):
        raise OptionError(f"expected non-negative integers such as 0,1,2, found {text!r}", argument="seeds")
    return [int(part) for part in parts]


def _mean_and_std(mean: float | None, std: float | None, is_count: bool = False) -> str:
    if mean is None:
        return "–"
    if is_count:
        return f"{mean:,.0f}"
    return f"{mean:.4f}" if std is None else f"{mean:.4f} ± {std:.4f}"
