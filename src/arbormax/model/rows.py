"""Predictions for the rows of a table, one batch of the table in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from arbormax.data.tables import Column, RowBatch
from arbormax.errors import OptionError
from arbormax.model.network import Model
from arbormax.model.predict import Decoding, predict

ROWS = 2048  # rows of the input that are in memory together


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
