"""Printing: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from arbormax._files import to_plain

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress

    from arbormax.taxonomy import Taxonomy

PLAIN_WIDTH = 120  # columns if the output is not a terminal


def is_terminal() -> bool:
    """Whether stderr, which shows progress, is a terminal."""
    return sys.stderr.isatty()


def console(stderr: bool = False) -> Console:
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, width=None if terminal else PLAIN_WIDTH, highlight=False, markup=False)


def print_status(message: str, style: str | None = None) -> None:
    """Print a message on stderr, without wrapping, so that paths and commands can be copied."""
    console(stderr=True).print(message, style=style, soft_wrap=True)


def print_result(renderable: RenderableType) -> None:
    """Print a result on stdout."""
    console().print(renderable, soft_wrap=isinstance(renderable, str))


def print_json(value: Any) -> None:
    """Print a result as JSON on stdout; infinity and NaN become null."""
    print(json.dumps(to_plain(value), ensure_ascii=False, indent=2))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, text: Sequence[int] = (0,)
) -> RenderableType:
    """A table with numbers in all columns except those at the positions of `text`."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD)
    for place, name in enumerate(columns):
        grid.add_column(name, justify="left" if place in text else "right", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid if title is None else Group(Text(title, style="bold"), grid)


def format_number(value: Any) -> str:
    """A value as text for a table."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def measure_table(values: Mapping[str, Any], title: str | None = None) -> RenderableType:
    """A table with one row per measure; a list has one row per level."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, (list, tuple)):
            rows += [(f"{name} {level}", format_number(part)) for level, part in enumerate(value, start=1)]
        else:
            rows.append((name, format_number(value)))
    return table(("measure", "value"), rows, title)


def taxonomy_size(tax: Taxonomy) -> dict[str, Any]:
    """The size of a taxonomy, for JSON output."""
    return {"classes": tax.num_leaves, "nodes": tax.num_nodes, "depth": tax.depth, "fingerprint": tax.fingerprint}


@contextmanager
def progress_bar(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; yields the function that advances it."""
    with _progress() as progress:
        task = progress.add_task(description, total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def stage_progress(description: str, *, in_bytes: bool = False) -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar on stderr; yields a callback that takes (stage, done, total)."""
    with _progress(in_bytes) as progress:
        task = progress.add_task(description, total=None)
        yield lambda stage, done, total: progress.update(task, description=stage, completed=done, total=total)


def _progress(in_bytes: bool = False) -> Progress:
    """Progress bars that are shown only on a terminal."""
    from rich import progress as bars

    in_numbers = (bars.MofNCompleteColumn(), bars.TimeElapsedColumn())
    counts = (bars.DownloadColumn(), bars.TransferSpeedColumn(), bars.TimeRemainingColumn()) if in_bytes else in_numbers
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), *counts)
    return bars.Progress(*columns, console=console(stderr=True), transient=True, disable=not is_terminal())
