"""Groups of options that several commands share, and options whose values are names in a registry."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin, get_type_hints

from typer.models import OptionInfo


class OptionGroup:
    """The base class of a frozen dataclass whose annotated fields are options of every command that has it."""

    panel: ClassVar[str | None] = None  # title of the options in the help

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """One keyword parameter for each option."""
        hints = get_type_hints(cls, include_extras=True)
        return [
            keyword_parameter(f.name, _in_panel(hints[f.name], cls.panel), f.default)
            for f in fields(cls)  # type: ignore[arg-type]  # every subclass is a dataclass
            if get_origin(hints[f.name]) is Annotated
        ]

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Self:
        """The group with the values of its parameters."""
        return cls(**values)

    def words(self) -> list[str]:
        """The words of a command line that set the options which differ from their default."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return option_words({f.name: values[f.name] for f in fields(self) if values[f.name] != f.default})  # type: ignore[arg-type]


def option_words(values: Mapping[str, Any]) -> list[str]:
    """The words of a command line that set options to these values."""
    words = []
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-"))
            continue
        for one in value if isinstance(value, list) else [value]:
            words += [flag, str(one)]
    return words


def keyword_parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """A parameter of a command that is given by name."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _in_panel(hint: Any, panel: str | None) -> Any:
    kind, option = get_args(hint)
    option = copy(option)
    option.rich_help_panel = option.rich_help_panel or panel
    return Annotated[kind, option]


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with every parameter that is an `OptionGroup` replaced by the options of the group."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[OptionGroup], list[str]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        hint = hints[name]
        if isinstance(hint, type) and issubclass(hint, OptionGroup):
            options = hint.parameters()
            groups[name] = hint, [option.name for option in options]
            parameters += options
        else:
            parameters.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**values: Any) -> None:
        for name, (group, options) in groups.items():
            values[name] = group.from_values({option: values.pop(option) for option in options})
        command(**values)

    del run.__wrapped__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


class NameOption(OptionInfo):
    """An option whose value is one of the names of a registry or a function, such as `"arbormax.heads:HEADS"`.

    Help and completion list the names that are registered when they are shown. The library checks the value, because
    a module of `--import` may register more names.
    """

    def __init__(self, registry: str, text: str, **settings: Any) -> None:
        self.registry = registry
        self.text = text
        super().__init__(default=..., autocompletion=self.complete, **settings)

    @property
    def names(self) -> tuple[str, ...]:
        """The names; the keys, if it is a mapping."""
        module, _, attribute = self.registry.partition(":")
        found = getattr(import_module(module), attribute)
        return tuple(found() if callable(found) else found)

    def _get_help(self) -> str:
        return f"{self.text}: {', '.join(self.names)}."

    def _set_help(self, _: str | None) -> None:
        """Ignore the empty text that the base class sets."""

    help = property(_get_help, _set_help)

    def complete(self, incomplete: str) -> list[str]:
        """The names that begin like the incomplete word."""
        return [name for name in self.names if name.startswith(incomplete)]
