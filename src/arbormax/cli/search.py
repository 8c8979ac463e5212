"""`arbormax search`: search for better settings with Optuna."""

from __future__ import annotations

import json as json_format
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax._files import read_json
from arbormax.cli import errors, output
from arbormax.cli.groups import expand_options, option_words
from arbormax.cli.inputs import read_labelled
from arbormax.cli.options import Json, MachineOptions, ModelOptions, TrainingDataOptions, setting_parameters
from arbormax.cli.studies import Data
from arbormax.cli.threads import set_threads

if TYPE_CHECKING:
    from arbormax.model import TrainConfig

_SHOWN_TRIALS = 10


@expand_options
def search(
    ctx: typer.Context,
    data: Data,
    model: ModelOptions,
    table: TrainingDataOptions,
    machine: MachineOptions,
    trials: Annotated[int, typer.Option(min=1, help="Number of complete trials.")] = 20,
    storage: Annotated[
        str | None, typer.Option(metavar="FILE|URL", help="SQLite file or database URL; several workers can share it.")
    ] = None,
    study: Annotated[str, typer.Option(help="Name of the study in the storage.")] = "arbormax",
    space: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON with encoders, heads, width, dropout, learning_rate.")
    ] = None,
    folds: Annotated[int, typer.Option(min=1, help="Number of folds; 1 holds out one part of the texts.")] = 1,
    timeout: Annotated[float | None, typer.Option(help="Start no trial after this many seconds.")] = None,
    json: Json = False,
) -> None:
    """Search for better settings with Optuna, on the training texts only.

    Example: `arbormax search reviews.csv --trials 30 --storage sqlite:///search.db`
    """
    config, hardware = model.config(), machine.hardware()
    set_threads(machine.threads)
    texts = read_labelled(data, table)
    from arbormax.studies.search import search as run
    from arbormax.studies.search_space import SearchSpace

    searched = SearchSpace.make(**{**({} if space is None else read_json(space)), **_fixed_settings(model)})
    with output.stage_progress("search") as progress, errors.resume_hint(storage, errors.command_line(ctx)):
        result = run(
            config,
            texts.taxonomy,
            texts.train,
            trials=trials,
            storage=storage,
            study=study,
            space=searched,
            folds=folds,
            timeout=timeout,
            seed=config.seed,
            hardware=hardware,
            progress=progress,
        )
    if json:
        output.print_json(result.to_dict())
        return
    best = sorted(result.trials, key=lambda trial: -1.0 if trial["value"] is None else trial["value"], reverse=True)
    rows = [
        (_format_settings(trial["params"]), str(trial["number"]), trial["state"], output.format_number(trial["value"]))
        for trial in best[:_SHOWN_TRIALS]
    ]
    title = f"{data}, best {len(rows)} trials"
    output.print_result(output.table(("settings", "trial", "state", "macro-F1"), rows, title))
    output.print_result(
        f"{result.complete} complete, {result.pruned} pruned, {result.failed} failed. The best macro-F1 is optimistic: "
        "it is measured on the texts that selected the settings."
    )
    output.print_result(f"Next: {_train_command(data, result.config, model.preset, table)}")


def _fixed_settings(model: ModelOptions) -> dict[str, Any]:
    """The part of the search space that options of the command line fix."""
    fixed = {"encoder": "encoders", "head": "heads"}
    space: dict[str, Any] = {fixed[name]: [value] for name, value in model.settings.items() if name in fixed}
    if "learning_rate" in model.settings:
        space["learning_rate"] = [model.settings["learning_rate"]] * 2
    return space


def _format_settings(params: dict[str, Any]) -> str:
    shown = [(name.rpartition(".")[2], f"{v:.4g}" if isinstance(v, float) else str(v)) for name, v in params.items()]
    return ", ".join(value if name in ("encoder", "head") else f"{name} {value}" for name, value in shown)


def _train_command(data: str, config: TrainConfig, preset: str | None, table: TrainingDataOptions) -> str:
    """The command that trains with these settings on the same data."""
    default, names = type(config).make(), [parameter.name for parameter in setting_parameters()]
    settings = {name: getattr(config, name) for name in names}
    changed = {n: v for n, v in settings.items() if v != getattr(default, n) or n in ("encoder", "head")}
    if preset:  # which has a learning rate of the head that the search did not use
        changed.setdefault("head_learning_rate", config.learning_rate)
    words = option_words({} if preset is None else {"preset": preset})
    words += option_words({name: 0 if value is None else value for name, value in changed.items()})
    for name, value in config.encoder_options.items():
        words += ["-o", f"{name}={value if isinstance(value, str) else json_format.dumps(value)}"]
    return shlex.join(["arbormax", "train", data, *words, *table.words()])
