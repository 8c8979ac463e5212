"""What a fitted classifier predicts: labels, nodes, paths and probabilities.

B batch, N nodes, C classes, n items, k alternatives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from arbormax.decode import Restriction
from arbormax.errors import OptionError
from arbormax.model import Model
from arbormax.model.draws import predicted_log_probs
from arbormax.model.predict import Decoder, Decoding, Prediction, bounded_batch, decode_batches, predict
from arbormax.sklearn.inputs import LabelFormat, node_labels
from arbormax.taxonomy import Taxonomy


class PredictionMixin:
    """The methods of `TreeClassifier` that predict."""

    if TYPE_CHECKING:
        model_: Model
        taxonomy_: Taxonomy
        classes_: np.ndarray
        _format: LabelFormat

    @abstractmethod
    def _check_inputs(self, X: Any) -> Any:
        """The validated inputs."""

    def predict(
        self, X: Any, decoder: str | Decoder = "leaf", *, within: Any = None, without: Any = None, **options: Any
    ) -> np.ndarray:
        """The label of the predicted node of each item: by default of the most probable class, one of `classes_`.

        `decoder` is a name from `arbormax.decode.NAMES` or a function, and `options` are its options, such as `metric`
        of "optimal". A decoder may predict an inner node, whose label has the form of the training labels.

        `within` and `without` restrict the classes to those at or below some nodes, or exclude them: labels, paths,
        node ids of `taxonomy_` or a Boolean mask; for a restriction of each item, a list of such lists.
        """
        nodes = self._nodes(self._ready(X), Decoding(decoder, options, within=within, without=without))
        return node_labels(nodes, self.taxonomy_, self._format, self.classes_)

    def predict_details(
        self,
        X: Any,
        decoder: str | Decoder = "leaf",
        *,
        top_k: int = 0,
        within: Any = None,
        without: Any = None,
        **options: Any,
    ) -> list[Prediction]:
        """The predicted node of each item with its path, probabilities and `top_k` alternatives.

        These are the results of `arbormax predict` and of the service. `options` are those of the decoder, such as
        `tau` of "threshold"; `within` and `without` are those of `predict`.
        """
        decoding = Decoding(decoder, options, top_k, within, without)
        return list(predict(self.model_, self._ready(X), **vars(decoding)))

    def predict_proba(self, X: Any, *, within: Any = None, without: Any = None) -> np.ndarray:
        """(n, C) float32 probabilities of the classes, in the order of `classes_`.

        `within` and `without` are those of `predict`; the classes that they leave have a sum of one.
        """
        return _exp(self.predict_log_proba(X, within=within, without=without))

    def predict_log_proba(self, X: Any, *, within: Any = None, without: Any = None) -> np.ndarray:
        """(n, C) float32 log-probabilities of the classes, in the order of `classes_`."""
        return self._score_all(self._ready(X), self.taxonomy_.leaves, within, without)

    def node_proba(self, X: Any, *, within: Any = None, without: Any = None) -> np.ndarray:
        """(n, N) float32 probabilities of all nodes of `taxonomy_`; the probability of the root is one."""
        return _exp(self._score_all(self._ready(X), None, within, without))

    def predict_nodes(
        self,
        X: Any,
        tau: float = 0.5,
        decoder: str | Decoder = "threshold",
        *,
        within: Any = None,
        without: Any = None,
        **options: Any,
    ) -> np.ndarray:
        """(n,) int64 node ids of `taxonomy_`: by default the deepest node with a probability above `tau`.

        `decoder` is a name from `arbormax.decode.NAMES`, or a function that maps node log-probabilities (B, N) and the
        taxonomy to nodes (B,). `tau` and `options` are passed to decoders that have these options. `within` and
        `without` are those of `predict`.
        """
        inputs, decoding = self._ready(X), Decoding(decoder, options, within=within, without=without)
        if "tau" in decoding.option_names:
            decoding = replace(decoding, options={"tau": tau, **options})
        return self._nodes(inputs, decoding)

    def predict_paths(
        self, X: Any, tau: float | None = None, *, within: Any = None, without: Any = None
    ) -> list[tuple[str, ...]]:
        """The path of names to the most probable class of each item, or with `tau` to the node of `predict_nodes`.

        The empty path is the root: no node below it has a probability above `tau`. `within` and `without` are those of
        `predict`.
        """
        nodes = self._nodes(self._ready(X), Decoding.choose(tau=tau, within=within, without=without))
        paths = {node: self.taxonomy_.path(node) for node in np.unique(nodes).tolist()}
        return [paths[node] for node in nodes.tolist()]

    def topk(self, X: Any, k: int, *, within: Any = None, without: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """(n, k) descending probabilities of the k most probable classes of each item, and (n, k) their labels.

        Classes that `within` and `without` exclude follow the others, with probability 0.
        """
        inputs, k, most = self._ready(X), index(k), self.taxonomy_.num_leaves
        if not 1 <= k <= most:
            raise OptionError(f"expected a number from 1 to {most:,}, the number of classes, found {k}", argument="k")
        found = list(decode_batches(self.model_, inputs, Decoding(top_k=k, within=within, without=without)))
        logp = torch.cat([torch.zeros(0, k), *(batch.top_logp for batch in found)])
        classes = torch.cat([torch.zeros(0, k, dtype=torch.int64), *(batch.top_classes for batch in found)])
        return _exp(logp.double().numpy()), self.classes_[classes.numpy()]

    def _ready(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._check_inputs(X)

    def _nodes(self, inputs: Any, decoding: Decoding) -> np.ndarray:
        found = [batch.nodes for batch in decode_batches(self.model_, inputs, decoding)]
        nodes: np.ndarray = torch.cat([torch.zeros(0, dtype=torch.int64), *found]).numpy()
        return nodes

    def _score_all(self, inputs: Any, nodes: np.ndarray | None, within: Any, without: Any) -> np.ndarray:
        """(n, C) log-probabilities of the classes, or (n, N) of all nodes; few are in memory beside the result."""
        items, tax = inputs.shape[0] if hasattr(inputs, "shape") else len(inputs), self.taxonomy_
        restriction = Restriction(tax, within, without)
        is_restricted = within is not None or without is not None
        result = np.empty((items, tax.num_nodes if nodes is None else len(nodes)), np.float32)
        classes_only = nodes is not None and not is_restricted and self.model_.posterior is None
        batch_size, start = bounded_batch(tax), 0
        batches: Iterator[torch.Tensor]
        if classes_only:
            batches = (logp_BC.cpu() for logp_BC in self.model_.leaf_log_probs(inputs, batch_size))
        else:
            batches = predicted_log_probs(self.model_, inputs, batch_size)
        for logp in batches:
            rows = (logp if classes_only else restriction.apply(logp, start)).numpy()
            chosen = slice(None) if classes_only or nodes is None else nodes
            result[start : start + len(rows)] = rows[:, chosen]
            start += len(rows)
        restriction.finish(items)
        return result


def _exp(logp: np.ndarray) -> np.ndarray:
    np.exp(logp, out=logp)  # in place: these arrays may be very large
    return logp
