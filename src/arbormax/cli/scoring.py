"""Predictions as rows: label, path, the probability of every node on it, and the most probable classes.

B batch, N nodes, C classes, K steps of the longest path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbormax.cli.options import TableOptions
from arbormax.errors import LabelError, OptionError

if TYPE_CHECKING:
    from torch import Tensor

    from arbormax.data import RowBatch
    from arbormax.taxonomy import Taxonomy
    from arbormax.training import TextModel

ROWS = 2048  # of the input that are in memory together
DECODERS = ("leaf", "greedy", "threshold")


class Names:
    """Labels and paths of nodes, each made once."""

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self.label = lru_cache(maxsize=65_536)(self._label)
        self.path = lru_cache(maxsize=65_536)(taxonomy.path)
        self.steps = lru_cache(maxsize=65_536)(self._steps)

    def _steps(self, node: int) -> list[int]:
        """The nodes from below the root down to this one."""
        return [*self.taxonomy.ancestors(node)[1:].tolist(), node] if node else []

    def _label(self, node: int) -> str:
        """What `Taxonomy.find` takes for this node; nothing for the root."""
        tax = self.taxonomy
        if node == 0:
            return ""
        if tax.class_of[node] >= 0:
            return str(tax.classes[tax.class_of[node]])
        try:
            if tax.find(tax.names[node]) == node:
                return tax.names[node]
        except LabelError:
            pass
        from arbormax.taxonomy._labels import join_path

        return join_path(tax.path(node))


@dataclass(frozen=True)
class Decoding:
    """How log-probabilities become a prediction."""

    decoder: str
    tau: float
    top_k: int

    @classmethod
    def make(cls, decoder: str | None, tau: float | None, top_k: int) -> Decoding:
        """The choice, checked: a tau asks for the threshold decoder."""
        if decoder is None:
            decoder = "leaf" if tau is None else "threshold"
        if decoder not in DECODERS:
            raise OptionError(f"--decoder is one of {', '.join(DECODERS)}; found {decoder!r}")
        if tau is not None and decoder != "threshold":
            raise OptionError(f"--tau belongs to --decoder threshold, not {decoder}")
        if tau is not None and not 0 <= tau < 1:
            raise OptionError(f"--tau is a probability from 0 to below 1, found {tau}")
        return cls(decoder, 0.5 if tau is None else tau, top_k)

    def nodes(self, logp_BN: Tensor, tax: Taxonomy) -> Tensor:
        """(B,) the predicted node of each text."""
        from arbormax import decode

        if self.decoder == "threshold":
            return decode.threshold(logp_BN, tax, self.tau)
        return (decode.leaf if self.decoder == "leaf" else decode.greedy)(logp_BN, tax)


def predictions(
    model: TextModel, texts: Iterable[str], decoding: Decoding, batch_size: int = 256
) -> Iterator[dict[str, Any]]:
    """One row for each text, in their order; the texts may be a stream without end."""
    import torch

    tax, names = model.taxonomy, Names(model.taxonomy)
    leaves_C = torch.tensor(tax.leaves)
    for logp_BN in model.node_log_probs(texts, batch_size):
        logp_BN = logp_BN.cpu()
        node_B = decoding.nodes(logp_BN, tax).tolist()
        top = logp_BN[:, leaves_C].topk(min(decoding.top_k, len(leaves_C))) if decoding.top_k else None
        steps_BK = [names.steps(node) + [0] * (tax.depth - len(names.steps(node))) for node in node_B]
        chances_BK = logp_BN.gather(1, torch.tensor(steps_BK, dtype=torch.int64)).exp().tolist()
        for item, node in enumerate(node_B):
            path = names.path(node)
            row: dict[str, Any] = {
                "label": names.label(node),
                "path": list(path),
                "probabilities": [round(p, 6) for p in chances_BK[item][: len(path)]],
            }
            if top is not None:
                best = zip(top.indices[item].tolist(), top.values[item].exp().tolist(), strict=True)
                row["top"] = [{"label": tax.classes[c], "probability": round(p, 6)} for c, p in best]
            yield row


def batches_of(source: Path | str, table: TableOptions) -> tuple[Iterator[RowBatch], str | int]:
    """Batches of the rows of a file or of the standard input, and the column of their texts."""
    from arbormax.data import iter_rows

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


def scored(
    batches: Iterable[RowBatch],
    column: str | int,
    model: TextModel,
    decoding: Decoding,
    batch_size: int,
    keep: bool,
    on_problems: Callable[[list[str]], None],
) -> Iterator[dict[str, Any]]:
    """Each row of the input with its prediction; a batch of the input is in memory at a time."""
    prefix: str | None = None
    for batch in batches:
        if batch.problems:
            on_problems(batch.problems)
        if not len(batch):
            continue
        if prefix is None:
            prefix = _prefix(batch) if keep else ""
        rows = predictions(model, batch[column], decoding, batch_size)
        for line, own, row in zip(batch.lines, batch.rows, rows, strict=True):
            named = {prefix + name: value for name, value in row.items()}
            if not keep:
                yield {"line": line, **named}
                continue
            own = {"text" if column == 0 and name == "0" else name: value for name, value in own.items()}
            if named.keys() & own.keys():
                both = ", ".join(sorted(named.keys() & own.keys()))
                raise OptionError(
                    f"line {line} has a column {both}, which a prediction would hide: rename it in the input"
                )
            yield {**own, **named}


def _prefix(batch: RowBatch) -> str:
    """What predictions are called beside columns of the same names."""
    names = {"label", "path", "probabilities", "top"}
    return "predicted_" if any(names & row.keys() for row in batch.rows) else ""
