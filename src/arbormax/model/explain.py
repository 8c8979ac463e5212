"""Explanations of predictions: the probability of each step, the alternatives, and the words that mattered.

W words of the encoder, T tokens (words that share characters are one token), G n-grams of words, S steps, N nodes,
D features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from arbormax.data.tokens import Span, show_fields
from arbormax.errors import InputError, OptionError
from arbormax.model.draws import (
    StepUncertainty,
    mean_log_probs,
    node_draws,
    path_uncertainty,
    restrict_draws,
)
from arbormax.model.network import Model
from arbormax.model.predict import Decoding, NodeNames
from arbormax.model.reason import stop_reason
from arbormax.taxonomy import Taxonomy

NEGLIGIBLE, NEGLIGIBLE_SHARE = 0.005, 0.05  # contributions below this, or this share of the largest, are not parts
MAX_PARTS = 20
GRADIENT, LEAVE_ONE_OUT = "gradient × input", "leave one out"
_MAX_TEXTS = 256  # shortened texts at most: neighbours are left out together if there are more tokens
_SCORES = 1 << 24  # log-probabilities of nodes that are in memory together


def explain(
    model: Model,
    text: str,
    *,
    decoding: Decoding = Decoding(),  # noqa: B008 - frozen
    siblings: int = 5,
    words: bool = True,
    node: int | None = None,
) -> dict[str, Any]:
    """The prediction for one text and the reasons for it, as plain values for JSON.

    The explained node is `node`, or else the prediction of `decoding`. `steps` are the nodes from below the root to the
    explained node and on to the most probable leaf below it; the first `stopped_at` steps lead to the explained node.
    `nodes` are the root and, for each step, the `siblings` most probable children, parents before children; `hidden` is
    the number of children that are not listed. The `words` of a step are the contributions of each of `tokens` to
    log P(node | parent): positive values support the step, negative values oppose it; a restriction of the decoding
    does not change them. The `parts` of a step are the words and n-grams of words with a contribution that is not
    negligible, the largest first; that of an n-gram is not in the values of its words there. Of a model with a
    posterior, the probabilities are the means over the draws, each step has its `uncertainty`, and the contributions
    are those of the network with the trained weights. `reason` says why a prediction stops above the classes; it is
    None for a class.
    """
    if not isinstance(text, str):
        raise InputError(f"expected a string, found {type(text).__name__}", argument="text")
    if siblings < 1:
        raise OptionError(f"expected a number of at least 1, found {siblings}", argument="siblings")
    tax = model.taxonomy
    if node is not None and not 0 <= node < tax.num_nodes:
        raise OptionError(f"expected a node id from 0 to {tax.num_nodes - 1:,}, found {node}", argument="node")
    restriction = decoding.restriction(tax)
    draws_S1N = None if model.posterior is None else next(node_draws(model, [text]))
    scored_1N = next(model.node_log_probs([text])).cpu() if draws_S1N is None else mean_log_probs(draws_S1N)
    logp_1N = restriction.apply(scored_1N)
    explained = int(decoding.nodes(logp_1N, tax)) if node is None else node
    logp_N = logp_1N[0].double().numpy()
    names = NodeNames(tax)
    steps = names.steps(_best_leaf(logp_N, tax, explained))
    uncertainty = _uncertainty(draws_S1N, decoding, tax, steps)
    none = np.zeros((len(steps), 0))
    nothing = Contributions([], none, None, (), none)
    tokens, values_ST, method, ngrams, values_SG = contributions(model, text, steps) if words else nothing
    return {
        "label": names.label(explained),
        "node": explained,
        "path": list(names.path(explained)),
        "probability": math.exp(logp_N[explained]),
        "nodes": list(_relevant_nodes(logp_N, names, steps, siblings)),
        "steps": [
            {
                "node": step,
                "name": tax.names[step],
                "label": names.label(step),
                "probability": math.exp(logp_N[step]),
                "conditional": _conditional(logp_N, tax, step),
                "words": values_ST[place].tolist(),
                "parts": _parts(text, tokens, values_ST[place], ngrams, values_SG[place]),
                **uncertainty[place],
            }
            for place, step in enumerate(steps)
        ],
        "stopped_at": len(names.steps(explained)),
        "reason": stop_reason(tax, explained, logp_N, decoding.condition if node is None else None),
        "tokens": [{"text": show_fields(text[start:end]), "start": start, "end": end} for start, end in tokens],
        "words_method": method,
    }


def _uncertainty(
    draws_S1N: torch.Tensor | None, decoding: Decoding, tax: Taxonomy, steps: list[int]
) -> list[dict[str, Any]]:
    """The key `uncertainty` of each step, of a model with a posterior."""
    if draws_S1N is None:
        return [{}] * len(steps)
    weight_S1 = None
    if decoding.is_restricted:
        draws_S1N, weight_S1 = restrict_draws(draws_S1N, decoding.restriction(tax), tax)
    (found,) = path_uncertainty(draws_S1N, torch.tensor(steps[-1:]), tax, weight_S1).tolist()
    return [{"uncertainty": StepUncertainty(*values)._asdict()} for values in found[: len(steps)]]


def _best_leaf(logp_N: np.ndarray, tax: Taxonomy, node: int) -> int:
    """The most probable leaf at or below a node; ties go to the first class, as in `decode.leaf`."""
    below = tax.leaves[tax.ancestor_at(tax.leaves, tax.node_depth[node]) == node]
    return int(below[logp_N[below].argmax()])


def _relevant_nodes(logp_N: np.ndarray, names: NodeNames, steps: list[int], siblings: int) -> Iterator[dict[str, Any]]:
    """The root, and the most probable children of the root and of each step, always including the next step."""
    tax, path = names.taxonomy, [0, *steps]
    shown = {parent: _shown_children(logp_N, tax, parent, step, siblings) for parent, step in pairwise(path)}
    for node in chain([0], *shown.values()):
        listed = shown.get(node, [])
        children = np.exp(logp_N[tax.child_start[node] : tax.child_start[node + 1]])
        children[np.array(listed, dtype=np.int64) - tax.child_start[node]] = 0.0
        yield {
            "node": node,
            "name": tax.names[node],
            "label": names.label(node),
            "parent": int(tax.parent[node]) if node else None,
            "depth": int(tax.node_depth[node]),
            "probability": math.exp(logp_N[node]),
            "conditional": _conditional(logp_N, tax, node),
            "on_path": node in path,
            "classes": int(tax.leaf_counts[node]),
            "children": len(children),
            "hidden": len(children) - len(listed),
            "hidden_probability": min(1.0, float(children.sum())),
        }


def _shown_children(logp_N: np.ndarray, tax: Taxonomy, parent: int, step: int, siblings: int) -> list[int]:
    """The most probable children of a parent, most probable first, always including the step."""
    first = int(tax.child_start[parent])
    values = torch.from_numpy(logp_N[first : tax.child_start[parent + 1]])
    best = [first + place for place in values.topk(min(siblings, len(values))).indices.tolist()]
    if step not in best:
        best[-1] = step
    return sorted(best, key=lambda node: (-logp_N[node], node))


def _conditional(logp_N: np.ndarray, tax: Taxonomy, node: int) -> float:
    """P(node | parent), at most one in spite of rounding; one for the root."""
    if not node:
        return 1.0
    return math.exp(min(0.0, logp_N[node] - logp_N[tax.parent[node]])) if logp_N[node] > -math.inf else 0.0


class Contributions(NamedTuple):
    """Tokens, and the contribution of each to the log conditional probability of each step.

    The contribution of an n-gram is divided among its tokens in `values`, and is in `ngram_values` as a whole.
    """

    tokens: list[Span]
    values: np.ndarray  # (S, T)
    method: str | None
    ngrams: Sequence[tuple[int, int]]  # first and last token
    ngram_values: np.ndarray  # (S, G)


def contributions(model: Model, text: str, steps: Sequence[int]) -> Contributions:
    """The contribution of each token to log P(node | parent) of these nodes, which do not include the root.

    It is gradient × input if the encoder implements `gated_features`, else what the step loses without the token.
    """
    tokens, token_of_W = _tokens(model.encoder.spans(text))
    places = model.encoder.ngram_places(text)
    ngrams = [(token_of_W[first], token_of_W[last]) for first, last in places]
    found_SU = gradients(model, text, steps, [*token_of_W, *range(len(tokens), len(tokens) + len(ngrams))])
    no_ngrams = np.zeros((len(steps), 0))
    if found_SU is None:
        return Contributions(tokens, differences(model, text, steps, tokens), LEAVE_ONE_OUT, (), no_ngrams)
    values_ST, values_SG = found_SU[:, : len(tokens)].copy(), found_SU[:, len(tokens) :]
    for (first, last), values_S in zip(places, values_SG.T, strict=True):
        share_S = values_S[:, None] / (last - first + 1)
        for token in token_of_W[first : last + 1]:
            values_ST[:, [token]] += share_S
    return Contributions(tokens, values_ST, GRADIENT, ngrams, values_SG)


def _parts(
    text: str, tokens: Sequence[Span], values_T: np.ndarray, ngrams: Sequence[tuple[int, int]], values_G: np.ndarray
) -> list[dict[str, Any]]:
    """The words and n-grams of one step with their own contributions, the largest first, without negligible ones."""
    own_T = values_T.copy()
    for (first, last), value in zip(ngrams, values_G, strict=False):
        own_T[first : last + 1] -= value / (last - first + 1)
    places = [*((token, token) for token in range(len(tokens))), *ngrams]
    values: dict[str, float] = {}
    spans: dict[str, Span] = {}
    for (first, last), value in zip(places, np.concatenate([own_T, values_G[: len(ngrams)]]).tolist(), strict=True):
        span = tokens[first][0], tokens[last][1]
        name = text[slice(*span)]
        values[name] = values.get(name, 0.0) + value
        spans.setdefault(name, span)
    least = max(NEGLIGIBLE, NEGLIGIBLE_SHARE * max(map(abs, values.values()), default=0.0))
    shown = sorted((name for name in values if abs(values[name]) >= least), key=lambda name: -abs(values[name]))
    return [
        {"text": name, "start": spans[name][0], "end": spans[name][1], "value": values[name]}
        for name in shown[:MAX_PARTS]
    ]


def gradients(model: Model, text: str, steps: Sequence[int], gate_of_W: Sequence[int]) -> np.ndarray | None:
    """(S, U) gradients of each step with respect to gates of words, then of n-grams; None if the encoder has none."""
    with _gradients_enabled(model):
        gates_U = torch.ones(
            max(gate_of_W, default=-1) + 1, device=model.device, dtype=model.head.dtype, requires_grad=True
        )
        words = torch.tensor(list(gate_of_W), dtype=torch.int64, device=model.device)
        features_1D = model.encoder.gated_features(text, gates_U[words])
        if features_1D is None:
            return None
        values_SU = np.zeros((len(steps), len(gates_U)))
        if not len(gates_U):
            return values_SU
        logs_S = _path_conditionals(model, features_1D, steps)
        for step, log in enumerate(logs_S.unbind()):
            (gradient_U,) = torch.autograd.grad(log, gates_U, retain_graph=True)
            values_SU[step] = gradient_U.double().cpu().numpy()
        return values_SU


def differences(model: Model, text: str, steps: Sequence[int], tokens: Sequence[Span]) -> np.ndarray:
    """(S, T) what each step loses if a token is left out; neighbours that are left out together share the loss."""
    groups = np.array_split(np.arange(len(tokens)), min(len(tokens), _MAX_TEXTS)) if tokens else []

    def texts() -> Iterator[str]:
        yield text
        for group in groups:
            yield text[: tokens[group[0]][0]] + text[tokens[group[-1]][1] :]

    batch_size = max(1, _SCORES // model.taxonomy.num_nodes)
    parts = [_conditionals(model, logp_BN, steps).cpu() for logp_BN in model.node_log_probs(texts(), batch_size)]
    logs_GS = torch.cat(parts).double().numpy()
    sizes = np.array([len(group) for group in groups], dtype=np.int64)
    lost_GS = (logs_GS[0] - logs_GS[1:]) / sizes[:, None]
    return np.repeat(lost_GS, sizes, axis=0).T


def _path_conditionals(model: Model, features_1D: Tensor, steps: Sequence[int]) -> Tensor:
    """(S,) log P(node | parent) of each step; on a large tree only the rows of the path are read."""
    path = [0, *steps]
    if not steps or model.taxonomy.parent[path[1:]].tolist() != path[:-1]:
        return _conditionals(model, model.head.node_log_probs(features_1D), steps)[0]
    last = torch.tensor(path[-1:], device=features_1D.device)
    logs_S = model.head.path_log_probs(features_1D, last)[0, : len(steps)]
    return logs_S - F.pad(logs_S[:-1], (1, 0))


def _conditionals(model: Model, logp_BN: Tensor, steps: Sequence[int]) -> Tensor:
    """(B, S) log P(node | parent) of each step."""
    nodes = torch.tensor(list(steps), dtype=torch.int64, device=logp_BN.device)
    parents = torch.from_numpy(model.taxonomy.parent[list(steps)]).to(nodes.device)
    return logp_BN[:, nodes] - logp_BN[:, parents]


def _tokens(spans: Sequence[Span]) -> tuple[list[Span], list[int]]:
    """The spans with overlapping ones merged, in order, and the index of the merged span of each span."""
    tokens: list[Span] = []
    token_of = [0] * len(spans)
    for word in sorted(range(len(spans)), key=spans.__getitem__):
        start, end = spans[word]
        if tokens and start < tokens[-1][1]:
            tokens[-1] = tokens[-1][0], max(end, tokens[-1][1])
        else:
            tokens.append((start, end))
        token_of[word] = len(tokens) - 1
    return tokens, token_of


@contextmanager
def _gradients_enabled(model: Model) -> Iterator[None]:
    """Enable gradients without dropout inside the block, and restore the mode afterwards."""
    was_training = model.training
    model.eval()
    try:
        # cuDNN computes gradients of recurrent networks only in training mode
        without_cudnn = torch.backends.cudnn.flags(enabled=False) if model.device.type == "cuda" else nullcontext()
        with torch.inference_mode(False), torch.enable_grad(), without_cudnn:
            yield
    finally:
        model.train(was_training)
