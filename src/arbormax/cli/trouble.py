"""What a person reads when something is wrong: one line and an exit code, a traceback only where it was asked for."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from arbormax.cli import show
from arbormax.errors import ArbormaxError

BAD_INPUT, INTERRUPTED, BROKEN = 2, 130, 1

# Typer ships its own copy of Click or uses the installed one, by version; this is the right one in either case.
UsageError: Any = typer.BadParameter.__mro__[1]
ClickError: Any = typer.BadParameter.__mro__[2]

# The library's errors speak of arguments; here they are options.
_SPOKEN = (
    (r"(\bno (?:row has a )?column '(text|label)'[^(]*\(found [^)]*\))", r"\1; name yours with --\2"),
    (r"\bheader=False\b", "--no-header"),
    (r"\bheader=True\b", "--header"),
    (r"\bquoting=False\b", "--no-quoting"),
    (r"\bquoting=True\b", "--quoting"),
    (r"\bon_bad_rows=[\"']skip[\"']", "--skip-bad-rows"),
    (r"\blossy=True\b", "--lossy"),
    (r"\bwith format=", "with --input-format"),
    (r"\bpass format=, one of", "pass --input-format, one of"),
    (r"\bepochs_from=[\"'](\w+)[\"']", r"--epochs-from \1"),
    (r"\binner_classes=[\"'](\w+)[\"']", r"--inner-classes \1"),
    (r"\bsparse_head\b", "--sparse-head"),
    (r"\bsep=('.+?') or sep=('.+?')", r"--separator \1 or --separator \2 of arbormax taxonomy convert"),
    (r"\b(head|encoder|encoding|layout)=[\"']([\w-]+)[\"']", r"--\1 \2"),
    (r"\b(delimiter|encoding|separator|layout|head|validation|taxonomy)=(?=['\"\w])", r"--\1 "),
    (r"\b(delimiter|encoding|header|quoting|separator|layout|taxonomy|root|study)=", r"--\1"),
)


class Program(TyperGroup):
    """The program, which turns every error into a line and an exit code."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        given = list(args)
        end = given.index("--") if "--" in given else len(given)
        # asked for anywhere on the line, also behind the command
        kept = [arg for place, arg in enumerate(given) if arg != "--debug" or place > end]
        if len(kept) < len(given):
            kept.insert(0, "--debug")
        with telling():
            context = super().make_context(info_name, kept, *rest, **extra)
        context.meta["arguments"] = [arg for arg in kept if arg != "--debug"]
        return context

    def invoke(self, ctx: Any) -> Any:
        with telling(bool(ctx.params.get("debug"))), plain_warnings():
            return super().invoke(ctx)


def command_line(ctx: Any, without: tuple[str, ...] = (), extra: tuple[str, ...] = ()) -> str:
    """The command as it was given, ready to be given again."""
    import shlex

    root = ctx.find_root()
    arguments = [arg for arg in root.meta["arguments"] if arg not in (*without, *extra)]
    return shlex.join([*str(root.info_name).split(), *arguments, *extra])


@contextmanager
def telling(debug: bool = False) -> Iterator[None]:
    """Errors raised inside become a line on stderr and an exit code."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except SystemExit as error:
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        stop("stopped", INTERRUPTED)  # Lightning leaves this way on Ctrl-C
    except KeyboardInterrupt:
        stop("stopped", INTERRUPTED)
    except BrokenPipeError:
        raise  # whoever read our output has enough; Typer ends quietly
    except ClickError as error:
        if debug:
            raise
        stop(usage(error), BAD_INPUT)
    except Exception as error:
        if debug:
            raise
        if is_interruption(error):
            stop(str(error), INTERRUPTED)
        if is_bad_input(error):
            stop(sentence(error), BAD_INPUT)
        told = " ".join(str(error).split())
        stop(f"{type(error).__name__}: {told} (not expected: --debug shows where; please report it)", BROKEN)


def stop(message: str, code: int) -> None:
    """Say it, and end the program with this exit code."""
    show.say(f"arbormax: {message}", style="yellow" if code == INTERRUPTED else "red")
    raise typer.Exit(code) from None


def is_interruption(error: BaseException) -> bool:
    """Whether training was asked to stop; the class is known only where training was imported."""
    training = sys.modules.get("arbormax.training")
    return training is not None and isinstance(error, training.TrainingInterrupted)


def is_bad_input(error: Exception) -> bool:
    lightning = sys.modules.get("lightning_fabric.utilities.exceptions")
    misused = lightning is not None and isinstance(error, lightning.MisconfigurationException)
    return misused or isinstance(error, (ArbormaxError, OSError, UnicodeError))


def sentence(error: Exception) -> str:
    """What is wrong, in the words of the command line; defects of one input stay a list."""
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ArbormaxError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror[0].lower()}{error.strerror[1:]}"
    told = str(error).strip() or type(error).__name__
    if not isinstance(error, ArbormaxError):
        return " ".join(told.split())
    return spoken(told)


def spoken(told: str) -> str:
    """A message of the library with its arguments as options of the command line."""
    for pattern, option in _SPOKEN:
        told = re.sub(pattern, option, told)
    return told


def usage(error: Any) -> str:
    """A mistake in the command itself, with where its help is."""
    context = getattr(error, "ctx", None)
    told = " ".join(str(error.format_message()).split()).rstrip(".")
    return f"{told} (see `{context.command_path} --help`)" if context is not None else told


@contextmanager
def going_on(kept: Path | str | None, again: str) -> Iterator[None]:
    """Who stops what runs inside is told the command that goes on, where anything is kept."""
    try:
        yield
    except (ArbormaxError, KeyboardInterrupt, SystemExit) as error:
        asked = is_interruption(error) or isinstance(error, KeyboardInterrupt)
        if kept is None or not (asked or isinstance(error.__context__, KeyboardInterrupt)):
            raise
        stop(f"stopped, and everything so far is in {kept}; go on with: {again}", INTERRUPTED)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings as one line each, without the place in the code that raised them."""
    with warnings.catch_warnings():
        former = warnings.showwarning

        def shown(message: Any, _category: Any, filename: str, *_: Any, **__: Any) -> None:
            if any(part in filename for part in ("pytorch_lightning", "lightning_fabric", "torch/")):
                return  # advice to programmers
            show.say(f"arbormax: warning: {' '.join(str(message).split())}", style="yellow")

        if former.__module__ == "warnings":  # tests record warnings instead
            warnings.showwarning = shown  # type: ignore[assignment]
        yield
