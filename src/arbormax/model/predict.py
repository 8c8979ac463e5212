"""Predictions as rows: label, path, the probability of every node on it, and the most probable classes.

B batch, N nodes, C classes, K steps of the longest path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from arbormax import decode
from arbormax.data.tables import Column, RowBatch
from arbormax.errors import LabelError, OptionError
from arbormax.functional.best import top_classes
from arbormax.model.network import Model
from arbormax.taxonomy import Taxonomy

ROWS = 2048  # of the input that are in memory together


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
        from arbormax.taxonomy.labels import join_path

        return join_path(tax.path(node))


@dataclass(frozen=True)
class Decoding:
    """How log-probabilities become a prediction, and how many of the best classes to tell."""

    decoder: str = "leaf"
    tau: float = 0.5
    top_k: int = 0

    def nodes(self, logp_BN: Tensor, tax: Taxonomy) -> Tensor:
        """(B,) the predicted node of each text."""
        if self.decoder == "threshold":
            return decode.threshold(logp_BN, tax, self.tau)
        return (decode.leaf if self.decoder == "leaf" else decode.greedy)(logp_BN, tax)


def predictions(
    model: Model, texts: Iterable[str], decoding: Decoding, batch_size: int = 256
) -> Iterator[dict[str, Any]]:
    """One row for each text, in their order; the texts may be a stream without end."""
    tax, names = model.taxonomy, Names(model.taxonomy)
    leaves_C = torch.tensor(tax.leaves)
    for logp_BN in model.node_log_probs(texts, batch_size):
        logp_BN = logp_BN.cpu()
        node_B = decoding.nodes(logp_BN, tax).tolist()
        top = top_classes(logp_BN[:, leaves_C], min(decoding.top_k, len(leaves_C))) if decoding.top_k else None
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
                best = zip(top[1][item].tolist(), top[0][item].exp().tolist(), strict=True)
                row["top"] = [{"label": tax.classes[c], "probability": round(p, 6)} for c, p in best]
            yield row


def scored(
    batches: Iterable[RowBatch],
    column: Column,
    model: Model,
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
            prefix = prefix_of(batch.rows) if keep else ""
        rows = predictions(model, batch[column], decoding, batch_size)
        owns: list[dict[str, Any]] = batch.rows if keep else [{}] * len(batch)
        for line, own, row in zip(batch.lines, owns, rows, strict=True):
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


def prefix_of(rows: Iterable[dict[str, Any]]) -> str:
    """What predictions are called beside columns of the same names."""
    names = {"label", "path", "probabilities", "top"}
    return "predicted_" if any(names & row.keys() for row in rows) else ""
