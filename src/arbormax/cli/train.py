"""`arbormax train`: from labelled texts to a model folder."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arbormax.cli import errors, output
from arbormax.cli.continuing import continue_from
from arbormax.cli.groups import expand_options
from arbormax.cli.inputs import is_dataset, read_labelled, read_tree
from arbormax.cli.options import MACHINE, Json, MachineOptions, ModelOptions, TrainingDataOptions
from arbormax.cli.report import NoTexts
from arbormax.cli.threads import set_threads
from arbormax.data.tables import check_file
from arbormax.errors import OptionError
from arbormax.metrics.registry import shown_measures

if TYPE_CHECKING:
    from arbormax.data.labelled import LabelledData
    from arbormax.model.run import Run
    from arbormax.studies.train import TrainedModel


@expand_options
def train(
    ctx: typer.Context,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A dataset (`arbormax data list`) or a file; with `--names only` also a taxonomy file.",
        ),
    ],
    model: ModelOptions,
    table: TrainingDataOptions,
    machine: MachineOptions,
    start: Annotated[
        Path | None,
        typer.Option("--from", metavar="MODEL", help="Continue this model with new texts; its settings stay the same."),
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="First search for better settings for so long, such as 90s, 5min or 1h: n-grams, and the strength of "
            "the convex solver, or the learning rate and the epochs. Settings that are given stay.",
        ),
    ] = None,
    valid: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Texts for early stopping, instead of --validation.")
    ] = None,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Texts to evaluate the trained model on.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the model; by default runs/DATA-ENCODER-HEAD.")
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(help="How several processes are started: ddp, ddp_spawn or auto.", rich_help_panel=MACHINE),
    ] = "auto",
    num_nodes: Annotated[int, typer.Option(min=1, help="Number of machines.", rich_help_panel=MACHINE)] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted training.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in --out.")] = False,
    no_texts: NoTexts = False,
    snapshot_steps: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
    json: Json = False,
) -> None:
    """Train a classifier and save it in a folder.

    Example: `arbormax train reviews.csv --text body --label category --test held-out.csv --out reviews-model`

    After a search for better settings of at most five minutes: `arbormax train reviews.csv --tune 5min`

    With the uncertainty of each prediction: `arbormax train reviews.csv --uncertainty laplace`

    With --from, a model continues with new texts: `arbormax train --from reviews-model new.csv --test held-out.csv
    --out newer-model`
    """
    if start is not None:
        _refuse_with_start(strategy, num_nodes, table, tune)
        continued = continue_from(start, data, model, table, machine, valid, test, out)
        continued.run(ctx, resume=resume, overwrite=overwrite, texts=not no_texts, json=json)
        return
    config = model.config().model_copy(update={"columns": table.columns()})
    budget = None if tune is None else _check_tune(tune)
    is_dataset(data)  # raises if the file is missing, before anything else is looked at
    for path in filter(None, (valid, test)):
        check_file(path)
    hardware = replace(machine.hardware(), strategy=strategy, num_nodes=num_nodes)  # type: ignore[arg-type]
    threads = set_threads(machine.threads)
    folder = out or Path("runs") / f"{Path(data).name.split('.')[0]}-{config.encoder}-{config.head}"
    from arbormax.studies.train import has_checkpoint, is_finished, train_model
    from arbormax.training.distributed import is_first_process

    is_first = not hardware.several or is_first_process()
    with nullcontext() if is_first else _silent_process():
        if is_finished(folder, config, resume=resume, overwrite=overwrite, tuned=tune is not None):
            output.print_status(f"The training in {folder} is finished; nothing to resume.")
            if json and is_first:
                output.print_json({"model": str(folder), "finished": True})
            return
        texts = (read_tree if config.names == "only" else read_labelled)(data, table, valid, test)
        config = config.model_copy(update={"separator": texts.separator})
        if resume and not has_checkpoint(folder):
            output.print_status(f"Nothing to resume in {folder}; training from the beginning.")
        again = errors.command_line(ctx, without=("--overwrite",), extra=("--resume",))
        with _resume_hints(folder, again) if is_first else nullcontext():
            trained = train_model(
                config,
                texts.taxonomy,
                texts.train,
                folder,
                valid=texts.valid,
                test=texts.test,
                data=texts.origin,
                hardware=hardware,
                resume=resume,
                overwrite=overwrite,
                command=errors.command_line(ctx),
                texts=not no_texts,
                every_steps=snapshot_steps,
                progress=output.is_terminal(),
                evaluation_bar=partial(output.progress_bar, "evaluating on the test texts"),
                budget=budget,
            )
    if trained is None:
        return
    if json:
        output.print_json({"model": str(folder), **trained.record.to_dict(details=False)})
        return
    output.print_result(_describe_data(texts))
    if (inner := _describe_inner(texts)) is not None:
        output.print_result(inner)
    if texts.test is not None and (unseen := texts.test.describe_unseen(texts.taxonomy)) is not None:
        output.print_result(unseen)
    _print_summary(trained, threads)
    _print_next_commands(folder, str(test or data), texts, table)


def _refuse_with_start(strategy: str, num_nodes: int, table: TrainingDataOptions, tune: str | None) -> None:
    """Raise for options that do not act on a training that continues a model."""
    given = {"strategy": strategy != "auto", "num_nodes": num_nodes != 1, "tune": tune is not None}
    given |= {name: getattr(table, name) is not None for name in ("taxonomy", "node_texts")}
    for name, is_given in given.items():
        if is_given:
            raise OptionError("cannot be combined with --from", argument=name)


def _check_tune(duration: str) -> float:
    """The seconds of a search, before any file is read."""
    from arbormax.studies.tune import import_optuna, read_duration

    import_optuna()
    return read_duration(duration)


@contextmanager
def _silent_process() -> Iterator[None]:
    """For all processes but the first one: print no messages except errors."""
    from arbormax.training import TrainingInterrupted

    try:
        with redirect_stderr(StringIO()):
            yield
    except TrainingInterrupted:  # with another exit status, Lightning would end the first process before its message
        raise typer.Exit from None


@contextmanager
def _resume_hints(folder: Path, command: str) -> Iterator[None]:
    """After an interruption or the loss of a worker process, print the command that resumes the training."""
    from arbormax.training import WorkerLostError

    try:
        with errors.resume_hint(folder, command):
            yield
    except WorkerLostError as error:
        hint = f"; resume with: {command}" if error.is_resumable else ""
        errors.exit_with(f"{error.message}{hint}", errors.FAILED)


def _describe_data(texts: LabelledData) -> str:
    """The size of the data and the tree; with an inferred tree also labels that occur once, which may be misspelt."""
    tree, counts = texts.taxonomy, Counter(texts.train.nodes.tolist())
    single = [node for node, count in counts.items() if count == 1]
    inferred = ", inferred from the labels" if texts.origin.get("taxonomy") == "inferred" else ""
    rare = f"; {len(single):,} label{'s have' if len(single) > 1 else ' has'} only one text" if single else ""
    if single and inferred:
        first = ", ".join(repr(" > ".join(tree.path(node))) for node in single[:5])
        rare += f": {first}{', …' * (len(single) > 5)}"
    kind = "graph" if tree.is_graph else "tree"
    size = f"{tree.num_leaves:,} class{'es' * (tree.num_leaves > 1)} in a {kind} of depth {tree.depth}"
    return f"{len(texts.train):,} texts, {size}{inferred}{rare}."


def _describe_inner(texts: LabelledData) -> str | None:
    """How many texts are labelled at inner nodes, and what happens to them; None if there are none."""
    tree = texts.taxonomy
    nodes = texts.train.nodes[~tree.is_leaf[texts.train.nodes]]
    if not len(nodes):
        return None
    found = Counter(nodes.tolist()).most_common()
    first = ", ".join(repr(" > ".join(tree.path(node))) for node, _ in found[:3]) + ", …" * (len(found) > 3)
    texts_are = "text is" if len(nodes) == 1 else "texts are"
    at = "an inner node" if len(found) == 1 else f"{len(found):,} inner nodes"
    return (
        f"{len(nodes):,} {texts_are} labelled at {at} ({first}): they train the steps down to their node, which is no "
        "class. To predict such nodes as classes, add --inner-classes stop."
    )


def _describe_training(run: Run) -> str:
    """How the weights were found."""
    score = f" with a validation macro-F1 of {run.valid_macro_f1:.4f}" if run.valid_macro_f1 is not None else ""
    if run.model.config.names == "only":
        return "Built from the texts of the nodes, without training data"
    if run.model.config.solver == "convex":
        return f"Convex solver{score}{', then on all texts' * (run.refit_epochs is not None)}"
    epochs = f"{run.epochs} epoch{'s' * (run.epochs != 1)}"
    if score:
        epochs += f", best epoch {run.best_epoch}{score}"
    if run.refit_epochs is not None:
        epochs += f"; then {run.refit_epochs} epoch{'s' * (run.refit_epochs != 1)} on all texts"
    return epochs


def _print_summary(trained: TrainedModel, threads: str) -> None:
    run, measures = trained.run, trained.record.test
    if measures is not None:
        shown = {name: measures[name] for name in ("items", *shown_measures("main")) if name in measures}
        output.print_result(output.measure_table(shown, "Test"))
    output.print_result(
        f"{_describe_training(run)}, {run.seconds:.1f} s on {threads}, {run.model.num_parameters:,} parameters."
    )
    if measures is None:
        output.print_result("The model is not evaluated: no test texts were given (--test FILE).")
    output.print_result(f"The model is in {trained.folder}")


def _print_next_commands(folder: Path, tested: str, texts: LabelledData, table: TrainingDataOptions) -> None:
    model = shlex.quote(str(folder))
    output.print_result(f"Next: arbormax predict {model} --message 'your text'")
    if texts.test is None:
        return
    words = shlex.join([tested, *table.of_file().words()])
    output.print_result(f"      arbormax evaluate {model} {words}")
    output.print_result(f"      arbormax report {model}")
