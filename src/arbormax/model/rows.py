"""Predictions for the rows of a table, one batch of the table in memory at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arbormax._dialect import ONE_COLUMN
from arbormax.data.columns import InputColumns
from arbormax.data.tables import (
    Column,
    RowBatch,
    Source,
    TableSource,
    bad_rows_error,
    iter_rows,
    open_source,
)
from arbormax.decode import Restriction
from arbormax.errors import ArbormaxError, InputError, OptionError, did_you_mean
from arbormax.model.network import Model
from arbormax.model.predict import Decoding, predict

ROWS = 2048  # rows of the input that are in memory together


class BadRows:
    """Handles rows that cannot be read: an error, or with `skip` counted, with the first few descriptions."""

    def __init__(self, source: str, skip: bool = False) -> None:
        self.source, self.skip = source, skip
        self.count, self.first = 0, list[str]()

    def __call__(self, problems: list[str]) -> None:
        if not self.skip:
            raise bad_rows_error(self.source, problems)
        self.count += len(problems)
        self.first += problems[: 3 - len(self.first)]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a table whose texts are predicted."""

    batches: Iterator[RowBatch]
    column: Column | InputColumns  # of the inputs in a batch
    source: TableSource | None = None  # how the file is written; None for an array


def read_rows(path: Source, columns: InputColumns, **options: Any) -> Rows:
    """Batches of the rows of a table. The options are those of `iter_rows`.

    A `.txt` file and the standard input, `-`, have one text per line and no columns, unless `format` names another
    format.
    """
    wanted, name = options.pop("format", None), str(path)
    is_lines = wanted == "txt" or (
        wanted is None and (name == "-" or name.lower().removesuffix(".gz").endswith(".txt"))
    )
    if not is_lines:
        source = open_source(path, columns.names, format=wanted, **options)
    elif options.get("delimiter") is not None or options.get("header"):
        raise OptionError(f"{name} has one text per line and no columns", fix={"format": "csv"})
    elif len(columns.names) > 1:
        needed = ", ".join(map(repr, columns.names))
        raise OptionError(f"{name} has one text per line, and the columns {needed} are needed", fix={"format": "csv"})
    else:
        columns = InputColumns(("0",))
        how: dict[str, Any] = {"format": "csv", "delimiter": ONE_COLUMN, "header": False, "quoting": False}
        source = replace(open_source(path, columns.names, **{**options, **how}), is_list=True)
    batches = iter_rows(source, (), ROWS, texts=columns, records=True, on_bad_rows="skip")
    return Rows(batches, columns, source)


def predict_rows(
    model: Model,
    rows: Rows,
    decoding: Decoding = Decoding(),  # noqa: B008 - frozen
    *,
    batch_size: int = 256,
    keep: bool = False,
    within_column: Column | None = None,
    without_column: Column | None = None,
    on_bad_rows: Callable[[list[str]], None],
) -> Iterator[dict[str, Any]]:
    """The prediction for each row of a table, with its line number or, with `keep`, the row's own columns.

    `within_column` and `without_column` hold the nodes that restrict the prediction of each
    row, as `parse_nodes` reads them; an empty cell does not restrict it. `on_bad_rows` receives a description of every
    row that cannot be read. Predicted columns get the prefix `predicted_` if the table has columns of the same names.
    """
    prefix: str | None = None
    restrictions = {"within": within_column, "without": without_column}
    columns = {side: str(name) for side, name in restrictions.items() if name is not None}
    for side in columns:
        if getattr(decoding, side) is not None:
            raise OptionError(f"cannot be combined with {side}", argument=f"{side}_column")
    is_list = rows.source is not None and rows.source.is_list
    checked = dict[tuple[Any, ...], dict[str, Any]]()
    for batch in rows.batches:
        if batch.problems:
            on_bad_rows(batch.problems)
        if not len(batch):
            continue
        if prefix is None:
            prefix = column_prefix(batch.rows) if keep else ""
        options = vars(decoding)
        if columns:
            each = [
                _restriction(model, row, columns, line, checked)
                for line, row in zip(batch.lines, batch.rows, strict=True)
            ]
            options = options | {side: [row[side] for row in each] for side in columns}
        found = predict(model, batch[rows.column], **options, batch_size=batch_size)
        own_rows: list[dict[str, Any]] = batch.rows if keep else [{}] * len(batch)
        for line, own, prediction in zip(batch.lines, own_rows, found, strict=True):
            row = {prefix + name: value for name, value in prediction.to_dict().items()}
            if not keep:
                yield {"line": line, **row}
                continue
            own = {"text" if is_list and name == "0" else name: value for name, value in own.items()}
            if shared := row.keys() & own.keys():
                raise OptionError(
                    f"line {line}: the column {', '.join(sorted(shared))} has the name of a predicted column; "
                    "rename it in the input",
                    argument="keep",
                )
            yield {**own, **row}


def _restriction(
    model: Model,
    row: dict[str, Any],
    columns: dict[str, str],
    line: int,
    checked: dict[tuple[Any, ...], dict[str, Any]],
) -> dict[str, Any]:
    """The nodes that restrict one row, for each side; `checked` holds those of other rows by their cells."""
    for side, name in columns.items():
        if name not in row:
            hint = did_you_mean(name, row)
            raise InputError(f"line {line}: found no column {name!r}{hint}", argument=f"{side}_column")
    key = tuple(str(row[name]) for name in columns.values())
    if key not in checked:
        nodes = {side: parse_nodes(row[name]) for side, name in columns.items()}
        try:
            Restriction(model.taxonomy, **nodes)
        except ArbormaxError as error:
            raise InputError(f"line {line}: {error.message}", argument=f"{error.argument}_column") from None
        checked[key] = nodes
    return checked[key]


def parse_nodes(cell: Any) -> list[str] | None:
    """The nodes in a cell: a list of labels, or labels with ";" between them; None for an empty cell.

    >>> parse_nodes("bird; fish > cod"), parse_nodes('["a;b"]'), parse_nodes("")
    (['bird', 'fish > cod'], ['a;b'], None)
    """
    if isinstance(cell, str):
        cell = json.loads(cell) if cell.lstrip().startswith("[") else cell.split(";")
    elif not isinstance(cell, (list, tuple)):
        cell = [] if cell is None or cell != cell else [cell]  # a missing value may be NaN
    names = [str(name).strip() for name in cell]
    return [name for name in names if name] or None


def column_prefix(rows: Iterable[dict[str, Any]]) -> str:
    """The prefix of predicted columns beside the columns of these rows."""
    names = {"label", "path", "probabilities", "top", "uncertainty", "set"}
    return "predicted_" if any(names & row.keys() for row in rows) else ""


def source_name(source: str | os.PathLike[str]) -> str:
    """The name of a source in messages."""
    return "<stdin>" if source == "-" else Path(source).name
