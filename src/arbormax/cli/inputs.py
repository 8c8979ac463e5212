"""Labelled data from the arguments of a command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from arbormax.cli import output
from arbormax.cli.options import InputOptions, LabelOptions, TrainingDataOptions
from arbormax.errors import LabelError, OptionError, check_choice

if TYPE_CHECKING:
    from arbormax.data import Examples
    from arbormax.data.columns import InputColumns
    from arbormax.data.labelled import LabelledData, LabelledReader
    from arbormax.model import Model
    from arbormax.taxonomy import Taxonomy


def is_dataset(data: str) -> bool:
    """Whether this is the name of a dataset; a word that is neither a dataset nor a file is an error."""
    from arbormax.data.datasets import DATASETS
    from arbormax.data.labelled import check_data

    check_data(data)
    return data in DATASETS


def read_labelled(
    data: str,
    table: TrainingDataOptions,
    valid: Path | None = None,
    test: Path | None = None,
    *,
    needs_known_labels: bool = False,
) -> LabelledData:
    """The dataset of this name, or the labelled texts of a file."""
    if is_dataset(data) and valid is None and test is None:
        check_no_table_options(data, table)
    with output.progress_bar(f"reading {data}"):
        reader = _reader(table, table.inner_classes)
        return reader.read(data, table.taxonomy, valid, test, table.node_texts, needs_known_labels=needs_known_labels)


def read_tree(data: str, table: TrainingDataOptions, valid: Path | None, test: Path | None) -> LabelledData:
    """The taxonomy of a dataset or a file and the test texts, for a model without training data."""
    for name, value in (("taxonomy", table.taxonomy), ("valid", valid)):
        if value is not None:
            raise OptionError("cannot be combined with --names only, which uses no training data", argument=name)
    with output.progress_bar(f"reading {data}"):
        return _reader(table).read_tree(data, test, table.node_texts)


def read_file(path: Path, table: LabelOptions, taxonomy: Taxonomy | None) -> tuple[Examples, Taxonomy]:
    """The labelled texts of one file, and their taxonomy."""
    return _reader(table).read_file(path, taxonomy)


def read_new(path: Path, model: Model, table: LabelOptions) -> Examples:
    """The labelled texts of one file, with the columns and the taxonomy of a model; unknown labels are an error."""
    return _reader(table, of_model=model.config.columns).read_file(path, model.taxonomy)[0]


@contextmanager
def adding_classes(folder: Path) -> Iterator[None]:
    """Say in errors about labels that the model in a folder does not have which command adds them."""
    try:
        yield
    except LabelError as error:
        first = error.message.partition("\n")[0].rstrip(":")
        command = f"arbormax taxonomy edit {shlex.quote(str(folder))} --add PARENT/NAME --out EDITED"
        problems = error.problems if len(error.problems) > 1 else ()
        raise LabelError(f"{first}; to add new classes: {command}", problems) from None


def read_for_model(
    path: Path,
    folder: Path,
    model: Model,
    features: str | None,
    table: LabelOptions,
    *,
    needs_known_labels: bool = False,
) -> Examples:
    """The labelled texts or rows of features of one file, as the model in a folder expects."""
    columns = feature_columns(path, folder, model, features, table)
    if columns is not None:
        reader = _reader(table)
        with adding_classes(folder):
            return reader.read_features(path, model.taxonomy, *columns, needs_known_labels=needs_known_labels)
    if not needs_known_labels:
        return _reader(table, of_model=model.config.columns).read_test(path, model.taxonomy)
    with adding_classes(folder):
        return read_new(path, model, table)


def read_split(
    data: str,
    split: str,
    table: LabelOptions,
    features: str | None,
    folder: Path,
    model: Model,
    *,
    needs_known_labels: bool = False,
) -> Examples:
    """The labelled texts of a part of a dataset, or of a file, as the model in a folder expects.

    Labels that the model does not have are an error only if `needs_known_labels`.
    """
    check_choice("split", split, ("test", "train"))
    with output.progress_bar(f"reading {data}"):
        if not is_dataset(data):
            if split != "test":
                raise OptionError(f"only a dataset has splits, and {data} is a file", argument="split")
            known = needs_known_labels
            return read_for_model(Path(data), folder, model, features, table, needs_known_labels=known)
        check_no_table_options(data, table)
        if not model.encoder.takes_texts:
            raise OptionError(
                f"{data} has texts, and {folder} classifies feature matrices: give a file", argument="data"
            )
        from arbormax.data import load
        from arbormax.data.labelled import map_examples

        dataset = load(data)
        return map_examples(dataset.test if split == "test" else dataset.train, dataset.taxonomy, model.taxonomy, data)


def read_text(model: Model, text: str) -> str:
    """The text of a model's input: as it is, or composed of the columns in a JSON object."""
    from arbormax.data.columns import read_message

    if model.config.columns.is_plain or not text.lstrip().startswith("{"):
        return text
    try:
        values = json.loads(text)
    except json.JSONDecodeError:
        return text
    return read_message(model.config.columns, values)


def feature_columns(
    path: Path, folder: Path, model: Model, features: str | None, table: InputOptions
) -> tuple[int, list[str] | None] | None:
    """The number of features, and their columns: those that were given, or those of the training if they had names.

    None for a model of texts.
    """
    from arbormax.data.matrices import is_npz

    if model.encoder.takes_texts:
        if features is not None or is_npz(path):
            argument = None if features is None else "features"
            raise OptionError(f"{folder} classifies texts, not feature matrices", argument=argument)
        return None
    for name in ("text", "template", "also"):
        if getattr(table, name):
            raise OptionError(f"{folder} classifies feature matrices, not texts", argument=name)
    width = model.encoder.options.inputs  # type: ignore[attr-defined]  # an option of this encoder
    if features is not None:
        return width, [name.strip() for name in features.split(",") if name.strip()]
    from arbormax.sklearn.base import feature_names

    return width, None if is_npz(path) or table.header is False else feature_names(folder, model.taxonomy)


def check_no_table_options(data: str, table: LabelOptions) -> None:
    """Raise an error for options of files together with a dataset."""
    if table.of_file() != LabelOptions():
        raise OptionError(f"{data} is a dataset; options such as --text and --delimiter apply to files")


def warn_skipped(name: str, problems: list[str], total: int | None = None) -> None:
    """Print how many rows were left out, and the first of them."""
    count = len(problems) if total is None else total
    more = f"; … and {count - 3:,} more" if count > 3 else ""
    rows = f"{count:,} row{'' if count == 1 else 's'} skipped"
    output.print_status(f"arbormax: {name}: {rows}: {'; '.join(problems[:3])}{more}", style="yellow")


def _reader(
    table: LabelOptions, inner_classes: str = "parents", of_model: InputColumns | None = None
) -> LabelledReader:
    from arbormax.data.labelled import LabelledReader

    check_choice("inner_classes", inner_classes, ("parents", "stop"))
    return LabelledReader(
        table.columns(of_model),
        table.label,
        table.separator,
        on_bad_rows="skip" if table.skip_bad_rows else "error",
        on_skipped=warn_skipped,
        inner_classes="stop" if inner_classes == "stop" else "error",
        **table.reader(),
    )
