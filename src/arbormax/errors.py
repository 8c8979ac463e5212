"""The errors that arbormax raises. Each is also the built-in exception that a caller would expect to catch."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

__all__ = [
    "ArbormaxError",
    "InputError",
    "LabelError",
    "MissingDependencyError",
    "OptionError",
    "TableError",
    "TaxonomyError",
    "check_choice",
    "did_you_mean",
    "import_extra",
]


class ArbormaxError(Exception):
    """The base class of every error that arbormax raises on purpose.

    `argument` is the name of the wrong argument. `fix` maps arguments that would help to their values; a tuple lists
    several values to try. Both are part of the message in Python's spelling; the command line renders them as its own
    options. Any one of the fix would help, but those in `together` only together. `parts` are errors that are reported
    together, one per line.

    >>> str(ArbormaxError("expected a number, found 'x'", argument="tau"))
    "tau: expected a number, found 'x'"
    >>> str(ArbormaxError("the first row is not a header", fix={"header": False}))
    'the first row is not a header; try header=False'
    """

    def __init__(
        self,
        message: str = "",
        *,
        argument: str | None = None,
        fix: Mapping[str, object] | None = None,
        together: Iterable[str] = (),
        parts: Iterable["ArbormaxError"] = (),
    ) -> None:
        self.parts = tuple(parts)
        if len(self.parts) == 1:
            only = self.parts[0]
            message, argument, fix, together = only.message, only.argument, only.fix, only.together
        self.message: str = message
        self.argument: str | None = argument
        self.fix: dict[str, object] = dict(fix or {})
        self.together: tuple[str, ...] = tuple(together)
        super().__init__(self.render())

    def render(
        self,
        name: Callable[[str], str] = str,
        assign: Callable[[str, object], str] = "{}={!r}".format,
    ) -> str:
        """The whole message, with `name` spelling the argument and `assign` each argument of the fix."""
        if len(self.parts) > 1:
            return "\n".join(part.render(name, assign) for part in self.parts)
        prefix = f"{name(self.argument)}: " if self.argument else ""
        needed = " and ".join(assign(argument, self.fix[argument]) for argument in self.together)
        choices = [
            assign(argument, value)
            for argument, values in self.fix.items()
            if argument not in self.together
            for value in (values if isinstance(values, tuple) else (values,))
        ]
        alternatives = ", or ".join(filter(None, (needed, " or ".join(choices))))
        hint = f"; try {alternatives}" if alternatives else ""
        first, *details = self.message.split("\n")
        return "\n".join([f"{prefix}{first}{hint}", *details])


def _shorten(message: str) -> str:
    """The message without the middle of a long quotation."""
    return message if len(message) <= 2000 else f"{message[:1000]} … {message[-900:]}"


class _ListedError(ArbormaxError, ValueError):
    """An error that reports several defects of one input.

    `problems` contains every defect, one string each; the message shows the first ones.
    """

    shown = 20

    def __init__(
        self,
        message: str,
        problems: Iterable[str] = (),
        *,
        argument: str | None = None,
        fix: Mapping[str, object] | None = None,
        together: Iterable[str] = (),
    ) -> None:
        self.problems = tuple(problems) or (message,)
        if len(self.problems) > 1:
            listed = [f"  - {_shorten(problem)}" for problem in self.problems[: self.shown]]
            if len(self.problems) > self.shown:
                listed.append(f"  - … and {len(self.problems) - self.shown} more")
            message = "\n".join([_shorten(message), *listed])
        else:
            message = _shorten(message)
        super().__init__(message, argument=argument, fix=fix, together=together)


class TaxonomyError(_ListedError):
    """The input is not a tree of named classes; `problems` lists every defect."""


class LabelError(_ListedError):
    """A label matches no node of the taxonomy, or several; `problems` has one entry per label."""


class InputError(ArbormaxError, ValueError):
    """A tensor, an array or a file has the wrong shape, range or content."""


class TableError(_ListedError, InputError):
    """A table cannot be read; `problems` lists every bad row with its line number."""


class OptionError(ArbormaxError, TypeError, ValueError):
    """An option is unknown, has a wrong value, or cannot be combined with another."""


class MissingDependencyError(ArbormaxError, ImportError):
    """A package that this feature needs is not installed."""

    def __init__(self, feature: str, package: str, extra: str | None = None) -> None:
        self.given = (feature, package, extra)
        or_extra = f", or pip install 'arbormax[{extra}]'" if extra else ""
        super().__init__(f"{feature} needs the package {package}: pip install '{package.lower()}'{or_extra}")

    def __reduce__(self) -> tuple[type, tuple[str, str, str | None]]:  # errors of worker processes are pickled
        return type(self), self.given


def import_extra(module: str, feature: str, package: str, extra: str | None = None) -> Any:
    """Import a module of an optional package, or raise an error that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        if (error.name or module).split(".")[0] != module.split(".")[0]:
            raise  # the package is there, and lacks one of its own dependencies
        raise MissingDependencyError(feature, package, extra) from None


def did_you_mean(
    word: str, known: Iterable[str], count: int = 3, *, spell: Callable[[str], Iterable[str]] | None = None
) -> str:
    """`"; did you mean 'x' or 'y'?"`, or an empty string if no known word is similar.

    `spell` gives what a user has to write for a known word.
    """
    known = list(dict.fromkeys(known))
    folded = word.casefold()
    near = [name for name in known if name.casefold() == folded][:count]
    if not near:
        # difflib compares with every word, which is slow for a large vocabulary
        pool = known if len(known) <= 20_000 else [k for k in known if k[:1].casefold() == folded[:1]][:20_000]
        near = get_close_matches(word, pool, n=count, cutoff=0.6)
    if spell is not None:
        near = [spelling for name in near for spelling in spell(name)][:count]
    if not near:
        return ""
    *first, last = [repr(name) for name in near]
    return f"; did you mean {', '.join(first)} or {last}?" if first else f"; did you mean {last}?"


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise unless the value of an option is one of the choices."""
    if value not in choices:
        *others, last = map(repr, choices)
        listed = f"{', '.join(others)} or {last}"
        raise OptionError(f"expected {listed}, found {value!r}{did_you_mean(str(value), choices)}", argument=name)
