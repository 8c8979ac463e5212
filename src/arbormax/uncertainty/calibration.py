"""Calibrate a model on held-out examples, and measure what that changes.

B batch, N nodes, D draws of a model with uncertainty, 1 without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax._files import to_plain
from arbormax.data.examples import Examples
from arbormax.errors import InputError, LabelError, OptionError
from arbormax.model.calibration import Calibration, Coverage, Scaling, apply_calibration, remove_calibration
from arbormax.model.draws import mean_log_probs, node_draws, scale_log_probs
from arbormax.model.network import Model
from arbormax.model.predict import bounded_batch
from arbormax.taxonomy import Taxonomy
from arbormax.uncertainty import CALIBRATIONS, OFF, calibration_choices
from arbormax.uncertainty.conformal import check_coverage, coverage_scores, items_needed
from arbormax.uncertainty.measures import measure_probabilities
from arbormax.uncertainty.steps import Steps, find_steps, join_steps

FOLDS = 5  # the measures after calibration are of items that the scaling was not fitted on
ENOUGH = 100  # examples from which a calibration stores scores for guaranteed coverage by default
_KEPT = 1 << 25  # log-probabilities that stay in memory; more are computed twice
_FITTED = 1 << 25  # log-probabilities of all draws that are fitted at most; if there are more, some items are left out
_ADVICE = "remove these items, or add their classes to the model with am.edit"
Progress = Callable[[int], None]


@dataclass(frozen=True)
class CalibrationReport:
    """What calibration changed: measures of held-out items before and after, and the temperatures."""

    method: str | None  # None if the model was only given coverage
    items: int
    before: dict[str, Any]
    after: dict[str, Any]  # each item is scaled by a fit on the other folds
    temperatures: list[dict[str, float]]  # for each level: the lowest, the median and the highest
    applied: bool = True  # a training leaves probabilities as they are that calibration would not improve
    coverage_items: int = 0
    coverage: dict[str, Any] | None = None  # the default coverage and what its sets look like

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        plain: dict[str, Any] = to_plain(asdict(self))
        return plain


def calibrate(
    model: Model,
    examples: Examples,
    method: str | None = "parent",
    *,
    coverage: bool | float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> CalibrationReport:
    """Calibrate a model in place on examples that it was not trained on; an earlier calibration is replaced.

    `method` is a name from `arbormax.uncertainty.CALIBRATIONS`, or `"none"` or None to keep the probabilities. With
    `coverage`, the model also gets the scores that sets of guaranteed coverage need. A random half of the examples is
    then used for the scores and the other half for the calibration, because a guarantee needs scores of items on which
    nothing was fitted. A number is the coverage that becomes the model's default; it must be possible with so few
    items. By default (None), a calibration with at least 100 examples stores scores.
    """
    check_held_out(examples, model.taxonomy)
    target = None if coverage is None or isinstance(coverage, bool) else check_coverage(coverage)
    method = None if method == OFF else method
    is_covered = (method is not None and len(examples) >= ENOUGH) if coverage is None else coverage is not False
    if method is None:
        if not is_covered:
            message = "nothing to do: expected a method that changes the probabilities, or a coverage"
            raise OptionError(message, argument="method", fix={"coverage": 0.9})
        part, apart = examples, examples
    else:
        CALIBRATIONS.check(method, argument="method", listed=calibration_choices())
        part, apart = _halves(examples, seed) if is_covered else (examples, examples)
    if target is not None:  # before anything is computed
        _check_enough(len(apart), target)
    report = CalibrationReport(None, 0, {}, {}, [])
    if method is not None:
        remove_calibration(model)
        calibration, report = fit_calibration(model, part, method, progress=progress)
        apply_calibration(model, calibration)
    if is_covered:
        scores = coverage_scores(model, apart, progress)
        model.coverage = Coverage(apart.nodes, scores, target)
        report = CalibrationReport(**{**vars(report), "coverage_items": len(apart)})
    return report


def fit_calibration(
    model: Model, examples: Examples, method: str, *, progress: Progress | None = None
) -> tuple[Calibration, CalibrationReport]:
    """The calibration of a model that these examples select, and its report; the model is not changed."""
    CALIBRATIONS.check(method, argument="method")
    fit, tax = CALIBRATIONS[method], model.taxonomy
    draws = 1 if model.posterior is None else model.posterior.draws
    examples = _limited(examples, tax, draws)
    is_small = draws * len(examples) * tax.num_nodes <= _KEPT
    kept: list[tuple[Tensor, np.ndarray]] = []
    parts: list[Steps] = []
    for logp_DBN, nodes_B in _draws(model, examples, progress):
        parts.append(find_steps(logp_DBN.numpy(), nodes_B, tax))
        if is_small:
            kept.append((logp_DBN, nodes_B))
    steps = join_steps(parts)
    if not len(steps):
        raise InputError("no label is below a node with several children, so there is nothing to fit", argument="y")
    scaling = fit(steps, tax)
    fold_n, by_fold = _cross_fit(steps, fit, tax)

    def batches() -> Iterable[tuple[Tensor, np.ndarray]]:
        return kept if is_small else _draws(model, examples, None)

    def after() -> Iterator[tuple[Tensor, np.ndarray]]:
        start = 0
        for logp_DBN, nodes_B in batches():
            own = fold_n[start : start + len(nodes_B)]
            start += len(nodes_B)
            for fold, other in enumerate(by_fold):
                at = np.flatnonzero(own == fold)
                if len(at):
                    yield mean_log_probs(scale_log_probs(logp_DBN[:, torch.from_numpy(at)], other, tax)), nodes_B[at]

    report = CalibrationReport(
        method,
        len(examples),
        measure_probabilities(((mean_log_probs(logp_DBN), nodes_B) for logp_DBN, nodes_B in batches()), tax),
        measure_probabilities(after(), tax),
        _temperatures(scaling, tax),
    )
    return Calibration(method, scaling, len(examples)), report


def check_held_out(examples: Examples, tax: Taxonomy) -> None:
    """Raise if there is nothing to calibrate on, or a label is not a node of the taxonomy."""
    if not len(examples):
        raise InputError("no examples to calibrate on; give labelled examples that were not trained on", argument="X")
    if unseen := examples.unseen_counts(tax):
        first = ", ".join(f"{label!r} ({count:,})" for label, count in list(unseen.items())[:8])
        message = f"calibration needs labels that the model knows; these are unknown: {first}; {_ADVICE}"
        raise LabelError(message, argument="y")
    if examples.nodes.min() < 0 or examples.nodes.max() >= tax.num_nodes:
        raise InputError(f"expected labels that are nodes from 0 to {tax.num_nodes - 1} of the taxonomy", argument="y")


def _check_enough(items: int, coverage: float) -> None:
    needed = items_needed(1 - coverage)
    if items < needed:
        raise InputError(
            f"a coverage of {coverage:g} needs the scores of at least {needed:,} items, found {items:,}; give more "
            "examples, or a lower coverage",
            argument="coverage",
        )


def _halves(examples: Examples, seed: int) -> tuple[Examples, Examples]:
    order = np.random.default_rng(seed).permutation(len(examples))
    middle = len(order) // 2
    if not middle:
        raise InputError("coverage needs at least 2 examples: one half for the calibration, one for the scores")
    return examples.take(np.sort(order[:middle])), examples.take(np.sort(order[middle:]))


def _limited(examples: Examples, tax: Taxonomy, draws: int) -> Examples:
    """All examples, or a random part if the draws of all of them would need too much memory."""
    if draws == 1:
        return examples
    path_nL = tax.ancestor_at(examples.nodes[:, None], np.arange(1, tax.depth + 1))  # -1 past the end
    cells = draws * int(np.where(path_nL >= 0, tax.num_children[tax.parent[path_nL]], 0).sum())
    if cells <= _FITTED:
        return examples
    most = max(FOLDS, len(examples) * _FITTED // cells)
    return examples.take(np.sort(np.random.default_rng(0).permutation(len(examples))[:most]))


def _draws(model: Model, examples: Examples, progress: Progress | None) -> Iterator[tuple[Tensor, np.ndarray]]:
    """(D, B, N) log-probabilities on the CPU and (B,) true nodes, a batch at a time."""
    size, start = bounded_batch(model.taxonomy), 0
    batches: Iterator[Tensor]
    if model.posterior is None:
        batches = (batch_BN[None] for batch_BN in model.node_log_probs(examples.inputs, size))
    else:
        batches = node_draws(model, examples.inputs, size)
    for batch_DBN in batches:
        logp_DBN = batch_DBN.cpu().float()
        count = logp_DBN.shape[1]
        yield logp_DBN, examples.nodes[start : start + count]
        start += count
        if progress is not None:
            progress(count)


def _cross_fit(
    steps: Steps, fit: Callable[[Steps, Taxonomy], Scaling], tax: Taxonomy
) -> tuple[np.ndarray, list[Scaling]]:
    """(n,) the fold of each item, and for each fold the scaling that the others select."""
    folds = min(FOLDS, max(steps.items, 1))
    fold_n = np.random.default_rng(0).permutation(steps.items) % folds
    return fold_n, [fit(steps.take(fold_n != fold), tax) for fold in range(folds)]


def _temperatures(scaling: Scaling, tax: Taxonomy) -> list[dict[str, float]]:
    """For each level, the lowest, the median and the highest temperature of groups with several nodes."""
    level, is_open = tax.node_depth[1:], tax.num_children[tax.parent[1:]] > 1
    rows = []
    for depth in range(1, tax.depth + 1):
        found = 1 / scaling.scale[(level == depth) & is_open]
        low, middle, high = np.quantile(found, [0, 0.5, 1]).tolist() if len(found) else (1.0, 1.0, 1.0)
        rows.append({"lowest": round(low, 4), "median": round(middle, 4), "highest": round(high, 4)})
    return rows
