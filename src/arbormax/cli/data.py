"""`arbormax data`: which datasets are there, and getting those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.errors import BAD_INPUT
from arbormax.cli.options import Json
from arbormax.errors import ArbormaxError, OptionError, did_you_mean

data = typer.Typer(help="List and fetch datasets.\n\nExample: `arbormax data list`", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="NAME...|all", help="trec, 20ng, r8, r52, glove; all: but glove.")]


@data.command("list")
def list_datasets(json: Json = False) -> None:
    """Tell which datasets are there, and how to get the others.

    Example: `arbormax data list`
    """
    from arbormax.data import available, data_root

    found = available()
    if json:
        output.print_json({"folder": str(data_root()), "datasets": [asdict(status) for status in found]})
        return
    rows = [
        (s.name, "yes" if s.there else "no", output.format_number(s.train), output.format_number(s.test), s.description)
        for s in found
    ]
    output.print_result(_listing(rows))
    for status in found:
        if not status.there:
            output.print_result(f"{status.name}: {status.hint}")
    output.print_result(f"Files lie in {data_root()} (ARBORMAX_DATA names another folder).")


@data.command()
def fetch(names: Names, json: Json = False) -> None:
    """Download datasets; what has arrived of a download that was cut off is kept.

    Example: `arbormax data fetch trec r8`
    """
    from arbormax.data import fetch as fetch_files
    from arbormax.data.download import FETCHABLE

    chosen = [name for name in FETCHABLE if name != "glove"] if "all" in names else list(dict.fromkeys(names))
    for name in chosen:
        if name not in FETCHABLE and name != "icd10cm":
            near = did_you_mean(name, FETCHABLE)
            raise OptionError(f"nothing to fetch is named {name!r}, expected {', '.join(FETCHABLE)} or all{near}")
    got: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name in chosen:
        try:
            with _download_bar(name) as progress:
                got[name] = [str(path) for path in fetch_files(name, progress=progress)]
        except ArbormaxError as error:  # the others may still be had
            failed[name] = str(error)
            output.print_status(f"arbormax: {failed[name]}", style="red")
            continue
        if not json:
            for path in got[name]:
                output.print_result(f"{name}: {path}")
    if json:
        output.print_json({"files": got, "failed": failed})
    if failed:
        raise typer.Exit(BAD_INPUT)


class _download_bar:  # noqa: N801 - used like a function
    """A bar in bytes, on stderr, for one file after the other."""

    def __init__(self, name: str) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.progress import TransferSpeedColumn as Speed

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), Speed(), TimeRemainingColumn())
        self.shown = Progress(
            *columns, console=output.console(stderr=True), transient=True, disable=not output.is_terminal()
        )
        self.task = self.shown.add_task(name, total=None)

    def __enter__(self) -> Any:
        self.shown.start()
        return lambda done, total: self.shown.update(self.task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        self.shown.stop()


def _listing(rows: Sequence[tuple[str, ...]]) -> Any:
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD)
    for name, side in (("dataset", "left"), ("there", "left"), ("train", "right"), ("test", "right"), ("", "left")):
        drawn.add_column(name, justify=side, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        drawn.add_row(*row)
    return drawn
