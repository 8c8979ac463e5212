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
from arbormax.functional.best import top_classes
from arbormax.metrics.evaluation import Evaluator
from arbormax.metrics.inputs import scored_nodes
from arbormax.model.network import Model
from arbormax.studies.details import Recorder
from arbormax.taxonomy import Taxonomy


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
    """The measures of the model's most probable leaves and of its log-probabilities.

    A `recorder` collects in the same pass what a report needs beyond the measures.
    """
    batches = model.node_log_probs(examples.inputs, batch_size)
    return evaluate_log_probs(batches, examples, model.taxonomy, progress, recorder)


def evaluate_log_probs(
    batches: Iterable[Tensor],
    examples: Examples,
    tax: Taxonomy,
    progress: Callable[[int], None] | None = None,
    recorder: Recorder | None = None,
) -> Evaluation:
    """The measures of batches of (B, N) node log-probabilities, in the order of the examples."""
    if not len(examples):
        raise InputError("no examples to evaluate on", argument="examples")
    leaves = torch.tensor(tax.leaves)
    evaluator = Evaluator(tax)
    predicted, start = [], 0
    for batch_BN in batches:
        logp_BN, true_B = scored_nodes(batch_BN.cpu(), examples.nodes[start : start + len(batch_BN)], tax)
        best_BK = top_classes(logp_BN[:, leaves], evaluator.ranks)[1]
        best_B = leaves[best_BK[:, 0]]
        evaluator.add(true_B, best_B.numpy())
        table = evaluator.add_log_probs(logp_BN, true_B, best_BK.numpy())
        if recorder is not None:
            recorder.update(table, logp_BN.gather(1, best_B[:, None])[:, 0].double().exp().numpy())
        predicted.append(best_B)
        start += len(logp_BN)
        if progress is not None:
            progress(len(logp_BN))
    if recorder is not None:
        recorder.bins = evaluator.calibration()
    return Evaluation({"items": len(examples), **evaluator.compute()}, torch.cat(predicted).numpy())
