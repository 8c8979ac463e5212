"""What `predict` is asked for, checked: how to decode, and which texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbormax.cli.options import InputOptions
from arbormax.errors import OptionError

if TYPE_CHECKING:
    from arbormax.data import RowBatch
    from arbormax.model.predict import Decoding


def decoding_of(decoder: str | None, tau: float | None, top_k: int) -> Decoding:
    """The choice, checked: a tau asks for the threshold decoder."""
    from arbormax.model.predict import Decoding

    return Decoding.choose(decoder, tau, top_k)


def batches_of(source: Path | str, table: InputOptions) -> tuple[Iterator[RowBatch], str | int]:
    """Batches of the rows of a file or of the standard input, and the column of their texts."""
    from arbormax.data import iter_rows
    from arbormax.model.rows import ROWS

    name = str(source)
    plain = table.input_format == "txt" or (
        table.input_format is None and (name == "-" or name.lower().removesuffix(".gz").endswith(".txt"))
    )
    if not plain:
        columns = [table.text]
        return (
            iter_rows(source, columns, ROWS, required=columns, records=True, on_bad_rows="skip", **table.reader()),
            table.text,
        )
    if table.delimiter is not None or table.text != "text" or table.no_header:
        raise OptionError(f"{name} is read as one text a line, without columns: say --input-format csv if it has some")
    # one text a line is a table of one column, whose delimiter no text holds
    how: dict[str, Any] = {"format": "csv", "delimiter": "\x1f", "header": False, "quoting": False}
    rows = iter_rows(source, [0], ROWS, required=[0], records=True, on_bad_rows="skip", encoding=table.encoding, **how)
    return rows, 0
