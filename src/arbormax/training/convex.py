"""Train a head on fixed features with a convex solver: no learning rate, no epochs, the same result for any order.

The hierarchical softmax falls apart into one independent problem for each parent, which are solved in parallel. The
scores of each become probabilities by a scale that is fitted on held-out examples. n examples, D features, M rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from arbormax.data.examples import Examples
from arbormax.data.folds import hold_out
from arbormax.encoders import ENCODERS
from arbormax.errors import OptionError, import_extra
from arbormax.metrics import evaluate
from arbormax.model.network import Model, evaluating
from arbormax.model.run import Run
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy
from arbormax.training.class_weights import class_weights
from arbormax.training.problems import (
    Problem,
    Solution,
    SolverOptions,
    choose_scales,
    make_problems,
    solve,
)

_STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0)  # tried with strength="auto", from the strongest regularisation
_DEFAULT_SCALE = {"squared_hinge": 3.0, "log": 1.0}  # used if nothing is held out
_PARALLEL_WORK = 2e8  # products of stored values and outputs from which further processes pay
_ROWS = 4096  # examples that are encoded together


def fit_convex(
    config: TrainConfig,
    taxonomy: Taxonomy,
    train: Examples,
    valid: Examples | None = None,
    *,
    progress: bool = False,
) -> Run:
    """Train a model whose features are fixed; `config` is resolved.

    The held-out examples select the strength of the regularisation and the scales of the softmaxes. With
    `config.refit`, the weights are then solved for again on all examples.
    """
    start = time.perf_counter()
    assert config.convex_loss is not None
    assert config.prune is not None
    part, held_out = hold_out(train, config.validation, config.seed) if valid is None else (train, valid)
    if config.names == "init" or (config.names is None and taxonomy.has_texts and ENCODERS[config.encoder].takes_texts):
        train, part = _add_node_texts(train, taxonomy), _add_node_texts(part, taxonomy)
    is_refit = config.refit and valid is None and held_out is not None
    model = Model.new(train.inputs if is_refit else part.inputs, taxonomy, config)
    data = _Data(model, part, held_out, class_weights(config, part.nodes, taxonomy))
    with _progress(progress) as report:
        strength, solutions = _choose_strength(data, config, report)
        scales = choose_scales(solutions, _DEFAULT_SCALE[config.convex_loss])
        curve: tuple[dict[str, float], ...] = ()
        if held_out is not None:
            _set_rows(model, solutions, scales, config.prune)
            curve = (_measure(model, held_out),)
        if is_refit:
            data = _Data(model, train, None, class_weights(config, train.nodes, taxonomy))
            solutions = data.solve(strength, config, report)
    if is_refit or held_out is None:
        _set_rows(model, solutions, scales, config.prune)
    model.eval()
    score = curve[0]["macro_f1"] if curve else None
    return Run(
        model,
        epochs=1,
        best_epoch=1,
        valid_macro_f1=score,
        seconds=time.perf_counter() - start,
        curve=curve,
        refit_epochs=1 if is_refit else None,
    )


def _add_node_texts(examples: Examples, taxonomy: Taxonomy) -> Examples:
    """The examples and the text of each node below the root as an example of that node."""
    nodes = np.arange(1, taxonomy.num_nodes)
    return Examples([*examples.inputs, *taxonomy.texts[1:]], np.concatenate([examples.nodes, nodes]))


class _Data:
    """The features and the problems of some examples."""

    def __init__(self, model: Model, train: Examples, valid: Examples | None, weights: torch.Tensor | None) -> None:
        tax = model.taxonomy
        self.X = _features(model, train.inputs)
        self.valid_X = None if valid is None else _features(model, valid.inputs)
        valid_nodes = np.zeros(0, np.int64) if valid is None else valid.nodes
        problems = make_problems(model.head.softmax_groups(tax), tax, train.nodes, valid_nodes)
        # the largest first, so that the last to finish is a small one
        self.problems = sorted(problems, key=self._work, reverse=True)
        self.weights = None if weights is None else _item_weights(weights.numpy(), train.nodes, tax)

    def solve(self, strength: float, config: TrainConfig, report: Any) -> list[Solution]:
        assert config.convex_loss is not None
        options = SolverOptions(config.convex_loss, strength, config.seed)
        jobs = 1
        if sum(map(self._work, self.problems)) > _PARALLEL_WORK:
            jobs = min(len(self.problems), torch.get_num_threads())
        joblib = import_extra("joblib", "a convex solver", "joblib", "sklearn")
        tasks = (joblib.delayed(solve)(each, self.X, self.valid_X, self.weights, options) for each in self.problems)
        solutions: Iterable[Solution] = joblib.Parallel(n_jobs=jobs, return_as="generator")(tasks)
        return list(report(solutions, len(self.problems)))

    def _work(self, problem: Problem) -> float:
        per_row = self.X.shape[1] if isinstance(self.X, np.ndarray) else self.X.nnz / max(self.X.shape[0], 1)
        return float(len(problem.items) * len(problem.group.nodes) * per_row)


def _choose_strength(data: _Data, config: TrainConfig, report: Any) -> tuple[float, list[Solution]]:
    """The strength with the lowest held-out loss, and its solutions."""
    if config.strength == "auto" and data.valid_X is None:
        raise OptionError("needs held-out examples", argument="strength", fix={"validation": 0.1})
    if config.strength != "auto":
        return config.strength, data.solve(config.strength, config, report)
    best: tuple[float, list[Solution]] | None = None
    lowest = np.inf
    for strength in _STRENGTHS:
        solutions = data.solve(strength, config, report)
        loss = np.sum([solution.losses for solution in solutions], axis=0).min()
        if best is not None and loss >= lowest:
            break  # the held-out loss of a convex problem rises once the regularisation is too weak
        best, lowest = (strength, solutions), loss
    assert best is not None
    return best


def _features(model: Model, inputs: Any) -> Any:
    """The features as a dense array or a scipy CSR matrix."""
    parts = list(model.features(inputs, _ROWS))
    if parts[0].layout == torch.strided:
        return torch.cat(parts).numpy()
    sparse = import_extra("scipy.sparse", "a convex solver", "scipy", "sklearn")
    rows = [part.coalesce() for part in parts]
    blocks = [sparse.coo_matrix((r.values().numpy(), tuple(r.indices().numpy())), shape=r.shape).tocsr() for r in rows]
    return sparse.vstack(blocks, format="csr")


def _item_weights(class_weight: np.ndarray, nodes: np.ndarray, tax: Taxonomy) -> np.ndarray:
    """(n,) the weight of each label; that of an inner node is the mean of the classes below it."""
    total = np.zeros(tax.num_nodes)
    total[tax.leaves] = class_weight
    for node in range(tax.num_nodes - 1, 0, -1):
        total[tax.parent[node]] += total[node]
    weights: np.ndarray = (total / tax.leaf_counts)[nodes]
    return weights


@torch.no_grad()
def _set_rows(model: Model, solutions: list[Solution], scales: dict[int, float], prune: float) -> None:
    """Write the solutions into the head, each multiplied by its scale, without values of at most `prune`."""
    head = model.head
    assert head.bias is not None
    rows, columns, values = [], [], []
    head.bias.zero_()  # of outputs without siblings
    for solution in solutions:
        scale = scales[solution.group.nodes[0].item()]
        outputs, places = (np.abs(solution.weight) > prune).nonzero()
        rows.append(solution.group.rows[outputs])
        columns.append(solution.columns[places])
        values.append(scale * solution.weight[outputs, places])
        head.bias[torch.from_numpy(solution.group.rows)] = torch.from_numpy(scale * solution.bias)
    joined = [np.concatenate(parts) for parts in (rows, columns, values)] if rows else [np.zeros(0, np.int64)] * 3
    if head.sparse_weight is not None:
        head.sparse_weight.set_rows(joined[0], joined[1], joined[2])
    else:
        head.weight.zero_()
        head.weight[torch.from_numpy(joined[0]), torch.from_numpy(joined[1])] = torch.from_numpy(joined[2]).to(
            head.weight
        )


def _measure(model: Model, examples: Examples) -> dict[str, float]:
    """The measures of an epoch on the held-out examples."""
    tax = model.taxonomy
    predicted, loss = [], 0.0
    targets = torch.from_numpy(examples.nodes)
    done = 0
    for features in model.features(examples.inputs):
        with evaluating(model):
            target = targets[done : done + len(features)]
            loss += float(model.head.loss(features, target, "sum", target_kind="node"))
            predicted.append(model.head.predict(features))
        done += len(features)
    found = evaluate(examples.nodes, tax.leaves[torch.cat(predicted).numpy()], tax)
    return {"loss": loss / len(examples), **{name: float(found[name]) for name in ("macro_f1", "accuracy", "hf")}}


@contextmanager
def _progress(is_shown: bool) -> Iterator[Any]:
    if not is_shown:
        yield lambda solutions, _: solutions
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        yield lambda solutions, total: bars.track(solutions, total=total, description="Solving")
