"""How well a model does on examples: every measure, in one pass and constant memory.

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
from arbormax.functional.best import top_classes
from arbormax.metrics import HierarchicalDistanceAtK, NodeMetrics
from arbormax.metrics.inputs import scored_nodes
from arbormax.metrics.probabilities import (
    DEFAULT_THRESHOLDS,
    add_calibration,
    add_curve,
    calibration_values,
    curve_value,
    level_table,
    zero_calibration_stats,
    zero_curve_stats,
)
from arbormax.model.network import Model
from arbormax.studies.record import Recorder
from arbormax.taxonomy import Taxonomy

_BINS = 15  # of the calibration error


class Evaluation(NamedTuple):
    """The measures, and the most probable leaf of each example as a node."""

    metrics: dict[str, Any]
    predicted: np.ndarray  # (n,) int64


def evaluate(
    model: Model,
    examples: Examples,
    batch_size: int = 256,
    progress: Callable[[int], None] | None = None,
    recorder: Recorder | None = None,
) -> Evaluation:
    """The measures of the model's most probable leaves, of its log-likelihood and of its calibration.

    A `recorder` is told what a report needs beyond them, in the same pass.
    """
    return measured(model.node_log_probs(examples.inputs, batch_size), examples, model.taxonomy, progress, recorder)


def measured(
    batches: Iterable[Tensor],
    examples: Examples,
    tax: Taxonomy,
    progress: Callable[[int], None] | None = None,
    recorder: Recorder | None = None,
) -> Evaluation:
    """The measures of (B, N) node log-probabilities, a batch at a time in the order of the examples."""
    if not len(examples):
        raise InputError("there is nothing to evaluate on: no examples")
    truth = torch.tensor(examples.nodes)  # a copy: a taxonomy's own arrays are read-only, of which torch warns
    leaves = torch.tensor(tax.leaves)
    nodes, curve, bins = NodeMetrics(tax), zero_curve_stats(DEFAULT_THRESHOLDS), zero_calibration_stats(tax, _BINS)
    widths = [k for k in (1, 5, 20) if k <= tax.num_leaves]
    ranked = [HierarchicalDistanceAtK(tax, k) for k in widths]
    predicted, loss, start = [], 0.0, 0
    for batch_BN in batches:
        logp_BN = batch_BN.cpu()
        true_B = truth[start : start + len(logp_BN)]
        best_BK = top_classes(logp_BN[:, leaves], widths[-1])[1]
        best_B = leaves[best_BK[:, 0]]
        nodes.update(true_B, best_B)
        table = level_table(*scored_nodes(logp_BN, true_B, tax), tax)
        curve, bins = add_curve(curve, table, DEFAULT_THRESHOLDS, tax), add_calibration(bins, table, _BINS)
        if recorder is not None:
            recorder.update(table, logp_BN.gather(1, best_B[:, None])[:, 0].double().exp().numpy())
        for metric in ranked:
            metric.update(true_B, best_BK)
        loss -= float(logp_BN.gather(1, true_B[:, None]).double().sum())
        predicted.append(best_B)
        start += len(logp_BN)
        if progress is not None:
            progress(len(logp_BN))
    if recorder is not None:
        recorder.bins = bins
    values = {
        "items": len(examples),
        **nodes.compute(),
        "nll": loss / len(examples),
        "ece": calibration_values(bins),
        "operating_curve_area": curve_value(curve, DEFAULT_THRESHOLDS).area,
        **{f"hierarchical_distance@{k}": float(m.compute()) for k, m in zip(widths, ranked, strict=True)},
    }
    return Evaluation(values, torch.cat(predicted).numpy())
