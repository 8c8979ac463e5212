"""Options that several commands share, as groups that expand_options into a command's own."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from arbormax.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from arbormax.model import TrainConfig
    from arbormax.training import Hardware

FILE, MODEL, TRAINING, MACHINE = "How the file is written", "The model", "Training", "The machine"

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for scripts.")]
Imports = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="A module of yours that registers an encoder; runs its code."),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …; auto: a GPU where there is one.")]


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with every parameter that is a group of options replaced by the group's fields."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if not is_dataclass(hints[name]):
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[name] = hints[name]
        inner = get_type_hints(hints[name], include_extras=True)
        parameters += [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=inner[f.name])
            for f in fields(hints[name])
        ]

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{f.name: values.pop(f.name) for f in fields(group)})
        command(**values)

    del run.__wrapped__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@dataclass(frozen=True)
class InputOptions:
    """How a user's table is written."""

    text: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the texts, or its position from 0.", rich_help_panel=FILE)
    ] = "text"
    delimiter: Annotated[
        str | None, typer.Option(metavar="CHAR", help=r"Between the cells of CSV or TSV.", rich_help_panel=FILE)
    ] = None
    no_header: Annotated[
        bool, typer.Option("--no-header", help="Columns have positions, not names.", rich_help_panel=FILE)
    ] = False
    quoting: Annotated[
        bool | None, typer.Option(help='Whether " encloses cells of CSV or TSV.', rich_help_panel=FILE)
    ] = None
    encoding: Annotated[str, typer.Option(metavar="NAME", help="Such as latin-1.", rich_help_panel=FILE)] = "utf-8-sig"
    input_format: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="csv, tsv, jsonl or parquet, if not the suffix.", rich_help_panel=FILE),
    ] = None
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out rows that cannot be read.", rich_help_panel=FILE)
    ] = False

    def reader(self) -> dict[str, Any]:
        """The options of `iter_rows`."""
        options: dict[str, Any] = {"format": self.input_format, "quoting": self.quoting, "encoding": self.encoding}
        if self.delimiter is not None:
            options["delimiter"] = {r"\t": "\t"}.get(self.delimiter, self.delimiter)
        return {**options, "header": not self.no_header}


@dataclass(frozen=True)
class LabelOptions:
    """How the labels in a user's table are written."""

    label: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the labels, or its position from 0.", rich_help_panel=FILE)
    ] = "label"
    separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Between the names of a label's path; else guessed.", rich_help_panel=FILE),
    ] = None


@dataclass(frozen=True)
class ModelOptions:
    """The settings of a model and its training; None stands for what the encoder does best with."""

    encoder: Annotated[
        str | None, typer.Option(help="bag (the default), lstm, bilstm, tfidf, transformer …", rich_help_panel=MODEL)
    ] = None
    head: Annotated[
        str | None, typer.Option(help="hierarchical (the default), flat or shared.", rich_help_panel=MODEL)
    ] = None
    preset: Annotated[
        str | None, typer.Option(help="paper: the settings of Schuurmans & Frasincar.", rich_help_panel=MODEL)
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="KEY=VALUE", help="A setting of the encoder.", rich_help_panel=MODEL),
    ] = None
    vectors: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Word vectors to start from.", rich_help_panel=MODEL)
    ] = None
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="A module of yours that registers an encoder; runs its code.",
            rich_help_panel=MODEL,
        ),
    ] = None
    epochs: Annotated[int | None, typer.Option(help="At most so many.", rich_help_panel=TRAINING)] = None
    batch_size: Annotated[int | None, typer.Option(help="Texts per step.", rich_help_panel=TRAINING)] = None
    learning_rate: Annotated[float | None, typer.Option(help="Of the encoder.", rich_help_panel=TRAINING)] = None
    head_learning_rate: Annotated[float | None, typer.Option(help="Of the head.", rich_help_panel=TRAINING)] = None
    seed: Annotated[
        int | None, typer.Option(help="Of weights, order and dropout; 0 by default.", rich_help_panel=TRAINING)
    ] = None
    precision: Annotated[
        str | None, typer.Option(help="32-true, 16-mixed or bf16-mixed.", rich_help_panel=TRAINING)
    ] = None
    patience: Annotated[
        int | None, typer.Option(help="Epochs without a better macro-F1; 0: never stop.", rich_help_panel=TRAINING)
    ] = None
    validation: Annotated[
        float | None, typer.Option(help="Share held out to stop early; 0: none.", rich_help_panel=TRAINING)
    ] = None
    clip: Annotated[
        float | None, typer.Option(help="Largest norm of the gradient; 0: any.", rich_help_panel=TRAINING)
    ] = None
    class_weight: Annotated[
        str | None, typer.Option(help="balanced: rare classes count more.", rich_help_panel=TRAINING)
    ] = None
    label_smoothing: Annotated[
        float | None,
        typer.Option(
            help="Such as 0.1, by default 0: among siblings; among all classes with another head.",
            rich_help_panel=TRAINING,
        ),
    ] = None
    gamma: Annotated[float | None, typer.Option(help="Of the focal loss.", rich_help_panel=TRAINING)] = None
    tau: Annotated[
        float | None, typer.Option(help="Logit adjustment by sibling frequencies.", rich_help_panel=TRAINING)
    ] = None
    hxe_alpha: Annotated[float | None, typer.Option(help="Bertinetto's level weights.", rich_help_panel=TRAINING)] = (
        None
    )
    sparse_head: Annotated[
        bool | None,
        typer.Option(
            "--sparse-head",
            help="Update the head's rows on the paths only.",
            rich_help_panel=TRAINING,
        ),
    ] = None

    def config(self) -> TrainConfig:
        """The settings, checked; what was not given is left to the encoder."""
        import_modules(self.imports)
        from arbormax.model import TrainConfig

        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        preset = given.pop("preset", None)
        for name in ("option", "vectors", "imports"):
            given.pop(name, None)
        options = parse_options(self.option)
        if self.vectors is not None:
            options["vectors"] = str(self.vectors)
        if options:
            given["encoder_options"] = options
        none = {name: None for name in ("patience", "clip") if given.get(name) == 0}  # 0 says so on a command line
        config = TrainConfig.make(preset, **{name: value for name, value in given.items() if name not in none})
        config = config.model_copy(update=none)
        config.check()
        return config


@dataclass(frozen=True)
class MachineOptions:
    """Where to train."""

    accelerator: Annotated[str, typer.Option(help="auto, cpu, gpu … of Lightning.", rich_help_panel=MACHINE)] = "auto"
    devices: Annotated[str, typer.Option(help="How many, or which ones.", rich_help_panel=MACHINE)] = "1"

    def hardware(self) -> Hardware:
        """Where to train, checked as far as that goes without the machine."""
        from pytorch_lightning.accelerators import AcceleratorRegistry

        from arbormax.training import Hardware

        known = ("auto", "gpu", *AcceleratorRegistry.available_accelerators())
        if self.accelerator not in known:
            near = did_you_mean(self.accelerator, known)
            raise OptionError(f"--accelerator is one of {', '.join(known)}; found {self.accelerator!r}{near}")
        count = self.devices.strip()
        if count.isdigit() and int(count):
            return Hardware(self.accelerator, int(count))
        if count == "0" or not re.fullmatch(r"auto|-1|\d+(,\d+)*,?", count):
            raise OptionError(f"--devices is a number from 1, a list such as 0,1 or auto; found {self.devices!r}")
        return Hardware(self.accelerator, count)


# Arguments of the library that are options of another name, or a flag for one value.
_OTHER_NAMES = {"format": "input_format", "sep": "separator", "encoder_options": "option", "import": "imports"}
_FLAGS = {("on_bad_rows", "skip"): "skip_bad_rows"}


class Spelling:
    """Arguments of the library as options of one command: `tau` becomes `--tau`, `header=False` `--no-header`.

    An argument without an option keeps its Python spelling.
    """

    def __init__(self, command: Any) -> None:
        self._parameters = {parameter.name: parameter for parameter in command.params}

    def name(self, argument: str) -> str:
        """The option of an argument; `encoder_options.dim` is the key `dim` of `--option`."""
        name, _, key = argument.partition(".")
        parameter = self._find(name) or self._parameters.get(f"no_{name}")
        if parameter is None:
            return argument
        return " ".join(filter(None, (_option_name(parameter), key)))

    def assign(self, argument: str, value: object) -> str:
        """The option that gives an argument a value."""
        if flag := self._parameters.get(_FLAGS.get((argument, value), "") if isinstance(value, str) else ""):
            return _option_name(flag)
        if value is False and (flag := self._parameters.get(f"no_{argument}")):
            return _option_name(flag)
        parameter = self._find(argument)
        if parameter is None:
            return f"{argument}={value!r}"
        if isinstance(value, bool) and parameter.is_flag:
            names = parameter.opts if value else parameter.secondary_opts
            return str(max(names, key=len)) if names else f"{argument}={value!r}"
        return f"{self.name(argument)} {shlex.quote(str(value))}"

    def _find(self, argument: str) -> Any:
        return self._parameters.get(argument) or self._parameters.get(_OTHER_NAMES.get(argument, ""))


def _option_name(parameter: Any) -> str:
    """`--tau` of an option, `MODEL` of a positional argument."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return str(max(parameter.opts, key=len))


def parse_options(given: list[str] | None) -> dict[str, Any]:
    """`key=value` pairs, the values as JSON where they are JSON and as text where not."""
    options: dict[str, Any] = {}
    for pair in given or ():
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise OptionError(f"-o takes KEY=VALUE such as -o dropout=0.3, found {pair!r}")
        try:
            options[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            options[name.strip()] = value
    return options


def import_modules(names: list[str] | None) -> None:
    """Run the modules that the user named, also those that lie in the current folder."""
    for name in names or ():
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)
        try:
            importlib.import_module(name)
        except Exception as error:
            told = " ".join(str(error).split())
            raise OptionError(
                f"--import {name}: the module cannot be imported: {type(error).__name__}: {told}"
            ) from error


def resolve_device(name: str) -> str:
    """The device to compute on, checked."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        told = str(error).splitlines()[0]
        raise OptionError(f"--device {name}: cannot compute there ({told}); expected cpu, cuda or auto") from error
    return name
