"""What every classifier answers once it is fitted, whatever its inputs are: classes, probabilities, nodes and paths.

B batch, D features, N nodes, C classes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from arbormax import decode
from arbormax.errors import OptionError, did_you_mean
from arbormax.functional.threshold import check_tau
from arbormax.model import Model
from arbormax.model.network import evaluating
from arbormax.taxonomy import Taxonomy
from arbormax.training import Run

Decoder = Literal["threshold", "leaf", "greedy"] | Callable[[Tensor, Taxonomy], Tensor]

RECORD = "classifier.json"
_CELLS = 2**24  # of a batch of answers: what prediction holds in memory beside its result


class Answers:
    """The answers of a fitted classifier that has `model_`, `taxonomy_` and `classes_`."""

    model_: Model
    taxonomy_: Taxonomy
    classes_: np.ndarray

    @abstractmethod
    def _ready(self, X: Any) -> Any:
        """The inputs, checked, of a classifier that is fitted."""

    @abstractmethod
    def _features(self, inputs: Any, size: int) -> Iterator[Tensor]:
        """(B, D) features of the checked inputs, `size` at a time."""

    def predict(self, X: Any) -> np.ndarray:
        """The label of the most probable class of each item, one of `classes_`."""
        inputs = self._ready(X)
        labels: np.ndarray = self.classes_[self._best(inputs)]
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, C) float32 probabilities of the classes, in the order of `classes_`."""
        logp_nC = self.predict_log_proba(X)
        return _exp(logp_nC)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """(n, C) float32 log-probabilities of the classes, in the order of `classes_`."""
        inputs = self._ready(X)
        return self._answers(inputs, self.model_.head, self.taxonomy_.num_leaves)

    def node_proba(self, X: Any) -> np.ndarray:
        """(n, N) float32 probabilities of every node of `taxonomy_`; the root's is one."""
        inputs = self._ready(X)
        logp_nN = self._answers(inputs, self.model_.head.node_log_probs, self.taxonomy_.num_nodes)
        return _exp(logp_nN)

    def predict_nodes(self, X: Any, tau: float = 0.5, decoder: Decoder = "threshold") -> np.ndarray:
        """(n,) int64 node ids of `taxonomy_`: by default the deepest node whose probability exceeds `tau`.

        `decoder` is one of `arbormax.decode` by its name, of which only "threshold" looks at `tau`, or a function of
        node log-probabilities (B, N) and the taxonomy that gives nodes (B,).
        """
        inputs = self._ready(X)
        tax, head = self.taxonomy_, self.model_.head
        names = ("threshold", "leaf", "greedy")
        if not callable(decoder) and decoder not in names:
            hint = did_you_mean(str(decoder), names)
            raise OptionError(f"decoder is one of {', '.join(names)}, or a function; found {decoder!r}{hint}")
        if decoder == "threshold":
            tau = check_tau(tau)
            return self._answers(inputs, lambda h_BD: head.predict_nodes(h_BD, tau), whole=False, dtype=np.int64)
        if decoder == "leaf":
            leaves: np.ndarray = tax.leaves[self._best(inputs)]
            return leaves
        chosen = decoder if callable(decoder) else decode.greedy
        return self._answers(inputs, lambda h_BD: chosen(head.node_log_probs(h_BD), tax), dtype=np.int64)

    def predict_paths(self, X: Any, tau: float | None = None) -> list[tuple[str, ...]]:
        """The path of names to each item's most probable class, or with `tau` to the node of `predict_nodes`.

        The empty path is the root: nothing was sure enough.
        """
        nodes = self.predict_nodes(X, decoder="leaf") if tau is None else self.predict_nodes(X, tau)
        paths = {node: self.taxonomy_.path(node) for node in np.unique(nodes).tolist()}
        return [paths[node] for node in nodes.tolist()]

    def topk(self, X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(n, k) falling probabilities of each item's k most probable classes, and (n, k) their labels."""
        inputs = self._ready(X)
        # the classes travel beside the log-probabilities, exact as float64
        both = self._answers(
            inputs,
            lambda h_BD: torch.stack([part.cpu().double() for part in self.model_.head.topk(h_BD, k)], -1),
            k,
            2,
            dtype=np.float64,
        )
        return _exp(both[..., 0]), self.classes_[both[..., 1].astype(np.int64)]

    def _best(self, inputs: Any) -> np.ndarray:
        return self._answers(inputs, self.model_.head.predict, whole=False, dtype=np.int64)

    def _answers(
        self,
        inputs: Any,
        answer: Callable[[Tensor], Tensor],
        *shape: int,
        whole: bool = True,
        dtype: type[np.generic] = np.float32,
    ) -> np.ndarray:
        """(n, *shape) the answers to the items' features, a batch at a time; `whole`: they may need all scores."""
        result = np.empty((inputs.shape[0] if hasattr(inputs, "shape") else len(inputs), *shape), dtype)
        start = 0
        for features_BD in self._features(inputs, self._batch(whole)):
            with evaluating(self.model_):
                rows = answer(features_BD).cpu().numpy()
            result[start : start + len(rows)] = rows
            start += len(rows)
        return result

    def _batch(self, whole: bool) -> int:
        """How many items are answered at a time."""
        model = self.model_
        is_sparse = model.encoder.gives_sparse
        if whole or is_sparse or not model.head.searches:  # with sparse features none searches
            return max(1, min(256, _CELLS // self.taxonomy_.num_nodes))
        return 256


def run_record(run: Run | None) -> dict[str, Any] | None:
    """How a training went, for JSON."""
    if run is None:
        return None
    return {
        "epochs": run.epochs,
        "best_epoch": run.best_epoch,
        "valid_macro_f1": run.valid_macro_f1,
        "curve": [dict(epoch) for epoch in run.curve],
        "seconds": run.seconds,
    }


def recorded_run(told: Mapping[str, Any] | None, model: Model) -> Run | None:
    """The training that `run_record` wrote down."""
    return Run(model, **{**told, "curve": tuple(told.get("curve", ()))}) if told else None


def _exp(logp: np.ndarray) -> np.ndarray:
    np.exp(logp, out=logp)  # in place: these arrays may be the largest there are
    return logp
