"""Error handling of the command line: one line and an exit code, or a traceback with `--debug`."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from arbormax.cli import output
from arbormax.cli.options import Spelling
from arbormax.errors import ArbormaxError

BAD_INPUT, INTERRUPTED, FAILED, CLOSED_PIPE = 2, 130, 1, 141  # 141: as a shell reports SIGPIPE

# Typer contains a copy of Click or uses the installed one, depending on its version: take the class from Typer.
ClickError: Any = typer.BadParameter.__mro__[2]


class Program(TyperGroup):
    """The root command: turns every error into a line on stderr and an exit code."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        given = list(args)
        end = given.index("--") if "--" in given else len(given)
        # --debug may also stand after the subcommand
        words = [arg for place, arg in enumerate(given) if arg != "--debug" or place > end]
        debug = ["--debug"] if len(words) < len(given) else []
        with exit_on_error(self):
            context = super().make_context(info_name, [*debug, *words], *rest, **extra)
        context.meta["arguments"] = words
        return context

    def invoke(self, ctx: Any) -> Any:
        command = self.find_command(ctx.meta["arguments"])
        with exit_on_error(command, debug=bool(ctx.params.get("debug"))), one_line_warnings():
            result = super().invoke(ctx)
            sys.stdout.flush()  # raises here, not at the end of the process, if nobody reads it
            return result

    def find_command(self, words: list[str]) -> Any:
        """The innermost command that these words name."""
        command: Any = self
        for word in words:
            if word not in getattr(command, "commands", {}):
                break
            command = command.commands[word]
        return command


def command_line(ctx: Any, without: tuple[str, ...] = (), extra: tuple[str, ...] = ()) -> str:
    """The command that is running, quoted for a shell, without some words and with extra ones."""
    import shlex

    root = ctx.find_root()
    arguments = [arg for arg in root.meta["arguments"] if arg not in (*without, *extra)]
    return shlex.join([*str(root.info_name).split(), *arguments, *extra])


@contextmanager
def exit_on_error(command: Any, debug: bool = False) -> Iterator[None]:
    """Print an error that is raised inside as one line on stderr, and exit; `debug` raises it instead."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except BrokenPipeError:  # the reader of stdout, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(CLOSED_PIPE) from None
    except SystemExit as error:
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        exit_with("stopped", INTERRUPTED)  # Lightning exits on Ctrl-C
    except KeyboardInterrupt:
        exit_with("stopped", INTERRUPTED)
    except ClickError as error:
        if debug:
            raise
        exit_with(usage_message(error), BAD_INPUT)
    except Exception as error:
        if debug:
            raise
        if is_interruption(error):
            exit_with(str(error), INTERRUPTED)
        if is_bad_input(error):
            exit_with(error_message(error, command), BAD_INPUT)
        message = " ".join(str(error).split())
        exit_with(f"{type(error).__name__}: {message} (unexpected error: see --debug, and please report it)", FAILED)


def exit_with(message: str, code: int) -> NoReturn:
    """Print a message on stderr and end the program with an exit code."""
    output.print_status(f"arbormax: {message}", style="yellow" if code == INTERRUPTED else "red")
    raise typer.Exit(code) from None


def is_interruption(error: BaseException) -> bool:
    """Whether training was interrupted; the class exists only where training was imported."""
    training = sys.modules.get("arbormax.training")
    return training is not None and isinstance(error, training.TrainingInterrupted)


def is_bad_input(error: Exception) -> bool:
    """Whether the user can correct this error."""
    lightning = sys.modules.get("lightning_fabric.utilities.exceptions")
    misused = lightning is not None and isinstance(error, lightning.MisconfigurationException)
    return misused or isinstance(error, (ArbormaxError, OSError, UnicodeError))


def error_message(error: Exception, command: Any) -> str:
    """The message of an error, with arguments of the library spelled as options of the command."""
    if isinstance(error, ArbormaxError):
        spelling = Spelling(command)
        return error.render(spelling.name, spelling.assign).strip() or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror[0].lower()}{error.strerror[1:]}"
    return " ".join(str(error).split()) or type(error).__name__


def usage_message(error: Any) -> str:
    """The message of an error in the command itself, with a pointer to its help."""
    context = getattr(error, "ctx", None)
    message = " ".join(str(error.format_message()).split()).rstrip(".")
    return f"{message} (see `{context.command_path} --help`)" if context is not None else message


@contextmanager
def resume_hint(folder: Path | str | None, command: str) -> Iterator[None]:
    """After an interruption, print the command that resumes the work, if it is saved in a folder."""
    try:
        yield
    except (ArbormaxError, KeyboardInterrupt, SystemExit) as error:
        interrupted = is_interruption(error) or isinstance(error, KeyboardInterrupt)
        if folder is None or not (interrupted or isinstance(error.__context__, KeyboardInterrupt)):
            raise
        exit_with(f"stopped; finished work is in {folder}; resume with: {command}", INTERRUPTED)


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print each warning as one line, without its place in the code."""
    with warnings.catch_warnings():
        original = warnings.showwarning

        def print_warning(message: Any, _category: Any, filename: str, *_: Any, **__: Any) -> None:
            if any(part in filename for part in ("pytorch_lightning", "lightning_fabric", "torch/")):
                return  # addressed to programmers
            output.print_status(f"arbormax: warning: {' '.join(str(message).split())}", style="yellow")

        if original.__module__ == "warnings":  # tests record warnings instead
            warnings.showwarning = print_warning  # type: ignore[assignment]
        yield
