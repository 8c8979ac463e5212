"""The contribution of each word of a text to each step down the tree.

W words of the encoder, T tokens (words that share characters are one token), S steps, N nodes, D features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from arbormax.data.tokens import Span
from arbormax.model.network import Model

GRADIENT, LEAVE_ONE_OUT = "gradient × input", "leave one out"
_MAX_TEXTS = 256  # shortened texts at most: neighbours are left out together if there are more tokens
_SCORES = 1 << 24  # log-probabilities of nodes that are in memory together


class Contributions(NamedTuple):
    """Tokens, and the contribution of each to the log conditional probability of each step."""

    tokens: list[Span]
    values: np.ndarray  # (S, T)
    method: str


def contributions(model: Model, text: str, steps: Sequence[int]) -> Contributions:
    """The contribution of each token to log P(node | parent) of these nodes, which do not include the root.

    It is gradient × input if the encoder implements `gated_features`, else what the step loses without the token.
    """
    tokens, token_of_W = _tokens(model.encoder.spans(text))
    values_ST = gradients(model, text, steps, token_of_W)
    if values_ST is not None:
        return Contributions(tokens, values_ST, GRADIENT)
    return Contributions(tokens, differences(model, text, steps, tokens), LEAVE_ONE_OUT)


def gradients(model: Model, text: str, steps: Sequence[int], token_of_W: Sequence[int]) -> np.ndarray | None:
    """(S, T) gradients of each step with respect to gates on the tokens; None if the encoder has no gates."""
    with _gradients_enabled(model):
        gates_T = torch.ones(
            max(token_of_W, default=-1) + 1, device=model.device, dtype=model.head.dtype, requires_grad=True
        )
        words = torch.tensor(list(token_of_W), dtype=torch.int64, device=model.device)
        features_1D = model.encoder.gated_features(text, gates_T[words])
        if features_1D is None:
            return None
        values_ST = np.zeros((len(steps), len(gates_T)))
        if not len(gates_T):
            return values_ST
        logs_S = _conditionals(model, model.head.node_log_probs(features_1D), steps)[0]
        for step, log in enumerate(logs_S.unbind()):
            (gradient_T,) = torch.autograd.grad(log, gates_T, retain_graph=True)
            values_ST[step] = gradient_T.double().cpu().numpy()
        return values_ST


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
