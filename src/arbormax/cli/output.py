"""What goes to the screen: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from rich.console import RenderableType

    from arbormax.taxonomy import Taxonomy

PLAIN_WIDTH = 120  # columns where there is no terminal to ask


def is_terminal() -> bool:
    """Whether someone watches stderr, where progress is shown."""
    return sys.stderr.isatty()


def console(stderr: bool = False) -> Console:
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, width=None if terminal else PLAIN_WIDTH, highlight=False, markup=False)


def print_status(message: str, style: str | None = None) -> None:
    """A message for people, on stderr; never wrapped, so that a path or a command can be copied."""
    console(stderr=True).print(message, style=style, soft_wrap=True)


def print_result(renderable: RenderableType) -> None:
    """A result for people, on stdout."""
    console().print(renderable, soft_wrap=isinstance(renderable, str))


def print_json(value: Any) -> None:
    """A result for scripts, on stdout; what is not a number in JSON becomes null."""
    print(json.dumps(to_plain(value), ensure_ascii=False, indent=2))


def to_plain(value: Any) -> Any:
    """The value with nothing in it but what JSON knows."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [to_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy and torch
        return to_plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> RenderableType:
    """A table whose first column is text and whose others are numbers."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD)
    for place, name in enumerate(columns):
        drawn.add_column(name, justify="left" if place == 0 else "right", overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    return drawn if title is None else Group(Text(title, style="bold"), drawn)


def format_number(value: Any) -> str:
    """A measure as a table shows it."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def measure_table(values: Mapping[str, Any], title: str | None = None) -> RenderableType:
    """Every measure, one a row; one given level by level has a row for each."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, (list, tuple)):
            rows += [(f"{name} {level}", format_number(part)) for level, part in enumerate(value, start=1)]
        else:
            rows.append((name, format_number(value)))
    return table(("measure", "value"), rows, title)


def path_tree(title: str, names: Sequence[str], probabilities: Sequence[float]) -> RenderableType:
    """A path from the root down, with the probability at each level."""
    from rich.text import Text
    from rich.tree import Tree

    drawn = Tree(Text(title, style="bold"))
    at = drawn
    for name, probability in zip(names, probabilities, strict=True):
        at = at.add(Text(printable(name)).append(f"  {probability:.3f}", style="cyan"))
    return drawn


def printable(name: str) -> str:
    """A name without characters that would steer the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def taxonomy_size(tax: Taxonomy) -> dict[str, Any]:
    """A taxonomy in a few numbers."""
    return {"classes": tax.num_leaves, "nodes": tax.num_nodes, "depth": tax.depth, "fingerprint": tax.fingerprint}


@contextmanager
def progress_bar(description: str, total: int | None = None, unit: str = "texts") -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if that is a terminal; gives the function that moves it on."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    count = "{task.completed:,.0f}" + ("/{task.total:,.0f}" if total is not None else "") + f" {unit}"
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(count), TimeElapsedColumn())
    last = (TimeRemainingColumn(),) if total is not None else ()
    with Progress(*columns, *last, console=console(stderr=True), transient=True, disable=not is_terminal()) as shown:
        task = shown.add_task(description, total=total)
        yield lambda count: shown.advance(task, count)


@contextmanager
def stage_progress(description: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on stderr for a library function that tells (stage, done, total)."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True, disable=not is_terminal()) as shown:
        task = shown.add_task(description, total=None)
        yield lambda stage, done, total: shown.update(task, description=stage, completed=done, total=total)
