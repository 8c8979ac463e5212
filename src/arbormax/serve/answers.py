"""Texts to finished JSON: what the worker does with a batch.

B batch, N nodes, C classes, K steps of the longest path.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from arbormax.functional.best import top_classes
from arbormax.model.network import Model
from arbormax.model.predict import Decoding, NodeNames

_CELLS = 2**24  # log-probabilities in memory at a time: batch times nodes


class Answers:
    """Predictions of one model as JSON objects, whose fixed parts are made once for each node."""

    def __init__(self, model: Model, batch_size: int) -> None:
        self.model, self.taxonomy, self.names = model, model.taxonomy, NodeNames(model.taxonomy)
        self._batch = max(1, min(batch_size, _CELLS // self.taxonomy.num_nodes))
        self._leaves = self.taxonomy.leaves.tolist()
        self._leaves_C = torch.tensor(self._leaves)
        self._head = lru_cache(maxsize=65_536)(self._fixed_head)
        self._step = lru_cache(maxsize=65_536)(self._fixed_step)
        self.names.label(min(1, self.taxonomy.num_nodes - 1))  # builds the index of labels before the first request

    def __call__(self, texts: Sequence[str], decodings: Sequence[Decoding]) -> list[str]:
        """One JSON object for each text, each with the decoding it asks for."""
        rows: list[str] = []
        for logp_BN in self.model.node_log_probs(texts, self._batch):
            start = len(rows)
            rows += self._rows(logp_BN.cpu(), decodings[start : start + len(logp_BN)])
        return rows

    def _rows(self, logp_BN: Tensor, decodings: Sequence[Decoding]) -> list[str]:
        top_k = min(max(asked.top_k for asked in decodings), len(self._leaves))
        best_B: list[list[int]] = [[]] * len(decodings)
        chance_B: list[list[float]] = [[]] * len(decodings)
        if top_k:
            top_logp, top = top_classes(logp_BN[:, self._leaves_C], top_k)
            best_B, chance_B = top.tolist(), top_logp.exp().tolist()
        if top_k and all(asked.decoder == "leaf" for asked in decodings):
            node_B = [self._leaves[best[0]] for best in best_B]
        else:
            node_B = self._nodes(logp_BN, decodings)
        steps = [self.names.steps(node) for node in node_B]
        longest = max(map(len, steps))
        steps_BK = torch.tensor([own + [0] * (longest - len(own)) for own in steps], dtype=torch.int64)
        chances_BK = logp_BN.gather(1, steps_BK.view(len(steps), longest)).exp().tolist()
        if any(p != p for row in chances_BK for p in row):
            raise ArithmeticError("the model gives probabilities that are no numbers: its weights are broken")
        leaves, head, step = self._leaves, self._head, self._step
        rows = []
        for node, own, chances, best, chance, asked in zip(
            node_B, steps, chances_BK, best_B, chance_B, decodings, strict=True
        ):
            parts: list[str | float] = [head(node), chances[len(own) - 1] if own else 1.0]
            for n, p in zip(own, chances, strict=False):
                parts += step(n), p
            told = min(asked.top_k, len(best))
            for c, p in zip(best[:told], chance, strict=False):
                parts += head(leaves[c]), p
            rows.append(_form(len(own), told) % tuple(parts))
        return rows

    def _nodes(self, logp_BN: Tensor, decodings: Sequence[Decoding]) -> list[int]:
        """The answer to each text, decoded together with those that ask for the same."""
        places: dict[Decoding, list[int]] = {}
        for place, asked in enumerate(decodings):
            places.setdefault(replace(asked, top_k=0), []).append(place)
        if len(places) == 1:
            return decodings[0].nodes(logp_BN, self.taxonomy).tolist()
        node_B = [0] * len(decodings)
        for own in places.values():
            found = decodings[own[0]].nodes(logp_BN[own], self.taxonomy).tolist()
            for place, node in zip(own, found, strict=True):
                node_B[place] = node
        return node_B

    def _fixed_head(self, node: int) -> str:
        """A node's object up to its probability."""
        path = json.dumps(self.names.path(node), separators=(",", ":"))
        return f'{{"label":{json.dumps(self.names.label(node))},"node":{node},"path":{path},"probability":'

    def _fixed_step(self, node: int) -> str:
        name, label = json.dumps(self.taxonomy.names[node]), json.dumps(self.names.label(node))
        return f'{{"node":{node},"name":{name},"label":{label},"probability":'


@lru_cache(maxsize=4096)
def _form(steps: int, alternatives: int) -> str:
    """Of an answer with so many of each, every one a fixed part and a number."""
    walked, others = (",".join(["%s%.6g}"] * count) for count in (steps, alternatives))
    return f'%s%.6g,"steps":[{walked}],"alternatives":[{others}]}}'
