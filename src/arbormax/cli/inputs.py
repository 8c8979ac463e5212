"""Labelled data from the arguments of a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arbormax.cli import output
from arbormax.cli.options import LabelOptions
from arbormax.errors import OptionError

if TYPE_CHECKING:
    from arbormax.data import Examples
    from arbormax.data.labelled import LabelledData, LabelledReader
    from arbormax.taxonomy import Taxonomy


def is_dataset(data: str) -> bool:
    """Whether this is the name of a dataset; a word that is neither a dataset nor a file is an error."""
    from arbormax.data.datasets import DATASETS
    from arbormax.data.labelled import check_data

    check_data(data)
    return data in DATASETS


def read_labelled(
    data: str,
    table: LabelOptions,
    taxonomy: Path | None = None,
    valid: Path | None = None,
    test: Path | None = None,
) -> LabelledData:
    """The dataset of this name, or the labelled texts of a file."""
    if is_dataset(data) and valid is None and test is None:
        check_no_table_options(data, table)
    with output.progress_bar(f"reading {data}"):
        return _reader(table).read(data, taxonomy, valid, test)


def read_file(path: Path, table: LabelOptions, taxonomy: Taxonomy | None) -> tuple[Examples, Taxonomy]:
    """The labelled texts of one file, and their taxonomy."""
    return _reader(table).read_file(path, taxonomy)


def check_no_table_options(data: str, table: LabelOptions) -> None:
    """Raise an error for options of files together with a dataset."""
    if table != LabelOptions():
        raise OptionError(f"{data} is a dataset; options such as --text and --delimiter apply to files")


def warn_skipped(name: str, problems: list[str], total: int | None = None) -> None:
    """Print how many rows were left out, and the first of them."""
    count = len(problems) if total is None else total
    more = f"; … and {count - 3:,} more" if count > 3 else ""
    rows = f"{count:,} row{'' if count == 1 else 's'} skipped"
    output.print_status(f"arbormax: {name}: {rows}: {'; '.join(problems[:3])}{more}", style="yellow")


def _reader(table: LabelOptions) -> LabelledReader:
    from arbormax.data.labelled import LabelledReader

    return LabelledReader(
        table.text,
        table.label,
        table.separator,
        on_bad_rows="skip" if table.skip_bad_rows else "error",
        on_skipped=warn_skipped,
        **table.reader(),
    )
