"""Predictions for the rows of a table, one batch of the table in memory at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from arbormax.data.tables import Column, RowBatch, Source, bad_rows_error, iter_rows
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


def read_rows(source: Source, text: str = "text", **options: Any) -> tuple[Iterator[RowBatch], Column]:
    """Batches of the rows of a table, and the column of the texts.

    The options are those of `iter_rows`. A `.txt` file and the standard input, `-`, have one text per line and no
    columns, unless `format` names another format.
    """
    wanted, name = options.pop("format", None), str(source)
    is_lines = wanted == "txt" or (
        wanted is None and (name == "-" or name.lower().removesuffix(".gz").endswith(".txt"))
    )
    if not is_lines:
        return _iter_rows(source, text, format=wanted, **options), text
    if text != "text" or options.get("delimiter") is not None or not options.get("header", True):
        raise OptionError(f"{name} has one text per line and no columns", fix={"format": "csv"})
    # one text per line is a table with one column and a delimiter that occurs in no text
    how: dict[str, Any] = {"format": "csv", "delimiter": "\x1f", "header": False, "quoting": False}
    return _iter_rows(source, 0, **{**options, **how}), 0


def _iter_rows(source: Source, column: Column, **options: Any) -> Iterator[RowBatch]:
    how: dict[str, Any] = {"required": [column], "arguments": {column: "text"}, "records": True, "on_bad_rows": "skip"}
    return iter_rows(source, [column], ROWS, **how, **options)


def predict_rows(
    model: Model,
    batches: Iterable[RowBatch],
    column: Column,
    decoding: Decoding = Decoding(),  # noqa: B008 - frozen
    *,
    batch_size: int = 256,
    keep: bool = False,
    within_column: Column | None = None,
    without_column: Column | None = None,
    on_bad_rows: Callable[[list[str]], None],
) -> Iterator[dict[str, Any]]:
    """The prediction for each row of a table, with its line number or, with `keep`, the row's own columns.

    `column` holds the texts. `within_column` and `without_column` hold the nodes that restrict the prediction of each
    row, as `parse_nodes` reads them; an empty cell does not restrict it. `on_bad_rows` receives a description of every
    row that cannot be read. Predicted columns get the prefix `predicted_` if the table has columns of the same names.
    """
    prefix: str | None = None
    restrictions = {"within": within_column, "without": without_column}
    columns = {side: str(name) for side, name in restrictions.items() if name is not None}
    for side in columns:
        if getattr(decoding, side) is not None:
            raise OptionError(f"cannot be combined with {side}", argument=f"{side}_column")
    checked = dict[tuple[Any, ...], dict[str, Any]]()
    for batch in batches:
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
        found = predict(model, batch[column], **options, batch_size=batch_size)
        own_rows: list[dict[str, Any]] = batch.rows if keep else [{}] * len(batch)
        for line, own, prediction in zip(batch.lines, own_rows, found, strict=True):
            row = {prefix + name: value for name, value in prediction.to_dict().items()}
            if not keep:
                yield {"line": line, **row}
                continue
            own = {"text" if column == 0 and name == "0" else name: value for name, value in own.items()}
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


def parse_nodes(cell: Any) -> list[str | tuple[str, ...]] | None:
    """The nodes in a cell: a list of labels, or labels with ";" between them; None for an empty cell.

    A label is a name, a '/'-path, or a path of names with " > " between them.

    >>> parse_nodes("bird; fish > cod"), parse_nodes('["a;b"]'), parse_nodes("")
    (['bird', ('fish', 'cod')], ['a;b'], None)
    """
    if isinstance(cell, str):
        cell = json.loads(cell) if cell.lstrip().startswith("[") else cell.split(";")
    elif not isinstance(cell, (list, tuple)):
        cell = [] if cell is None or cell != cell else [cell]  # a missing value may be NaN
    names = [str(name).strip() for name in cell]
    found = [tuple(part.strip() for part in name.split(" > ")) if " > " in name else name for name in names if name]
    return found or None


def column_prefix(rows: Iterable[dict[str, Any]]) -> str:
    """The prefix of predicted columns beside the columns of these rows."""
    names = {"label", "path", "probabilities", "top", "uncertainty", "set"}
    return "predicted_" if any(names & row.keys() for row in rows) else ""


def source_name(source: str | os.PathLike[str]) -> str:
    """The name of a source in messages."""
    return "<stdin>" if source == "-" else Path(source).name
