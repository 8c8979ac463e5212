"""Labelled texts as a command line names them: a dataset, or files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbormax.cli import output
from arbormax.cli.options import InputOptions, LabelOptions
from arbormax.errors import InputError, LabelError, OptionError, did_you_mean

if TYPE_CHECKING:
    from arbormax.data import Examples
    from arbormax.taxonomy import Taxonomy


@dataclass(frozen=True)
class Labelled:
    """What a command learns from and is judged on."""

    name: str  # short, for folders
    taxonomy: Taxonomy
    train: Examples
    valid: Examples | None
    test: Examples | None
    about: dict[str, Any]  # for metrics.json


def is_dataset(data: str) -> bool:
    from arbormax.data.datasets import DATASETS

    return data in DATASETS


def check_exists(data: str) -> None:
    """Raise for what is neither a dataset nor a file."""
    from arbormax.data.datasets import DATASETS

    if not is_dataset(data) and not Path(data).exists() and not Path(data).suffix:
        raise InputError(
            f"{data!r} is neither a dataset ({', '.join(DATASETS)}) nor a file{did_you_mean(data, DATASETS)}"
        )


def read_labelled(
    data: str,
    table: InputOptions,
    labels: LabelOptions,
    taxonomy: Path | None = None,
    valid: Path | None = None,
    test: Path | None = None,
) -> Labelled:
    """The dataset of this name, or the labelled texts of a file."""
    check_exists(data)
    if is_dataset(data):
        if taxonomy is not None:
            raise OptionError(f"--taxonomy belongs to files: the dataset {data} brings its own")
        if valid is None and test is None and (table, labels) != (InputOptions(), LabelOptions()):
            raise OptionError(f"options such as --text and --delimiter belong to files, and {data} is a dataset")
        from arbormax.data import load

        with output.progress_bar(f"reading {data}"):
            dataset = load(data)
        tree, train, own_test = dataset.taxonomy, dataset.train, dataset.test
        about: dict[str, Any] = {"name": data, "source": dataset.source, "licence": dataset.licence}
    else:
        with output.progress_bar(f"reading {data}"):
            train, tree = read_file(Path(data), table, labels, _load_tree(taxonomy))
        own_test = None
        about = {"name": Path(data).name, "taxonomy": "inferred" if taxonomy is None else str(taxonomy)}
    inferred = not is_dataset(data) and taxonomy is None
    others = [_judged_by(path, table, labels, tree, data if inferred else None) for path in (valid, test)]
    about |= {"classes": tree.num_leaves, "nodes": tree.num_nodes, "depth": tree.depth}
    return Labelled(_stem(data), tree, train, others[0], others[1] if test is not None else own_test, about)


def read_file(
    path: Path, table: InputOptions, labels: LabelOptions, taxonomy: Taxonomy | None
) -> tuple[Examples, Taxonomy]:
    """The labelled texts of one file; rows left out are told."""
    from arbormax.data import read_examples, read_table

    skip = "skip" if table.skip_bad_rows else "error"
    rows = read_table(path, table.text, labels.label, on_bad_rows=skip, **table.reader())  # type: ignore[arg-type]
    if rows.skipped:
        tell_skipped(rows.path, rows.skipped)
    return read_examples(rows, taxonomy, separator=labels.separator)


def tell_skipped(name: str, problems: list[str], total: int | None = None) -> None:
    """Rows that were left out: how many, and where the first ones are."""
    count = len(problems) if total is None else total
    more = f"; … and {count - 3:,} more" if count > 3 else ""
    told = "; ".join(problems[:3])
    rows = f"{count:,} row{' is' if count == 1 else 's are'} left out"
    output.print_status(f"arbormax: {name}: {rows}: {told}{more}", style="yellow")


def on_tree(examples: Examples, own: Taxonomy, tree: Taxonomy, what: str) -> Examples:
    """The examples with their labels as nodes of another taxonomy, by their paths."""
    from arbormax.data import Examples

    if own == tree:
        return examples
    try:
        nodes = tree.find_many([own.path(node) for node in range(own.num_nodes)])
    except LabelError as error:
        first = next(line for line in str(error).splitlines()[::-1] if "…" not in line).strip(" -")
        raise InputError(f"the model was trained on another taxonomy than that of {what}: {first}") from None
    return Examples(examples.inputs, nodes[examples.nodes])


def _judged_by(
    path: Path | None, table: InputOptions, labels: LabelOptions, tree: Taxonomy, inferred_from: str | None
) -> Examples | None:
    if path is None:
        return None
    try:
        return read_file(path, table, labels, tree)[0]
    except LabelError as error:
        if inferred_from is None:
            raise
        told = (
            f"the taxonomy was inferred from the labels of {inferred_from}: give --taxonomy a file that has all classes"
        )
        raise LabelError(f"{error}\n{told}" if len(error.problems) > 1 else f"{error}; {told}") from None


def _load_tree(path: Path | None) -> Taxonomy | None:
    from arbormax.taxonomy import Taxonomy

    return None if path is None else Taxonomy.load(path)


def _stem(data: str) -> str:
    name = Path(data).name
    return name.split(".")[0] or name
