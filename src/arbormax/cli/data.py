"""`arbormax data`: list and download datasets."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.errors import BAD_INPUT
from arbormax.cli.options import Json
from arbormax.errors import ArbormaxError, OptionError, did_you_mean

data = typer.Typer(help="List and download datasets.\n\nExample: `arbormax data list`", no_args_is_help=True)

Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME...|all", help="Datasets from `arbormax data list`, or glove; all: every dataset."),
]


@data.command("list")
def list_datasets(json: Json = False) -> None:
    """List the datasets, with the number of examples, and how to get those that are missing.

    Example: `arbormax data list`
    """
    from arbormax.data import available, data_root

    found = available()
    if json:
        output.print_json({"folder": str(data_root()), "datasets": [asdict(status) for status in found]})
        return
    rows = [
        (
            status.name,
            "yes" if status.available else "no",
            output.format_number(status.train),
            output.format_number(status.test),
            status.description,
        )
        for status in found
    ]
    output.print_result(output.table(("dataset", "available", "train", "test", ""), rows, text=(0, 1, 4)))
    for status in found:
        if not status.available:
            output.print_result(f"{status.name}: {status.hint}")
    output.print_result(f"Data folder: {data_root()} (set ARBORMAX_DATA to change it)")


@data.command()
def fetch(names: Names, json: Json = False) -> None:
    """Download datasets or word vectors. Files that exist and are correct are not downloaded again.

    Example: `arbormax data fetch trec r8`
    """
    from arbormax.data import DATASETS
    from arbormax.data import fetch as fetch_files
    from arbormax.data.download import fetchable

    known = fetchable()
    chosen = [name for name in known if name in DATASETS] if "all" in names else list(dict.fromkeys(names))
    for name in chosen:
        if name not in known and name not in DATASETS:
            hint = did_you_mean(name, known)
            raise OptionError(f"nothing to download for {name!r}{hint} (available: {', '.join(known)}, all)")
    files: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name in chosen:
        try:
            with output.stage_progress(name, in_bytes=True) as progress:  # for one file after the other
                files[name] = [str(path) for path in fetch_files(name, progress=partial(progress, name))]
        except ArbormaxError as error:  # the other downloads may still succeed
            failed[name] = error.message
            output.print_status(f"arbormax: {failed[name]}", style="red")
            continue
        if not json:
            for path in files[name]:
                output.print_result(f"{name}: {path}")
    if json:
        output.print_json({"files": files, "failed": failed})
    if failed:
        raise typer.Exit(BAD_INPUT)
