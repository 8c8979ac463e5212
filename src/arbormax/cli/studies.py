"""`arbormax crossval`, `compare` and `search`: many trainings, one answer."""

from __future__ import annotations

import json as json_format
import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from arbormax._files import to_plain
from arbormax.cli import errors, output
from arbormax.cli.groups import expand_options
from arbormax.cli.inputs import is_dataset, read_labelled
from arbormax.cli.options import InputOptions, Json, LabelOptions, MachineOptions, ModelOptions, setting_parameters
from arbormax.cli.report import NoTexts
from arbormax.errors import OptionError, did_you_mean
from arbormax.metrics.registry import COSTS, shown_measures

if TYPE_CHECKING:
    from arbormax.model import TrainConfig

Data = Annotated[str, typer.Argument(metavar="DATA", help="A dataset, whose training texts are taken, or a file.")]
Tree = Annotated[Path | None, typer.Option(metavar="FILE", help="The tree of classes; else inferred from the labels.")]
Folder = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Keep finished parts there; the same command goes on.")
]
Folds = Annotated[int, typer.Option(min=2, help="Parts of the texts, each measured once.")]
EpochsFrom = Annotated[
    str,
    typer.Option(
        metavar="inner|fold",
        help="Stop early on texts held out of those trained on, or on the fold measured: a little too good.",
    ),
]


@expand_options
def crossval(
    ctx: typer.Context,
    data: Data,
    model: ModelOptions,
    table: InputOptions,
    labels: LabelOptions,
    machine: MachineOptions,
    taxonomy: Tree = None,
    folds: Folds = 4,
    epochs_from: EpochsFrom = "inner",
    out: Folder = None,
    json: Json = False,
) -> None:
    """Measure settings by cross-validation: every text is predicted by a model that never saw it.

    Example: `arbormax crossval reviews.csv --encoder bilstm --folds 5`
    """
    config, hardware = model.config(), machine.hardware()
    chosen = _epochs_from(epochs_from)
    texts = read_labelled(data, table, labels, taxonomy)
    from arbormax.studies.crossval import crossval as run

    with output.stage_progress("cross-validation") as progress, errors.resume_hint(out, errors.command_line(ctx)):
        result = run(
            config,
            texts.taxonomy,
            texts.train,
            folds,
            hardware=hardware,
            folder=out,
            progress=progress,
            epochs_from=chosen,
        )
    told = result.to_dict()
    if out is not None:
        _write_results(out, to_plain(told))
    if json:
        output.print_json(told)
        return
    names = [name for name in (*shown_measures("main"), "seconds") if name in told["mean"]]
    rows = [
        (name, *(output.format_number(fold[name]) for fold in told["folds"]), _spread(told["mean"], told["std"], name))
        for name in names
    ]
    columns = ("measure", *(f"fold {number + 1}" for number in range(folds)), "mean ± std")
    output.print_result(output.table(columns, rows, f"{data}, {config.encoder}, {config.head}"))
    if told.get("never_validated"):
        output.print_result(
            f"{told['never_validated']:,} texts are the only one of their label: trained on, never measured."
        )
    if out is not None:
        output.print_status(f"written: {out}")


@expand_options
def compare(
    ctx: typer.Context,
    data: Data,
    model: ModelOptions,
    table: InputOptions,
    labels: LabelOptions,
    machine: MachineOptions,
    taxonomy: Tree = None,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Measure on it, not by cross-validation.")] = None,
    on_test: Annotated[bool, typer.Option("--on-test", help="Measure on the dataset's own test texts.")] = False,
    heads: Annotated[str, typer.Option(metavar="A,B", help="The heads.")] = "flat,hierarchical,shared",
    seeds: Annotated[str, typer.Option(metavar="0,1,2", help="A training of every head for each.")] = "0,1,2",
    folds: Folds = 4,
    epochs_from: EpochsFrom = "inner",
    resamples: Annotated[int, typer.Option(min=1, help="Of the bootstrap.")] = 2000,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    out: Folder = None,
    no_texts: NoTexts = False,
    json: Json = False,
) -> None:
    """Compare heads with everything else equal: the same seeds, folds and batches.

    Example: `arbormax compare trec --encoder bilstm --heads flat,hierarchical --seeds 0,1,2`
    """
    if {"head", "seed"} & model.settings.keys():
        raise OptionError("a comparison takes --heads and --seeds, not --head and --seed")
    config, hardware = model.config(), machine.hardware()
    chosen = [head.strip() for head in heads.split(",") if head.strip()]
    numbers, epochs = _numbers(seeds), _epochs_from(epochs_from)
    if on_test and not is_dataset(data):
        raise OptionError(f"--on-test belongs to datasets, and {data} is a file: give --test FILE")
    if on_test and test is not None:
        raise OptionError("--on-test and --test name two sets to measure on: give one")
    if epochs == "fold" and (on_test or test is not None):
        raise OptionError("--epochs-from fold belongs to cross-validation, and this measures on test texts")
    texts = read_labelled(data, table, labels, taxonomy, test=test)
    from arbormax.studies.compare import compare as run
    from arbormax.studies.record import comparison

    with output.stage_progress("comparison") as progress, errors.resume_hint(out, errors.command_line(ctx)):
        result = run(
            config,
            texts.taxonomy,
            texts.train,
            texts.test if on_test or test is not None else None,
            heads=chosen,
            seeds=numbers,
            folds=folds,
            hardware=hardware,
            folder=out,
            progress=progress,
            resamples=resamples,
            level=level,
            epochs_from=epochs,
        )
    told = result.to_dict()
    if out is not None:
        measured_on = texts.test if texts.test is not None and result.measured_on == "test" else texts.train
        command = errors.command_line(ctx)
        results = comparison(
            result, measured_on, texts.taxonomy, data=texts.origin, command=command, texts=not no_texts
        )
        _write_results(out, results)
    if json:
        output.print_json(told)
        return
    rows = result.table()
    names = [name for name in (*shown_measures("main"), *COSTS) if all(name in row for row in rows.values())]
    body = [
        (name, *(_pair(row[name]["mean"], row[name]["std"], name == "parameters") for row in rows.values()))
        for name in names
    ]
    where = f"test, seeds {seeds}" if result.measured_on == "test" else f"{folds} folds, seeds {seeds}"
    output.print_result(output.table(("measure", *rows), body, f"{data}, {config.encoder}, {where}"))
    for difference in result.differences:
        output.print_result(difference.sentence)
    if out is not None:
        output.print_status(f"written: {out}")


@expand_options
def search(
    ctx: typer.Context,
    data: Data,
    model: ModelOptions,
    table: InputOptions,
    labels: LabelOptions,
    machine: MachineOptions,
    taxonomy: Tree = None,
    trials: Annotated[int, typer.Option(min=1, help="Settings to try.")] = 20,
    storage: Annotated[
        str | None, typer.Option(metavar="FILE|URL", help="SQLite file or database, which several workers may share.")
    ] = None,
    study: Annotated[str, typer.Option(help="Name in the storage.")] = "arbormax",
    space: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON: encoders, heads, width, dropout, learning_rate.")
    ] = None,
    folds: Annotated[int, typer.Option(min=1, help="Judge by so many folds; 1: by one held-out part.")] = 1,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which no trial is begun.")] = None,
    json: Json = False,
) -> None:
    """Look for better settings with Optuna, on the training texts only.

    Example: `arbormax search reviews.csv --trials 30 --storage sqlite:///search.db`
    """
    config, hardware = model.config(), machine.hardware()
    texts = read_labelled(data, table, labels, taxonomy)
    from arbormax.studies.search import SearchSpace
    from arbormax.studies.search import search as run

    tried = SearchSpace.make(**_space(space, model))
    with output.stage_progress("search") as progress, errors.resume_hint(storage, errors.command_line(ctx)):
        result = run(
            config,
            texts.taxonomy,
            texts.train,
            trials=trials,
            storage=storage,
            study=study,
            space=tried,
            folds=folds,
            timeout=timeout,
            seed=config.seed,
            hardware=hardware,
            progress=progress,
        )
    told = result.to_dict()
    if json:
        output.print_json(told)
        return
    order = sorted(told["trials"], key=lambda trial: -1.0 if trial["value"] is None else trial["value"], reverse=True)
    rows = [
        (_settings(t["params"]), str(t["number"]), t["state"], output.format_number(t["value"])) for t in order[:10]
    ]
    output.print_result(
        output.table(("settings", "trial", "state", "macro-F1"), rows, f"{data}, best {len(rows)} trials")
    )
    others = f"{result.complete} complete, {result.pruned} pruned, {result.failed} failed"
    output.print_result(f"{others}. The best macro-F1 is that of the texts it was chosen by: a little too good.")
    output.print_result(f"Next: {_train_command(data, result.config, model.preset, taxonomy, table, labels)}")


def _write_results(folder: Path, results: dict[str, Any]) -> None:
    from arbormax._files import write_file
    from arbormax.model.folder import format_metrics

    write_file(folder / "results.json", format_metrics(results).encode())


def _space(path: Path | None, model: ModelOptions) -> dict[str, Any]:
    """What to vary: the user's file, narrowed by what the command line fixes."""
    fixed: dict[str, Any] = {}
    settings = model.settings
    if "encoder" in settings:
        fixed["encoders"] = [settings["encoder"]]
    if "head" in settings:
        fixed["heads"] = [settings["head"]]
    if "learning_rate" in settings:
        fixed["learning_rate"] = [settings["learning_rate"]] * 2
    return {**({} if path is None else _read_space(path)), **fixed}


def _read_space(path: Path) -> dict[str, Any]:
    try:
        space = json_format.loads(path.read_text("utf-8"))
    except json_format.JSONDecodeError as error:
        raise OptionError(f"--space {path}: not JSON: {error}") from None
    if not isinstance(space, dict):
        raise OptionError(f"--space {path}: expected an object of settings, found {type(space).__name__}")
    return space


def _settings(params: dict[str, Any]) -> str:
    shown = [(name.rpartition(".")[2], f"{v:.4g}" if isinstance(v, float) else str(v)) for name, v in params.items()]
    return ", ".join(value if name in ("encoder", "head") else f"{name} {value}" for name, value in shown)


def _train_command(data: str, config: TrainConfig, preset: str | None, taxonomy: Path | None, *groups: Any) -> str:
    """The command that trains with these settings on the same data."""
    words = ["arbormax", "train", data, *(["--preset", preset] if preset else [])]
    words += [] if taxonomy is None else ["--taxonomy", str(taxonomy)]
    usual = type(config).make()
    for parameter in setting_parameters():
        name = parameter.name
        value = getattr(config, name)
        if value is True:
            words.append(_flag(name))
        elif name in ("encoder", "head") or value != getattr(usual, name):
            words += [_flag(name), str(0 if value is None else value)]
        elif name == "head_learning_rate" and preset:  # the preset has one, which the search did not use
            words += [_flag(name), str(config.learning_rate)]
    for name, value in config.encoder_options.items():
        words += ["-o", f"{name}={value if isinstance(value, str) else json_format.dumps(value)}"]
    for group in groups:
        for field in fields(group):
            value = getattr(group, field.name)
            if value is True or value is False:
                words += [_flag(field.name if value else f"no_{field.name}")] if value != field.default else []
            elif value != field.default:
                words += [_flag(field.name), str(value)]
    return shlex.join(words)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdigit() for part in parts):
        raise OptionError(f"--seeds are whole numbers from 0 such as 0,1,2; found {text!r}")
    return [int(part) for part in parts]


def _epochs_from(text: str) -> Literal["inner", "fold"]:
    for choice in ("inner", "fold"):
        if text == choice:
            return choice
    raise OptionError(f"--epochs-from is inner or fold; found {text!r}{did_you_mean(text, ('inner', 'fold'))}")


def _spread(mean: dict[str, float], std: dict[str, float], name: str) -> str:
    return _pair(mean[name], std.get(name))


def _pair(mean: float | None, std: float | None, whole: bool = False) -> str:
    if mean is None:
        return "–"
    if whole:
        return f"{mean:,.0f}"
    return f"{mean:.4f}" if std is None else f"{mean:.4f} ± {std:.4f}"
