"""The measures as torchmetrics: updated batch by batch, reset, moved between devices, summed over processes.

B items, N nodes, C classes, k ranks. Each holds the totals of the functions as int64 states, so that the result does
not depend on how the items are split into batches and processes.
"""

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbormax.errors import InputError, MissingDependencyError, OptionError, did_you_mean
from arbormax.metrics.inputs import node_pairs, ranked_classes, scored_nodes
from arbormax.metrics.probabilities import (
    DEFAULT_THRESHOLDS,
    LevelTable,
    calibration_sums,
    check_positive,
    check_thresholds,
    curve_sums,
    level_table,
    rank_sums,
)
from arbormax.metrics.registry import MEASURES, ece, hierarchical_distance, measure_values, node_sums, to_plain
from arbormax.metrics.sums import Curve, Items, Sums, compute_curve
from arbormax.taxonomy import Taxonomy

try:
    from torchmetrics import Metric
except ModuleNotFoundError as error:
    raise MissingDependencyError("accumulating over batches", "torchmetrics", "train") from error

__all__ = ["HierarchicalDistanceAtK", "LevelCalibrationError", "NodeMetric", "NodeMetrics", "OperatingCurve"]


class _Accumulator(Metric):
    is_differentiable = False
    full_state_update = False

    def __init__(self, tax: Taxonomy, *options: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tax = tax
        # MetricCollection merges metrics whose states are equal after the first batch: two of one kind that differ in
        # tree or options, and by chance agree there, must not look equal
        kind = torch.tensor(zlib.crc32(repr((tax.fingerprint, options)).encode()))
        self.add_state("kind", kind, dist_reduce_fx="max")

    def _add_states(self, zeros: Mapping[str, np.ndarray]) -> None:
        """Add a state for each of the sums over no items."""
        self._names = tuple(zeros)
        for name, zero in zeros.items():
            self.add_state(name, torch.tensor(zero), dist_reduce_fx="sum")

    def _add(self, sums: Mapping[str, np.ndarray]) -> None:
        for name, value in sums.items():
            setattr(self, name, getattr(self, name) + torch.tensor(value, device=self.device))

    def _sums(self) -> Sums:
        return Sums(self.tax, {name: getattr(self, name).cpu().numpy() for name in self._names})

    def _scalar(self, value: float | None) -> Tensor:
        return torch.tensor(float("nan") if value is None else float(value), device=self.device)


class NodeMetrics(_Accumulator):
    """All measures of predicted against true nodes: the dict that `evaluate` returns without log-probabilities.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> metrics = NodeMetrics(tax)
    >>> metrics.update(true_nodes=[3, 4], pred_nodes=[3, 3])
    >>> metrics.update(true_nodes=torch.tensor([5, 5]), pred_nodes=torch.tensor([5, 2]))
    >>> metrics.compute()["accuracy"]
    0.5
    """

    def __init__(self, tax: Taxonomy, **kwargs: Any) -> None:
        super().__init__(tax, **kwargs)
        empty = np.zeros(0, np.int64)
        self._add_states(node_sums(Items(empty, empty, tax)))

    def update(self, true_nodes: Any, pred_nodes: Any) -> None:
        """Add items: true and predicted nodes (...,), the truth first, as in `evaluate`."""
        self._add(node_sums(Items(*node_pairs(true_nodes, pred_nodes, self.tax), self.tax)))

    def compute(self) -> Any:
        """The dict of measures."""
        return measure_values(self._sums())


class NodeMetric(NodeMetrics):
    """One measure as a scalar tensor, for logging; `level_accuracy@2` is that of level 2, NaN if no truth reaches it.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> metric = NodeMetric(tax, "accuracy")
    >>> metric.update([3, 4, 5, 5], [3, 3, 5, 2])
    >>> metric.compute()
    tensor(0.5000)
    """

    def __init__(self, tax: Taxonomy, measure: str, **kwargs: Any) -> None:
        super().__init__(tax, **kwargs)
        levels = {f"level_accuracy@{level}": level for level in range(1, tax.depth + 1)}
        names = [name for name in MEASURES if MEASURES[name].source == "nodes" and MEASURES[name].per is None]
        if measure not in names and measure not in levels:
            raise OptionError(
                f"expected one of {', '.join(names)}, level_accuracy@1 to level_accuracy@{tax.depth}; "
                f"found {measure!r}{did_you_mean(str(measure), [*names, *levels])}",
                argument="measure",
            )
        self.measure = measure
        self._level = levels.get(measure)

    def compute(self) -> Tensor:
        """The measure, a scalar in torch's default dtype."""
        values = super().compute()
        return self._scalar(values["level_accuracy"][self._level - 1] if self._level else values[self.measure])


class HierarchicalDistanceAtK(_Accumulator):
    """`hierarchical_distance_at_k` over batches, a scalar tensor.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> metric = HierarchicalDistanceAtK(tax, k=2)
    >>> metric.update(true_nodes=[3, 5], topk_classes=[[0, 1], [0, 2]])
    >>> metric.compute()
    tensor(0.7500)
    """

    def __init__(self, tax: Taxonomy, k: int, **kwargs: Any) -> None:
        width = check_positive(k, "k")
        if width > tax.num_leaves:
            raise OptionError(f"expected at most {tax.num_leaves}, the number of classes; found {k}", argument="k")
        super().__init__(tax, "distance", width, **kwargs)
        self.k = width
        self._add_states(rank_sums(np.zeros(0, np.int64), np.zeros((0, width), np.int64), tax))

    def update(self, true_nodes: Any, topk_classes: Any) -> None:
        """Add items: true nodes (...,) and class ids ranked best first (..., k or more), as from `head.topk`."""
        true_B, ranked_BK = ranked_classes(true_nodes, topk_classes, self.tax)
        if ranked_BK.shape[1] < self.k:
            raise InputError(f"expected at least {self.k} columns, found {ranked_BK.shape[1]}", argument="topk_classes")
        self._add(rank_sums(true_B, ranked_BK[:, : self.k], self.tax))

    def compute(self) -> Tensor:
        """The mean height, a scalar in torch's default dtype."""
        return self._scalar(hierarchical_distance(self._sums())[-1])


class _LevelMetric(_Accumulator):
    """A measure of the most probable node of each level, from `sums(table)`."""

    def __init__(
        self, tax: Taxonomy, sums: Callable[[LevelTable], Mapping[str, np.ndarray]], *options: Any, **kwargs: Any
    ) -> None:
        super().__init__(tax, *options, **kwargs)
        self._table_sums = sums
        self._add_states(sums(level_table(torch.zeros(0, tax.num_nodes), np.zeros(0, np.int64), tax)))

    def update(self, log_probs: Any, true_nodes: Any) -> None:
        """Add items: node log-probabilities (..., N) and true nodes (...,)."""
        self._add(self._table_sums(level_table(*scored_nodes(log_probs, true_nodes, self.tax), self.tax)))


class OperatingCurve(_LevelMetric):
    """`operating_curve` over batches: correct, specificity and area.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]})
    >>> metric = OperatingCurve(tax, thresholds=[0.7, 0.5, 0.0])
    >>> metric.update(torch.tensor([[1.0, 0.6, 0.4, 0.5, 0.1, 0.4, 0.0]]).log(), [tax.find("y")])
    >>> metric.compute().area
    0.75
    """

    def __init__(self, tax: Taxonomy, thresholds: Any = DEFAULT_THRESHOLDS, **kwargs: Any) -> None:
        taus = check_thresholds(thresholds)
        super().__init__(tax, partial(curve_sums, taus=taus, tax=tax), "curve", taus, **kwargs)
        self.thresholds = taus

    def compute(self) -> Curve:
        """The curve, in plain numbers."""
        return compute_curve(Sums(self.tax, {**self._sums(), "thresholds": np.array(self.thresholds)}))


class LevelCalibrationError(_LevelMetric):
    """`level_calibration_error` over batches: a list with one error per level 1 to depth, None where no item counts.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z", "w"]})
    >>> metric = LevelCalibrationError(tax)
    >>> metric.update(torch.tensor([[1.0, 0.75, 0.25, 0.5, 0.25, 0.25, 0.0]]).log(), [tax.find("y")])
    >>> [round(error, 6) for error in metric.compute()]
    [0.25, 0.5]
    """

    def __init__(self, tax: Taxonomy, bins: int = 15, **kwargs: Any) -> None:
        bins = check_positive(bins, "bins")
        super().__init__(tax, partial(calibration_sums, bins=bins), "calibration", bins, **kwargs)
        self.bins = bins

    def compute(self) -> list[float | None]:
        """The error of each level, in plain numbers."""
        errors: list[float | None] = to_plain(ece(self._sums()))
        return errors
