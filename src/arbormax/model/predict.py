"""From features to predictions: the one result type that the command line, the service, estimators and Ray render.

B batch, D features, N nodes, C classes, K steps of the longest path, k alternatives.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from arbormax import decode
from arbormax.errors import ArbormaxError, OptionError, did_you_mean
from arbormax.functional.best import top_classes
from arbormax.functional.graphs import steps_to
from arbormax.heads import TreeHead
from arbormax.model.draws import (
    StepUncertainty,
    draws_batch,
    mean_log_probs,
    node_draws,
    path_uncertainty,
    restrict_draws,
)
from arbormax.model.network import Model, ModelInputs, evaluating
from arbormax.model.reason import stop_reason
from arbormax.taxonomy import Taxonomy


class SetFinder(Protocol):
    """Finds few nodes that contain the truth with a guaranteed probability: see `arbormax.uncertainty.conformal`."""

    def nodes(self, p_BN: np.ndarray) -> np.ndarray:
        """(B, W) the nodes of each set, -1 for none, from (B, N) probabilities."""

    def sums(self, p_BN: np.ndarray, true_B: np.ndarray) -> dict[str, np.ndarray]:
        """Counts of covered items and of the nodes and classes of the sets, which can be added over batches."""

    def measures(self, sums: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The share of covered items, and the mean numbers of nodes and classes of a set."""


Decoder = Callable[..., Tensor]  # (logp_BN, tax, **options) -> nodes_B, or (B, k) with the best first

DIGITS = 6  # decimals of a probability; the ones after them depend on how items are grouped into batches
_CELLS = 2**24  # log-probabilities of nodes that are in memory together
_SEARCHED = 50  # classes for each alternative, below which a head scores all classes instead of searching


class PredictionError(ArbormaxError, ArithmeticError):
    """The model computes NaN probabilities."""


@dataclass(frozen=True)
class Prediction:
    """The predicted node of one item, its path and the probability of each node on the path.

    The probabilities are rounded to six decimals. The root has an empty label and an empty path.
    """

    node: int
    label: str  # what `Taxonomy.find` accepts for this node
    path: tuple[str, ...]
    probabilities: tuple[float, ...]  # one for each name of the path
    alternatives: tuple[tuple[str, float], ...] = ()  # the most probable classes: label and probability, descending
    reason: str | None = (
        None  # why it stops above the classes; None for a class, in a graph, and on a tree that is searched
    )

    uncertainty: tuple[StepUncertainty, ...] | None = None  # one for each name of the path, of a model that has it
    set: tuple[str, ...] = ()  # labels of the nodes that contain the truth with the coverage that was asked for

    @property
    def probability(self) -> float:
        """The probability of the predicted node."""
        return self.probabilities[-1] if self.probabilities else 1.0

    def to_dict(self) -> dict[str, Any]:
        """The prediction as plain values for JSON and tables.

        `top` is present if alternatives were requested, `set` if a set was, and `uncertainty` if the model has it: a
        list for each field of `StepUncertainty`, as long as the path.
        """
        row: dict[str, Any] = {
            "label": self.label,
            "path": list(self.path),
            "probabilities": list(self.probabilities),
        }
        if self.uncertainty is not None:
            steps = zip(*self.uncertainty, strict=True) if self.uncertainty else [()] * len(StepUncertainty._fields)
            row["uncertainty"] = dict(zip(StepUncertainty._fields, map(list, steps), strict=True))
        if self.set:
            row["set"] = list(self.set)
        if self.alternatives:
            row["top"] = [{"label": label, "probability": p} for label, p in self.alternatives]
        return row


@dataclass(frozen=True)
class Decoding:
    """A decoder, its options, the number of alternatives, the allowed classes and how sets are found: all that a
    prediction needs besides the model.

    `decoder` is a name from `arbormax.decode.DECODERS` or a function `(logp, tax, **options) -> nodes`. The classes are
    those `within` some nodes and `without` others, in the forms of `arbormax.decode.within`.

    The alternatives are the `top_k` most probable of the allowed classes. Those of `beam` are its `k` paths: `top_k` is
    another way to give `k`.
    """

    decoder: str | Decoder = "leaf"
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    top_k: int = 0
    within: Any = None
    without: Any = None
    sets: SetFinder | None = None
    coverage: float | None = None  # that the `tau` of the decoder guarantees

    def __post_init__(self) -> None:
        if not callable(self.decoder):
            decode.DECODERS.check(self.decoder, argument="decoder")
        known = self.option_names
        for name in self.options:
            if name not in known:
                what = f"decoder {self.decoder!r}" if isinstance(self.decoder, str) else "this decoder"
                hint = decode.option_hint(name) or did_you_mean(name, known)
                raise OptionError(f"{what} does not have this option{hint}", argument=name)
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, int) or self.top_k < 0:
            raise OptionError(f"expected a whole number of at least 0, found {self.top_k!r}", argument="top_k")
        if self.top_k and self.function is decode.beam and self.options.get("k", self.top_k) != self.top_k:
            raise OptionError("the alternatives of beam are its k paths: give k or top_k, not both", argument="top_k")

    @classmethod
    def choose(
        cls,
        decoder: str | None = None,
        tau: float | None = None,
        top_k: int = 0,
        options: Mapping[str, Any] | None = None,
        **restriction: Any,
    ) -> Decoding:
        """The decoding for optional arguments: without a decoder `leaf`, or `threshold` if `tau` is given."""
        name = decoder or ("leaf" if tau is None else "threshold")
        return cls(name, {**({} if tau is None else {"tau": tau}), **(options or {})}, top_k, **restriction)

    @property
    def function(self) -> Decoder:
        return self.decoder if callable(self.decoder) else decode.DECODERS[self.decoder]

    @property
    def option_names(self) -> tuple[str, ...]:
        """The keyword parameters of the decoder."""
        return decode.option_names(self.function)

    @property
    def alternatives(self) -> int:
        """The number of alternatives at most: `top_k`, or without it the `k` of `beam`."""
        if self.top_k or self.function is not decode.beam:
            return self.top_k
        return int(self.options.get("k", inspect.signature(decode.beam).parameters["k"].default))

    @property
    def condition(self) -> str | None:
        """The coverage or the threshold that was asked for, as words of a sentence; None without either."""
        known = inspect.signature(self.function).parameters.get("tau")
        tau = self.options.get("tau", None if known is None else known.default)
        if not isinstance(tau, (int, float)):
            return None
        threshold = f"{100 * tau:.4g} %"
        if self.coverage is None:
            return f"a threshold of {threshold}"
        return f"a coverage of {100 * self.coverage:.4g} % (a probability above {threshold})"

    def check(self, tax: Taxonomy) -> None:
        """Raise for an option with a wrong value, and for more alternatives than the taxonomy has classes."""
        if self.top_k > tax.num_leaves:
            raise OptionError(
                f"expected at most {tax.num_leaves:,}, the number of classes, found {self.top_k:,}", argument="top_k"
            )
        self.function(torch.zeros(0, tax.num_nodes), tax, **self.options)
        self.restriction(tax)

    @property
    def is_restricted(self) -> bool:
        return self.within is not None or self.without is not None

    def restriction(self, tax: Taxonomy) -> decode.Restriction:
        """The allowed classes of each item."""
        return decode.Restriction(tax, self.within, self.without)

    def nodes(self, logp_BN: Tensor, tax: Taxonomy) -> Tensor:
        """(B,) the predicted nodes, from (B, N) node log-probabilities."""
        return self.ranked(logp_BN, tax)[:, 0]

    def ranked(self, logp_BN: Tensor, tax: Taxonomy) -> Tensor:
        """(B, k) the predicted nodes, the best first; most decoders give one."""
        nodes = self.function(logp_BN, tax, **self.options)
        return nodes if nodes.ndim == 2 else nodes[:, None]


class Decoded(NamedTuple):
    """The predictions of one batch as tensors on the CPU."""

    nodes: Tensor  # (B,) int64
    path_logp: Tensor  # (B, K) log-probability of each node on the path, from below the root; zeros past its end
    top_logp: Tensor  # (B, k) descending
    top_classes: Tensor  # (B, k)
    reasons: Sequence[str | None]  # (B,) why a prediction stops above the classes
    uncertainty: Tensor | None = None  # (B, K, 4) the values of `StepUncertainty` on the path
    is_restricted: bool = False  # whether classes are excluded, whose log-probability is -inf
    sets: Tensor | None = None  # (B, W) the nodes of each set, -1 for none


def predict(
    model: Model,
    inputs: ModelInputs,
    *,
    decoder: str | Decoder = "leaf",
    options: Mapping[str, Any] | None = None,
    top_k: int = 0,
    batch_size: int = 256,
    within: Any = None,
    without: Any = None,
    sets: SetFinder | None = None,
    coverage: float | None = None,
) -> Iterator[Prediction]:
    """Predictions in the order of the inputs, which are texts, possibly an infinite stream, or a feature matrix.

    `decoder` is a name from `arbormax.decode.DECODERS` or a function, `options` are its keyword arguments, and `top_k`
    is the number of alternatives. `within` and `without` restrict the classes of all items, or with one list for each
    item those of each: see `arbormax.decode.within`. `sets` adds a set of nodes to each prediction, such as an
    `arbormax.uncertainty.conformal.SetRule`. `coverage` is that of the decoder's `tau`, which reasons name.
    """
    decoding = Decoding(decoder, options or {}, top_k, within, without, sets, coverage)
    names = NodeNames(model.taxonomy)
    batches = decode_batches(model, inputs, decoding, batch_size, uncertainty=True)
    return (prediction for batch in batches for prediction in render(batch, names))


def decode_batches(
    model: Model, inputs: ModelInputs, decoding: Decoding, batch_size: int = 256, *, uncertainty: bool = False
) -> Iterator[Decoded]:
    """The predictions of each batch as tensors; a large tree is searched, so that (B, N) is never in memory.

    A model with a posterior predicts with the mean over the draws; `uncertainty` adds that of the paths.
    """
    decoding.check(model.taxonomy)
    if model.posterior is not None:
        return _decode_draws(model, inputs, decoding, draws_batch(model, batch_size), uncertainty)
    size = batch_size if _can_search(model, decoding) else bounded_batch(model.taxonomy, batch_size)
    return _decode_batches(model, inputs, decoding, size)


def _decode_batches(model: Model, inputs: ModelInputs, decoding: Decoding, size: int) -> Iterator[Decoded]:
    restriction, start = decoding.restriction(model.taxonomy), 0
    for h_BD in model.features(inputs, size):
        found = decode_features(model.head, h_BD, decoding, restriction, start)
        start += len(found.nodes)
        yield found
    restriction.finish(start)


def _decode_draws(
    model: Model, inputs: ModelInputs, decoding: Decoding, size: int, uncertainty: bool
) -> Iterator[Decoded]:
    tax, start = model.taxonomy, 0
    restriction = decoding.restriction(tax)
    for logp_SBN in node_draws(model, inputs, size):
        found = _checked(_score(restriction.apply(mean_log_probs(logp_SBN), start), tax, decoding))
        if uncertainty:
            weight_SB = None
            if decoding.is_restricted:
                logp_SBN, weight_SB = restrict_draws(logp_SBN, restriction, tax, start)
            found = found._replace(uncertainty=path_uncertainty(logp_SBN, found.nodes, tax, weight_SB))
        start += len(found.nodes)
        yield found
    restriction.finish(start)


def bounded_batch(tax: Taxonomy, batch_size: int = 256) -> int:
    """The number of items whose log-probabilities of all nodes fit into a fixed amount of memory."""
    return max(1, min(batch_size, _CELLS // tax.num_nodes)) if batch_size > 0 else batch_size


def _can_search(model: Model, decoding: Decoding) -> bool:
    return (
        model.head.searches
        and decoding.sets is None
        and decoding.function in _SEARCHES
        and not decoding.is_restricted
        and not model.encoder.has_sparse_features(model.encoder.options)
        and decoding.top_k * _SEARCHED <= model.taxonomy.num_leaves
    )


def decode_features(
    head: TreeHead, h_BD: Tensor, decoding: Decoding, restriction: decode.Restriction, start: int = 0
) -> Decoded:
    """The predictions for the features of one batch, which begins with the item `start` of the restriction."""
    with evaluating(head):
        is_plain = decoding.sets is None and not decoding.is_restricted
        searches = head.searches and is_plain and decoding.function in _SEARCHES
        if searches and h_BD.layout == torch.strided:
            found = _search(head, h_BD, decoding)
        else:
            found = _score(restriction.apply(head.node_log_probs(h_BD).cpu(), start), head.taxonomy, decoding)
    return _checked(found)


def _checked(found: Decoded) -> Decoded:
    if bool(found.path_logp.isnan().any()):
        raise PredictionError("the model computes NaN probabilities: its weights are damaged")
    return found


def _score(logp_BN: Tensor, tax: Taxonomy, decoding: Decoding) -> Decoded:
    """Decode the log-probabilities of all nodes."""
    ranked_Bk = decoding.ranked(logp_BN, tax)
    nodes_B = ranked_Bk[:, 0]
    # past the end of a path stands the root, whose log-probability is 0
    path_logp_BK = logp_BN.gather(1, torch.stack(steps_to(tax, nodes_B), dim=-1))
    if decoding.top_k:
        best = top_classes(logp_BN[:, torch.tensor(tax.leaves)], decoding.top_k)
    elif ranked_Bk.shape[1] > 1:
        best = logp_BN.gather(1, ranked_Bk), torch.tensor(tax.class_of)[ranked_Bk]
    else:
        best = _no_alternatives(len(nodes_B))
    rows = zip(nodes_B.tolist(), logp_BN, strict=True)
    condition = decoding.condition
    reasons = [
        None if tax.is_leaf[node] or tax.is_graph else stop_reason(tax, node, logp_N.numpy(), condition)
        for node, logp_N in rows
    ]
    found = Decoded(nodes_B, path_logp_BK, *best, reasons, is_restricted=decoding.is_restricted)
    if decoding.sets is None:
        return found
    return found._replace(sets=torch.from_numpy(decoding.sets.nodes(logp_BN.double().exp().numpy())))


def _search(head: TreeHead, h_BD: Tensor, decoding: Decoding) -> Decoded:
    """Look only at the branches of a large tree that may hold the result."""
    nodes_B, top_logp, classes = _SEARCHES[decoding.function](head, h_BD, decoding)
    path_logp_BK = head.path_log_probs(h_BD, nodes_B)
    return Decoded(nodes_B.cpu(), path_logp_BK.cpu(), top_logp.cpu(), classes.cpu(), [None] * len(nodes_B))


def _search_leaf(head: TreeHead, h_BD: Tensor, decoding: Decoding) -> tuple[Tensor, Tensor, Tensor]:
    logp_Bk, classes_Bk = head.topk(h_BD, max(1, decoding.top_k))
    leaves_C = torch.tensor(head.taxonomy.leaves, device=classes_Bk.device)
    nodes_B = leaves_C[classes_Bk[:, 0]]
    return nodes_B, logp_Bk[:, : decoding.top_k], classes_Bk[:, : decoding.top_k]


def _search_threshold(head: TreeHead, h_BD: Tensor, decoding: Decoding) -> tuple[Tensor, Tensor, Tensor]:
    nodes_B = head.predict_nodes(h_BD, **decoding.options)
    if not decoding.top_k:
        return nodes_B, *_no_alternatives(len(nodes_B))
    return nodes_B, *head.topk(h_BD, decoding.top_k)


# Decoders for which a head can search a large tree.
_SEARCHES = {decode.leaf: _search_leaf, decode.threshold: _search_threshold}


def _no_alternatives(items: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(items, 0), torch.zeros(items, 0, dtype=torch.int64)


def render(batch: Decoded, names: NodeNames) -> Iterator[Prediction]:
    """The predictions of a batch with labels, paths and rounded probabilities."""
    classes = names.taxonomy.classes
    listed = batch.top_classes
    if batch.is_restricted:
        listed = listed.masked_fill(batch.top_logp == -torch.inf, -1)
    rows = zip(
        batch.nodes.tolist(),
        batch.path_logp.exp().tolist(),
        batch.top_logp.exp().tolist(),
        listed.tolist(),
        batch.reasons,
        [None] * len(batch.nodes) if batch.uncertainty is None else batch.uncertainty.tolist(),
        [[]] * len(batch.nodes) if batch.sets is None else batch.sets.tolist(),
        strict=True,
    )
    for node, steps, top, best, reason, draws, members in rows:
        path = names.path(node)
        yield Prediction(
            node,
            names.label(node),
            path,
            tuple(round(p, DIGITS) for p in steps[: len(path)]),
            tuple((classes[c], round(p, DIGITS)) for c, p in zip(best, top, strict=True) if c >= 0),
            reason,
            None if draws is None else tuple(_step_uncertainty(values) for values in draws[: len(path)]),
            tuple(names.label(member) for member in sorted(members) if member >= 0),
        )


def _step_uncertainty(values: Sequence[float]) -> StepUncertainty:
    return StepUncertainty(*(round(value, DIGITS) for value in values))


class NodeNames:
    """Labels and paths of the nodes of a taxonomy, cached."""

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self.label = lru_cache(maxsize=65_536)(taxonomy.label)
        self.path = lru_cache(maxsize=65_536)(taxonomy.path)
        self.steps = lru_cache(maxsize=65_536)(self._steps)

    def _steps(self, node: int) -> list[int]:
        """The nodes from below the root down to this one."""
        steps, parent = list[int](), self.taxonomy.first_parent
        while node > 0:
            steps.append(node)
            node = int(parent[node])
        return steps[::-1]
