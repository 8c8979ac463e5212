"""Labelled data from a dataset or files: training, validation and test examples with their taxonomy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from arbormax.data.columns import InputColumns
from arbormax.data.datasets import DATASETS, load
from arbormax.data.examples import Examples
from arbormax.data.labels import find_nodes, find_test_nodes, guess_separator, read_examples
from arbormax.data.matrices import FEATURES, iter_features, unit_of
from arbormax.data.tables import OnBadRows, Table, TableOptions, check_file, join_batches, read_table
from arbormax.errors import InputError, LabelError, OptionError, did_you_mean
from arbormax.taxonomy import InnerClasses, Taxonomy, load_taxonomy

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
    separator: str | None = None  # between the names of a path in the labels of a file


class LabelledReader:
    """Reads labelled data; the options describe how files are written, as in `read_table`.

    With `inner_classes="stop"`, inner nodes that are labels of the training become classes.
    `on_skipped` is called for every file of which bad rows were left out.
    """

    def __init__(
        self,
        text: str | InputColumns = "text",
        label: str = "label",
        separator: str | None = None,
        on_bad_rows: OnBadRows = "error",
        on_skipped: OnSkipped | None = None,
        inner_classes: InnerClasses = "error",
        **options: Unpack[TableOptions],
    ) -> None:
        self.text, self.label, self.separator = text, label, separator
        self.on_bad_rows, self.on_skipped, self.options = on_bad_rows, on_skipped, options
        self.inner_classes = inner_classes
        self._inferred_from: str | None = None

    def read(
        self,
        data: str,
        taxonomy: Path | None = None,
        valid: Path | None = None,
        test: Path | None = None,
        node_texts: Path | None = None,
        *,
        needs_known_labels: bool = False,
    ) -> LabelledData:
        """The dataset of this name, or the examples of a file.

        Test labels that the taxonomy does not have are an error only if `needs_known_labels`.
        Without a taxonomy, that of a file is inferred from its labels. `node_texts` is a file with texts of nodes.
        """
        check_data(data)
        own_test = separator = None
        if data in DATASETS:
            if taxonomy is not None:
                raise OptionError(f"the dataset {data} has its own taxonomy", argument="taxonomy")
            dataset = load(data)
            tree, train, own_test = dataset.taxonomy, dataset.train, dataset.test
            origin: dict[str, Any] = {"name": data, "source": dataset.source, "licence": dataset.licence}
        else:
            table = self._read_table(Path(data))
            separator = self.separator or guess_separator(table.labels or ())
            train, tree = self._examples(table, None if taxonomy is None else load_taxonomy(taxonomy))
            origin = {"name": Path(data).name, "taxonomy": "inferred" if taxonomy is None else str(taxonomy)}
        inferred = data not in DATASETS and taxonomy is None
        tree = tree if node_texts is None else tree.with_texts(node_texts)
        self._inferred_from = data if inferred else None
        held_out = None if valid is None else self._read_valid(valid, tree)
        read = self._read_valid if needs_known_labels else self.read_test
        own = own_test if test is None else read(test, tree)
        whole = {**origin, **_sizes(tree), **_tested_on(data, test)}
        return LabelledData(_short_name(data), tree, train, held_out, own, whole, separator)

    def read_tree(self, data: str, test: Path | None = None, node_texts: Path | None = None) -> LabelledData:
        """The taxonomy of a dataset or of a taxonomy file, without training examples, and the test examples."""
        no_examples = Examples([], np.zeros(0, np.int64))
        if data in DATASETS:
            return replace(self.read(data, test=test, node_texts=node_texts), train=no_examples)
        check_data(data)
        tree = load_taxonomy(data)
        tree = tree if node_texts is None else tree.with_texts(node_texts)
        origin = {"name": Path(data).name, "taxonomy": data, **_sizes(tree), **_tested_on(data, test)}
        own = None if test is None else self.read_test(test, tree)
        return LabelledData(_short_name(data), tree, no_examples, None, own, origin)

    def read_file(self, path: Path, taxonomy: Taxonomy | None = None) -> tuple[Examples, Taxonomy]:
        """The examples of one file, and their taxonomy."""
        return self._examples(self._read_table(path), taxonomy)

    def _examples(self, table: Table, taxonomy: Taxonomy | None) -> tuple[Examples, Taxonomy]:
        return read_examples(table, taxonomy, separator=self.separator, inner_classes=self.inner_classes)

    def read_test(self, path: Path, taxonomy: Taxonomy) -> Examples:
        """The test examples of one file; labels that the taxonomy does not have are in `Examples.unseen`."""
        table = self._read_table(path)
        return Examples(table.texts, *find_test_nodes(table.labels or (), taxonomy, self.separator, table))

    def _read_table(self, path: Path) -> Table:
        table = read_table(path, self.text, self.label, on_bad_rows=self.on_bad_rows, **self.options)
        self._report(table)
        return table

    def read_features(
        self,
        path: Path,
        taxonomy: Taxonomy,
        width: int,
        features: Sequence[str] | None = None,
        *,
        needs_known_labels: bool = False,
    ) -> Examples:
        """The rows of a feature matrix and their labels; the arguments are those of `iter_features`.

        Labels that the taxonomy does not have are an error if `needs_known_labels`, else in `Examples.unseen`.
        """
        batches = iter_features(path, width, features, self.label, **self.options)
        rows = join_batches(batches, path.name, self.on_bad_rows)
        unit = unit_of(path, self.options.get("format"))
        table = Table([], rows[self.label], rows.lines, path.name, rows.problems, unit)
        self._report(table)
        if needs_known_labels:
            return Examples(np.array(rows[FEATURES]), find_nodes(table, taxonomy, self.separator))
        nodes, unseen = find_test_nodes(table.labels or (), taxonomy, self.separator, table)
        return Examples(np.array(rows[FEATURES]), nodes, unseen)

    def _report(self, table: Table) -> None:
        if table.skipped and self.on_skipped is not None:
            self.on_skipped(table.path, table.skipped)

    def _read_valid(self, path: Path, tree: Taxonomy) -> Examples:
        try:
            return read_examples(self._read_table(path), tree, separator=self.separator)[0]
        except LabelError as error:
            if self._inferred_from is None:
                raise
            first = error.message.split("\n")[0].rstrip(":")
            message = f"{first}; the taxonomy was inferred from {self._inferred_from}, which lacks these classes"
            raise LabelError(message, error.problems, fix={"taxonomy": "FILE"}) from None


def _short_name(data: str) -> str:
    return Path(data).name.split(".")[0] or Path(data).name


def _sizes(tree: Taxonomy) -> dict[str, Any]:
    return {"classes": tree.num_leaves, "nodes": tree.num_nodes, "depth": tree.depth}


def _tested_on(data: str, test: Path | None) -> dict[str, str]:
    """What the model is tested on, for the title of a report; nothing without test texts."""
    if test is not None:
        return {"test": test.name}
    return {"test": f"the test texts of {data}"} if data in DATASETS else {}


def check_data(data: str) -> None:
    """Raise an error for a word that is neither a dataset nor a file."""
    if data in DATASETS:
        return
    if not Path(data).exists() and not Path(data).suffix:
        names = ", ".join(DATASETS)
        raise InputError(f"{data!r} is neither a dataset ({names}) nor a file{did_you_mean(data, DATASETS)}")
    check_file(data)


def map_examples(examples: Examples, own: Taxonomy, taxonomy: Taxonomy, name: str) -> Examples:
    """The examples with labels from another taxonomy that contains the same paths; `name` is theirs in messages."""
    if own == taxonomy:
        return examples
    try:
        nodes = taxonomy.find_many([own.path(node) for node in range(own.num_nodes)])
    except LabelError as error:
        raise InputError(f"the model was trained with another taxonomy than {name}: {error.problems[0]}") from None
    return Examples(examples.inputs, nodes[examples.nodes])
