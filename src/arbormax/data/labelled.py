"""Labelled data from a dataset or files: training, validation and test examples with their taxonomy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from arbormax.data.datasets import DATASETS, load
from arbormax.data.examples import Examples
from arbormax.data.labels import find_nodes, read_examples
from arbormax.data.matrices import FEATURES, iter_features, unit_of
from arbormax.data.tables import OnBadRows, Table, TableOptions, join_batches, read_table
from arbormax.errors import InputError, LabelError, OptionError, did_you_mean
from arbormax.taxonomy import Taxonomy, load_taxonomy

OnSkipped = Callable[[str, list[str]], None]  # called with the name of a file and its bad rows


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Examples to train, validate and test on, with their taxonomy."""

    name: str  # short, for folders
    taxonomy: Taxonomy
    train: Examples
    valid: Examples | None
    test: Examples | None
    origin: dict[str, Any]  # where the data come from, for metrics.json


class LabelledReader:
    """Reads labelled data; the options describe how files are written, as in `read_table`.

    `on_skipped` is called for every file of which bad rows were left out.
    """

    def __init__(
        self,
        text: str = "text",
        label: str = "label",
        separator: str | None = None,
        on_bad_rows: OnBadRows = "error",
        on_skipped: OnSkipped | None = None,
        **options: Unpack[TableOptions],
    ) -> None:
        self.text, self.label, self.separator = text, label, separator
        self.on_bad_rows, self.on_skipped, self.options = on_bad_rows, on_skipped, options

    def read(
        self,
        data: str,
        taxonomy: Path | None = None,
        valid: Path | None = None,
        test: Path | None = None,
        node_texts: Path | None = None,
    ) -> LabelledData:
        """The dataset of this name, or the examples of a file.

        Without a taxonomy, that of a file is inferred from its labels. `node_texts` is a file with texts of nodes.
        """
        check_data(data)
        own_test = None
        if data in DATASETS:
            if taxonomy is not None:
                raise OptionError(f"the dataset {data} has its own taxonomy", argument="taxonomy")
            dataset = load(data)
            tree, train, own_test = dataset.taxonomy, dataset.train, dataset.test
            origin: dict[str, Any] = {"name": data, "source": dataset.source, "licence": dataset.licence}
        else:
            train, tree = self.read_file(Path(data), None if taxonomy is None else load_taxonomy(taxonomy))
            origin = {"name": Path(data).name, "taxonomy": "inferred" if taxonomy is None else str(taxonomy)}
        inferred = data not in DATASETS and taxonomy is None
        tree = tree if node_texts is None else tree.with_texts(node_texts)
        others = [self._read_other(path, tree, data if inferred else None) for path in (valid, test)]
        own = own_test if test is None else others[1]
        return LabelledData(_short_name(data), tree, train, others[0], own, {**origin, **_sizes(tree)})

    def read_tree(self, data: str, test: Path | None = None, node_texts: Path | None = None) -> LabelledData:
        """The taxonomy of a dataset or of a taxonomy file, without training examples, and the test examples."""
        no_examples = Examples([], np.zeros(0, np.int64))
        if data in DATASETS:
            return replace(self.read(data, test=test, node_texts=node_texts), train=no_examples)
        check_data(data)
        tree = load_taxonomy(data)
        tree = tree if node_texts is None else tree.with_texts(node_texts)
        origin = {"name": Path(data).name, "taxonomy": data, **_sizes(tree)}
        return LabelledData(_short_name(data), tree, no_examples, None, self._read_other(test, tree, None), origin)

    def read_file(self, path: Path, taxonomy: Taxonomy | None = None) -> tuple[Examples, Taxonomy]:
        """The examples of one file, and their taxonomy."""
        table = read_table(path, self.text, self.label, on_bad_rows=self.on_bad_rows, **self.options)
        self._report(table)
        return read_examples(table, taxonomy, separator=self.separator)

    def read_features(
        self, path: Path, taxonomy: Taxonomy, width: int, features: Sequence[str] | None = None
    ) -> Examples:
        """The rows of a feature matrix and their labels; the arguments are those of `iter_features`."""
        batches = iter_features(path, width, features, self.label, **self.options)
        rows = join_batches(batches, path.name, self.on_bad_rows)
        unit = unit_of(path, self.options.get("format"))
        table = Table([], rows[self.label], rows.lines, path.name, rows.problems, unit)
        self._report(table)
        return Examples(np.array(rows[FEATURES]), find_nodes(table, taxonomy, self.separator))

    def _report(self, table: Table) -> None:
        if table.skipped and self.on_skipped is not None:
            self.on_skipped(table.path, table.skipped)

    def _read_other(self, path: Path | None, tree: Taxonomy, inferred_from: str | None) -> Examples | None:
        if path is None:
            return None
        try:
            return self.read_file(path, tree)[0]
        except LabelError as error:
            if inferred_from is None:
                raise
            first = error.message.split("\n")[0].rstrip(":")
            message = f"{first}; the taxonomy was inferred from {inferred_from}, which lacks these classes"
            raise LabelError(message, error.problems, fix={"taxonomy": "FILE"}) from None


def _short_name(data: str) -> str:
    return Path(data).name.split(".")[0] or Path(data).name


def _sizes(tree: Taxonomy) -> dict[str, Any]:
    return {"classes": tree.num_leaves, "nodes": tree.num_nodes, "depth": tree.depth}


def check_data(data: str) -> None:
    """Raise an error for a word that is neither a dataset nor a file."""
    if data not in DATASETS and not Path(data).exists() and not Path(data).suffix:
        names = ", ".join(DATASETS)
        raise InputError(f"{data!r} is neither a dataset ({names}) nor a file{did_you_mean(data, DATASETS)}")


def map_examples(examples: Examples, own: Taxonomy, taxonomy: Taxonomy, name: str) -> Examples:
    """The examples with labels from another taxonomy that contains the same paths; `name` is theirs in messages."""
    if own == taxonomy:
        return examples
    try:
        nodes = taxonomy.find_many([own.path(node) for node in range(own.num_nodes)])
    except LabelError as error:
        raise InputError(f"the model was trained with another taxonomy than {name}: {error.problems[0]}") from None
    return Examples(examples.inputs, nodes[examples.nodes])
