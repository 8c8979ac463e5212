"""Options that several commands share, as groups that expand_options into a command's own."""

from __future__ import annotations

import importlib
import inspect
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

import typer

from arbormax.cli.groups import NameOption, OptionGroup, keyword_parameter
from arbormax.cli.threads import set_threads
from arbormax.errors import OptionError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from arbormax.data.columns import InputColumns
    from arbormax.model import Model
    from arbormax.model.predict import Decoding
    from arbormax.model.settings import TrainConfig
    from arbormax.training import Hardware

FILE, MODEL, TRAINING, MACHINE = "Input file", "Model", "Training", "Hardware"  # titles of groups in the help

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Import a Python module first, for example one that registers an encoder; runs its code.",
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …; auto uses a GPU if there is one.")]

Threads = Annotated[
    int | None, typer.Option(help="Number of threads; by default one for each idle core.", show_default=False)
]

NodeTexts = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Texts of the nodes: a table of code, title and description, or a JSON mapping."),
]

Features = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="Columns of the features, for a model of feature matrices: names or patterns such as 'x*'; by default the "
        "columns of the training, or all except the label.",
    ),
]

_NAMES = {
    "encoder": ("arbormax.encoders:text_encoders", "Encoder of the texts"),
    "head": ("arbormax.heads:HEADS", "Classifier head"),
    "uncertainty": ("arbormax.model.posterior:UNCERTAINTIES", "How the model estimates its own uncertainty"),
    "calibration": ("arbormax.uncertainty:calibration_choices", "Calibration on the held-out texts; by default parent"),
}


@dataclass(frozen=True)
class LoadOptions(OptionGroup):
    """How to load a model."""

    device: Device = "auto"
    threads: Threads = None
    imports: Imports = None

    def load(self, folder: Path) -> Model:
        """The model in a folder, on the device."""
        import_modules(self.imports)
        set_threads(self.threads)
        from arbormax.model import load_model

        return load_model(folder, resolve_device(self.device))


@dataclass(frozen=True)
class InputOptions(OptionGroup):
    """How to read a table of texts."""

    panel = FILE

    text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the texts, a name or a position from 0; repeatable, for texts that are joined. By default "
            "the columns of the model's training, or text.",
        ),
    ] = None
    template: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Text of several columns, such as '{name}. {description}', for --text."),
    ] = None
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column of categories beside the text, such as brand; repeatable."),
    ] = None
    delimiter: Annotated[
        str | None, typer.Option(metavar="CHAR", help="Character between the cells of CSV or TSV; by default detected.")
    ] = None
    header: Annotated[
        bool | None,
        typer.Option(help="Whether the first row has the names of the columns; by default detected."),
    ] = None
    quoting: Annotated[
        bool | None, typer.Option(help='Whether " encloses cells of CSV or TSV; by default detected.')
    ] = None
    encoding: Annotated[
        str | None, typer.Option(metavar="NAME", help="Character encoding, such as latin-1; by default detected.")
    ] = None
    sheet: Annotated[
        str | None, typer.Option(metavar="TITLE", help="Sheet of an Excel workbook; by default the first with cells.")
    ] = None
    input_format: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="csv, tsv, jsonl, parquet or xlsx; by default the file's suffix."),
    ] = None
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Skip rows that cannot be read.")] = False

    def reader(self) -> dict[str, Any]:
        """The options of `iter_rows`."""
        names = ("quoting", "encoding", "header", "sheet")
        options: dict[str, Any] = {"format": self.input_format, **{name: getattr(self, name) for name in names}}
        if self.delimiter is not None:
            options["delimiter"] = {r"\t": "\t"}.get(self.delimiter, self.delimiter)
        return options

    def columns(self, of_model: InputColumns | None = None) -> InputColumns:
        """The columns of the texts: those that were given, or those of a model."""
        from arbormax.data.columns import InputColumns

        if of_model is not None and not (self.text or self.template or self.also):
            return of_model
        return InputColumns.of(self.text, self.template, self.also)


@dataclass(frozen=True)
class LabelOptions(InputOptions):
    """How to read a table of labelled texts."""

    label: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the labels: a name, or a position from 0.")
    ] = "label"
    separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Text between the names of a path; by default detected.")
    ] = None

    def of_file(self) -> LabelOptions:
        """These options without those of a subclass."""
        return LabelOptions(**{f.name: getattr(self, f.name) for f in fields(LabelOptions)})


@dataclass(frozen=True)
class TrainingDataOptions(LabelOptions):
    """How to read labelled texts to train on, and their taxonomy."""

    taxonomy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The taxonomy; by default inferred from the labels.")
    ] = None
    node_texts: NodeTexts = None
    inner_classes: Annotated[
        str,
        typer.Option(
            metavar="CHOICE",
            help="What inner nodes are that are labels of rows: parents, whose rows train the steps down to them, or "
            "stop, for classes that can be predicted.",
        ),
    ] = "parents"


@dataclass(frozen=True)
class DecoderOptions(OptionGroup):
    """How to choose the predicted node."""

    decoder: Annotated[str | None, NameOption("arbormax.decode:DECODERS", "How to choose the predicted node")] = None
    tau: Annotated[
        float | None,
        typer.Option(help="Stop at the deepest node with a probability above this value; selects --decoder threshold."),
    ] = None
    decoder_option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Another option of the decoder; repeatable.")
    ] = None
    costs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Costs of --decoder optimal --decoder-option metric=risk: a table (.csv .tsv .xlsx) with one row for "
            "each predicted class and one column for each true class, whose first row and first column are the "
            "classes; or numbers alone in the order of the classes, also .npy and .json.",
        ),
    ] = None
    within: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Predict only classes at or below this node, a label or a path; repeatable."),
    ] = None
    without: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="Predict no class at or below this node; repeatable.")
    ] = None
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Stop at the lowest node that contains the truth with this probability, such as 0.9; for a model that "
            "`arbormax calibrate --coverage` has calibrated."
        ),
    ] = None

    def decoding(self, top_k: int = 0) -> Decoding:
        """The decoding as the library describes it."""
        from arbormax.model.predict import Decoding
        from arbormax.model.rows import parse_nodes

        options = parse_options(self.decoder_option, "decoder_option")
        if self.coverage is not None:
            self._check_alone()
        if self.costs is not None:
            from arbormax.cli.costs import read_costs

            options["costs"] = read_costs(self.costs)
        restriction = {"within": self.within, "without": self.without}
        nodes = {side: parse_nodes(given) for side, given in restriction.items() if given}
        try:
            return Decoding.choose(self.decoder, self.tau, top_k, options, **nodes)
        except OptionError as error:
            if error.argument not in options or error.argument == "costs":
                raise
            raise OptionError(error.message, argument=f"decoder_option.{error.argument}") from None

    def _check_alone(self) -> None:
        """A coverage has its own decoder and threshold, and holds for predictions among all classes."""
        from arbormax.uncertainty.conformal import refuse_restriction

        if any(value is not None for value in (self.decoder, self.tau, self.decoder_option, self.costs)):
            raise OptionError("cannot be combined with a decoder or its options", argument="coverage")
        refuse_restriction(self.within, self.without)

    def decoding_of(self, model: Model, top_k: int = 0) -> Decoding:
        """The decoding for a model, which knows the threshold of a coverage."""
        decoding = self.decoding(top_k)
        return decoding if self.coverage is None else self._covered(model, self.coverage, top_k)

    def _covered(self, model: Model, coverage: float, top_k: int, **sets: Any) -> Decoding:
        from arbormax.uncertainty.conformal import coverage_decoding, has_guarantee

        if not has_guarantee(model):
            raise OptionError(
                "the model has no held-out scores; calibrate it on held-out texts: "
                f"arbormax calibrate MODEL FILE --coverage {coverage:g}",
                argument="coverage",
            )
        return coverage_decoding(model, coverage, top_k, **sets)


@dataclass(frozen=True)
class ModelOptions(OptionGroup):
    """The model and its training: the fields of `TrainConfig`, each as an option, and a few more."""

    panel = MODEL
    without: ClassVar[tuple[str, ...]] = ()  # settings that are not options

    preset: Annotated[str | None, NameOption("arbormax.model.settings:PRESETS", "Published settings")] = None
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", metavar="KEY=VALUE", help="An option of the encoder.")
    ] = None
    uncertainty_option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An option of --uncertainty; repeatable.")
    ] = None
    vectors: Annotated[Path | None, typer.Option(metavar="FILE", help="Pretrained word vectors.")] = None
    imports: Imports = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # the fields of TrainConfig that were given

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        return [*setting_parameters(cls.without), *super().parameters()]

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Self:
        own = {f.name: values.pop(f.name) for f in fields(cls) if f.name != "settings"}
        return cls(**own, settings={name: value for name, value in values.items() if value is not None})

    def config(self) -> TrainConfig:
        """The settings, validated; the encoder chooses those that are not given."""
        import_modules(self.imports)
        from arbormax.encoders import ENCODERS, text_encoders
        from arbormax.model.settings import TrainConfig

        options = parse_options(self.option)
        if self.vectors is not None:
            options["vectors"] = str(self.vectors)
        given = {**self.settings, **({"encoder_options": options} if options else {})}
        if self.uncertainty_option:
            given["uncertainty_options"] = parse_options(self.uncertainty_option, "uncertainty_option")
        disabled = {name: None for name in given if given[name] == 0 and _can_disable(TrainConfig.model_fields[name])}
        config = TrainConfig.make(self.preset, **{name: given[name] for name in given if name not in disabled})
        config = config.model_copy(update=disabled)
        if not ENCODERS[config.encoder].takes_texts:
            message = f"{config.encoder!r} takes feature matrices, not texts (available: {', '.join(text_encoders())})"
            raise OptionError(message, argument="encoder")
        config.check()
        return config


@dataclass(frozen=True)
class ComparedOptions(ModelOptions):
    """The options of a comparison, which has --heads and --seeds in place of --head and --seed."""

    without: ClassVar[tuple[str, ...]] = ("head", "seed")


def setting_parameters(without: Sequence[str] = ()) -> list[inspect.Parameter]:
    """A parameter for every field of `TrainConfig` that has one value; None means not given."""
    from arbormax.model.settings import TrainConfig

    parameters = []
    for name, setting in TrainConfig.model_fields.items():
        own = ("encoder_options", "uncertainty_options", "columns", "separator")  # which have options of their own
        if name in (*own, *without):
            continue
        kind, choices = _option_type(setting.annotation)
        text = str(setting.description)
        if missing := [choice for choice in choices if choice not in text]:
            text += f": {', '.join(missing)}"
        text += "; 0 disables it" * _can_disable(setting)
        default = setting.default
        about: dict[str, Any] = {"rich_help_panel": MODEL if name in _NAMES else TRAINING}
        about["show_default"] = False if default is None or isinstance(default, bool) else str(default)
        flag = name.replace("_", "-")  # a Boolean setting is a flag, with a negation if it is true by default
        flags = [f"--{flag}" + f"/--no-{flag}" * (default is True)] if kind is bool else []
        option: Any = (
            NameOption(*_NAMES[name], **about)
            if name in _NAMES
            else typer.Option(*flags, help=f"{text[0].upper()}{text[1:]}.", **about)
        )
        annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
        parameters.append(keyword_parameter(name, annotation, None))
    return parameters


def _option_type(annotation: Any) -> tuple[Any, tuple[str, ...]]:
    """The type of a setting on the command line, and its choices if there are few."""
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    choices = tuple(str(choice) for kind in members if get_origin(kind) is Literal for choice in get_args(kind))
    if choices or any(get_origin(kind) is tuple for kind in members):  # a tuple: numbers with commas between them
        return str, choices
    return next((kind for kind in (bool, int, float) if kind in members), str), choices


def _can_disable(setting: FieldInfo) -> bool:
    """Whether None turns a setting off, so that 0 does on the command line."""
    return setting.default is not None and type(None) in get_args(setting.annotation)


@dataclass(frozen=True)
class MachineOptions(OptionGroup):
    """The hardware to train on."""

    panel = MACHINE

    accelerator: Annotated[str, typer.Option(help="auto, cpu, gpu, … as in Lightning.")] = "auto"
    devices: Annotated[str, typer.Option(help="Number of devices, or a list such as 0,1.")] = "1"
    threads: Threads = None

    def hardware(self) -> Hardware:
        """The hardware as the library describes it."""
        from arbormax.training import Hardware

        return Hardware(self.accelerator, self.devices)


# Arguments of the library that are options of another name, or a flag for one value.
_OTHER_NAMES = {
    "format": "input_format",
    "output_format": "format",
    "sep": "separator",
    "encoder_options": "option",
    "uncertainty_options": "uncertainty_option",
    "head": "heads",
    "seed": "seeds",
}
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
        return self._parameters.get(_OTHER_NAMES.get(argument, "")) or self._parameters.get(argument)


def _option_name(parameter: Any) -> str:
    """`--tau` of an option, `MODEL` of a positional argument."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return str(max(parameter.opts, key=len))


def parse_options(given: list[str] | None, argument: str = "option") -> dict[str, Any]:
    """The `KEY=VALUE` pairs as a dictionary; a value that is not JSON is text."""
    options: dict[str, Any] = {}
    for pair in given or ():
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise OptionError(f"expected KEY=VALUE, such as dropout=0.3, found {pair!r}", argument=argument)
        try:
            options[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            options[name.strip()] = value
    return options


def import_modules(names: list[str] | None) -> None:
    """Import the named modules, also from the current folder."""
    for name in names or ():
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)
        try:
            importlib.import_module(name)
        except Exception as error:
            reason = " ".join(str(error).split())
            raise OptionError(
                f"cannot import {name!r}: {type(error).__name__}: {reason}", argument="imports"
            ) from error


def resolve_device(name: str) -> str:
    """The name of a usable device."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise OptionError(f"cannot use {name!r} ({reason}); expected cpu, cuda or auto", argument="device") from error
    return name
