"""Evaluate a model on examples: every measure, in one pass and constant memory.

B batch, N nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from arbormax.data.examples import Examples
from arbormax.errors import InputError
from arbormax.metrics.evaluation import KS
from arbormax.metrics.inputs import scored_nodes
from arbormax.metrics.probabilities import DEFAULT_THRESHOLDS, log_prob_sums
from arbormax.metrics.registry import measure_values, node_sums
from arbormax.metrics.sums import Items, Sums
from arbormax.model.draws import predicted_log_probs
from arbormax.model.network import Model
from arbormax.model.predict import Decoding
from arbormax.studies.decisions import DecisionMeasures
from arbormax.taxonomy import Taxonomy

LEAF = Decoding("leaf")


class Evaluation(NamedTuple):
    """The measures, and the predicted node of each example with its probability.

    If labels of the examples are unknown to the model, `taxonomy` has them as further classes, with probability zero,
    and all nodes are those of this taxonomy.
    """

    metrics: dict[str, Any]
    predicted: np.ndarray  # (n,) int64
    confidence: np.ndarray  # (n,) float32
    sums: Sums  # from which the measures are computed
    taxonomy: Taxonomy
    true: np.ndarray  # (n,) int64
    log_probs: np.ndarray  # (n,) float64, of the true nodes


def evaluate(
    model: Model,
    examples: Examples,
    batch_size: int = 256,
    progress: Callable[[int], None] | None = None,
    decoding: Decoding = LEAF,
) -> Evaluation:
    """The measures of the model's predictions, by default its most probable leaves, and of its log-probabilities.

    Those of a model with a posterior are of the mean over the draws. If the decoding finds sets, their coverage and
    size are the measure `sets`; if its decoder has costs, the mean cost is the measure `cost`.
    """
    batches = predicted_log_probs(model, examples.inputs, batch_size)
    return evaluate_log_probs(batches, examples, model.taxonomy, progress, decoding)


def evaluate_log_probs(
    batches: Iterable[Tensor],
    examples: Examples,
    tax: Taxonomy,
    progress: Callable[[int], None] | None = None,
    decoding: Decoding = LEAF,
) -> Evaluation:
    """The measures of batches of (B, N) node log-probabilities, in the order of the examples."""
    if not len(examples):
        raise InputError("no examples to evaluate on", argument="examples")
    decoding.check(tax)
    most = tax.num_nodes + len(examples.unseen)
    if examples.nodes.min() < 0 or examples.nodes.max() >= most:
        raise InputError(f"expected labels that are node ids from 0 to {most - 1} of the taxonomy", argument="examples")
    whole, number = tax, np.arange(tax.num_nodes)
    if examples.unseen:
        whole, number = tax.with_leaves(
            [each.parent for each in examples.unseen], [each.label for each in examples.unseen]
        )
    true_n, own_N = number[examples.nodes], torch.from_numpy(number[: tax.num_nodes])
    sums, decisions = Sums(whole, {}), DecisionMeasures(decoding, tax)
    predicted, confidence, log_probs, start = [], [], [], 0
    restriction = decoding.restriction(tax)
    for scored_BN in batches:
        batch_BN = restriction.apply(scored_BN, start)
        scored_BM = batch_BN.cpu()
        own_B = decoding.nodes(scored_BM, tax)
        nodes_B = own_N[own_B]
        decisions.update(own_B, examples.nodes[start : start + len(batch_BN)], scored_BM)
        if examples.unseen:
            none_BM = torch.full((len(scored_BM), whole.num_nodes), -torch.inf, dtype=scored_BM.dtype)
            scored_BM = none_BM.index_copy(1, own_N, scored_BM)
        logp_BN, true_B = scored_nodes(scored_BM, true_n[start : start + len(batch_BN)], whole)
        items = Items(true_B, nodes_B.numpy(), whole)
        batch = node_sums(items) | log_prob_sums(logp_BN, true_B, whole, max(KS))
        sums.update({name: sums.get(name, 0) + value for name, value in batch.items()})
        predicted.append(nodes_B)
        log_probs.append(logp_BN.gather(1, torch.from_numpy(true_B)[:, None])[:, 0].double())
        confidence.append(logp_BN.gather(1, nodes_B[:, None])[:, 0].double().exp().float())
        start += len(logp_BN)
        if progress is not None:
            progress(len(logp_BN))
    restriction.finish(start)
    sums["thresholds"] = np.array(DEFAULT_THRESHOLDS)
    metrics = {"items": len(examples), **measure_values(sums, KS), **decisions.values()}
    nodes_n, confidence_n, log_probs_n = (torch.cat(parts).numpy() for parts in (predicted, confidence, log_probs))
    return Evaluation(metrics, nodes_n, confidence_n, sums, whole, true_n, log_probs_n)
