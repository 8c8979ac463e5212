"""`arbormax train`: from labelled texts to a model folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import errors, output
from arbormax.cli.groups import expand_options
from arbormax.cli.inputs import read_labelled
from arbormax.cli.options import MACHINE, InputOptions, Json, LabelOptions, MachineOptions, ModelOptions
from arbormax.cli.report import NoTexts
from arbormax.errors import OptionError
from arbormax.metrics.registry import shown_measures

if TYPE_CHECKING:
    from arbormax.data.labelled import LabelledData
    from arbormax.model import TrainConfig
    from arbormax.training import Run


@expand_options
def train(
    ctx: typer.Context,
    data: Annotated[str, typer.Argument(metavar="DATA", help="A dataset (`arbormax data list`) or a file of yours.")],
    model: ModelOptions,
    table: InputOptions,
    labels: LabelOptions,
    machine: MachineOptions,
    taxonomy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The tree of classes; else inferred from the labels.")
    ] = None,
    valid: Annotated[Path | None, typer.Option(metavar="FILE", help="To stop early, in place of --validation.")] = None,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="To measure the finished model on.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the model goes; runs/DATA-ENCODER-HEAD by default.")
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(help="Who starts several processes: ddp, ddp_spawn or auto.", rich_help_panel=MACHINE),
    ] = "auto",
    num_nodes: Annotated[int, typer.Option(min=1, help="Machines.", rich_help_panel=MACHINE)] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a training that was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in --out.")] = False,
    no_texts: NoTexts = False,
    snapshot_steps: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
    json: Json = False,
) -> None:
    """Train a classifier and save it as a folder.

    Example: `arbormax train reviews.csv --text body --label category --test held-out.csv --out reviews-model`
    """
    if resume and overwrite:
        raise OptionError("--resume goes on with a run and --overwrite throws it away: give one of the two")
    config = model.config()
    hardware = replace(machine.hardware(), strategy=strategy, num_nodes=num_nodes)  # type: ignore[arg-type]
    folder = out or Path("runs") / f"{Path(data).name.split('.')[0]}-{config.encoder}-{config.head}"
    from arbormax.training.distributed import is_first_process

    leads = not hardware.several or is_first_process()
    if is_finished(folder, config, resume, overwrite):
        if not leads:
            return
        output.print_status(f"The model in {folder} is finished already: nothing to resume.")
        if json:
            output.print_json({"model": str(folder), "finished": True})
        return

    from arbormax.model import save_model
    from arbormax.model.folder import remove_state
    from arbormax.studies import record
    from arbormax.training import fit

    options: dict[str, Any] = {"resume": resume, "hardware": hardware, "every_steps": snapshot_steps}
    if not leads:
        with _following():
            texts = read_labelled(data, table, labels, taxonomy, valid, test)
            fit(config, texts.taxonomy, texts.train, texts.valid, folder=folder, **options)
        return
    texts = read_labelled(data, table, labels, taxonomy, valid, test)
    if resume and not (folder / "checkpoints" / "last.ckpt").exists():
        output.print_status(f"There is nothing to resume in {folder}: training from the beginning.")
    if overwrite:
        remove_state(folder)
    again = errors.command_line(ctx, without=("--overwrite",), extra=("--resume",))
    with errors.resume_hint(folder, again), _losing(again):
        progress = output.is_terminal()
        run = fit(config, texts.taxonomy, texts.train, texts.valid, folder=folder, progress=progress, **options)
        command = errors.command_line(ctx)
        with output.progress_bar("evaluating on the test texts", len(texts.test or ())) as advance:
            made = record.build(
                run,
                texts.train,
                valid=texts.valid,
                test=texts.test,
                data=texts.origin,
                command=command,
                texts=not no_texts,
                progress=advance,
            )
        save_model(run.model, folder, made.to_dict())
    remove_state(folder)
    metrics = made.to_dict(details=False)
    if json:
        output.print_json({"model": str(folder), **metrics})
    else:
        tested = data if test is None and texts.test is not None else test
        output.print_result(_tree_line(texts))
        _print(run, metrics, folder, tested, [] if test is None else _columns(table, labels))


@contextmanager
def _following() -> Iterator[None]:
    """For a process that another one started: its errors are told, the rest is said by the first."""
    from arbormax.training import TrainingInterrupted

    try:
        with redirect_stderr(StringIO()):
            yield
    except TrainingInterrupted:
        return  # a code other than 0 would have Lightning kill the first, which is about to tell


@contextmanager
def _losing(again: str) -> Iterator[None]:
    """Print the command that resumes the training if a worker process is lost."""
    from arbormax.training import WorkerLostError

    try:
        yield
    except WorkerLostError as error:
        hint = f"; resume with: {again}" if error.is_resumable else ""
        errors.exit_with(f"{error.message}{hint}", errors.FAILED)


def _tree_line(texts: LabelledData) -> str:
    """What was trained on, so that a tree that was inferred wrongly is seen."""
    tree, counts = texts.taxonomy, Counter(texts.train.nodes.tolist())
    lone = [node for node, count in counts.items() if count == 1]
    inferred = ", inferred from the labels" if texts.origin.get("taxonomy") == "inferred" else ""
    rare = f"; {len(lone):,} label{'s have' if len(lone) > 1 else ' has'} one text only" if lone else ""
    if lone and inferred:  # a misspelt label makes a class of its own
        first = ", ".join(repr(" > ".join(tree.path(node))) for node in lone[:5])
        rare += f": {first}{', …' * (len(lone) > 5)}"
    size = f"{tree.num_leaves:,} class{'es' * (tree.num_leaves > 1)} in a tree of depth {tree.depth}"
    return f"{len(texts.train):,} texts, {size}{inferred}{rare}."


def is_finished(folder: Path, config: TrainConfig, resume: bool, overwrite: bool) -> bool:
    """Whether there is nothing left to do; raises where training would spoil what is in the folder."""
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{folder} is a file, and a model is a folder: choose another --out")
    if not folder.exists() or not any(folder.iterdir()):
        return False
    state = folder / "checkpoints"
    record = folder / "config.json"
    if (
        not record.is_file()
        and not state.is_dir()
        and {path.name for path in folder.iterdir()} - {"logs", "checkpoints"}
    ):
        raise OptionError(f"{folder} is not empty and holds no model: choose another --out, its files stay as they are")
    if record.is_file():
        from arbormax.model.folder import read_record

        before = read_record(folder)["config"]
        if not (resume or overwrite):
            raise OptionError(f"{folder} holds a model already: replace it with --overwrite, or choose another --out")
        if resume and not state.is_dir():
            left_open = {name for name in type(config).model_fields if getattr(config, name) is None}
            now = json.loads(config.resolved().model_dump_json(exclude=left_open))
            differing = [name for name in now if before.get(name) != now[name]]
            if differing:
                told = "; ".join(f"{name} was {before.get(name)!r}, now {now[name]!r}" for name in differing)
                raise OptionError(f"{folder} holds a finished model with other settings: {told}")
            return True
    elif (state / "last.ckpt").is_file() and not (resume or overwrite):
        raise OptionError(f"{folder} holds a training that was stopped: go on with --resume, or anew with --overwrite")
    return False


def _columns(table: InputOptions, labels: LabelOptions) -> list[str]:
    """The options that name the columns, where they are not the usual ones."""
    named = (("--text", table.text, InputOptions.text), ("--label", labels.label, LabelOptions.label))
    return [word for flag, value, usual in named if value != usual for word in (flag, str(value))]


def _print(run: Run, metrics: dict[str, Any], folder: Path, tested_on: Path | str | None, columns: list[str]) -> None:
    trained = metrics["training"]
    if "test" in metrics:
        output.print_result(
            output.measure_table(
                {name: metrics["test"][name] for name in ("items", *shown_measures("main")) if name in metrics["test"]},
                "Test",
            )
        )
    best = (
        ""
        if run.valid_macro_f1 is None
        else f", the best one {run.best_epoch} (macro-F1 {run.valid_macro_f1:.4f} held out)"
    )
    epochs = f"{run.epochs} epoch{'s' * (run.epochs != 1)}"
    output.print_result(f"{epochs}{best}, {trained['seconds']:.1f} s, {trained['parameters']:,} parameters.")
    if "test" not in metrics:
        output.print_result("No test texts were given (--test FILE), so how good it is was not measured.")
    output.print_result(f"The model is in {folder}")
    import shlex

    quoted = shlex.quote(str(folder))
    output.print_result(f"Next: arbormax predict {quoted} --message 'a text of yours'")
    if tested_on is not None:
        output.print_result(f"      arbormax evaluate {quoted} {shlex.join([str(tested_on), *columns])}")
        output.print_result(f"      arbormax report {quoted}")
