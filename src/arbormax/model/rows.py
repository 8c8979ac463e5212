"""Predictions for the rows of a table, one batch of the table in memory at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from arbormax.data.tables import Column, RowBatch, Source, bad_rows_error, iter_rows
from arbormax.errors import OptionError
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
    on_bad_rows: Callable[[list[str]], None],
) -> Iterator[dict[str, Any]]:
    """The prediction for each row of a table, with its line number or, with `keep`, the row's own columns.

    `column` holds the texts. `on_bad_rows` receives a description of every row that cannot be read. Predicted columns
    get the prefix `predicted_` if the table has columns of the same names.
    """
    prefix: str | None = None
    for batch in batches:
        if batch.problems:
            on_bad_rows(batch.problems)
        if not len(batch):
            continue
        if prefix is None:
            prefix = column_prefix(batch.rows) if keep else ""
        found = predict(model, batch[column], **vars(decoding), batch_size=batch_size)
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


def column_prefix(rows: Iterable[dict[str, Any]]) -> str:
    """The prefix of predicted columns beside the columns of these rows."""
    names = {"label", "path", "probabilities", "top"}
    return "predicted_" if any(names & row.keys() for row in rows) else ""


def source_name(source: str | os.PathLike[str]) -> str:
    """The name of a source in messages."""
    return "<stdin>" if source == "-" else Path(source).name
